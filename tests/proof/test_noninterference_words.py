"""N1: plans, what Prefect is given, log lines and error texts are the same for any tables.

None of these may follow from a cell. A plan is compiled and a flow's tasks are called before any
row is read; a step's log lines hold its name; a structural error names the column and the kind, and
the same fault in two tables of other cells has the same words.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpiw.errors import DPIWError
from dpiw.run import steps
from dpiw.run.run import ReleaseRun, RunRequest
from tasks.step import StepFailedError, _guarded
from tests.hostile.leaks import neighbours as leaks

FULL, SLICE = 200, 10
FLOW = importlib.import_module("flows.release")
TASKS = (
    "reserve", "ingest", "fit_generator", "draw_synthetic", "fit_weights",
    "debias", "diagnose", "publish",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("mute")


@pytest.fixture
def mute():
    """Prefect's own logger says nothing here."""
    logging.getLogger("prefect").setLevel(logging.CRITICAL)


def cell(rng: np.random.Generator) -> str:
    kinds = ["7", "1e400", "mars", "", "-0", "x" * 50, "=1+1", "\u0130", "99999999999999999999"]
    return str(rng.choice([*kinds, str(rng.random())]))


def any_row(rng: np.random.Generator, width: int = 4) -> list[str]:
    return [cell(rng) for _ in range(width)]


HEAD = ["age", "income", "region", "ill"]

FAULTS: dict[str, Callable[[np.random.Generator], bytes]] = {}
"""From cells drawn at random to a file with one structural fault, the same in all of them."""


def fault(make: Callable[[np.random.Generator], list[list[str]]]) -> Any:
    def written(rng):
        return "\n".join(",".join(row) for row in make(rng)).encode() + b"\n"

    FAULTS[make.__name__] = written
    return make


@fault
def a_missing_column(rng: np.random.Generator) -> list[list[str]]:
    return [HEAD[:3], *(any_row(rng, 3) for _ in range(3))]


@fault
def an_unknown_column(rng: np.random.Generator) -> list[list[str]]:
    return [[*HEAD, "more"], *(any_row(rng, 5) for _ in range(3))]


@fault
def a_column_twice(rng: np.random.Generator) -> list[list[str]]:
    return [[*HEAD, "age"], *(any_row(rng, 5) for _ in range(3))]


@fault
def a_longer_row(rng: np.random.Generator) -> list[list[str]]:
    return [HEAD, any_row(rng), any_row(rng, 6), any_row(rng)]


@fault
def an_open_quote(rng: np.random.Generator) -> list[list[str]]:
    return [HEAD, ['"' + cell(rng), *any_row(rng, 3)], any_row(rng)]


@fault
def nothing_at_all(rng: np.random.Generator) -> list[list[str]]:
    return []


def not_utf8(rng: np.random.Generator) -> bytes:
    return (",".join(HEAD) + "\n").encode() + bytes(rng.integers(128, 192, 12).tolist()) + b",,,\n"


FAULTS["not_utf8"] = not_utf8


def masked(value: object, root: Path) -> str:
    return re.sub(r"[0-9a-f]{16,}", "(digest)", str(value).replace(str(root), "(root)"))


def ending(template: Any, number: int, data: bytes) -> tuple[str, ...]:
    """How reading a file ends: the class, the words, the code."""
    root = template.world(number, [])
    (root / "data.csv").write_bytes(data)
    run = ReleaseRun.prepare(root / "release.yaml", period=None)
    steps.reserve(run)
    try:
        steps.ingest(run)
    except DPIWError as error:
        return type(error).__name__, masked(error, root), str(error.exit_code)
    return ("no error",)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return leaks.template_of(tmp_path_factory)


def compare_endings(template: Any, name: str, pairs: int, start: int) -> tuple[str, ...]:
    rng = np.random.default_rng(20_240_501)
    ends = {ending(template, start + i, FAULTS[name](rng)) for i in range(pairs + 1)}
    assert len(ends) == 1, ends
    return ends.pop()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_the_same_words_whatever_the_cells(template, name):
    compare_endings(template, name, 1, 100 * list(FAULTS).index(name))


