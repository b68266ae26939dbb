"""MST and AIM, ours against the peers' own, at equal codes and total; alone and with weights.

    python benchmarks/marginal_generators.py --data FOLDER [--datasets ...] [--runs 3]

FOLDER holds the files of `weights_cells.DATASETS`; ours need `dpiw[marginals]`, the peers'
environment is made as for measured_peers.py, whose splits, metrics and cells these are. A cell
once made is kept in `--cache`; a run that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measured_peers import judged, peer_cell
from paper_peers import environment
from weights_cells import (
    DATASETS,
    DELTA,
    ROOT,
    WEIGHTS,
    Cell,
    Store,
    measure,
    spec_of,
    split,
)
from weights_summary import LABELS
from weights_table import commit, one_thread

from dpiw import __version__
from dpiw.data.tables import PrivateTable
from dpiw.methods.play import play
from dpiw.plan.plan import compile_plan
from dpiw.privacy.randomness import SeededNoise

METHODS = {"banknote": ("mst", "aim"), "adult": ("mst",)}
"""AIM fits a model in each round: slow on wide tables, and not tried there."""

KINDS = ("peer", "none", "measured")
EPSILON = "1"


def own_cell(cell: Cell, store: Store) -> dict[str, Any]:
    """Ours, alone or with measured weights at the same total."""
    halves = split(cell.dataset, cell.run, store.data)
    settings = {"method": cell.generator, "settings": {}}
    spec = spec_of(cell.dataset, settings, cell.epsilon, WEIGHTS[cell.weights])
    played = play(
        compile_plan(spec, halves.schema).recipe,
        PrivateTable(schema=halves.schema, scaled=halves.train),
        noise=SeededNoise(1000 * cell.run + 1),
        rng=np.random.default_rng([cell.run, 1]),
    )
    weights = np.exp(played.weights.log_weights)
    return {"metrics": measure(halves, played.rows.scaled, weights, cell.run)}


def made(cell: Cell, store: Store, python: Path) -> dict[str, Any]:
    """A cell's record: kept, or made and kept."""
    name = f"marginal-{cell.name}"
    known = store.read(cell.dataset, name)
    if known is not None:
        return known
    started = time.monotonic()
    if cell.weights == "peer":
        fields = vars(cell) | {"weights": "none"}
        record = peer_cell(Cell(**fields), store, python)
    else:
        record = own_cell(cell, store)
    record |= {"seconds": time.monotonic() - started}
    store.write(cell.dataset, name, record)
    return record


def page(records: dict[tuple[str, str, str], list[dict[str, Any]]]) -> list[str]:
    """A table for each data set and method: mean and standard error of every metric."""
    lines = []
    for dataset, method in dict.fromkeys(key[:2] for key in records):
        rows = {kind: records.get((dataset, method, kind), []) for kind in KINDS}
        metrics = {k: [r["metrics"] for r in runs if "metrics" in r] for k, runs in rows.items()}
        names = list(judged(metrics["none"][0]).values())
        lines += ["", f"### {dataset}, {method}, epsilon {EPSILON}", "",
                  "| rows | " + " | ".join(LABELS[n] for n in names) + " | runs | s |",
                  "|---" * (len(names) + 3) + "|"]  # fmt: skip
        for kind, values in metrics.items():
            if values:
                cells = " | ".join(_told([m[n] for m in values]) for n in names)
                seconds = statistics.fmean(r["seconds"] for r in rows[kind] if "metrics" in r)
                label = {"peer": "the peers'", "none": "ours", "measured": "ours, measured"}[kind]
                lines.append(f"| {label} | {cells} | {len(values)} | {seconds:.0f} |")
    return lines


def _told(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.4g}"
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.fmean(values):.4g} ± {error:.2g}"


def head(command: str, rows: str) -> list[str]:
    """How the page was made, and what is compared."""
    return [
        "# MST and AIM, ours and the peers'",
        "",
        f"`{command}`, dpiw {__version__} ({commit()}). Every release spends the same (epsilon,"
        f" delta = {DELTA}) in total, add/remove one row, on the same public codes; {rows}. Mean"
        " and standard error over splits; the metrics are those of"
        " [measured_table.md](measured_table.md), against held-out rows. The peers' are those of"
        " smartnoise-synth on mbi at their defaults, every row drawn independently from the fit:"
        " they read the exact number of rows and charge nothing for it, and their noise cannot be"
        " seeded. Seconds are of a busy machine, with the peers' start.",
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--methods", nargs="+", default=["mst", "aim"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "weights_table")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    one_thread()
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    python = environment(chosen.cache.resolve())
    records: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in range(chosen.runs):
        for dataset in chosen.datasets:
            for method in (name for name in METHODS[dataset] if name in chosen.methods):
                for kind in KINDS:
                    cell = Cell(run=run, dataset=dataset, generator=method, epsilon=EPSILON,
                                weights=kind)  # fmt: skip
                    records.setdefault((dataset, method, kind), []).append(
                        made(cell, store, python)
                    )
                    print(f"run {run}: {dataset} {method} {kind}", flush=True)
    words = [word for word in arguments if word not in ("--data", str(chosen.data))]
    command = " ".join(["python benchmarks/marginal_generators.py --data FOLDER", *words])
    rows = ", ".join(f"{DATASETS[d].synthetic_rows:,} rows of {d}" for d in chosen.datasets)
    text = [
        *head(command, rows),
        *page(records),
    ]
    (chosen.out / "marginal_generators.md").write_text("\n".join(text) + "\n")
    by_cell = {" ".join(key): value for key, value in records.items()}
    facts = {"command": command, "commit": commit(), "records": by_cell}
    (chosen.out / "marginal_generators.json").write_text(json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
