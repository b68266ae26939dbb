"""P2 and P3: no domain comes from the data, and preparing is a matter of single rows.

P2: one more row, as odd as can be (a rare level, an extreme, no number, 9,000 letters), leaves what
the plan fixed as it is: the schema, the released columns, the shapes of all tables, every noise
scale and the number of draws. P3: the rows two tables share come out of preparation alike, whatever
else is in either of them, so a unit's rows touch at most the declared number.

P4, that every forbidden construct of a plan is rejected, is tested where specs and plans are:
`tests/dpiw/plan/test_spec.py::test_what_is_refused_names_its_field`,
`tests/dpiw/plan/test_plan.py::test_settings_are_refused_by_name` and
`tests/hostile/bad_inputs/test_config.py::test_a_spec_is_refused_before_anything_happens`; here they
are counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.data import ingest as person_bound
from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.sources import IngestLimits, read_csv
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators import counting
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.weights.measured.features import PARTS, Stack
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.paper.beta import BetaRegression
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.privacy import mechanisms
from dpiw.privacy.measurement import Measurement
from tests.hostile.bad_inputs.config_cases import BOUNDS, SPEC
from tests.hostile.fuzz.corpus import UNIT, schema
from tests.proof.figures import tiers
from tests.proof.neighbours import Zeros
from tests.support import specs
from tests.support.worlds import uniform_rows

ORDINARY = {
    "id": ("1", "2", "3", "4"), "n": ("3", "-2", "9", ""), "x": ("17.25", "0", "999"),
    "c": ("é", "b", "no"), "o": ("low", "high", ""), "b": ("ja", "nein"),
    "d": ("1999-12-31", "2001-02-03", ""), "t": ("1999-12-31T23:59:59", "2010-01-01T00:00:00"),
}  # fmt: skip

HOSTILE = (
    "mars", "1e400", "-1e400", "NaN", "inf", "-0.0", "5e-324", "9" * 400, "x" * 9000, "", "  ",
    "=1+1", "1,5", "a\nb", '"', "4\x00", "\ufffd", "\u0130", "NULL", "0x10", "1_000", "9999-12-31",
    "0001-01-01", "24:00:00", "-7", "10", "JA", "e\u0301", "canary",
)  # fmt: skip

ALL_PARTS = dict.fromkeys(PARTS, 1.0)

Row = tuple[str, ...]


def random_row(rng: np.random.Generator, *, hostile: float) -> Row:
    """Ordinary cells, each hostile with that chance; the identifier is one of a few persons."""
    cells = []
    for name, values in ORDINARY.items():
        odd = name != "id" and rng.random() < hostile
        cells.append(str(rng.choice(HOSTILE if odd else values)))
    return tuple(cells)


def read(folder: Path, rows: Sequence[Row]) -> pd.DataFrame:
    """As the ingest reads a file."""
    text = io.StringIO()
    csv.writer(text).writerows([tuple(ORDINARY), *rows])
    path = folder / "table.csv"
    path.write_text(text.getvalue(), newline="")
    return read_csv(
        path, list(ORDINARY), limits=IngestLimits(), encoding="utf-8", delimiter=","
    ).frame


def table(folder: Path, rows: Sequence[Row]) -> PrivateTable:
    return PrivateTable(schema=schema(), scaled=schema().scale(read(folder, rows)))


# --- P2 -------------------------------------------------------------------------------------------


class Recording(Zeros):
    """No noise, and a list of all that was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def discrete_gaussian(self, *, scale: float, size: int) -> np.ndarray:
        self.asked.append(("gaussian", scale, size))
        return np.zeros(size, dtype=np.int64)

    def noisy_argmax(self, scores: np.ndarray, *, scale: float) -> int:
        self.asked.append(("argmax", scale, scores.size))
        return len(self.asked) % scores.size


