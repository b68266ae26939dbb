"""Coverage of 95% intervals from releases of simulated populations with known truth.

    python benchmarks/coverage.py --releases 500 --jobs 2     # resumes where it stopped

For each population, generator and feature map: many releases at the same plan, each with a fresh
confidential table, noise and synthetic rows; every estimand by every method; how often its nominal
95% interval holds the truth. Releases are kept in `--cache`, in a folder named by the code, so the
study can be stopped and grown. Noise is seeded per release: tables can be made again to the digit.

Methods: `unweighted` and `weighted` take the sandwich over synthetic rows, what common tools print;
`noise_aware` is `dpiw.analysis.confidence_interval` of the same weighted estimate; `replicates`,
where `--replicates` asks for them, that of measured weights' replicates, as a survey package takes
it: no quantiles, no totals. `width`: of the noise-aware interval, in those of the weighted one. The
verdict is the interval's (may it be believed?), and public.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from coverage_populations import EVERY, POPULATIONS, Population, truth
from provenance import RESULTS, stamp
from scipy.stats import binom
from study import ROOT, Store, records, table, write

from dpiw.analysis.errors.law import played_sample
from dpiw.data.tables import PrivateTable
from dpiw.errors import DPIWError
from dpiw.methods.recipe import play
from dpiw.methods.weights.measured.constants import SUPPORT_CARE, SUPPORT_USE
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

GENERATORS = ("histogram", "privbayes")
MAPS: dict[str, tuple[str, dict[str, Any]]] = {
    "measured": ("measured", {"omega_seed": 1, "frequencies": 150}),
    "chosen": ("measured", {"omega_seed": 1, "choose": 20}),
    "none": ("none", {}),
}
"""`measured` weights with features by their rule, of half the usual frequencies for their time, or
by a private choice; and no weights, whose generator has all the budget."""

METHODS = ("unweighted", "weighted", "noise_aware", "replicates")
ORDER = ("use", "use with care", "do not use")
KINDS = {"mean": "mean", "count": "mean", "share": "mean", "hours": "mean", "group_mean": "mean",
         "median": "quantile", "q90": "quantile", "linear": "linear coefficient",
         "correlation": "correlation",
         "logistic": "logistic coefficient",
         "multinomial": "multinomial coefficient"}  # fmt: skip
BANDS = [-np.inf, SUPPORT_CARE, SUPPORT_USE, 0.8, 0.95, np.inf]


BY_NAME = {population.name: population for population in EVERY}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Releases at one plan; `seed`: of the study."""

    population: str
    generator: str
    features: str
    rows: int
    synthetic: int
    epsilon: str
    seed: int
    replicates: int


@cache
def plan_for(own: Setting) -> Plan:
    population, (weights, settings) = BY_NAME[own.population], MAPS[own.features]
    person = population.schema.identifier
    unit = {} if person is None else {"id_column": person.name, "max_rows": population.max_rows}
    spec = parse_spec(
        {
            "format": 1, "name": "coverage", "population": "coverage", "schema": "unused",
            "source": {"path": "unused", "format": "csv"}, "epsilon": own.epsilon,
            "delta": "1e-6", "nominal_rows": own.rows, "synthetic_rows": own.synthetic,
            "generator": {"method": own.generator}, "unit": unit,
            "weights": {"method": weights, "settings": settings, "when_infeasible": "keep"},
            "state": "unused", "signing_key": "unused", "publish_to": "unused",
        }
    )  # fmt: skip
    return compile_plan(spec, population.schema)


def one_release(own: Setting, seed: int) -> Any:
    """Weighted rows as a release would hold them.

    Draws are a population's and a generator's own, so that an unlucky sample of people counts once;
    weights and no weights see the same people.
    """
    draws = zlib.crc32(f"{own.population}/{own.generator}".encode())
    population, rng = BY_NAME[own.population], np.random.default_rng([own.seed, seed, draws])
    scaled = population.schema.scale(population.draw(own.rows, rng))
    private = PrivateTable(schema=population.schema, scaled=scaled)
    noise = SeededNoise(int(rng.integers(2**62)))
    return played_sample(play(plan_for(own).recipe, private, noise=noise, rng=rng))


def by_replicates(estimate: Any, drawn: Any, estimand: Any) -> list[list[float]]:
    """Value, lower and upper end by value, from replicate weights; none where they tell nothing."""
    if drawn is None or not all(estimate.facts.get(k, True) for k in ("smooth", "normalised")):
        return []

    def values(weights: Any) -> Any:
        return estimand(replace(estimate.sample, weights=weights)).values

    reach = 1.96 * np.sqrt(drawn.variance(values, estimate.sample.weights))
    ends = zip(estimate.values, reach, strict=True)
    return [[float(v), float(v - r), float(v + r)] for v, r in ends]


