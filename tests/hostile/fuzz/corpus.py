"""Good files to start from: every column kind, a planted canary in every cell that can hold one."""

import functools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpiw.data.schema.schema import PublicSchema
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

CANARY = "canary-fz91e7"
NUMBER = "613.374951"
SECRET = "hunter2-fz91e7"  # a password in a URL of a spec

SCHEMA_YAML = """\
name: fuzz
columns:
  - {name: id, role: identifier}
  - {name: n, kind: integer, lower: -5, upper: 9, nullable: true}
  - {name: x, kind: continuous, lower: 0, upper: 1000.5, decimals: 2, fill: 3.25}
  - {name: c, kind: categorical, levels: [é, b, "no", z], other: z, normaliser: casefold}
  - {name: o, kind: ordinal, levels: [low, high], nullable: true}
  - {name: b, kind: boolean, true_values: [ja], false_values: [nein], role: target}
  - {name: d, kind: date, lower: "1900-01-01", upper: "2020-12-31", nullable: true}
  - name: t
    kind: datetime
    lower: "1970-01-01T00:00:00"
    upper: "2030-12-31T23:59:59"
    time_zone: Europe/Berlin
    cuts: ["1980-01-01T00:00:00", "2000-01-01T00:00:00"]
    description: when it was seen
"""

SPEC_YAML = f"""\
format: 1
name: fuzz
population: town
cadence: quarterly
source: {{path: data.csv, format: csv, encoding: utf-8, delimiter: ",", snapshot: first}}
schema: schema.yaml
unit: {{id_column: id, max_rows: 2}}
relation: add_or_remove_one
epsilon: 2
delta: 1e-6
nominal_rows: 400
generator: {{method: privbayes, settings: {{degree: 1, bins: 5, noise_penalty: 0.3}}}}
weights:
  method: beta_debiased
  settings: {{features: linear}}
  when_infeasible: keep
shares: {{generator: 0.5, weights: 0.5}}
synthetic_rows: 300
max_attempts: 2
state: state
ledger: postgresql+psycopg://user:{SECRET}@host/db
signing_key: state/keys/test.key
publish_to: state/releases
catalogue: {{creator: "me", licence: CC0}}
"""

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=2, id_column="id")


@functools.cache
def schema() -> PublicSchema:
    from dpiw.data.yaml import load_text

    return PublicSchema.from_mapping(load_text(SCHEMA_YAML, what="schema"))


_ROWS = (
    ("1", "3", "17.25", "é", "low", "ja", "1999-12-31", "1999-12-31T23:59:59"),
    ("1", "", NUMBER, CANARY, CANARY, CANARY, CANARY, CANARY),
    (CANARY, CANARY, CANARY, "NO", "high", "nein", "1700-02-30", "2024-03-31T02:30:00"),
    ("2", "9" * 40, "-1e400", '"q, ""é"""', "", "", "", "9999-12-31T23:59:59+01:00"),
    (f"{CANARY}2", "-7", "inf", f'"{CANARY}\n2"', "low", "JA ", "0001-01-01", "0001-01-01"),
    ("3", "4.5", "1,5", "=1+1", "low", "nein", "2020-12-31", "2020-12-31T00:00:00Z"),
)


@functools.cache
def csv_files() -> tuple[bytes, ...]:
    header = ",".join(column.name for column in schema().columns)
    lines = [header, *(",".join(cells).replace("1,5", '"1,5"') for cells in _ROWS)]
    text = "\n".join(lines) + "\n"
    plain = "\n".join([header, "1,2,3.5,b,low,ja,2000-01-01,2000-01-01T00:00:00"] * 1) + "\n"
    return (
        text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode(),
        plain.encode(), (header + "\n").encode(), text.encode("utf-16"),
        (text * 40).encode(),
    )  # fmt: skip


def columns(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Admissible Parquet columns of the schema, with canaries."""
    gaps = rng.random(rows) < 0.2
    texts = np.where(gaps, CANARY, rng.choice(["é", "b", "no", "q"], rows))
    return {
        "id": pa.array([f"{CANARY}{i // 2}" for i in range(rows)]),
        "n": pa.array(rng.integers(-9, 20, rows), mask=gaps),
        "x": pa.array(np.where(gaps, float(NUMBER), rng.gamma(2, 300, rows))),
        "c": pa.array(texts.tolist()),
        "o": pa.array(rng.choice(["low", "high", CANARY], rows).tolist(), mask=gaps),
        "b": pa.array(rng.random(rows) < 0.5),
        "d": pa.array(rng.integers(-40_000, 20_000, rows).astype(np.int32), pa.date32(), mask=gaps),
        "t": pa.array(rng.integers(-(10**9), 2 * 10**9, rows), pa.timestamp("s")),
    }


def as_parquet(table: pa.Table, **settings: object) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **settings)
    return bytes(buffer.getvalue().to_pybytes())


@functools.cache
def parquet_files() -> tuple[bytes, ...]:
    rng = np.random.default_rng(3)
    table = pa.table(columns(60, rng))
    return (
        as_parquet(table, compression="none"),
        as_parquet(table, compression="snappy"),
        as_parquet(table, compression="zstd", row_group_size=7, data_page_version="2.0"),
        as_parquet(table, compression="gzip", use_dictionary=False, write_statistics=False),
        as_parquet(table, use_dictionary=False, column_encoding={
            "id": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT"}),
        as_parquet(pa.table(columns(0, rng))),
    )  # fmt: skip
