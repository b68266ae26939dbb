from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dpiw.data.documents import Count, DecimalText, Sha256, plain, settle
from dpiw.errors import ManifestError, ReleaseError, SpecError


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Part:
    size: Count
    whole: bool

    def __post_init__(self) -> None:
        if self.size > 9:
            raise SpecError(f"size={self.size}: too large")


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: str
    colour: Colour
    share: float | None
    cost: DecimalText
    digest: Sha256 | None
    parts: tuple[Part, ...]
    named: Mapping[str, Part]
    free: Mapping[str, Any]

    def __post_init__(self) -> None:
        settle(self, what="whole.json", error=ManifestError)


PLAIN: dict[str, Any] = {
    "name": "n", "colour": "red", "share": 0.5, "cost": "1E-6", "digest": "a" * 64,
    "parts": [{"size": 1, "whole": True}], "named": {"a": {"size": 2, "whole": False}},
    "free": {"x": [1, None, {"y": "z"}]},
}  # fmt: skip


def test_a_record_reads_back_what_it_writes() -> None:
    made = Whole(**PLAIN)
    assert made.colour is Colour.RED
    assert made.parts == (Part(size=1, whole=True),)
    assert made.named["a"] == Part(size=2, whole=False)
    assert plain(made) == PLAIN
    assert dataclasses.replace(made, share=None, digest=None).digest is None
    assert Whole(**vars(made)) == made


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": 777}, "whole.json name: expected str, found int"),
        ({"name": None}, "whole.json name: expected str, found NoneType"),
        ({"colour": "777"}, "whole.json colour: not a Colour that dpiw knows"),
        ({"colour": []}, "whole.json colour: not a Colour that dpiw knows"),
        ({"share": 777}, "whole.json share: expected float, found int"),
        ({"share": True}, "whole.json share: expected float, found bool"),
        ({"cost": "-777"}, "whole.json cost: expected a number >= 0 as decimal text"),
        ({"cost": 777.0}, "whole.json cost: expected str, found float"),
        ({"digest": "777"}, "whole.json digest: expected 64 lower-case hexadecimal digits"),
        ({"parts": "777"}, "whole.json parts: expected list, found str"),
        ({"parts": [777]}, "whole.json parts: expected an object"),
        ({"parts": [{"size": 777, "whole": True}]}, "whole.json parts: not a Part that dpiw"),
        ({"parts": [{"size": -777, "whole": True}]}, "whole.json parts.size: expected a whole"),
        ({"parts": [{"size": True, "whole": True}]}, "whole.json parts.size: expected int"),
        ({"parts": [{"size": 1, "whole": 777}]}, "whole.json parts.whole: expected bool"),
        ({"parts": [{"size": 1}]}, "whole.json parts: key 'whole' is missing"),
        ({"parts": [{"size": 1, "whole": True, "m": 777}]}, "whole.json parts: unknown key 'm'"),
        ({"named": []}, "whole.json named: expected Mapping, found list"),
        ({"named": {"a b": 777}}, "whole.json named 'a b': expected an object"),
        ({"named": {"a\n": 777}}, "whole.json named: text with control or invisible characters"),
        ({"free": {"x": {777}}}, "a value of type set cannot be written"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_as_its_hint_says_is_refused_and_not_shown(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ReleaseError) as refused:
        Whole(**{**PLAIN, **changes})
    assert str(refused.value).startswith(words)
    assert "777" not in str(refused.value)