def intervals(
    population: Population, sample: Any, *, replicates: int = 0, seed: int = 0
) -> dict[str, dict[str, Any]]:
    drawn, sources = None, {"unweighted": (sample.table, None)}
    if sample.law is not None:
        sources |= {"weighted": (sample.table, sample.weights), "noise_aware": sample}
        if replicates:
            drawn = sample.law.replicates(replicates, np.random.default_rng([seed, 3]))
    by_key: dict[str, dict[str, Any]] = {}
    for name, estimand in population.estimands.items():
        for method, source in sources.items():
            try:
                estimate = estimand(source)
                ci = estimate.interval()
            except DPIWError:
                continue  # counted: the method is missing from this release
            again = [] if method != "noise_aware" else by_replicates(estimate, drawn, estimand)
            for j, label in enumerate(ci.names):
                if label.endswith("intercept"):
                    continue
                key = name if len(ci.names) == 1 else f"{name}.{label}"
                place = by_key.setdefault(key, {})
                place[method] = [float(ci.values[j]), float(ci.lower[j]), float(ci.upper[j])]
                if again:
                    place["replicates"] = again[j]
                if method == "noise_aware":
                    place[f"support_{method}"] = float(ci.support[j])
                    place[f"verdict_{method}"] = ci.verdicts[j]
    return by_key


def compute(cell: tuple[Setting, int], store: Store) -> dict[str, Any]:
    """A release's intervals: from the store, or made and kept."""
    own, seed = cell

    def made() -> dict[str, Any]:
        sample, population = one_release(own, seed), BY_NAME[own.population]
        return intervals(population, sample, replicates=own.replicates, seed=seed)

    return store.kept(f"{'-'.join(map(str, vars(own).values()))}/{seed}", made)


def lines(
    cells: Sequence[tuple[Setting, int]], found: Sequence[Mapping[str, Any]], store: Store
) -> Iterator[dict[str, Any]]:
    """Every interval beside the truth."""
    known = {
        name: store.kept(f"truth-{name}", partial(truth, BY_NAME[name]))
        for name in dict.fromkeys(own.population for own, _ in cells)
    }
    for (own, _), release in zip(cells, found, strict=True):
        for key, entry in release.items():
            exact = known[own.population].get(key)
            for method in METHODS:
                if method in entry and exact is not None:
                    value, low, high = entry[method]
                    yield {
                        "population": own.population, "generator": own.generator,
                        "features": own.features, "estimand": key, "method": method,
                        "support": entry.get("support_noise_aware", np.nan),
                        "verdict": entry.get("verdict_noise_aware", ORDER[-1]),
                        "kind": KINDS[key.split(".")[0]], "error": value - exact,
                        "width": high - low, "covered": low <= exact <= high,
                    }  # fmt: skip


def _table(frame: pd.DataFrame, by: str) -> list[list[str]]:
    cover = frame.pivot_table(index=by, columns="method", values="covered", observed=True)
    width = frame.pivot_table(
        index=by, columns="method", values="relative_width", aggfunc="median", observed=True
    )
    count = frame[frame.method == "weighted"].groupby(by, observed=True).size()
    rows = [[by, "intervals", *METHODS, "width"]]
    for index, values in cover.iterrows():
        cells = [f"{values.get(method, np.nan):.3f}" for method in METHODS]
        relative = f"{width.loc[index].get('noise_aware', np.nan):.1f}"
        rows.append([str(index), str(count.get(index, 0)), *cells, relative])
    return rows


CELL = ["population", "generator", "features", "estimand"]


def _rmse(errors: pd.Series[float]) -> float:
    return float(np.sqrt((errors**2).mean()))


def against_none(frame: pd.DataFrame) -> list[str]:
    """Root mean square errors of weighted estimates over those without weights, one total."""
    by = ["population", "generator", "estimand"]
    alone = frame[frame.features == "none"].groupby(by)["error"].apply(_rmse)
    chosen = frame[(frame.features != "none") & (frame.method == "weighted")]
    weighted = chosen.groupby(by)["error"].apply(_rmse)
    ratios = (weighted / alone).dropna()
    apart = ["population", "estimand"]
    pooled = ((weighted**2).groupby(apart).mean() / (alone**2).groupby(apart).mean()).dropna()
    return [
        f"A smaller root mean square error in {int((ratios < 1).sum())} of {len(ratios)}"
        f" (population x generator x estimand), median ratio {ratios.median():.2f}; both generators"
        f" together in {int((pooled < 1).sum())} of {len(pooled)} (population x estimand)."
    ]


def _errors(frame: pd.DataFrame) -> list[list[str]]:
    scale = frame[frame.method == "noise_aware"].groupby(CELL)["width"].mean() / (2 * 1.96)
    cells = frame.groupby([*CELL, "kind", "method"])["error"].agg(bias="mean", rmse=_rmse)
    cells = cells.join(scale.rename("scale"), on=CELL)
    cells["bias"], cells["rmse"] = cells.bias.abs() / cells.scale, cells.rmse / cells.scale
    medians = cells.groupby(["kind", "method"])[["bias", "rmse"]].median().unstack()
    rows = [["kind", *(f"{m}: bias, rmse" for m in METHODS)]]
    for kind, values in medians.iterrows():
        texts = [
            f"{values.get(('bias', m), np.nan):.2f}, {values.get(('rmse', m), np.nan):.2f}"
            for m in METHODS
        ]
        rows.append([str(kind), *texts])
    return rows


