"""Errors cross process and Prefect boundaries whole, with their fields."""

import ast
import copy
import pickle
import re
import traceback
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from dpiw import errors
from dpiw.audit.findings import AuditFailedError
from dpiw.errors import BudgetExceededError, SourceError, StageFailedError
from dpiw.series.completeness import IncompleteSeriesError

LATER = {kind.__name__: kind for kind in (AuditFailedError, IncompleteSeriesError)}
"""Errors of rooms above."""

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
        for name, kind in {**vars(errors), **LATER}.items()
        if isinstance(kind, type) and issubclass(kind, errors.DPIWError)
    }
    assert stated == ours - {("DPIWError", 1)}
    others = {int(code) for code, names in rows if not names.strip()}
    assert others == {0, 2, 3, 60, 74, 129, 130, 141, 143}


@pytest.mark.parametrize(("code", "ends"), [(12, 12), (22, 22), (70, 70), (1, 70), (2, 70)])
def test_a_failed_stage_ends_with_its_own_code(code, ends):
    """What the interpreter itself ends with says nothing of the stage."""
    assert StageFailedError("ingest", code).exit_code == ends


def test_the_nearest_word():
    assert errors.nearest("Histgram", ["privbayes", "histogram"]) == "; did you mean 'histogram'?"
    assert errors.nearest("x", ["privbayes", "histogram"]) == ""
    assert errors.one_of("cvs", ["csv"]) == "one of csv; did you mean 'csv'?"


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
    """Whatever pickles, copies or prints an error."""
    error, text = _made(kind), "Quillonworth7731"
    setattr(error, name, text)
    error.add_note("a note")
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


def test_one_place_words_an_error():
    """Field, what was found, what is allowed, and the command; the mark is told first."""
    line = errors.Next("register it", errors.Command.SHOW)
    error = SourceError("found 3", field="a.b", allowed="1 or 2", next=[line])
    error.mark = errors.Mark("x.yaml", 2, 5)
    assert error.message == "x.yaml, line 2, column 5: a.b: found 3; expected 1 or 2"
    assert str(error) == f"{error.message}\n{line.typed({})}"
    assert (error.at, error.fault) == ("x.yaml, line 2", "found 3; expected 1 or 2")
    both = SourceError(several=[error, SourceError(allowed="csv", field="form"), error])
    assert both.message == f"{error.message}\nform: expected csv"
    assert both.at == error.at
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


READS = {"startswith", "endswith", "removeprefix", "removesuffix", "replace", "partition"}
READS |= {"rpartition", "split", "find", "index", "search", "match", "fullmatch", "sub"}


def readers(tree):
    """Lines that look into, or change, the text of an error that was caught."""
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
        text = re.compile(rf"\b(str\({handler.name}\)|{handler.name}\.(message|found|fault|args))")
        for node in ast.walk(handler):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            sought = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
            written = [node] if sought or (called and node.func.attr in READS) else []
            written += node.targets if isinstance(node, ast.Assign) else []
            if handler.name and any(text.search(ast.unparse(part)) for part in written):
                yield node.lineno


@pytest.mark.slow
def test_no_code_reads_or_edits_a_message():
    """What an error says it holds in fields; `learners.py` shortens scikit-learn's words alone."""
    found = {
        (path.name, line)
        for folder in ("dpiw", "flows", "tasks")
        for path in (ROOT / folder).rglob("*.py")
        for line in readers(ast.parse(path.read_text()))
    }
    assert {name for name, _ in found} == {"learners.py"}


@pytest.mark.parametrize(
    "line", ["str(e).startswith('a')", "'a' in str(e)", "e.args = ()", "re.search('a', e.message)"]
)
def test_a_line_that_reads_a_message_is_seen(line):
    assert list(readers(ast.parse(f"try:\n    f()\nexcept E as e:\n    {line}")))