def fixed(private: PrivateTable, synthetic: SyntheticTable) -> list[object]:
    """All that a measurement shows of the domain, and all noise it asked for."""
    facts: list[object] = []
    calls = {"schema": private.schema, "unit": UNIT, "nominal_rows": 400}
    measurements: list[Measurement] = []
    for generator in (Histogram(bins=5), PrivBayes(bins=5)):
        noise = Recording()
        measurements.append(generator.calibrate(rho=0.3, **calls).measure(private, noise=noise))
        facts.append(noise.asked)
    for method in (BetaRegression(), Measured(features=ALL_PARTS, frequencies=5, omega_seed=1)):
        noise = Recording()
        weights = method.calibrate(rho=0.3, **calls)
        measurements.append(weights.measure(private, synthetic, noise=noise))
        facts.append(noise.asked)
    facts.append(private.schema.to_mapping())
    for measurement in measurements:
        shapes = {name: array.shape for name, array in measurement.arrays.items()}
        facts += [measurement.kind, dict(measurement.facts), shapes]
    return facts


@tiers("cases", fast=8, full=500)
def test_a_strange_row_changes_nothing_that_was_planned(cases, rng, tmp_path, prove):
    synthetic = SyntheticTable(schema=schema(), scaled=uniform_rows(schema(), 30, rng))
    changed = 0
    for number in range(cases):
        if number % 10 == 0:
            rows = [random_row(rng, hostile=0.1) for _ in range(int(rng.integers(0, 40)))]
            expected = fixed(table(tmp_path, rows), synthetic)
        extended = [*rows, random_row(rng, hostile=0.8)]
        changed += fixed(table(tmp_path, extended), synthetic) != expected
    assert changed == 0
    prove(
        "P2", "columns, shapes, scales and draws beside a strange row",
        power="a domain of the levels that occur is found: test_a_domain_from_the_data_is_found",
        reached=f"{cases} cases, {changed} changed",
        limit="histogram, PrivBayes, beta regression, measured sum; whole runs: "
        "tests/hostile/leaks/test_non_interference.py",
    )  # fmt: skip


def test_a_domain_from_the_data_is_found(rng, tmp_path, monkeypatch):
    """Test of the test: tables that leave out levels nobody has (the active domain)."""
    synthetic = SyntheticTable(schema=schema(), scaled=uniform_rows(schema(), 30, rng))
    real = counting.ContingencyCounter.each

    def active(self, marginals):
        for counts in real(self, marginals):
            for axis in range(counts.ndim):
                used = counts.sum(axis=tuple(a for a in range(counts.ndim) if a != axis)) > 0
                counts = counts.compress(used, axis=axis)
            yield counts

    rows = [("1", "3", "17.25", "é", "low", "ja", "1999-12-31", "1999-12-31T23:59:59")] * 3
    strange = [*rows, ("2", "9", "0", "b", "high", "nein", "1950-01-01", "1980-01-01T00:00:00")]
    assert fixed(table(tmp_path, rows), synthetic) == fixed(table(tmp_path, strange), synthetic)
    monkeypatch.setattr(counting.ContingencyCounter, "each", active)
    # A generator with an active domain would also draw noise of its shape.
    monkeypatch.setattr(
        mechanisms, "noisy_counts", lambda counts, *, law, noise: counts.astype(float)
    )
    first, second = (fixed(table(tmp_path, lines), synthetic) for lines in (rows, strange))
    assert first != second


# --- P3 -------------------------------------------------------------------------------------------


def prepared(frame: pd.DataFrame, public_schema: PublicSchema) -> dict[str, np.ndarray]:
    """Every form a row takes before it is measured, a row of the arrays per row of the table."""
    scaled = public_schema.scale(frame)
    forms = {f"scaled {name}": values for name, values in scaled.columns.items()}
    forms["codes"] = Domain.from_schema(public_schema, bins=5).codes(scaled)
    forms["encoded"] = public_schema.encode(scaled)
    forms["centred"] = public_schema.centred(scaled)
    forms["LinearMap"] = LinearMap(public_schema).matrix(scaled)
    forms["stack"] = Stack(schema=public_schema, shares=ALL_PARTS, frequencies=5).matrix(scaled)
    return forms


def kept_rows(
    folder: Path, frame: pd.DataFrame, keys: np.ndarray, patch: pytest.MonkeyPatch
) -> np.ndarray:
    """Rows that bounding the unit keeps, given each row's random key."""
    with patch.context() as patched:
        patched.setattr(person_bound.secrets, "token_bytes", lambda size: keys.tobytes()[:size])
        person = schema().identifier
        mask = person_bound.rows_within_unit([frame["id"]], person, UNIT, directory=folder)
    return np.flatnonzero(mask)


