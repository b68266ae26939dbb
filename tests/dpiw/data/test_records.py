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
    ("changes", "field"),
    [
        ({"name": 777}, "name"), ({"name": None}, "name"), ({"colour": "777"}, "colour"),
        ({"colour": []}, "colour"), ({"share": 777}, "share"), ({"share": True}, "share"),
        ({"cost": "-777"}, "cost"), ({"cost": 777.0}, "cost"), ({"digest": "777"}, "digest"),
        ({"parts": "777"}, "parts"), ({"parts": [777]}, "parts"),
        ({"parts": [{"size": 777, "whole": True}]}, "parts"),
        ({"parts": [{"size": -777, "whole": True}]}, "parts.size"),
        ({"parts": [{"size": True, "whole": True}]}, "parts.size"),
        ({"parts": [{"size": 1, "whole": 777}]}, "parts.whole"),
        ({"parts": [{"size": 1}]}, "parts"),
        ({"parts": [{"size": 1, "whole": True, "m": 777}]}, "parts"), ({"named": []}, "named"),
        ({"named": {"a b": 777}}, "named 'a b'"), ({"named": {"a\n": 777}}, "named"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_as_its_hint_says_is_refused_and_not_shown(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(ManifestError) as refused:
        Whole(**{**PLAIN, **changes})
    assert str(refused.value).startswith(f"whole.json {field}: ")
    assert "777" not in str(refused.value)


def test_what_json_cannot_hold_is_refused_and_not_shown() -> None:
    with pytest.raises(ReleaseError) as refused:
        Whole(**{**PLAIN, "free": {"x": {777}}})
    assert "777" not in str(refused.value)
