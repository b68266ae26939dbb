"""Where inside a bin people lie, and where rows do: spread evenly, or by the histospline.

For every column of numbers of the data sets and of the coverage benchmark's populations, on exact
marginals of equal bins (declared cuts where there are some): how far the rows' distribution is from
the people's, and how well the interval of `dpiw.analysis.quantiles.INSIDE` holds the error of a
quantile that is made inside its bin. And under noise, as releases have it. Nothing here is private.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from coverage_populations import HELD_OUT, POPULATIONS, UNSEEN
from weights_cells import DATASETS, table

from dpiw.analysis.quantiles import INSIDE
from dpiw.data.discretisation import Bins, Domain
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.methods.generators.consistency import project_to_total
from dpiw.methods.generators.histospline import Histospline

ROOT = Path(__file__).resolve().parents[1]
PEOPLE, SEED = 40_000, 1
"""Of a population."""

ROWS_OF_BIN = 400
NOISES = (0.002, 0.01, 0.05)
"""Standard deviations of a count, in shares of all people."""

PROBABILITIES = np.arange(0.01, 1.0, 0.01)
LEAST_BIN = 0.005
"""Quantiles in smaller bins are left out: what is open inside them is little."""

SCALES = (1 / 3, 1 / 4, 1 / 5, 1 / 6)

Array = np.ndarray


@dataclass(frozen=True)
class InsideRows:
    """Rows at even shares of each bin's mass, as a law draws them at random."""

    values: Array
    weights: Array


def tables(data: Path) -> Iterator[tuple[str, PublicSchema, ScaledTable]]:
    """Name, schema, and all people on the public scale."""
    for name in DATASETS:
        yield name, *table(name, data)
    for population in (*POPULATIONS, *HELD_OUT, *UNSEEN):
        people = population.table(PEOPLE, np.random.default_rng(SEED))
        schema = population.schema
        yield f"({population.name})", schema, schema.scale(people.astype(str))


def rows_of(spline: Histospline | None, bins: Bins, counts: Array) -> InsideRows:
    """`ROWS_OF_BIN` rows of each bin; `spline` None spreads them evenly."""
    assert bins.edges is not None
    low, high = bins.edges[:-1, None], bins.edges[1:, None]
    middle = (np.arange(ROWS_OF_BIN) + 0.5) / ROWS_OF_BIN
    if spline is not None:
        known = np.linspace(0, 1, spline.places.shape[1])
        middle = np.stack([np.interp(middle, known, places) for places in spline.places])
    places = low + middle * (high - low)
    if bins.span:
        places = np.minimum(np.floor(places), high - 1) / bins.span
    return InsideRows(values=places.ravel(), weights=np.repeat(counts / ROWS_OF_BIN, ROWS_OF_BIN))


def share_errors(people: Array, rows: InsideRows, bins: Bins, counts: Array) -> Array:
    """Errors of quantiles' shares in units of their bin's sqrt(t (1 - t)), `INSIDE`'s."""
    assert bins.edges is not None
    order = np.argsort(rows.values, kind="stable")
    values, reached = rows.values[order], np.cumsum(rows.weights[order])
    quantiles = values[np.searchsorted(reached, PROBABILITIES * (1 - 1e-12))]
    # Of tied people a quantile may be any: the error begins where all of them are on one side.
    below = np.searchsorted(people, quantiles - 1e-12, side="left") / len(people)
    upto = np.searchsorted(people, quantiles + 1e-12, side="right") / len(people)
    error = np.maximum(np.maximum(below - PROBABILITIES, PROBABILITIES - upto), 0)
    edges = np.concatenate([[0.0], np.cumsum(counts)])
    index = np.clip(np.searchsorted(edges, PROBABILITIES, side="right") - 1, 0, len(counts) - 1)
    t = (PROBABILITIES - edges[index]) / counts[index]
    counted = (counts[index] >= LEAST_BIN) & (t > 0.02) & (t < 0.98)
    return (error / (counts[index] * np.sqrt(np.clip(t * (1 - t), 1e-9, 1))))[counted]


def distance(people: Array, rows: InsideRows) -> float:
    """One-way Wasserstein distance on the public scale."""
    order = np.argsort(rows.values, kind="stable")
    probabilities = (np.arange(4000) + 0.5) / 4000
    of_rows = rows.values[order][np.searchsorted(np.cumsum(rows.weights[order]), probabilities)]
    of_people = people[(probabilities * len(people)).astype(int)]
    return float(np.abs(of_rows - of_people).mean())


