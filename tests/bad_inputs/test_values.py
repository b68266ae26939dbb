"""docs/privacy.md section 6, the rows about values: clamped or mapped, row by row, never refused.

Each case goes through `reserve` and `ingest` of a real run. Beside the bad row stands a good one,
which must come out as if the bad one were not there.
"""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpiw.ledger import Ledger, RunState, StageState
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.bad_inputs.workbench import CANARY, csv, make_bench, parquet

MISSING = object()


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    from tests.conftest import make_workplace

    return make_bench(make_workplace.__wrapped__(tmp_path_factory))


def stamp(text):
    return pd.Timestamp(text, tz="UTC")


VALUES = [
    # 1: missing in a column that is not nullable: the declared fill; in a nullable one: missing
    (1, "age", "", 7), (1, "income", "", MISSING), (1, "region", "", "other"), (1, "age", "NaN", 7),
    # 2: infinite: the bound
    (2, "income", "inf", 1000.0), (2, "income", "-Infinity", 0.0), (2, "age", "inf", 100),
    # 3: outside the bounds: the bound
    (3, "age", "101", 100), (3, "age", "-1", 0), (3, "income", "1000.01", 1000.0),
    # 4: negative zero and subnormal numbers: one zero
    (4, "income", "-0.0", 0.0), (4, "income", "5e-324", 0.0), (4, "income", "-1e-320", 0.0),
    # 5: unknown category: the declared catch-all
    (5, "region", "mars", "other"), (5, "region", CANARY, "other"), (5, "trade", "x", "other"),
    # 6: near-duplicates: the declared normaliser, else the catch-all; padding is always dropped
    (6, "region", "North", "other"), (6, "region", " north\t", "north"),
    (6, "region", "su\u0308d", "other"), (6, "trade", "BA\u0308CKER ", "Bäcker"),
    # 17: unparsable: fill or missing
    (17, "age", "abc", 7), (17, "income", "12..5", MISSING), (17, "age", CANARY, 7),
    # 18: huge numbers, exactly: never through a float that would be wrong or overflow
    (18, "age", str(2**63), 100), (18, "age", "-" + "9" * 400, 0), (18, "income", "1e400", 1000.0),
    (18, "income", "-1e400", 0.0), (18, "age", "1e99999999999999999999", 100),
    # 19: a whole number above 2^53 in a column of reals: on the declared grid
    (19, "wealth", str(2**53 + 1), 9007199254740000.0),
    # 20: booleans: the declared words, else missing
    (20, "ill", "0", False), (20, "ill", "1", True), (20, "ill", "YES", True),
    (20, "ill", "maybe", MISSING), (20, "ill", "2", MISSING),
    # 21: decimal comma and thousands separators are not numbers
    (21, "income", "1,5", MISSING), (21, "income", "1.000,5", MISSING), (21, "age", "1_0", 7),
    # 22: dates: bounds, leap day, a gap in summer time, zoned beside naive
    (22, "born", "0001-01-01", pd.Timestamp("1900-01-01")),
    (22, "born", "9999-12-31", pd.Timestamp("2020-12-31")), (22, "born", "1900-02-29", MISSING),
    (22, "seen", "2000-03-26T02:30:00", stamp("2000-03-26T01:30:00")),
    (22, "seen", "2000-01-01T12:00:00-05:00", stamp("2000-01-01T17:00:00")),
    (22, "seen", "9999-12-31T23:59:59", stamp("2020-12-30T23:00:00")),
    # 23: the letter that stands for invalid bytes
    (23, "region", "s\ufffdd", "other"),
    # 24: NUL bytes and newlines inside quotes
    (24, "region", "nor\x00th", "other"), (24, "region", "north\nsouth", "other"),
    (24, "age", "3\x000", 7),
    # 25: formulas
    (25, "region", f"=cmd|'/C {CANARY}'!A0", "other"), (25, "age", "=1+1", 7),
    (25, "region", '@SUM("A1")', "other"),
]  # fmt: skip


