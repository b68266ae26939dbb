"""P3: the rows two tables share come out of preparation alike, whatever else is in either of them.

So a unit's rows touch at most the declared number. P2, that no domain comes from the data:
test_noninterference.py. P4, that a plan's forbidden constructs are refused, is counted here.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.source import ingest as person_bound
from dpiw.data.source.batches import IngestLimits, read_csv
from dpiw.methods.weights.measured.features import PARTS, Stack
from dpiw.methods.weights.paper.regression import LinearMap
from tests.hostile.bad_inputs.config_cases import BOUNDS, SPEC
from tests.hostile.fuzz.corpus import UNIT, schema
from tests.proof.figures import tiers
from tests.support import specs

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
    return read_csv(path, list(ORDINARY), limits=IngestLimits(), encoding="utf-8", delimiter=",")


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


def kept_rows(folder: Path, frame: pd.DataFrame, keys: np.ndarray, patch: Any) -> np.ndarray:
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
@pytest.mark.slow
def test_a_row_touches_no_other(cases, rng, tmp_path, monkeypatch, prove):
    moved = others = 0
    for _ in range(cases):
        rows = [random_row(rng, hostile=0.3) for _ in range(int(rng.integers(0, 12)))]
        place, added = int(rng.integers(0, len(rows) + 1)), random_row(rng, hostile=0.6)
        counts = touched(tmp_path, rows, place, added, rng, monkeypatch)
        moved, others = moved + counts[0], others + counts[1]
    assert moved == others == 0
    prove(
        "P3: prepare(D + r) against prepare(D)",
        f"{cases:,} cases: {moved} other rows and {others} other persons touched",
    )


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


@tiers("least", fast=30, full=30)
def test_forbidden_constructs_of_a_plan_are_counted(least, prove):
    """That each refuses is tested where they are: docs/proof.md, P4."""
    cases = (
        SPEC, BOUNDS, specs.REFUSED_FIELDS, specs.REFUSED_SETTINGS, specs.REFUSED_CALIBRATIONS,
    )  # fmt: skip
    counted = sum(map(len, cases))
    assert counted >= least
    prove("P4: forbidden constructs of a plan", f"{counted} cases")
