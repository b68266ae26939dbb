from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from dpiw.data.documents import document_json, parse_canonical, plain
from dpiw.errors import ManifestError, ReleaseError
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.certificate import Certificate
from tests.dpiw.release.release_example import example_certificate


def _changed(**changes: Any) -> bytes:
    return document_json({**json.loads(example_certificate().to_json()), **changes})


def test_a_certificate_reads_back_as_it_was_written() -> None:
    certificate = example_certificate(
        diagnostics={"k_hat": float("inf"), "tau": np.float64(0.25), "n": (1, None)}
    )
    again = Certificate.from_json(certificate.to_json())
    assert again == certificate
    assert again.digest == certificate.digest
    assert again.diagnostics == {"k_hat": "inf", "tau": 0.25, "n": [1, None]}
    assert again.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
    assert again.mechanisms == ("generator:privbayes", "weights:beta_debiased")
    assert again.usable
    assert not replace(certificate, verdict="do not use").usable


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": 1}, "unknown key 'extra'"),
        ({"format_version": 2}, "format_version"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"delta": "1e-6"}, "delta"),
        ({"budget_epsilon": "NaN"}, "budget_epsilon"),
        ({"nominal_rows": -1}, "nominal_rows"),
        ({"nominal_rows": True}, "nominal_rows"),
        ({"ledger_head": "B" * 64}, "ledger_head"),
        ({"plan_digest": "a"}, "plan_digest"),
        ({"population": None}, "population"),
        ({"caveats": "text"}, "caveats"),
        ({"caveats": [1]}, "caveats"),
        ({"diagnostics": []}, "diagnostics"),
        ({"unit": {"relation": "r", "max_rows": 1, "id_column": None}}, "unit"),
        (
            {"unit": {"relation": "replace_one", "max_rows": 2, "id_column": None}},
            "unit",
        ),
        (
            {"unit": {"relation": "replace_one", "max_rows": "2", "id_column": "p"}},
            "unit.max_rows",
        ),
        ({"unit": {"relation": "replace_one", "max_rows": 1, "id_column": 3}}, "unit.id_column"),
        ({"unit": {"relation": "replace_one", "max_rows": 1}}, "id_column"),
        ({"unit": "row"}, "expected an object"),
        ({"stages": {}}, "stages"),
        ({"stages": [{"stage": "generator"}]}, "is missing"),
    ],
)
def test_a_certificate_with_a_wrong_field_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        Certificate.from_json(_changed(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"events": {}},
        {"events": ["text"]},
        {"noise": [3]},
        {"method": 3},
        {"parameters": []},
        {"standalone_epsilon": "1"},
        {"note": "text"},
    ],
)
def test_a_stage_with_a_wrong_field_is_refused(changes: dict[str, Any]) -> None:
    stage = plain(example_certificate().stages[0]) | changes
    with pytest.raises(ManifestError, match="stages"):
        Certificate.from_json(_changed(stages=[stage]))


def test_a_missing_key_is_refused() -> None:
    value = json.loads(example_certificate().to_json())
    del value["caveats"]
    with pytest.raises(ManifestError, match="'caveats' is missing"):
        Certificate.from_json(document_json(value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"a": 1}\n',
        b'{\n  "a": 1\n}',
        b'{\n  "a": 1,\n  "a": 1\n}\n',
        b'{\n  "b": 1,\n  "a": 2\n}\n',
        b'{\n  "a": NaN\n}\n',
        b'{\n  "a": 1e999\n}\n',
        b'{\n  "a": 1.0e0\n}\n',
        b'{\n  "a": "\\u0061"\n}\n',
        b"[" * 100000,
    ],
)
def test_only_canonical_bytes_are_read(data: bytes) -> None:
    with pytest.raises(ManifestError, match=r"file\.json"):
        parse_canonical(data, what="file.json", error=ManifestError)


def test_plain_keeps_meaning_and_refuses_what_json_has_no_form_for() -> None:
    value = {
        "enum": NeighbouringRelation.REPLACE_ONE,
        "array": np.arange(3),
        "decimal": Decimal("1E-6"),
        "bool": np.bool_(True),
        "nan": float("nan"),
        "minus": -np.inf,
        "text": "é",
    }
    assert plain(value) == {
        "enum": "replace_one",
        "array": [0, 1, 2],
        "decimal": "0.000001",
        "bool": True,
        "nan": "nan",
        "minus": "-inf",
        "text": "é",
    }
    data = document_json(plain(value))
    assert parse_canonical(data, what="x", error=ManifestError) == plain(value)
    with pytest.raises(ReleaseError, match="set"):
        plain({1, 2})
    with pytest.raises(ReleaseError, match="bytes"):
        plain([b"x"])
