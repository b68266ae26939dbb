"""What the studies share: finished cells on disk, work in processes, records and their pages.

A study keeps every finished cell in a cache and writes a summary of them as JSON, which holds what
its page prints and nothing else. The page is made from the JSON alone: `--page` makes it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from provenance import AGAIN, ROOT, foot
from threadpoolctl import threadpool_limits

# Cells on disk


def _code() -> str:
    """Digest of our sources and of the libraries' versions."""
    digest = hashlib.sha256()
    scripts = (ROOT / "benchmarks").glob("*.py")
    for path in (*sorted(scripts), *sorted((ROOT / "dpiw").rglob("*.py"))):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    for package in ("numpy", "pandas", "scipy", "scikit-learn", "dp-accounting"):
        digest.update(f"{package} {version(package)}\n".encode())
    return digest.hexdigest()


CODE = _code()
"""Taken when the code is loaded, so that an edit during a run is not taken for what ran."""


@dataclass(frozen=True)
class Store:
    """Finished cells, one JSON file each, in a folder named by the code and by their data files."""

    folder: Path
    data: Path

    def path(self, name: str, sources: Sequence[Path] = ()) -> Path:
        """Where a cell lies that depends on those files besides the code."""
        digest = hashlib.sha256(CODE.encode())
        for source in sources:
            digest.update(hashlib.sha256(source.read_bytes()).digest())
        return self.folder / digest.hexdigest()[:16] / f"{name}.json"

    def kept(
        self, name: str, make: Callable[[], Mapping[str, Any]], sources: Sequence[Path] = ()
    ) -> dict[str, Any]:
        """The cell of that name, or made and kept: whole or not at all."""
        path = self.path(name, sources)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(make(), default=str))
            temporary.replace(path)
        record: dict[str, Any] = json.loads(path.read_text())
        return record


# Options


def options(description: str | None, cache: str, *, again: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that every study has; `cache` is a folder below .dpiw.

    `again`: whether its record has lines that can be compared (`made_again`).
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the data sets' files")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once")
    parser.add_argument("--page", action="store_true", help="make the page of the record again")
    if again:
        parser.add_argument(
            "--again", action="store_true", help="compare these lines with the record's, and say so"
        )
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / cache)
    parser.add_argument("--out", type=Path, help="of the page; default: benchmarks/results")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a run, which needs data unless it only makes its page again."""
    chosen = parser.parse_args(arguments)
    if chosen.data is None and not chosen.page:
        parser.error("--data: expected a folder with the data sets' files")
    return chosen


# Work


def one_thread() -> None:
    """Each job uses one thread, whatever the linear algebra library would like."""
    threadpool_limits(limits=1)


def _made(
    cells: Sequence[Any], work: Callable[[Any], dict[str, Any]], jobs: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    if jobs == 1:
        one_thread()
        yield from ((place, work(cell)) for place, cell in enumerate(cells))
        return
    with ProcessPoolExecutor(jobs, initializer=one_thread) as pool:
        futures = {pool.submit(work, cell): place for place, cell in enumerate(cells)}
        yield from ((futures[future], future.result()) for future in as_completed(futures))


def records(
    cells: Sequence[Any], work: Callable[[Any], dict[str, Any]], jobs: int
) -> list[dict[str, Any]]:
    """Every cell's record in the cells' order; a line of progress at most every ten seconds."""
    started, last = time.monotonic(), 0.0
    by_place: dict[int, dict[str, Any]] = {}
    for place, record in _made(cells, work, jobs):
        by_place[place] = record
        elapsed = time.monotonic() - started
        if elapsed - last >= 10 or len(by_place) == len(cells):
            last = elapsed
            print(f"{len(by_place)} of {len(cells)} cells, {elapsed:.0f} s", flush=True)
    return [by_place[place] for place in range(len(cells))]


# Records and pages


def mean_and_error(values: Sequence[float]) -> list[float]:
    """Mean and standard error over runs, five digits; of one run an error of nan."""
    array = np.asarray(values, dtype=float)
    error = array.std(ddof=1) / math.sqrt(array.size) if array.size > 1 else math.nan
    return [float(f"{array.mean():.5g}"), float(f"{error:.5g}")]


def number(mean: float, error: float) -> str:
    """Mean and standard error; the mean alone of one run."""
    return f"{mean:.3g}" if math.isnan(error) else f"{mean:.3g} ± {error:.1g}"


def row(cells: Sequence[object]) -> str:
    """A line of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def head(cells: Sequence[object]) -> list[str]:
    """The first two lines of a table."""
    return [row(cells), "|" + "---|" * len(cells)]


def table(rows: Sequence[Sequence[object]]) -> list[str]:
    """A table whose first row is its head."""
    return [*head(rows[0]), *map(row, rows[1:])]


def read(out: Path, name: str) -> dict[str, Any]:
    """The record of a study."""
    record: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return record


def made_again(record: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """The record, and that the code of `fresh` makes some of its lines, equal to every digit.

    Raises:
        SystemExit: a line of `fresh` is not in the record, which then stays as it is.
    """
    known = {json.dumps(line) for line in record["cells"]}
    other = [line for line in map(json.dumps, fresh["cells"]) if line not in known]
    if other or not fresh["cells"]:
        told = f"{len(other)} of {len(fresh['cells'])} lines are not the record's"
        raise SystemExit("\n".join([told, *other]))
    lines = {"lines": len(fresh["cells"]), "commit": fresh["commit"], "code": fresh["code"]}
    return {**record, AGAIN: lines}


def text(record: dict[str, Any], page: Callable[[dict[str, Any]], list[str]]) -> str:
    """A record's page with its foot."""
    return "\n".join(page(record)) + "\n" + foot(record)


def write(
    out: Path,
    name: str,
    record: Mapping[str, Any],
    page: Callable[[dict[str, Any]], list[str]],
    *,
    again: bool = False,
) -> None:
    """The record as JSON, an item of a list or mapping a line, and its page.

    With `again` the record of before is kept, if its lines are found in it (`made_again`).
    """
    if again:
        record = made_again(read(out, name), json.loads(json.dumps(record)))
    out.mkdir(parents=True, exist_ok=True)
    parts = []
    for key, value in record.items():
        if isinstance(value, list) and value:
            items = ",\n  ".join(json.dumps(item) for item in value)
            parts.append(f"{json.dumps(key)}: [\n  {items}\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    body = ",\n ".join(parts)
    (out / f"{name}.json").write_text(f"{{\n {body}\n}}\n")
    (out / f"{name}.md").write_text(text(read(out, name), page))
    print(f"wrote {out / f'{name}.md'}")