def _used(used_rows: pd.DataFrame, releases: int) -> list[str]:
    """Cells with the verdict `use` in half of the releases, by their coverage, and chance's."""
    own = used_rows[used_rows.method == "noise_aware"].groupby(CELL)["covered"]
    cells = own.agg(["size", "mean"])
    cells = cells[cells["size"] >= releases / 2]
    n, low, high = (
        cells["size"],
        int((cells["mean"] < 0.93).sum()),
        int((cells["mean"] > 0.97).sum()),
    )
    chance = 1 - binom.cdf(n * 0.97, n, 0.95) + binom.cdf(n * 0.93 - 1e-9, n, 0.95)
    return [
        f"{len(cells)} cells; coverage within 93-97% in {len(cells) - low - high}, below in {low},"
        f" above in {high}. By chance alone, at a true 95%, {chance.sum():.1f} would lie outside."
    ]


def summary(frame: pd.DataFrame, releases: int) -> dict[str, Any]:
    """What the page prints, by heading: a sentence, or a table with its head."""
    sections: dict[str, Any] = {}
    if "none" in set(frame.features):
        sections["Against no weights, whose generator has the whole budget"] = against_none(frame)
    frame = frame[frame.features != "none"].copy()
    naive = frame[frame.method == "weighted"].groupby(CELL)["width"].mean().rename("naive")
    frame = frame.join(naive, on=CELL)
    frame["relative_width"] = frame["width"] / frame["naive"]
    frame["support"] = pd.cut(frame["support"], BANDS)
    used_rows = frame[frame.verdict == "use"]
    return sections | {
        "By verdict of the interval": _table(frame, "verdict"),
        "`use` only: by kind of estimand": _table(used_rows, "kind"),
        BIAS: _errors(used_rows),
        "`use` only: by population": _table(used_rows, "population"),
        "By support": _table(frame, "support"),
        "Cells with verdict `use` in at least half of the releases": _used(used_rows, releases),
    }


BIAS = "`use` only: bias and root mean square error, in standard deviations of the interval"


def page(record: dict[str, Any]) -> list[str]:
    """Markdown of a record."""
    lines = [
        "# Coverage of nominal 95% intervals", "",
        f"`{record['command']}`, dpiw {record['dpiw']}: {record['releases']} releases per cell,"
        f" {record['weighted']} with weights in all, n0 = {record['rows']}, {record['synthetic']}"
        f" synthetic rows, epsilon = {record['epsilon']}, delta = 1e-6.", "",
        *(__doc__ or "").split("Methods: ")[1].splitlines(), "",
        f"A cell's coverage has a standard error of {(0.95 * 0.05 / record['releases'])**0.5:.3f}.",
    ]  # fmt: skip
    for heading, section in record["sections"].items():
        is_table = isinstance(section[0], list)
        lines += ["", f"## {heading}", "", *(table(section) if is_table else section)]
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", type=int, default=40)
    parser.add_argument("--rows", type=int, default=4000, help="confidential rows, public n0")
    parser.add_argument("--synthetic", type=int, default=4000)
    parser.add_argument("--epsilon", default="2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicates", type=int, default=0, help="replicate weights of each")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--populations", nargs="+", default=[p.name for p in POPULATIONS])
    parser.add_argument("--features", nargs="+", default=["measured"], choices=[*MAPS])
    parser.add_argument("--generators", nargs="+", default=list(GENERATORS), choices=GENERATORS)
    parser.add_argument("--name", default="coverage", help="of the result files")
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "coverage")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    store = Store(folder=chosen.cache.resolve(), data=ROOT)
    stamped = stamp(" ".join(["python benchmarks/coverage.py", *arguments]))
    same = ("rows", "synthetic", "epsilon", "seed", "replicates")
    cells = [
        (Setting(population=population, generator=generator, features=features,
                 **{name: getattr(chosen, name) for name in same}), seed)
        for population in chosen.populations for generator in chosen.generators
        for features in chosen.features for seed in range(chosen.releases)
    ]  # fmt: skip
    found = records(cells, partial(compute, store=store), chosen.jobs)
    frame = pd.DataFrame(lines(cells, found, store))
    record = {
        **stamped, "releases": chosen.releases,
        "weighted": sum(own.features != "none" for own, _ in cells),
        "rows": chosen.rows, "synthetic": chosen.synthetic,
        "epsilon": chosen.epsilon, "sections": summary(frame, chosen.releases),
    }  # fmt: skip
    write(chosen.out, chosen.name, record, page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