def columns(schema: PublicSchema, people: ScaledTable, bins: int) -> Iterator[tuple[Bins, Array]]:
    """Bins and sorted known values of each column of numbers with more than one value a bin."""
    domain = Domain.from_schema(schema, bins=bins)
    for column, grid in zip(schema.released, domain.columns, strict=True):
        values = people.columns[column.name]
        if grid.edges is not None and not (grid.span and grid.values == grid.span + 1):
            yield grid, np.sort(values[~np.isnan(values)])


def measured(data: Path, bins: int) -> pd.DataFrame:
    """One line for each table, way and column."""
    lines = []
    for name, schema, scaled in tables(data):
        for grid, people in columns(schema, scaled, bins):
            counts = exact(grid, people)
            ways = {"evenly": None, "histospline": Histospline.through(counts, grid, variance=0)}
            for way, spline in ways.items():
                rows = rows_of(spline, grid, counts)
                errors = share_errors(people, rows, grid, counts)
                lines.append({"table": name, "way": way, "distance": distance(people, rows),
                              "errors": errors})  # fmt: skip
    return pd.DataFrame(lines)


def under_noise(data: Path, bins: int) -> list[str]:
    """Distances of rows from people, on marginals with noise; the same noise for both ways."""
    rng = np.random.default_rng(SEED)
    lines = ["| noise of a count | tables | evenly | histospline |", "|---|---|---|---|"]
    for noise in NOISES:
        distances: dict[str, list[tuple[float, float]]] = {"data sets": [], "(populations)": []}
        for name, schema, scaled in tables(data):
            for grid, people in columns(schema, scaled, bins):
                noisy = exact(grid, people) + rng.normal(0, noise, grid.values)
                counts = project_to_total(noisy, 1.0)
                spline = Histospline.through(counts, grid, variance=noise**2)
                rows = (rows_of(curve, grid, counts) for curve in (None, spline))
                evenly, bent = (distance(people, inside) for inside in rows)
                kind = "(populations)" if name.startswith("(") else "data sets"
                distances[kind].append((evenly, bent))
        for kind, pairs in distances.items():
            evenly, bent = np.mean(pairs, axis=0)
            lines.append(f"| {noise:.1%} of the people | {kind} | {evenly:.5f} | {bent:.5f} |")
    return lines


def exact(bins: Bins, people: Array) -> Array:
    """Shares of the bins."""
    places = np.rint(people * bins.span) if bins.span else people
    assert bins.edges is not None
    codes = np.searchsorted(bins.edges[1:-1], places, side="right")
    return np.bincount(codes, minlength=bins.values) / len(people)


def summary(found: pd.DataFrame) -> list[str]:
    """A table of one number of bins."""
    held = [f"held by {scale:.2f}" for scale in SCALES]
    lines = [f"| table | rows | distance | root mean square | {' | '.join(held)} |",
             "|---|---|---|---|" + "---|" * len(SCALES)]  # fmt: skip
    named = found.assign(real=~found["table"].str.startswith("("))
    parts = [(name, group) for name, group in found.groupby("table", sort=False)]
    parts += [("all data sets", named[named["real"]]), ("(all populations)", named[~named["real"]])]
    for name, part in parts:
        for way, cases in part.groupby("way", sort=False):
            errors = np.concatenate(list(cases["errors"]))
            cells = " | ".join(f"{np.mean(errors <= 1.96 * scale):.1%}" for scale in SCALES)
            lines.append(f"| {name} | {way} | {cases['distance'].mean():.5f} |"
                         f" {np.sqrt((errors**2).mean()):.3f} | {cells} |")  # fmt: skip
    return lines


def page(data: Path, command: str) -> list[str]:
    """The page of results."""
    lines = [
        "# Inside a bin",
        "",
        f"`{command}`. Exact marginals (the last table: noisy ones): columns of numbers of the"
        " data sets, and (in brackets) of the coverage benchmark's populations,"
        f" {PEOPLE:,} people each.",
        "",
        "- distance: one-way Wasserstein between people and rows on the public scale, mean over"
        " columns.",
        "- root mean square: of the error of a quantile's share of people, its 1% to 99%, in units"
        " of its bin's share times sqrt(t (1 - t)), t the part of its bin's rows below; bins of"
        f" under {LEAST_BIN:.1%} of the people are left out.",
        "- held by s: how many of these errors are within 1.96 s. The intervals of"
        f" `dpiw.analysis.quantile` take s = {INSIDE:.2f} (and add noise and sampling to it).",
    ]
    for bins in (8, 16, 32):
        lines += ["", f"## {bins} bins where no cuts are declared", ""]
        lines += summary(measured(data, bins))
    lines += ["", "## Distances under noise, 16 bins", ""]
    return lines + under_noise(data, 16)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    say = partial(print, flush=True)
    lines = page(chosen.data, "python benchmarks/histospline.py --data FOLDER")
    (chosen.out / "histospline.md").write_text("\n".join(lines) + "\n")
    say("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
