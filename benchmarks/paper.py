"""The tables of Ghalebikesabi et al. (UAI 2022), ours beside the paper's, with sound noise.

    make paper-quick DATA=FOLDER      under ten minutes: 2 runs, studies 1, no peers, no MNIST
    make paper DATA=FOLDER            10 runs, studies 5, peers 3; an hour of two cores; resumes
    python benchmarks/paper.py --data FOLDER [--minutes N] [--parts tables split ...] [--cached]

FOLDER holds breast.csv, banknote.csv, boston.csv, iris.csv, tgfb.csv.gz, MNIST's four files and
paper_tables.csv. Every cell is kept in `--cache`, in a folder named by data and code: a run that
was cut short goes on, and `--minutes` stops starting new cells. The page is made from the cells
that are there and says how many runs each holds; `--cached` makes it and computes nothing. Noise is
seeded per run.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import paper_figures
import paper_known
import paper_studies
from paper_cells import REAL, Cell, cells, compute, kinds_of, spent
from paper_mnist import MnistStore, compute_mnist, mnist_cells
from paper_peers import PEERS, compute_peer, environment, method_of, peer_cells, peer_name
from paper_report import report
from paper_sets import SETS, PaperStore
from paper_summary import figures, printed
from weights_cells import ROOT
from weights_table import commit, one_thread

from dpiw import __version__

PARTS = ("tables", "split", "bayes", "known", "peers", "mnist")
VARYING = ("run", "metrics", "mse", "seconds", "cpu_seconds", "refused")
"""What differs between the runs of one setting."""

QUICK_PARTS = ("tables", "split", "bayes", "known")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How often each part is run."""

    tables: int
    studies: int
    peers: int
    mnist: int


FULL = Runs(tables=10, studies=5, peers=3, mnist=10)
QUICK = Runs(tables=2, studies=1, peers=0, mnist=0)


@dataclass(frozen=True, kw_only=True)
class Work:
    """One cell of one part; `group` is worked on by one process, which keeps its fits."""

    part: str
    group: tuple[Any, ...]
    cell: Any

    @property
    def place(self) -> tuple[str, str]:
        """Folder and name in the store."""
        if self.part == "known":
            return paper_known.FOLDER, paper_known.known_name(*self.cell)
        if self.part == "peers":
            return self.cell.dataset, peer_name(self.cell)
        prefix = "bayes-" if self.part == "bayes" else ""
        return self.cell.dataset, prefix + self.cell.name


def _of_cells(part: str, grid: Sequence[Cell]) -> list[Work]:
    return [
        Work(part=part, group=(part, cell.run, cell.dataset, cell.generator), cell=cell)
        for cell in grid
    ]


def _of_peers(grid: Sequence[Cell]) -> list[Work]:
    """Both rows of a fit are made by one process, so that the fit is made once."""
    return [
        Work(part="peers", group=("peers", cell.run, cell.dataset, method_of(cell)), cell=cell)
        for cell in grid
    ]


def wanted(chosen: argparse.Namespace, runs: Runs) -> list[Work]:
    """Everything, in order of importance."""
    sizes = [s for s in paper_known.SIZES if not chosen.quick or s[1] <= 1000]
    known = [
        Work(part="known", group=("known", run, d, n), cell=(method, d, n, run))
        for run in range(runs.studies)
        for d, n in sizes
        for method in paper_known.METHODS
    ]
    by_part = {
        "tables": _of_cells("tables", cells(tuple(chosen.datasets), runs.tables)),
        "split": _of_cells("split", paper_studies.split_cells(runs.studies)),
        "bayes": _of_cells("bayes", paper_studies.bayes_cells(runs.studies)),
        "known": known,
        "peers": _of_peers(peer_cells(runs.peers)),
        "mnist": _of_cells("mnist", mnist_cells(runs.mnist)) if runs.mnist else [],
    }
    return [work for part in PARTS if part in chosen.parts for work in by_part[part]]


