"""docs/privacy.md section 6, the rows about values: clamped or mapped, row by row, never refused.

Each case goes through `reserve` and `ingest` of a real run. Beside the bad row stands a good one,
which must come out as if the bad one were not there.
"""

import numpy as np
import pandas as pd
import pytest

from dpiw.ledger import Ledger, RunState, StageState
from dpiw.release.verification import verify
from dpiw.run.run import ReleaseRun
from tests.hostile.bad_inputs.values_cases import MISSING, VALUES
from tests.hostile.bad_inputs.workbench import csv, make_bench
from tests.support.whole_runs import publish_run


@pytest.fixture(scope="module")
def bench(make_workplace):
    return make_bench(make_workplace)


@pytest.fixture(scope="module")
def read(bench):
    """All bad rows in one table, a good row before each; what became of them."""
    rows = [row for _, column, cell, _ in VALUES for row in ({}, {column: cell})]
    content = csv(*({**row, "id": str(number)} for number, row in enumerate(rows)))
    return bench.cells(bench.ingest("every value", content))


@pytest.mark.parametrize("number", range(len(VALUES)), ids=[f"row{v[0]}-{v[1]}" for v in VALUES])
def test_values_are_clamped_or_mapped(read, number):
    _, column, _, expected = VALUES[number]
    value = read[column].iloc[2 * number + 1]
    assert pd.isna(value) if expected is MISSING else value == expected
    if isinstance(value, float) and value == 0:
        assert np.copysign(1, value) == 1  # no negative zero


def test_a_bad_row_changes_no_other(bench, read):
    """The good rows came out as they do alone, and nothing was charged or voided for the bad."""
    alone = bench.cells(
        bench.ingest("good rows", csv(*({"id": str(n)} for n in range(len(VALUES)))))
    )
    pd.testing.assert_frame_equal(read.iloc[::2].reset_index(drop=True), alone)
    for label in ("every value", "good rows"):
        (attempt,) = bench.ledger.run(bench.fresh(label).key).attempts
        assert {stage.state for stage in attempt.stages.values()} == {StageState.RESERVED}


@pytest.mark.nightly_cases("one label")  # a constant table has one label, too
@pytest.mark.parametrize("table", ["one label", "constant", "nothing but missing", "no rows"])
@pytest.mark.slow
def test_a_degenerate_table_ends_in_a_release_like_any_other(workplace, table):
    """Rows 7, 10 to 12 to the very end: no step fails, and the plan is the same."""
    planned = ReleaseRun.prepare(workplace.spec, period=None).plan.digest
    rows = 0 if table == "no rows" else 400
    ages = [30] * rows if table == "constant" else [20 + i % 60 for i in range(rows)]
    lines = ["age,income,region,ill", *(f"{age},10,north,true" for age in ages)]
    if table == "nothing but missing":
        lines[1:] = [",,,"] * rows
    workplace.source.write_text("\n".join(lines) + "\n")
    run, folder = publish_run(workplace.spec)
    assert run.plan.digest == planned
    assert verify(folder).manifest.facts.rows == 300
    assert Ledger.open(workplace.ledger).run(run.key).state is RunState.PUBLISHED
