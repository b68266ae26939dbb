"""One prepared release, and as many runs of it as there are bad files."""

import dataclasses
import hashlib
import io
import traceback
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.read import read_snapshot

CANARY = "canary-bad52"

SCHEMA = """
name: town
columns:
  - {name: id, role: identifier}
  - {name: age, kind: integer, lower: 0, upper: 100, fill: 7}
  - {name: income, kind: continuous, lower: 0, upper: 1000, decimals: 2, nullable: true}
  - {name: wealth, kind: continuous, lower: 0, upper: 1.0e+16}
  - {name: region, kind: categorical, levels: [north, süd, other], other: other}
  - {name: trade, kind: categorical, levels: [Bäcker, other], other: other, normaliser: casefold}
  - {name: ill, kind: boolean, nullable: true, role: target}
  - {name: born, kind: date, lower: "1900-01-01", upper: "2020-12-31", nullable: true}
  - {name: seen, kind: datetime, lower: "1900-01-01", upper: "2020-12-31T00:00:00",
     time_zone: Europe/Berlin, nullable: true}
"""

GOOD = {
    "id": "1", "age": "30", "income": "12.5", "wealth": "8", "region": "north", "trade": "Bäcker",
    "ill": "true", "born": "1990-05-06", "seen": "2000-01-01T12:00:00",
}  # fmt: skip
"""A good row, as CSV cells; it stands beside every bad one and must not change by it."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A workplace with the schema above, one compiled run, and the ledger, opened once."""

    place: Any
    run: ReleaseRun
    ledger: Ledger

    def spent(self) -> int:
        return self.ledger.spent("town").epsilon_units

    def fresh(self, label: str) -> ReleaseRun:
        """The same plan under another key: a run of its own."""
        key = hashlib.sha256(label.encode()).hexdigest()
        directory = self.run.directory.with_name(key[:32])
        for folder in (directory, directory / "private", directory / "log"):
            folder.mkdir(mode=0o700, exist_ok=True)
        return dataclasses.replace(self.run, key=key, directory=directory)

    def with_source(self, run: ReleaseRun, path: Path, **settings: Any) -> ReleaseRun:
        """The run, reading another file in another way."""
        source = run.spec.source.model_copy(update={"path": str(path), **settings})
        spec = run.spec.model_copy(update={"source": source})
        return dataclasses.replace(run, plan=dataclasses.replace(run.plan, spec=spec))

    def ingest(self, label: str, content: bytes, **settings: Any) -> ReleaseRun:
        """Reserve and ingest `content`; returns the run whatever the file held."""
        path = self.place.root / f"{hashlib.sha256(label.encode()).hexdigest()[:12]}.source"
        path.write_bytes(content)
        run = self.with_source(self.fresh(label), path, **settings)
        steps.reserve(run)
        steps.ingest(run)
        return run

    def cells(self, run: ReleaseRun) -> pd.DataFrame:
        scaled = read_snapshot(run.snapshot)
        assert scaled is not None
        return run.plan.schema.unscale(scaled)


def make_bench(make_workplace: Any) -> Bench:
    place = make_workplace(epsilon="100000", reads=10**6)
    (place.root / "schema.yaml").write_text(SCHEMA)
    run = ReleaseRun.prepare(place.spec, period=None)
    return Bench(place=place, run=run, ledger=Ledger.open(place.ledger))


def csv(*rows: Mapping[str, str], names: Sequence[str] = tuple(GOOD)) -> bytes:
    """A CSV file of the rows (each the good one with changes), quoted where needed."""

    def cell(text: str) -> str:
        needs = any(mark in text for mark in ',"\n\r')
        return '"' + text.replace('"', '""') + '"' if needs else text

    lines = [",".join(names)]
    lines += [",".join(cell({**GOOD, **row}[name]) for name in names) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def parquet(rows: int = 2, **changes: pa.Array) -> bytes:
    """A Parquet file of the good row in declared types, with other columns in place."""
    columns = {
        "id": pa.array([str(i) for i in range(rows)]),
        "age": pa.array([30] * rows),
        "income": pa.array([12.5] * rows),
        "wealth": pa.array([8] * rows),
        "region": pa.array(["north"] * rows),
        "trade": pa.array(["Bäcker"] * rows),
        "ill": pa.array([True] * rows),
        "born": pa.array([7430] * rows, pa.date32()),
        "seen": pa.array([946_724_400] * rows, pa.timestamp("s")),
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table({**columns, **changes}), buffer)
    return buffer.getvalue()


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("inner.csv", content)
    return buffer.getvalue()


def silent(error: BaseException, *tokens: str) -> bool:
    """Nothing is chained to an error, and neither it nor its traceback quotes a token."""
    text = "".join(traceback.format_exception(error)).replace(__file__, "")
    alone = error.__cause__ is None and error.__context__ is None
    return alone and not any(token in text for token in (CANARY, *tokens))