def _kept(work: Work, store: PaperStore) -> dict[str, Any] | None:
    part_store = MnistStore.beside(store) if work.part == "mnist" else store
    return part_store.read(*work.place)


def compute_group(
    group: Sequence[Work], store: PaperStore, python: Path | None, until: float
) -> int:
    """Make the cells of a group that are not there, until the time is over; how many are there."""
    done = 0
    for work in group:
        if time.time() > until:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if work.part == "known":
                paper_known.compute_known(*work.cell, store)
            elif work.part == "bayes":
                paper_studies.compute_bayes(work.cell, store)
            elif work.part == "peers":
                assert python is not None
                compute_peer(work.cell, store, python)
            elif work.part == "mnist":
                compute_mnist(work.cell, MnistStore.beside(store))
            else:
                compute(work.cell, store)
        done += 1
    return done


def _counts(
    groups: Sequence[Sequence[Work]],
    store: PaperStore,
    python: Path | None,
    until: float,
    jobs: int,
) -> Iterator[int]:
    make = partial(compute_group, store=store, python=python, until=until)
    if jobs == 1:
        one_thread()
        yield from map(make, groups)
        return
    with ProcessPoolExecutor(jobs, initializer=one_thread) as pool:
        yield from pool.map(make, groups)


def work_on(
    every: Sequence[Work], store: PaperStore, python: Path | None, until: float, jobs: int
) -> None:
    """Make what is missing, with a line of progress at most every twenty seconds."""
    groups: dict[tuple[Any, ...], list[Work]] = {}
    for work in every:
        if _kept(work, store) is None:
            groups.setdefault(work.group, []).append(work)
    left, started, last = sum(map(len, groups.values())), time.monotonic(), 0.0
    print(f"{len(every) - left} of {len(every)} cells are there", flush=True)
    done = 0
    for count in _counts(list(groups.values()), store, python, until, jobs):
        done, elapsed = done + count, time.monotonic() - started
        if elapsed - last > 20:
            last = elapsed
            print(f"{done} of {left} made, {elapsed:.0f} s", flush=True)


def records(every: Sequence[Work], store: PaperStore, part: str) -> list[dict[str, Any]]:
    """What is there of a part."""
    entries = [_kept(work, store) for work in every if work.part == part]
    return [record for record in entries if record is not None]


