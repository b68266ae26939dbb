"""Errors cross process and Prefect boundaries whole, with their fields."""

import pickle
import re
from pathlib import Path

import pytest

from dpiw import errors
from dpiw.audit.findings import AuditFailedError
from dpiw.errors import (
    BudgetExceededError,
    SourceError,
    StageFailedError,
    UnreliableWeightsError,
)

ERRORS = [
    BudgetExceededError("asks too much", requested="epsilon=2", remaining="epsilon=1"),
    UnreliableWeightsError("do not use", k_hat=1.2, effective_sample_size=3.5),
    StageFailedError("ingest", 12),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_fields(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


ROOT = Path(__file__).resolve().parents[2]
CLASS = re.compile(r"^class (\w+Error)\(.*?\n    exit_code\b.*?= (\d+)$", re.MULTILINE | re.DOTALL)


def test_the_page_s_exit_codes_are_what_the_code_gives():
    """docs/operations.md: every code with its classes, and no other."""
    page = (ROOT / "docs/operations.md").read_text().partition("## Exit codes")[2]
    rows = re.findall(r"^\| (\d+) \| ([\w, ]*)\|", page.partition("\n## ")[0], re.MULTILINE)
    stated = {(name, int(code)) for code, names in rows for name in re.findall(r"\w+", names)}
    ours = {
        (name, int(code))
        for folder in ("flows", "tasks")
        for path in (ROOT / folder).glob("*.py")
        for name, code in CLASS.findall(path.read_text())
    }
    ours |= {
        (name, kind.exit_code)
        for name, kind in {**vars(errors), "AuditFailedError": AuditFailedError}.items()
        if isinstance(kind, type) and issubclass(kind, errors.DPIWError)
    }
    assert stated == ours - {("DPIWError", 1)}
    assert {int(code) for code, names in rows if not names.strip()} == {
        0,
        2,
        3,
        74,
        129,
        130,
        141,
        143,
    }


@pytest.mark.parametrize(("code", "ends"), [(12, 12), (22, 22), (70, 70), (1, 70), (2, 70)])
def test_a_failed_stage_ends_with_its_own_code(code, ends):
    """What the interpreter itself ends with says nothing of the stage."""
    assert StageFailedError("ingest", code).exit_code == ends


def test_the_nearest_word():
    assert errors.nearest("Histgram", ["privbayes", "histogram"]) == "; did you mean 'histogram'?"
    assert errors.nearest("x", ["privbayes", "histogram"]) == ""
    assert errors.one_of("cvs", ["csv"]) == "expected one of csv; did you mean 'csv'?"


def test_a_source_error_leaves_its_place_in_its_process():
    error = pickle.loads(pickle.dumps(SourceError("ragged", place="row 7")))
    assert (str(error), error.place) == ("ragged", "")
