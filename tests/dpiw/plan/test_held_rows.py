"""What is told of the memory of a draw: of those that hold all rows, and from the plan alone."""

import inspect
import sys

import pytest

from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.run.run import ReleaseRun


@pytest.mark.parametrize("method", [*GENERATORS.values(), *WEIGHTS.values()])
def test_who_opens_the_whole_table_does_not_say_that_it_reads_batches(method):
    code = inspect.getsource(sys.modules[method.__module__])
    assert not (hasattr(method, "in_batches") and ".confidential()" in code)
    assert hasattr(method, "in_batches") or "ContingencyCounter" not in code


def test_a_draw_that_holds_all_rows_says_what_that_takes(make_workplace):
    plan = ReleaseRun.prepare(make_workplace(weights="beta_debiased").spec, period="once").plan
    told = plan.held_rows("fit_weights")
    assert f"max_memory_bytes={plan.spec.source.max_memory_bytes} admits " in told
    assert plan.held_rows("fit_generator") == plan.held_rows("ingest") == ""