def whole_runs(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of the runs that hold as many cells as the fullest one: points of equal runs."""
    sizes = Counter(record["run"] for record in found)
    most = max(sizes.values(), default=0)
    return [record for record in found if sizes[record["run"]] == most]


def plots(
    out: Path, data: Path, split: list[Any], bayes: list[Any], *, toy: bool = True
) -> list[str]:
    """Every plot whose cells are there; their names."""
    out.mkdir(parents=True, exist_ok=True)
    tasks: list[tuple[Any, tuple[Any, ...]]] = []
    if toy:
        known, weights = paper_known.toy(0)
        tasks.append((paper_figures.toy, (known, weights, out / "toy.png")))
        tasks.append((paper_figures.histograms, (data, weights, out / "weights.svg")))
    if split:
        frame = paper_figures.frame_of(split)
        tasks.append((paper_figures.budget_split, (frame, out / "split.svg")))
    if bayes:
        frame = paper_figures.frame_of(bayes)
        tasks.append((paper_figures.bayes, (frame, out / "bayes.svg")))
    return [path.name for path in paper_figures.drawn(tasks)]


def spending(datasets: Sequence[str], data: Path) -> dict[tuple[str, str, str], float]:
    """Total epsilon of every private column."""
    totals = {}
    for dataset in datasets:
        for generator in ("dpgan", "dpcgan", "privbayes"):
            for kind in kinds_of(dataset, generator):
                cell = Cell(run=0, dataset=dataset, generator=generator, weights=kind)
                totals[dataset, generator, kind] = spent(cell, data)
    return totals


def facts(chosen: argparse.Namespace, every: Sequence[Work], store: PaperStore) -> dict[str, Any]:
    """Of the run, for the record."""
    there = {part: len(records(every, store, part)) for part in PARTS}
    planned = {part: sum(work.part == part for work in every) for part in PARTS}
    every_record = [record for part in PARTS for record in records(every, store, part)]
    seconds = sum(record.get("cpu_seconds", 0.0) for record in every_record)
    return {
        "command": "python benchmarks/paper.py --data FOLDER"
        + (" --quick" if chosen.quick else ""),
        "dpiw": __version__,
        "commit": chosen.commit or commit(),
        "python": platform.python_version(),
        "cells_there": there,
        "cells_planned": planned,
        "cpu_minutes": round(seconds / 60, 1),
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a look in ten minutes")
    parser.add_argument("--cached", action="store_true", help="the page alone, from what is there")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--datasets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "paper")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="to record, where the tree is a copy without history")
    chosen = parser.parse_args(arguments)
    chosen.parts = chosen.parts or (QUICK_PARTS if chosen.quick else PARTS)
    results = ROOT / "benchmarks" / "results"
    chosen.out = chosen.out or (chosen.cache / "quick" if chosen.quick else results)
    return chosen


def main(arguments: Sequence[str]) -> int:
    chosen = parse(arguments)
    until = time.time() + 60 * chosen.minutes
    cache, data = chosen.cache.resolve(), chosen.data.resolve()
    store = PaperStore(folder=cache, data=data)
    every = wanted(chosen, QUICK if chosen.quick else FULL)
    if not chosen.cached:
        asked = any(work.part == "peers" and _kept(work, store) is None for work in every)
        python = environment(cache) if asked else None
        work_on(every, store, python, until, chosen.jobs)
    parts = {part: records(every, store, part) for part in PARTS}
    parts |= {part: whole_runs(parts[part]) for part in ("split", "bayes", "known")}
    ours = figures([*parts["tables"], *parts["peers"], *parts["mnist"]])
    theirs = printed(data / "paper_tables.csv")
    one_thread()
    drawn = plots(chosen.out / "paper", data, parts["split"], parts["bayes"])
    run_facts = facts(chosen, every, store)
    refused = [r for part in ("tables", "peers", "mnist") for r in parts[part] if r.get("refused")]
    text = report(
        ours, theirs, tables_records=parts["tables"], facts=run_facts, known=parts["known"],
        peers=PEERS, plots=drawn,
        bayes=parts["bayes"], split=parts["split"], spent=spending(chosen.datasets, data),
        refused=refused,
    )  # fmt: skip
    (chosen.out / "paper.md").write_text("\n".join(text) + "\n")
    (chosen.out / "paper.json").write_text(record_of(run_facts, parts, theirs))
    print(f"wrote {chosen.out / 'paper.md'}; {REAL} rows: the floor")
    return 0


def record_of(told: dict[str, Any], parts: dict[str, list[Any]], theirs: Any) -> str:
    """Every run's numbers as JSON, one line per setting."""
    settings: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        for record in parts[part]:
            fields = {k: v for k, v in record.items() if k not in VARYING}
            key = json.dumps({"part": part} | fields)
            entry = settings.setdefault(key, {"part": part} | fields | {"runs": {}})
            values = record.get("metrics", {"mse": record["mse"]} if "mse" in record else {})
            for name, value in values.items():
                entry["runs"].setdefault(name, []).append(float(f"{value:.5g}"))
    printed_cells = [[*key, cell.mean, cell.error] for key, cell in theirs.items()]
    lines = ",\n  ".join(json.dumps(setting) for setting in settings.values())
    head = json.dumps(told | {"paper": printed_cells})[:-1]
    return f'{head},\n "cells": [\n  {lines}\n ]\n}}\n'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
