"""A child process that reads mutated files.

    python -m tests.hostile.fuzz.worker KIND SEED START STOP DIR

It reports on standard output, a line per event, before it can die of it:

    at INDEX                     this case starts
    ok | refused CLASS           how it ended
    FAILED REASON                it broke a rule (the run goes on)

A hang ends the process (exit code 1) with a stack on standard error; an abort of a library ends
it with a signal. The parent sees both, keeps the input and starts another child after it.
"""

import faulthandler
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source.batches import open_csv, open_parquet
from dpiw.data.source.copy import IngestLimits, copy_source
from dpiw.data.source.ingest import rows_within_unit
from dpiw.data.source.validation import admissible_types
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.plan.spec import load_spec
from tests.hostile.fuzz import corpus
from tests.hostile.fuzz.mutators import make_case
from tests.support.worlds import uniform_rows

HANG_SECONDS = 5
"""Of processor time; by the clock twelve times as much: a busy machine is no hang."""

MEMORY_BYTES = 1 << 30

LIMITS = IngestLimits(
    max_columns=50, max_cell_bytes=10_000, max_memory_bytes=1 << 28,
)  # fmt: skip
_SETTINGS = (("utf-8", ","), ("utf-8", ","), ("utf-8", ";"), ("utf-16", ","), ("latin-1", ","))


def peak_bytes() -> int:
    """Most memory this program has held; `ru_maxrss` would count the parent's before the fork."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _check_types(types: dict[str, str], file_format: str) -> None:
    """What `validate_structure` decides, without a Great Expectations context per case."""
    for column in corpus.schema().columns:
        plain = types[column.name].split("[")[0].split("(")[0]
        if plain not in admissible_types(column, file_format=file_format):
            raise SourceError(f"column {column.name}: not stored as {column.kind.value}")


def raw_cells(
    data: bytes, file_format: str, folder: Path, *, encoding: str = "utf-8", delimiter: str = ","
) -> pd.DataFrame:
    """The first half of `ingest`: a file's cells, of types that the schema admits."""
    source, copy = folder / "source", folder / "copy"
    source.write_bytes(data)
    names = [column.name for column in corpus.schema().columns]
    try:
        copy_source(source, copy)
        opened = (
            open_csv(copy, names, limits=LIMITS, encoding=encoding, delimiter=delimiter)
            if file_format == "csv"
            else open_parquet(copy, names, limits=LIMITS)
        )
        with opened as raw:
            _check_types(raw.types, file_format)
            frame = raw.whole(most_bytes=LIMITS.max_memory_bytes)
    finally:
        copy.unlink(missing_ok=True)
    assert sorted(frame.columns) == sorted(names), "other columns"
    return frame


def read_table(data: bytes, file_format: str, folder: Path, index: int) -> None:
    """The whole way of `ingest`, but for Great Expectations and the snapshot's file."""
    schema = corpus.schema()
    encoding, delimiter = _SETTINGS[index % len(_SETTINGS)]
    frame = raw_cells(data, file_format, folder, encoding=encoding, delimiter=delimiter)
    ids = [frame["id"]]
    frame = frame[rows_within_unit(ids, schema.column("id"), corpus.UNIT, directory=folder)]
    scaled = schema.scale(frame)
    assert scaled.rows == len(frame), "other number of rows"
    assert list(scaled.columns) == [column.name for column in schema.released], "other columns"
    for column in schema.released:
        values = scaled.columns[column.name]
        missing = np.isnan(values) if column.is_numeric else values < 0
        inside = values[~missing]
        assert column.nullable or not missing.any(), f"{column.name}: missing"
        top = 1.0 if column.is_numeric else column.cardinality - 1
        assert not len(inside) or (inside.min() >= 0 and inside.max() <= top), column.name
    assert schema.project(scaled).equals(scaled), "not on the grid"


def read_spec(data: bytes, folder: Path) -> None:
    path = folder / "spec.yaml"
    path.write_bytes(data)
    load_spec(path)


def read_schema(data: bytes, folder: Path) -> None:
    """A schema that is accepted must survive its own JSON and be able to work."""
    path = folder / "schema.yaml"
    path.write_bytes(data)
    schema = PublicSchema.from_yaml(path)
    mapping = json.loads(json.dumps(schema.to_mapping(), allow_nan=False))
    assert PublicSchema.from_mapping(mapping) == schema, "another schema after JSON"
    rows = schema.project(uniform_rows(schema, 3, np.random.default_rng(1)))
    assert schema.scale(schema.unscale(rows)).equals(rows), "scale(unscale) is no identity"


READERS: dict[str, Callable[[bytes, Path, int], None]] = {
    "csv": lambda data, folder, index: read_table(data, "csv", folder, index),
    "parquet": lambda data, folder, index: read_table(data, "parquet", folder, index),
    "spec": lambda data, folder, index: read_spec(data, folder),
    "schema": lambda data, folder, index: read_schema(data, folder),
}
EXPECTED = {
    "csv": SourceError, "parquet": SourceError, "spec": SpecError, "schema": SchemaError,
}  # fmt: skip


def chain(error: BaseException) -> list[BaseException]:
    """The error and everything chained to it."""
    waiting, seen = [error], []
    while waiting:
        link = waiting.pop()
        if link not in seen:
            seen.append(link)
            waiting += [cause for cause in (link.__cause__, link.__context__) if cause is not None]
    return seen


def leaks(error: BaseException, *, confidential: bool) -> str | None:
    """Why an error tells too much, or None."""
    text = " ".join([*map(str, chain(error)), *map(repr, chain(error))])
    if corpus.SECRET in text:
        return "the password is in the message"
    if not confidential:
        return "the message is longer than 2,000 characters" if len(str(error)) > 2000 else None
    if any(token in text for token in (corpus.CANARY, corpus.NUMBER, corpus.NUMBER[:8])):
        return "a cell is in the message or its chain"
    if len(chain(error)) > 1:
        return "another error is chained"
    return None


def judge(kind: str, data: bytes, folder: Path, index: int) -> str:
    """Run one case; `ok`, `refused CLASS`, or `FAILED REASON`."""
    # The kernel's mark falls to what is held now: making a case may take more than reading it.
    Path("/proc/self/clear_refs").write_text("5")
    started = time.process_time()
    try:
        READERS[kind](data, folder, index)
        verdict = "ok"
    except EXPECTED[kind] as error:
        leak = leaks(error, confidential=kind in ("csv", "parquet"))
        verdict = f"refused {type(error).__name__}" if leak is None else f"FAILED {leak}: {error}"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict = f"FAILED {type(error).__name__} at {Path(where.filename).name}:{where.lineno} "
        verdict += str(error)
    if time.process_time() - started > HANG_SECONDS:
        verdict = "FAILED hang"
    if peak_bytes() > MEMORY_BYTES:
        verdict = "FAILED memory"
    return " ".join(verdict.split())[:300]


def main(arguments: list[str]) -> None:
    kind, seed, start, stop = arguments[0], *map(int, arguments[1:4])
    folder = Path(arguments[4])
    # A safety net for the machine only: what counts is the resident size, looked at per case.
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    corpus.schema()
    for index in range(start, stop):
        data = make_case(kind, seed, index)
        sys.stdout.write(f"at {index}\n")
        sys.stdout.flush()
        faulthandler.dump_traceback_later(12 * HANG_SECONDS, exit=True)
        verdict = judge(kind, data, folder, index)
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.write(verdict + "\n")
        if verdict == "FAILED memory":
            sys.exit(3)  # the peak stays for ever: only a new process can judge the next case


if __name__ == "__main__":
    main(sys.argv[1:])