@pytest.fixture(scope="module")
def read(bench):
    """All bad rows in one table, a good row before each; what became of them."""
    rows = [row for _, column, cell, _ in VALUES for row in ({}, {column: cell})]
    content = csv(*({**row, "id": str(number)} for number, row in enumerate(rows)))
    return bench.cells(bench.ingest("every value", content))


@pytest.mark.parametrize("number", range(len(VALUES)), ids=[f"row{v[0]}-{v[1]}" for v in VALUES])
def test_values_are_clamped_or_mapped(read, number):
    _, column, _, expected = VALUES[number]
    found = read[column].iloc[2 * number + 1]
    assert pd.isna(found) if expected is MISSING else found == expected
    if isinstance(found, float) and found == 0:
        assert np.copysign(1, found) == 1  # no negative zero


def test_a_bad_row_changes_no_other(bench, read):
    """The good rows came out as they do alone, and nothing was charged or voided for the bad."""
    alone = bench.cells(
        bench.ingest("good rows", csv(*({"id": str(n)} for n in range(len(VALUES)))))
    )
    pd.testing.assert_frame_equal(read.iloc[::2].reset_index(drop=True), alone)
    for label in ("every value", "good rows"):
        (attempt,) = bench.ledger.run(bench.fresh(label).key).attempts
        assert {stage.state for stage in attempt.stages.values()} == {StageState.RESERVED}


def test_parquet_values_are_clamped_too(bench):
    """Rows 1-4, 18 and 22 once more, where values have types."""
    content = parquet(
        4,
        age=pa.array([2**64 - 1, None, 0, 100], pa.uint64()),
        income=pa.array([np.inf, np.nan, -0.0, 5e-324]),
        wealth=pa.array([2**53 + 1, -(2**63), 2**63 - 1, 0]),
        born=pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(2000, 2, 29)]),
        seen=pa.array([-(2**62), 2**62, 0, None], pa.timestamp("us")),
    )
    frame = bench.cells(bench.ingest("typed", content, format="parquet"))
    assert frame["age"].tolist() == [100, 7, 0, 100]
    assert frame["income"].fillna(-1).tolist() == [1000.0, -1.0, 0.0, 0.0]
    assert frame["wealth"].tolist() == [9007199254740000.0, 0.0, 1e16, 0.0]
    days = frame["born"].dt.strftime("%Y-%m-%d").fillna("")
    assert days.tolist() == ["1900-01-01", "2020-12-31", "", "2000-02-29"]
    assert frame["seen"].isna().tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        (10, {"age": "30"}),  # a constant column
        (11, {"income": ""}),  # nothing but missing, nullable
        (11, {"age": ""}),  # nothing but missing, not nullable
        (12, {"ill": "true"}),  # one label only
        (12, {"ill": ""}),  # no label at all
    ],
)
def test_columns_without_variety_are_accepted(bench, row, changes):
    rows = [{"id": str(i), **changes} for i in range(5)]
    run = bench.ingest(f"{row}{changes}", csv(*rows))
    assert len(bench.cells(run)) == 5
    assert run.plan.digest == bench.run.plan.digest  # the plan never saw the table


@pytest.mark.parametrize("table", ["one label", "constant", "no rows"])
def test_a_degenerate_table_ends_in_a_release_like_any_other(workplace, table):
    """Rows 7, 10, 12 to the very end: no step fails, whatever the table is like."""
    rows = {"one label": 400, "constant": 400, "no rows": 0}[table]
    ages = [30] * rows if table == "constant" else [20 + i % 60 for i in range(rows)]
    lines = ["age,income,region,ill", *(f"{age},10,north,true" for age in ages)]
    workplace.source.write_text("\n".join(lines) + "\n")
    run = ReleaseRun.prepare(workplace.spec, period=None)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    steps.debias(run)
    steps.diagnose(run)
    assert verify(steps.publish(run)).manifest.facts.rows == 300
    assert Ledger.open(workplace.ledger).run(run.key).state is RunState.PUBLISHED
