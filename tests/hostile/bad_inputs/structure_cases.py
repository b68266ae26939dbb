"""Files that are no table, by row of the table."""

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.bad_inputs.workbench import CANARY, GOOD, csv, parquet, zipped

NAMES = list(GOOD)
CASED = ["Age" if name == "age" else name for name in NAMES]
ACCENTED = ["regio\u0301n" if name == "region" else name for name in NAMES]
BAD = {"region": CANARY}


def header(names, *, cells=9):
    return (",".join(names) + "\n" + ",".join([CANARY] * cells) + "\n").encode()


def doubled_parquet():
    table = pq.read_table(io.BytesIO(parquet()))
    buffer = io.BytesIO()
    pq.write_table(table.append_column("age", table.column("age")), buffer)
    return buffer.getvalue()


TEXTS = pa.array([CANARY, "b"])
PARQUET = {"format": "parquet"}
STRUCTURE = {
    "13 a column name twice": (header([*NAMES, "age"], cells=10), "more than once", {}),
    "13 a column name twice, Parquet": (doubled_parquet(), "more than once", PARQUET),
    "14 a column is missing": (header(NAMES[:-1], cells=8), "missing in the file: seen", {}),
    "14 a column too many": (header([*NAMES, CANARY], cells=10), "does not declare", {}),
    "14 an empty file": (b"", "missing in the file", {}),
    "14 no header": (csv(BAD).split(b"\n", 1)[1], "missing in the file", {}),
    "14 semicolons": (csv(BAD).replace(b",", b";"), "source.delimiter", {}),
    "15 another case": (header(CASED), "missing in the file: age", {}),
    "15 another Unicode form": (header(ACCENTED), "missing in the file: region", {}),
    "16 bytes for integers": (parquet(age=TEXTS.cast(pa.binary())), "column age: not stored",
                              PARQUET),
    "16 truths for integers": (parquet(age=pa.array([True, False])), "column age: not stored",
                               PARQUET),
    "16 integers for dates": (parquet(born=pa.array([1, 2])), "column born: not stored", PARQUET),
    "23 UTF-16 undeclared": (csv(BAD).decode().encode("utf-16"), "source.encoding: utf-16", {}),
    "24 an open quote": (csv(BAD) + f'2,"{CANARY}\n'.encode(), "unbalanced quote", {}),
    "24 a quote inside": (csv(BAD) + f'2,"{CANARY}"x\n'.encode(), "unbalanced quote", {}),
    "24 a ragged row": (csv(BAD) + f"2,3,{CANARY}\n".encode(), "ragged", {}),
    "26 a cell of 10 MB": (csv({"region": CANARY * 900_000}), "cell", {}),
    "26 a long cell": (csv({"region": CANARY * 900}), "region: a cell exceeds max_cell", {}),
    "26 a long cell, Parquet": (parquet(region=pa.array([CANARY * 900] * 2)),
                                "region: a cell exceeds max_cell", PARQUET),
    "26 100,000 columns": (header([f"x{i}" for i in range(100_000)]), "max_columns", {}),
    "28 gzip": (gzip.compress(csv(BAD)), "compressed or an archive", {}),
    "28 zip": (zipped(csv(BAD)), "compressed or an archive", {}),
    "28 gzip as Parquet": (gzip.compress(parquet()), "compressed or an archive", PARQUET),
    "29 half a Parquet": (parquet()[: len(parquet()) // 2], "damaged", PARQUET),
    "29 no Parquet": (csv(BAD), "not a plain Parquet", PARQUET),
    "30 encrypted": (b"PARE" + parquet()[4:-4] + b"PARE", "not a plain Parquet", PARQUET),
    "30 lists": (parquet(age=pa.array([[1], [2]])), "age: not stored", PARQUET),
    "30 structs": (parquet(region=pa.array([{"a": CANARY}] * 2)), "region: not stored", PARQUET),
    "30 maps": (parquet(age=pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))),
                "age: not stored", PARQUET),
    "30 a dictionary of bytes": (parquet(region=TEXTS.cast(pa.binary()).dictionary_encode()),
                                 "region: not stored", PARQUET),
    "30 an extension": (parquet(region=pa.ExtensionArray.from_storage(pa.json_(), TEXTS)),
                        "not stored|extension", PARQUET),
}  # fmt: skip
