"""Releases for boards of the field: unweighted, weighted, resampled by weights; means over runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from marginal_peers import BINS, Asked, environment, fitted, made
from metrics import Array
from provenance import RESULTS, stamp
from study import Store, head, mean_and_error, number, options, parsed, read, records, row, write

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.marginal_noise import useful_bins
from dpiw.methods.recipe import fit, play
from dpiw.methods.weights.weigh import resample
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

METHODS = ("privbayes", "mst", "aim")
SMARTNOISE = {"smartnoise mst": "mst", "smartnoise aim": "aim"}
REWEIGHTED = "mbi"
PEERS = (*SMARTNOISE, REWEIGHTED)
"""Of `marginal_peers`; mbi weights rows of our privbayes, at the shares of `chosen`."""

EPSILON, REAL = "1", "real"

WEIGHTS: Mapping[str, dict[str, Any]] = {
    "none": {"weights": {"method": "none"}},
    "measured": {"weights": {"method": "measured", "settings": {}}},
    "chosen": {
        "weights": {"method": "measured", "settings": {"choose": 30}},
        "shares": {"generator": 0.3, "weights": 0.7},
    },
}
"""Entries of a spec: defaults, and a private choice of 30 tables, or of all bundles with room."""


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release with `WEIGHTS`, or with method `real` the rows themselves."""

    run: int
    table: str
    method: str = REAL
    weights: str = "none"

    @property
    def name(self) -> str:
        """A file name."""
        return f"{self.table}-{self.method}-{self.weights}-{self.run}"


def grid(runs: int, tables: Iterable[str], methods: Sequence[str]) -> list[Cell]:
    """Every cell, run by run."""
    ways = [
        (REAL, "none"),
        *product((method for method in methods if method not in PEERS), WEIGHTS),
        *((method, "none") for method in methods if method in PEERS),
    ]
    return [
        Cell(run=run, table=table, method=method, weights=weights)
        for run, table, (method, weights) in product(range(runs), tables, ways)
    ]


def planned(
    cell: Cell, schema: PublicSchema, rows: ScaledTable, *, delta: float, each: int
) -> Plan:
    """Plan of the cell's release; `each`: published rows for each confidential one."""
    own = deepcopy(WEIGHTS[cell.weights])
    if "settings" in own["weights"]:
        own["weights"]["settings"]["omega_seed"] = 1
        own["weights"]["when_infeasible"] = "keep"
    spec = parse_spec(
        {
            "format": 1, "name": "board", "population": "board", "schema": "unused",
            "source": {"path": "unused", "format": "csv"}, "epsilon": EPSILON,
            "delta": f"{delta:.3g}", "nominal_rows": rows.rows, "synthetic_rows": each * rows.rows,
            "generator": {"method": cell.method},
            "state": "unused", "signing_key": "unused", "publish_to": "unused",
        } | own
    )  # fmt: skip
    return compile_plan(spec, schema)


def released(
    cell: Cell, schema: PublicSchema, rows: ScaledTable, *, delta: float, each: int = 1
) -> tuple[dict[str, tuple[ScaledTable, Array]], str | None]:
    """Rows and weights of the cell's release, by how weights are used; verdict."""
    rng = np.random.default_rng([cell.run, 1])
    private = PrivateTable(schema=schema, scaled=rows)
    noise = SeededNoise(1000 * cell.run + 1)
    plan = planned(cell, schema, rows, delta=delta, each=each)
    made = play(plan.recipe, private, noise=noise, rng=rng)
    found, ones = made.rows.scaled, np.ones(made.rows.rows)
    if cell.weights == "none":
        return {"unweighted": (found, ones)}, None
    drawn = resample(made.weights.log_weights, len(ones), rng=rng)
    return {
        f"{cell.weights}, by weights": (found, np.exp(made.weights.log_weights)),
        f"{cell.weights}, resampled": (found.take(drawn), ones),
    }, made.weights.diagnostics.verdict.value


def by_peer(
    cell: Cell, schema: PublicSchema, rows: ScaledTable, *, delta: float, each: int, folder: Path
) -> dict[str, tuple[ScaledTable, Array]]:
    """Rows and weights of a peer at the same total; `folder` holds the peers' environments."""
    if cell.method in SMARTNOISE:
        asked = Asked(
            method=SMARTNOISE[cell.method], epsilon=float(EPSILON), delta=delta,
            rows=each * rows.rows, seed=cell.run,
        )  # fmt: skip
        found = fitted(environment(folder), rows, schema, rows.rows, asked).scaled
        return {"unweighted": (found, np.ones(found.rows))}
    own = replace(cell, method="privbayes", weights="chosen")
    plan = planned(own, schema, rows, delta=delta, each=each)
    private = PrivateTable(schema=schema, scaled=rows)
    model = fit(plan.recipe, private, noise=SeededNoise(1000 * cell.run + 1)).model
    base = plan.recipe.sample(model, rng=np.random.default_rng([cell.run, 1])).weighed.scaled
    domain = Domain.from_schema(schema, bins=useful_bins(BINS, rows.rows))
    given = {
        "codes": domain.codes(rows), "base": domain.codes(base), "sizes": np.array(domain.sizes),
        "rho": WEIGHTS["chosen"]["shares"]["weights"] * plan.effort, "seed": cell.run,
    }  # fmt: skip
    weights = made(environment(folder, "mbi", "mbi.txt"), "reweighted", given)["weights"]
    return {"reweighted, by weights": (base, weights)}


def summary(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard error over runs of every metric, by table, method and use of weights."""
    runs: dict[tuple[str, str, str], list[Mapping[str, float]]] = {}
    useful: dict[tuple[str, str, str], int] = {}
    for cell in found:
        for use, metrics in cell["metrics"].items():
            key = cell["table"], cell["method"], use
            runs.setdefault(key, []).append(metrics)
            useful[key] = useful.get(key, 0) + (cell["verdict"] == "use")
    return [
        dict(zip(("table", "method", "use"), key, strict=True))
        | {"runs": len(own), "useful": useful[key]}
        | {name: mean_and_error([each[name] for each in own]) for name in own[0]}
        for key, own in runs.items()
    ]


def lines(cells: Sequence[Mapping[str, Any]], table: str, titles: Mapping[str, str]) -> list[str]:
    """The table of a page: a line for each method and use; `titles` of its metrics."""
    own = [cell for cell in cells if cell["table"] == table]
    return head(["method", "rows", *titles.values(), "runs", "runs with verdict `use`"]) + [
        row([
            c["method"], c["use"], *(shown(c[name]) for name in titles), c["runs"],
            c["useful"] if c["use"].startswith((*WEIGHTS,)) else "",
        ])
        for c in own
    ]  # fmt: skip


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
    peers: Sequence[str] = (),
) -> int:
    """Measure the board, or make its page again; a run that was cut short goes on."""
    parser = options(page.__doc__, "boards")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--tables", nargs="+", default=[*tables], choices=tables)
    parser.add_argument(
        "--methods", nargs="+", default=[*METHODS, *peers], choices=(*METHODS, *peers)
    )
    chosen = parsed(parser, arguments)
    out: Path = chosen.out or RESULTS
    if chosen.page:
        write(out, name, read(out, name), page)
        return 0
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    stamped = stamp(f"python benchmarks/{name}.py --data FOLDER --runs {chosen.runs}")
    cells = grid(chosen.runs, chosen.tables, chosen.methods)
    found = records(cells, partial(compute, store=store), chosen.jobs)
    write(out, name, {**stamped, "cells": summary(found)}, page, again=chosen.again)
    return 0