@pytest.mark.proof
def test_faults_of_many_tables(template, prove):
    pairs = FULL // len(FAULTS) + 1
    endings = [
        compare_endings(template, name, pairs, 10_000 + 1000 * number)
        for number, name in enumerate(FAULTS)
    ]
    prove(
        "N1: words of structural errors",
        f"{pairs * len(FAULTS)} pairs of {len(FAULTS)} faults, 0 differ; {len({t[0] for t in endings})} classes",
    )


def test_an_error_that_quotes_a_cell_is_seen(template, monkeypatch):
    real = leaks.INGEST.open_csv

    @contextlib.contextmanager
    def quoting(path, *given, **settings):
        try:
            with real(path, *given, **settings) as raw:
                yield raw
        except DPIWError as error:
            error.args = (f"{error}: {path.read_bytes()[-20:]!r}",)
            raise

    monkeypatch.setattr(leaks.INGEST, "open_csv", quoting)
    with pytest.raises(AssertionError):
        compare_endings(template, "a_missing_column", 1, 90_000)


def planned(template: Any, number: int, data: bytes) -> tuple[Any, ...]:
    """What a run consists of before it starts, and what every task would be given."""
    root = template.world(number, [])
    (root / "data.csv").write_bytes(data)
    calls: list[tuple[str, str]] = []

    class Recorder:
        """Stands for a Prefect task."""

        def __init__(self, name: str) -> None:
            self.name = name

        def with_options(self, **options: Any) -> Recorder:
            calls.append((self.name, repr(options)))
            return self

        def __call__(self, *given: Any, **named: Any) -> Path:
            calls.append((self.name, masked((given, named), root)))
            return Path(given[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPIW_ROOT", str(root))
        for name in TASKS:
            patch.setattr(FLOW, name, Recorder(name))
        patch.setattr(FLOW, "plan", lambda *given: FLOW_PLAN(*given))
        FLOW.release.fn(str(root / "release.yaml"), None)
    (folder,) = (root / "state" / "workspace").glob("town/*")
    files = {
        p.relative_to(root).as_posix(): masked(p.read_bytes(), root)
        for p in sorted(folder.rglob("*")) if p.is_file()
    }  # fmt: skip
    return json.dumps(files, sort_keys=True), tuple(calls)


FLOW_PLAN = FLOW.plan.fn


def compare_plans(template: Any, pairs: int, start: int) -> None:
    rng = np.random.default_rng(20_240_502)
    seen = set()
    for number in range(pairs + 1):
        data = bytes(rng.integers(0, 256, int(rng.integers(0, 400))).astype(np.uint8))
        seen.add(planned(template, start + number, data))
    assert len(seen) == 1
    (_, calls), *_ = seen
    assert {name for name, _ in calls} == set(TASKS)


def test_plans_and_what_prefect_is_given_are_the_same_for_any_file(template):
    compare_plans(template, 2, 200_000)


@pytest.mark.proof
def test_plans_of_many_files(template, prove):
    compare_plans(template, FULL, 210_000)
    prove("N1: plans, run folders, parameters of tasks", f"{FULL} arbitrary files, 0 differ")


def test_a_plan_that_looks_at_the_file_is_seen(template, monkeypatch):
    real = RunRequest.prepared

    def prepared(request):
        run = real(request)
        size = (request.path.parent / "data.csv").stat().st_size
        (run.directory / "size").write_text(str(size))
        return run

    monkeypatch.setattr(RunRequest, "prepared", prepared)
    with pytest.raises(AssertionError):
        compare_plans(template, 3, 220_000)


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, RuntimeError])
def test_a_task_s_log_and_failure_hold_no_cell(error, caplog):
    """Whatever a body says, Prefect sees the step's name and the error's class."""
    seen = set()
    for number in range(SLICE):
        secret = cell(np.random.default_rng(number)) + f" row {number}"

        def body(words=secret):
            try:
                raise OSError(words)
            except OSError as first:
                raise error(words) from first

        caplog.clear()
        with (
            caplog.at_level(logging.DEBUG, logger="dpiw.progress"),
            pytest.raises(StepFailedError) as failed,
        ):
            _guarded("fit_weights", "done", body)()
        chain = (failed.value.__cause__, failed.value.__context__)
        seen.add((str(failed.value), chain, tuple(caplog.messages)))
    assert len(seen) == 1