def alike(first: np.ndarray, second: np.ndarray, name: str) -> bool:
    if name.endswith("Map"):  # a matrix product may round a row otherwise at another place
        return bool(np.allclose(first, second, rtol=0, atol=1e-12))
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def touched(folder: Path, rows: list[Row], place: int, added: Row, rng, patch) -> tuple[int, int]:
    """Rows besides the new one that differ in some form, and persons besides its own that do."""
    frames = read(folder, rows), read(folder, [*rows[:place], added, *rows[place:]])
    rest = [*range(place), *range(place + 1, len(rows) + 1)]
    forms = [prepared(frame, schema()) for frame in frames]
    moved = sum(
        not alike(forms[0][name][i], forms[1][name][j], name)
        for name in forms[0]
        for i, j in enumerate(rest)
    )
    keys = rng.integers(2**63, size=len(rows) + 1).astype(np.uint64)
    survivors = [
        {rest[i] for i in kept_rows(folder, frames[0], keys[rest], patch)},
        set(kept_rows(folder, frames[1], keys, patch).tolist()),
    ]
    persons = frames[1]["id"].to_numpy()
    others = {persons[i] for i in survivors[0] ^ survivors[1]} - {added[0]}
    assert max(np.unique(persons[list(survivors[1])], return_counts=True)[1]) <= UNIT.max_rows
    return moved, len(others)


@tiers("cases", fast=25, full=2_000)
def test_a_row_touches_no_other(cases, rng, tmp_path, monkeypatch, prove):
    moved = others = 0
    for _ in range(cases):
        rows = [random_row(rng, hostile=0.3) for _ in range(int(rng.integers(0, 12)))]
        counts = touched(
            tmp_path, rows, int(rng.integers(0, len(rows) + 1)), random_row(rng, hostile=0.6),
            rng, monkeypatch,
        )  # fmt: skip
        moved, others = moved + counts[0], others + counts[1]
    assert moved == 0
    assert others == 0
    prove(
        "P3", "prepare(D + r) against prepare(D)",
        power="scaling by the table's own minimum and maximum is found:"
        " test_scaling_by_the_tables_own_range_is_found",
        reached=f"{cases:,} cases: {moved} other rows and {others} other persons touched",
        limit="features of a regression to 1e-12: a matrix product may round a row otherwise at"
        " another place, which the stated bounds cover (1e-9); all else, stacks too, to the last"
        " bit",
    )  # fmt: skip


def test_scaling_by_the_tables_own_range_is_found(rng, tmp_path, monkeypatch):
    """Test of the test: min-max scaling, the papers' premise."""
    real = PublicSchema.scale

    def by_range(self, frame):
        scaled = real(self, frame)
        columns = dict(scaled.columns)
        low, high = np.nanmin(columns["x"]), np.nanmax(columns["x"])
        columns["x"] = (columns["x"] - low) / max(high - low, 1e-9)
        return ScaledTable(columns, scaled.rows)

    monkeypatch.setattr(PublicSchema, "scale", by_range)
    rows = [random_row(rng, hostile=0.0) for _ in range(5)]
    added = ("9", "3", "1e400", "b", "low", "ja", "2000-01-01", "1999-12-31T23:59:59")
    moved, _ = touched(tmp_path, rows, 2, added, rng, monkeypatch)
    assert moved > 0


# --- P4 -------------------------------------------------------------------------------------------


@tiers("least", fast=30, full=30)
def test_forbidden_constructs_of_a_plan_are_counted(least, prove):
    """At least `least` refusals; that each refuses is tested where they are."""
    counted = {
        "spec and plan (bad inputs)": len(SPEC),
        "schema": len(BOUNDS),
        "test_what_is_refused_names_its_field": len(specs.REFUSED_FIELDS),
        "test_settings_are_refused_by_name": len(specs.REFUSED_SETTINGS),
        "test_calibrations_that_no_spec_may_ask_for": len(specs.REFUSED_CALIBRATIONS),
    }
    assert sum(counted.values()) >= least
    prove(
        "P4", "forbidden constructs of a plan",
        power="each case is a refusal by name, before anything is read or charged",
        reached=f"{sum(counted.values())} cases: "
        + ", ".join(f"{name} {number}" for name, number in counted.items()),
        limit="the constructs listed",
    )  # fmt: skip
