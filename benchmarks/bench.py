"""One command, one page: ours against peers and against the machine, each line a ratio of one run.

    make bench [DATA=FOLDER] [OPTIONS='--without-peers --rows 10000 100000']
    python benchmarks/bench.py [--data FOLDER] [--without-peers] [--only ITEM ...] [--again]

FOLDER holds adult.csv and banknote.csv; what needs them is told as not run without. A line that is
done is kept in `--cache` with its date and load, so a run that was cut short goes on; `--again`
measures anew. Peers' environments are made in `--environments` on the first run (about 1.5 GB);
one that cannot be made is told as not run, too. DP-SGD needs torch (`make test`).
Writes bench.md and bench.json.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import bench_limits as limits
import bench_peers as peers
from bench_page import Line, page
from bench_record import Found, NotRunError, Place
from provenance import ROOT, foot, stamp

COMMAND = "make bench DATA=folder"
SMARTNOISE = "smartnoise-synth"
MST = "MST of smartnoise-synth on private-pgm"
LINES = (
    Line(name="features", item="features", ours="feature sums of measured weights",
         reference="their matrix product", target=3),
    Line(name="ingest", item="release", ours="ingest",
         reference="pyarrow reads the CSV, writes Parquet, reads it twice"),
    Line(name="release", item="release", ours="a whole release without weights, its starts apart",
         reference="the same of pyarrow", target=5),
    Line(name="release, measured", item="release", ours="the same with measured weights",
         reference="the same of pyarrow", target=5),
    Line(name="scores", item="scores", ours="scoring: log weights of rows under a tilting",
         reference="pyarrow reads and writes those rows", target=2),
    Line(name="weights", item="release",
         ours="weights of as many published rows, their fit included",
         reference="pyarrow reads and writes those rows"),
    Line(name="adult-weights", item="adult-weights", reference="the same without weights",
         ours="privbayes and measured weights, in memory, Adult drawn with replacement"),
    Line(name="privbayes", item="privbayes", kind="peer", target=200,
         ours="privbayes, Adult, epsilon 1, delta 0", reference="DataSynthesizer's PrivBayes"),
    Line(name="privbayes-adult-mst", item="adult-mst", kind="peer", target=50,
         ours="privbayes, Adult, epsilon 1, delta 1e-9", reference=MST),
    Line(name="mst-adult-mst", item="adult-mst", kind="peer",
         ours="mst, Adult, epsilon 1, delta 1e-9", reference=MST),
    Line(name="mst-banknote-mst", item="banknote-mst", kind="peer",
         ours="mst, Banknote, epsilon 1, delta 1e-9", reference=MST),
    Line(name="aim-banknote-aim", item="banknote-aim", kind="peer",
         ours="aim, Banknote, epsilon 1, delta 1e-9", reference="AIM of the same"),
    Line(name="dp-sgd: Opacus, hooks, its loader", item="dp-sgd", kind="peer", target=8,
         ours="DP-SGD, a step of a perceptron", reference="Opacus, hooks, its loader"),
    Line(name="dp-sgd: Opacus, ghost, its loader", item="dp-sgd", kind="peer", target=3,
         ours="DP-SGD, a step of a perceptron", reference="Opacus, ghost clipping, its loader"),
    Line(name="dp-sgd: torch, no privacy", item="dp-sgd", target=1.5,
         ours="DP-SGD, a step of a perceptron", reference="torch without privacy"),
    *(
        Line(name=name, item="starts", kind="seconds", target=target, ours=ours,
             reference="imports")
        for name, ours, target in (
            ("import", "`import dpiw`", 0.5), ("help", "`dpiw --help`", 0.3),
            ("plan", "`dpiw plan`", 2), ("fresh", "the worked example, fresh database", 12),
            ("warm", "the worked example, warm database", 8),
            ("published", "the worked example, nothing to do", 3),
        )
    ),
)  # fmt: skip
"""The page, line by line; targets were set beforehand."""

ITEMS: Mapping[str, Callable[[Place], Mapping[str, Found]]] = {
    "features": limits.features,
    "scores": limits.scores,
    "starts": limits.starts,
    "adult-weights": peers.weighed,
    "dp-sgd": peers.training,
    "privbayes": partial(
        peers.fits, peer="DataSynthesizer", dataset="adult", method="privbayes", delta=0.0
    ),
    "banknote-mst": partial(peers.fits, peer=SMARTNOISE, dataset="banknote", method="mst"),
    "banknote-aim": partial(peers.fits, peer=SMARTNOISE, dataset="banknote", method="aim"),
    "adult-mst": partial(peers.fits, peer=SMARTNOISE, dataset="adult", method="mst"),
}
"""What is measured and kept as one, the quick ones first; besides: `release-ROWS`."""

PACKAGES = ("numpy", "scipy", "pandas", "pyarrow", "opendp", "prefect", "great-expectations")


def machine() -> str:
    """Return the processor's name, architecture, family, model and widest vector instructions.

    Linux alone states more than the architecture. Under a hypervisor, processors of many
    generations have one name, and their times differ by a factor of two.
    """
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    stated = dict(re.findall(r"^(model name|cpu family|model|flags)\s*: (.+)$", text, re.M))
    if "model name" not in stated:
        return platform.machine()
    flags = stated.get("flags", "").split()
    vectors = [name for name in ("avx512f", "avx2", "avx") if name in flags]
    numbers = [f"{name} {stated[name]}" for name in ("cpu family", "model") if name in stated]
    return f"{stated['model name']} ({', '.join([platform.machine(), *numbers, *vectors[:1]])})"


def kept(folder: Path, item: str) -> dict[str, Any] | None:
    path = folder / f"{item}.json"
    return json.loads(path.read_text()) if path.exists() else None


def keep(folder: Path, item: str, record: Mapping[str, Any]) -> None:
    """Whole or not at all: a run may be cut short at any moment."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{item}.{os.getpid()}"
    temporary.write_text(json.dumps(record, indent=1))
    temporary.replace(folder / f"{item}.json")


