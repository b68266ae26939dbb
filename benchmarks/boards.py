"""Releases for boards of the field: unweighted, weighted, resampled by weights; means over runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from metrics import Array
from provenance import RESULTS, stamp
from study import Store, head, mean_and_error, number, options, parsed, read, records, row, write

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.recipe import play
from dpiw.methods.weights.weigh import resample
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

METHODS = ("privbayes", "mst", "aim")
EPSILON, REAL = "1", "real"


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release, or with method `real` the rows themselves; `weighted` by `measured` weights."""

    run: int
    table: str
    method: str = REAL
    weighted: bool = False

    @property
    def name(self) -> str:
        """A file name."""
        return f"{self.table}-{self.method}{'-measured' * self.weighted}-{self.run}"


def grid(runs: int, tables: Iterable[str], methods: Sequence[str]) -> list[Cell]:
    """Every cell, run by run."""
    ways = [(REAL, False), *product(methods, (False, True))]
    return [
        Cell(run=run, table=table, method=method, weighted=weighted)
        for run, table, (method, weighted) in product(range(runs), tables, ways)
    ]


def released(
    cell: Cell, schema: PublicSchema, rows: ScaledTable, *, delta: float
) -> dict[str, tuple[ScaledTable, Array]]:
    """Rows and weights of the cell's release of as many rows, by how weights are used."""
    weights = {"method": "measured", "settings": {"omega_seed": 1}, "when_infeasible": "keep"}
    spec = parse_spec(
        {
            "format": 1, "name": "board", "population": "board", "schema": "unused",
            "source": {"path": "unused", "format": "csv"}, "epsilon": EPSILON,
            "delta": f"{delta:.3g}", "nominal_rows": rows.rows, "synthetic_rows": rows.rows,
            "generator": {"method": cell.method},
            "weights": weights if cell.weighted else {"method": "none"},
            "state": "unused", "signing_key": "unused", "publish_to": "unused",
        }
    )  # fmt: skip
    rng = np.random.default_rng([cell.run, 1])
    private = PrivateTable(schema=schema, scaled=rows)
    noise = SeededNoise(1000 * cell.run + 1)
    made = play(compile_plan(spec, schema).recipe, private, noise=noise, rng=rng)
    found, ones = made.rows.scaled, np.ones(made.rows.rows)
    if not cell.weighted:
        return {"unweighted": (found, ones)}
    chosen = resample(made.weights.log_weights, len(ones), rng=rng)
    return {
        "weighted": (found, np.exp(made.weights.log_weights)),
        "resampled": (found.take(chosen), ones),
    }


def summary(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard error over runs of every metric, by table, method and use of weights."""
    runs: dict[tuple[str, str, str], list[Mapping[str, float]]] = {}
    for cell in found:
        for use, metrics in cell["metrics"].items():
            runs.setdefault((cell["table"], cell["method"], use), []).append(metrics)
    return [
        dict(zip(("table", "method", "use"), key, strict=True))
        | {"runs": len(own)}
        | {name: mean_and_error([each[name] for each in own]) for name in own[0]}
        for key, own in runs.items()
    ]


def lines(cells: Sequence[Mapping[str, Any]], table: str, titles: Mapping[str, str]) -> list[str]:
    """The table of a page: a line for each method and use; `titles` of its metrics."""
    own = [cell for cell in cells if cell["table"] == table]
    return head(["method", "rows", *titles.values(), "runs"]) + [
        row([c["method"], c["use"], *(shown(c[name]) for name in titles), c["runs"]]) for c in own
    ]


def shown(value: Sequence[float]) -> str:
    """Mean and standard error; four digits of a mean."""
    mean, error = value
    return number(mean, error).replace(f"{mean:.3g}", f"{mean:.4g}", 1)


def main(
    arguments: list[str],
    name: str,
    compute: Callable[..., dict[str, Any]],
    page: Callable[[dict[str, Any]], list[str]],
    tables: Sequence[str],
    *,
    runs: int,
) -> int:
    """Measure the board, or make its page again; a run that was cut short goes on."""
    parser = options(page.__doc__, "boards")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--tables", nargs="+", default=[*tables], choices=tables)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=METHODS)
    chosen = parsed(parser, arguments)
    out: Path = chosen.out or RESULTS
    if chosen.page:
        write(out, name, read(out, name), page)
        return 0
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    stamped = stamp(f"python benchmarks/{name}.py --data FOLDER --runs {chosen.runs}")
    cells = grid(chosen.runs, chosen.tables, chosen.methods)
    found = records(cells, partial(compute, store=store), chosen.jobs)
    write(out, name, {**stamped, "cells": summary(found)}, page)
    return 0
