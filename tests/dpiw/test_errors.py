"""Errors cross process and Prefect boundaries whole, with their fields."""

import copy
import pickle
import re
import traceback
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
import tblib.pickling_support

from dpiw import errors
from dpiw.audit.findings import AuditFailedError
from dpiw.errors import (
    BudgetExceededError,
    SourceError,
    StageFailedError,
)

ERRORS = [
    BudgetExceededError("asks too much", requested="epsilon=2", remaining="epsilon=1"),
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


def _every(kind: type) -> list[type]:
    return [kind, *(below for child in kind.__subclasses__() for below in _every(child))]


def _made(kind: type[errors.DPIWError]) -> errors.DPIWError:
    """An error of a class, without the arguments of its own `__init__`."""
    error = kind.__new__(kind, "ragged")
    Exception.__init__(error, "ragged")
    for name in ("run", "period", "requested", "remaining", "k_hat", "effective_sample_size"):
        setattr(error, name, "x")
    error.stage, error.code = "ingest", 12
    return error


ASIDE = sorted(
    {
        (kind, name)
        for kind in _every(errors.DPIWError)
        for name in dir(kind)
        if isinstance(getattr(kind, name), errors.Aside)
    },
    key=str,
)


@pytest.mark.parametrize(("kind", "name"), ASIDE)
def test_a_text_for_a_person_stays_in_its_process(kind, name):
    """Whatever pickles, copies or prints an error, also with the reducers of distributed."""
    error, text = _made(kind), "Quillonworth7731"
    setattr(error, name, text)
    error.add_note("a note")
    tblib.pickling_support.install()
    ways = [partial(pickle.dumps, protocol=protocol) for protocol in range(2, 6)]
    for dump in (*ways, cloudpickle.dumps):
        again = pickle.loads(dump(error))
        assert text.encode() not in dump(error)
        assert not getattr(again, name)
    assert not getattr(copy.copy(error), name)
    assert not getattr(copy.deepcopy(error), name)
    seen = [vars(error), error.args, error.__reduce__(), error.__reduce_ex__(4), repr(error)]
    seen += [str(error), error.__notes__, traceback.format_exception(error)]
    assert text not in repr(seen)
    assert getattr(error, name) == text
    assert not getattr(_made(kind), name)


def test_errors_with_texts_for_a_person():
    assert {name for _, name in ASIDE} == {"place", "whole"}
    assert SourceError("ragged", place="row 7").place == "row 7"