def apart(item: str, place: Place) -> dict[str, Any]:
    """As `measured`, in a process of its own: what a former item held is not counted here."""
    stamped = stamp(COMMAND)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, item, place).result() | stamped


def measured(item: str, place: Place) -> dict[str, Any]:
    """A record of one item: what was found, or why nothing was; with date and load."""
    before = os.getloadavg()[0]
    try:
        result = _found(item, place)
    except NotRunError as reason:
        result = {"not_run": str(reason)}
    loads = (before, os.getloadavg()[0])
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    return result | {"date": date, "load": [min(loads), max(loads)]}


def _found(item: str, place: Place) -> dict[str, Any]:
    if item.startswith("release-"):
        stages = limits.release(place, int(item.removeprefix("release-")))
        return {"stages": {name: asdict(used) for name, used in stages.items()}}
    return _lines(ITEMS[item](place))


def _lines(found: Mapping[str, Found]) -> dict[str, Any]:
    return {"lines": {name: asdict(line) for name, line in found.items()}}


def records_of(folder: Path) -> tuple[dict[str, Any], dict[int, Any]]:
    """What is kept: by item, and releases by rows; the largest release gives lines."""
    by_item = {name: record for name in ITEMS if (record := kept(folder, name)) is not None}
    sizes = {
        int(path.stem.removeprefix("release-")): json.loads(path.read_text())
        for path in folder.glob("release-*.json")
    }
    if sizes:
        most = max(sizes)
        lines = limits.of_release(sizes[most]["stages"], most)
        by_item["release"] = sizes[most] | _lines(lines)
    return by_item, dict(sorted(sizes.items()))


def written(cache: Path, out: Path) -> None:
    """The page, the numbers and the plot of what is kept."""
    records, sizes = records_of(cache)
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    versions += [peer.version for peer in peers.PEERS.values()]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    facts = {
        "command": COMMAND,
        "machine": f"{machine()}, {os.cpu_count()} cores, {memory:.0f} GiB",
        "versions": ", ".join(versions),
    }
    out.mkdir(parents=True, exist_ok=True)
    contents = {"facts": facts, "items": records, "releases": sizes}
    (out / "bench.md").write_text(page(LINES, records, sizes, facts) + foot(contents))
    (out / "bench.json").write_text(json.dumps(contents, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with adult.csv and banknote.csv")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6],
                        help="of whole releases; 10000000 takes half an hour more")  # fmt: skip
    parser.add_argument("--table-rows", type=int, default=10**6, help="of sums")
    parser.add_argument("--repeats", type=int, default=3, help="turns of what takes little")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="ITEM", help="of what the page shows")
    parser.add_argument("--again", action="store_true", help="measure anew what is kept")
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "bench")
    parser.add_argument("--environments", type=Path, default=ROOT / ".dpiw" / "weights_table")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()),
                        help="where tables lie while they are used")  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    place = Place(
        data=chosen.data and chosen.data.resolve(), environments=chosen.environments.resolve(),
        scratch=chosen.folder, rows=chosen.table_rows, repeats=chosen.repeats,
        with_peers=not chosen.without_peers,
    )  # fmt: skip
    items = [*ITEMS, *(f"release-{rows}" for rows in sorted(chosen.rows))]
    unknown = sorted(set(chosen.only or ()) - set(items))
    if unknown:
        parser.error(f"--only {unknown[0]}: expected one of {', '.join(items)}")
    for item in chosen.only or items:
        known = kept(chosen.cache, item)
        if known is None or "not_run" in known or chosen.again:
            print(f"{item}: measuring", flush=True)
            record = apart(item, place)
            if known is None or "not_run" in known or "not_run" not in record:
                keep(chosen.cache, item, record)
            print(f"{item}: {record.get('not_run', 'done')}", flush=True)
        written(chosen.cache, chosen.out)
    print(chosen.out / "bench.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
