"""N1: plans, what Prefect is given and error texts are the same for any tables.

A plan is compiled and a flow's tasks are called before any row is read. A structural error names
the column and the kind: the same fault in two tables of other cells has the same words. What a log
or a failed task holds: tests/flows/test_failures.py.
"""

import contextlib
import importlib
import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from dpiw.errors import DPIWError
from dpiw.run import steps
from dpiw.run.run import ReleaseRun, RunRequest
from tests.hostile.leaks import neighbours as leaks
from tests.proof.figures import tiers

FLOW = importlib.import_module("flows.release")
FLOW_PLAN = FLOW.plan.fn
TASKS = (
    "reserve", "ingest", "fit_generator", "draw_synthetic", "fit_weights",
    "debias", "diagnose", "publish",
)  # fmt: skip
CELLS = ("7", "1e400", "mars", "", "-0", "x" * 50, "=1+1", "\u0130", "99999999999999999999")
HEAD = "age,income,region,ill"


def rows(rng, width=4, count=3):
    """Lines of cells drawn at random."""
    return [",".join(rng.choice([*CELLS, str(rng.random())], width)) for _ in range(count)]


FAULTS = {
    "a missing column": lambda rng: [HEAD.removesuffix(",ill"), *rows(rng, 3)],
    "an unknown column": lambda rng: [f"{HEAD},more", *rows(rng, 5)],
    "a column twice": lambda rng: [f"{HEAD},age", *rows(rng, 5)],
    "a longer row": lambda rng: [HEAD, *rows(rng, 4, 2), *rows(rng, 6, 1), *rows(rng, 4, 1)],
    "an open quote": lambda rng: [HEAD, '"' + rows(rng, 4, 1)[0], *rows(rng, 4, 1)],
    "nothing at all": lambda rng: [],
    "not UTF-8": lambda rng: [HEAD, "\udcff\udc80,,,"],
}
"""From cells drawn at random to lines with one structural fault, the same in all of them."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    logging.getLogger("prefect").setLevel(logging.CRITICAL)
    return leaks.template_of(tmp_path_factory)


def masked(value, root):
    return re.sub(r"[0-9a-f]{16,}", "(digest)", str(value).replace(str(root), "(root)"))


def ending(root):
    """How reading a file ends: the class, the words, the code."""
    run = ReleaseRun.prepare(root / "release.yaml", period=None)
    steps.reserve(run)
    try:
        steps.ingest(run)
    except DPIWError as error:
        return type(error).__name__, masked(error, root), str(error.exit_code)
    return ("no error",)


def planned(root):
    """What a run consists of before it starts, and what every task would be given."""
    calls = []

    class Recorder:
        """Stands for a Prefect task."""

        def __init__(self, name):
            self.name = name

        def with_options(self, **options):
            calls.append((self.name, repr(options)))
            return self

        def __call__(self, *given, **named):
            calls.append((self.name, masked((given, named), root)))
            return Path(given[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPIW_ROOT", str(root))
        for name in TASKS:
            patch.setattr(FLOW, name, Recorder(name))
        patch.setattr(FLOW, "plan", lambda *given: FLOW_PLAN(*given))
        FLOW.release.fn(str(root / "release.yaml"), None)
    assert {name for name, _ in calls} == set(TASKS)
    (folder,) = (root / "state" / "workspace").glob("town/*")
    files = {
        path.relative_to(root).as_posix(): masked(path.read_bytes(), root)
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip
    return json.dumps(files, sort_keys=True), tuple(calls)


def compare(template, see, make, pairs):
    """What is seen of files that `make` draws at random is one thing."""
    rng, seen = np.random.default_rng(20_240_501), set()
    for _ in range(pairs + 1):
        root = template.world(sum(1 for _ in template.folder.iterdir()), [])
        (root / "data.csv").write_bytes(make(rng))
        seen.add(see(root))
    assert len(seen) == 1, seen


def broken(name):
    return lambda rng: "\n".join([*FAULTS[name](rng), ""]).encode(errors="surrogateescape")


def any_bytes(rng):
    return bytes(rng.integers(0, 256, int(rng.integers(0, 400))).astype(np.uint8))


@pytest.mark.parametrize("name", FAULTS)
@tiers("pairs", fast=1, full=29)
def test_a_fault_has_the_same_words_whatever_the_cells(pairs, name, template, prove):
    compare(template, ending, broken(name), pairs)
    prove(f"N1: words of a structural error, {name}", f"{pairs} arbitrary pairs, 0 differ")


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
        compare(template, ending, broken("a missing column"), 1)


@tiers("pairs", fast=2, full=200)
def test_plans_and_what_prefect_is_given_are_the_same_for_any_file(pairs, template, prove):
    compare(template, planned, any_bytes, pairs)
    prove("N1: plans, run folders, parameters of tasks", f"{pairs} arbitrary files, 0 differ")


def test_a_plan_that_looks_at_the_file_is_seen(template, monkeypatch):
    real = RunRequest.prepared

    def prepared(request):
        run = real(request)
        size = (request.path.parent / "data.csv").stat().st_size
        (run.directory / "size").write_text(str(size))
        return run

    monkeypatch.setattr(RunRequest, "prepared", prepared)
    with pytest.raises(AssertionError):
        compare(template, planned, any_bytes, 3)
