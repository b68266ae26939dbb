import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from dpiw.data.documents import document_json, parse_canonical, plain
from dpiw.errors import ManifestError, ReleaseError
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import FileBytes
from dpiw.release.verification import check_levels
from tests.dpiw.release.release_example import example_certificate

STAGE = plain(example_certificate().stages[0])


def test_a_certificate_reads_back_as_it_was_written():
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


UNIT = {"relation": "replace_one", "max_rows": 1, "id_column": None}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"extra": 1}, "extra"), ({"format_version": 2}, "format_version"),
        ({"epsilon": "-1"}, "epsilon"), ({"epsilon": 1.0}, "epsilon"), ({"delta": "1e-6"}, "delta"),
        ({"budget_epsilon": "NaN"}, "budget_epsilon"), ({"nominal_rows": -1}, "nominal_rows"),
        ({"nominal_rows": True}, "nominal_rows"), ({"ledger_head": "B" * 64}, "ledger_head"),
        ({"plan_digest": "a"}, "plan_digest"), ({"population": None}, "population"),
        ({"caveats": "text"}, "caveats"), ({"caveats": [1]}, "caveats"),
        ({"diagnostics": []}, "diagnostics"), ({"unit": UNIT | {"relation": "r"}}, "unit"),
        ({"unit": UNIT | {"max_rows": 2}}, "unit"), ({"unit": "row"}, "unit"),
        ({"unit": UNIT | {"id_column": 3}}, "unit.id_column"), ({"stages": {}}, "stages"),
        ({"unit": {"relation": "replace_one", "max_rows": 1}}, "id_column"),
        ({"stages": [{"stage": "generator"}]}, "stages"),
        *(
            ({"stages": [STAGE | change]}, "stages")
            for change in (
                {"events": {}}, {"events": ["text"]}, {"noise": [3]}, {"method": 3},
                {"parameters": []}, {"standalone_epsilon": "1"}, {"note": "text"},
            )
        ),
    ],
)  # fmt: skip
def test_a_certificate_with_a_wrong_field_is_refused(changes, field):
    whole = json.loads(example_certificate().to_json())
    with pytest.raises(ManifestError, match=field):
        Certificate.from_json(document_json(whole | changes))


def test_a_missing_key_is_refused():
    value = json.loads(example_certificate().to_json())
    del value["caveats"]
    with pytest.raises(ManifestError, match="'caveats' is missing"):
        Certificate.from_json(document_json(value))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff", b'{"a": 1}\n', b'{\n  "a": 1\n}', b'{\n  "a": 1,\n  "a": 1\n}\n',
        b'{\n  "b": 1,\n  "a": 2\n}\n', b'{\n  "a": NaN\n}\n', b'{\n  "a": 1e999\n}\n',
        b'{\n  "a": 1.0e0\n}\n', b'{\n  "a": "\\u0061"\n}\n', b"[" * 100000,
    ],
)  # fmt: skip
def test_only_canonical_bytes_are_read(data):
    with pytest.raises(ManifestError, match=r"file\.json"):
        parse_canonical(data, what="file.json")


def test_plain_keeps_meaning_and_refuses_what_json_has_no_form_for():
    kept = {
        "enum": (NeighbouringRelation.REPLACE_ONE, "replace_one"),
        "array": (np.arange(3), [0, 1, 2]), "decimal": (Decimal("1E-6"), "0.000001"),
        "bool": (np.bool_(True), True), "nan": (float("nan"), "nan"), "minus": (-np.inf, "-inf"),
        "text": ("é", "é"),
    }  # fmt: skip
    value = plain({name: before for name, (before, _) in kept.items()})
    assert value == {name: after for name, (_, after) in kept.items()}
    assert parse_canonical(document_json(value), what="x") == value
    for wrong in ({1, 2}, [b"x"]):
        with pytest.raises(ReleaseError):
            plain(wrong)


STATED = {"columns": ["trade", "a,b"], "threshold": 20.0}
LISTS = {"levels-001.csv": 'trade,noisy_count\nsmith,19.995\n"Baker, Jr.",190.40\n',
         "levels-002.csv": '"a,b",noisy_count\n'}  # fmt: skip


def check(parameters, lists):
    files = {name: FileBytes(name=name, data=text.encode()) for name, text in lists.items()}
    certificate = example_certificate()
    stage = replace(certificate.stages[0], parameters=parameters)
    check_levels(files, replace(certificate, stages=(stage,)))


def test_lists_that_keep_to_their_threshold_pass():
    check(STATED, LISTS)
    check({"degree": 2}, {})


@pytest.mark.parametrize(
    ("parameters", "changes", "file"),
    [
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,19.99\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,nan\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "title,noisy_count\n"}, "levels-001.csv"),
        ({}, {"levels-002.csv": ""}, "levels-002.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\n\x1b[2J,99\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\na\u202eb,99\n"}, "levels-001.csv"),
        ({}, {"levels-003.csv": ""}, "levels-003.csv"),
        ({"columns": ["trade", "a,b", "c"]}, {}, "levels-003.csv"),
        ({"columns": None}, {}, "threshold"),
        ({"threshold": "high"}, {}, "levels-001.csv"),
        ({"threshold": float("nan")}, {}, "levels-001.csv"),
    ],
)
def test_lists_that_do_not_keep_to_their_threshold_are_refused(parameters, changes, file):
    stated = {key: value for key, value in (STATED | parameters).items() if value is not None}
    with pytest.raises(ManifestError, match=file):
        check(stated, LISTS | changes)
