"""Coverage of 95% intervals from releases of simulated populations with known truth.

    python benchmarks/coverage.py --releases 500 --jobs 2     # resumes where it stopped

For each population, generator and feature map: many releases at the same plan, each with a fresh
confidential table, noise and synthetic rows; every estimand by every method; how often its nominal
95% interval holds the truth. Releases are kept one per line in `--cache`, so the study can be
stopped and grown. Noise is seeded per release: the tables can be made again to the digit.

Methods: `unweighted` and `weighted` take the sandwich over synthetic rows, what common tools print;
`noise_aware` is `dpiw.analysis.confidence_interval` of the same weighted estimate; `replicates`,
where `--replicates` asks for them, that of measured weights' replicates, as a survey package takes
it: no quantiles, no totals. Two verdicts, both public: the
interval's (may it be believed?) and the release's (do weights gain anything on the unweighted
rows?).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parent))
from coverage_populations import EVERY, POPULATIONS, Population, truth

from dpiw import __version__
from dpiw.analysis.weight_distribution import played_sample
from dpiw.data.tables import PrivateTable
from dpiw.errors import DPIWError
from dpiw.methods.play import play
from dpiw.methods.weights.means_verdict import SUPPORT_CARE, SUPPORT_USE
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

ROOT = Path(__file__).resolve().parents[1]
GENERATORS = ("histogram", "privbayes")
MAPS: dict[str, tuple[str, dict[str, Any]]] = {
    "measured": ("measured", {"omega_seed": 1, "frequencies": 150}),
    "none": ("none", {}),
}
"""`measured` weights with features by their rule, of half the usual frequencies for their time; and
no weights, whose generator has all the budget."""

METHODS = ("unweighted", "weighted", "noise_aware", "replicates")
ORDER = ("use", "use with care", "do not use")
KINDS = {"mean": "mean", "count": "mean", "share": "mean", "hours": "mean", "group_mean": "mean",
         "median": "quantile", "q90": "quantile", "linear": "linear coefficient",
         "correlation": "correlation",
         "logistic": "logistic coefficient"}  # fmt: skip
BANDS = [-np.inf, SUPPORT_CARE, SUPPORT_USE, 0.8, 0.95, np.inf]


def plan_for(population: Population, generator: str, features: str, chosen: Any) -> Plan:
    spec = parse_spec(
        {
            "format": 1, "name": "coverage", "population": "coverage", "schema": "unused",
            "source": {"path": "unused", "format": "csv"}, "epsilon": chosen.epsilon,
            "delta": "1e-6", "nominal_rows": chosen.rows, "synthetic_rows": chosen.synthetic,
            "generator": {"method": generator}, "unit": _unit(population),
            "weights": {"method": MAPS[features][0], "settings": MAPS[features][1],
                        "when_infeasible": "keep"},
            "state": "unused", "signing_key": "unused", "publish_to": "unused",
        }
    )  # fmt: skip
    return compile_plan(spec, population.schema)


def _unit(population: Population) -> dict[str, Any]:
    person = population.schema.identifier
    return {} if person is None else {"id_column": person.name, "max_rows": population.max_rows}


def one_release(plan: Plan, population: Population, chosen: Any, seed: int) -> tuple[Any, str]:
    """Weighted rows as a release would hold them, and the release's verdict.

    Draws are a population's and a generator's own, so that an unlucky sample of people counts once;
    weights and no weights see the same people.
    """
    own = zlib.crc32(f"{population.name}/{plan.spec.generator.method}".encode())
    schema, rng = population.schema, np.random.default_rng([chosen.seed, seed, own])
    scaled = schema.scale(population.draw(chosen.rows, rng))
    private = PrivateTable(schema=schema, scaled=scaled)
    noise = SeededNoise(int(rng.integers(2**62)))
    played = play(plan.recipe, private, noise=noise, rng=rng)
    sample = played_sample(played, nominal_rows=chosen.rows)
    return sample, played.weights.diagnostics.verdict.value


def by_replicates(estimate: Any, drawn: Any, full: Any) -> list[list[float]]:
    """Value, lower and upper end by value, from replicate weights; none where they tell nothing."""
    if drawn is None or not all(estimate.facts.get(k, True) for k in ("smooth", "normalised")):
        return []
    reach = 1.96 * np.sqrt(drawn.variance(estimate.refit, full))
    ends = zip(estimate.values, reach, strict=True)
    return [[float(v), float(v - r), float(v + r)] for v, r in ends]


def values_of(name: str, estimate: Any) -> Iterator[tuple[str, list[float]]]:
    """Each value with its interval, by its key."""
    ci = estimate.interval()
    for j, label in enumerate(ci.names):
        if label != "intercept":
            key = name if len(ci.names) == 1 else f"{name}.{label}"
            yield key, [float(ci.values[j]), float(ci.lower[j]), float(ci.upper[j])]


def intervals(
    population: Population, sample: Any, *, replicates: int = 0, seed: int = 0
) -> dict[str, dict[str, Any]]:
    if sample.law is None:
        return {
            key: {"unweighted": values}
            for name, estimand in population.estimands.items()
            for key, values in values_of(name, estimand((sample.table, None)))
        }
    drawn = None
    if replicates:
        drawn = sample.law.replicates(replicates, np.random.default_rng([seed, 3]))
    sources = {
        "unweighted": (sample.table, None),
        "weighted": (sample.table, sample.weights),
        "noise_aware": sample,
    }
    by_key: dict[str, dict[str, Any]] = {}
    for name, estimand in population.estimands.items():
        for method, source in sources.items():
            try:
                estimate = estimand(source)
                ci = estimate.interval()
            except DPIWError:
                continue  # counted: the method is missing from this release
            again = (
                [] if method != "noise_aware" else by_replicates(estimate, drawn, sample.weights)
            )
            for j, label in enumerate(ci.names):
                if label == "intercept":
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


def run_cell(cell: tuple[str, str, str], chosen: Any) -> str:
    name, generator, features = cell
    population = next(p for p in EVERY if p.name == name)
    path = cache_of(cell, chosen)
    done = len(path.read_text().splitlines()) if path.exists() else 0
    if done >= chosen.releases:
        return f"{'/'.join(cell)}: {done} kept"
    plan = plan_for(population, generator, features, chosen)
    started = time.monotonic()
    with path.open("a") as file:
        for seed in range(done, chosen.releases):
            sample, verdict = one_release(plan, population, chosen, seed)
            line = {"seed": seed, "verdict": verdict,
                    "estimands": intervals(population, sample, replicates=chosen.replicates,
                                           seed=seed)}  # fmt: skip
            file.write(json.dumps(line) + "\n")
            file.flush()
    seconds = (time.monotonic() - started) / (chosen.releases - done)
    return f"{'/'.join(cell)}: {chosen.releases - done} new, {seconds:.2f} s each"


def cache_of(cell: tuple[str, str, str], chosen: Any) -> Path:
    settings = f"n{chosen.rows}-m{chosen.synthetic}-e{chosen.epsilon}-s{chosen.seed}-own"
    settings += f"-r{chosen.replicates}" if chosen.replicates else ""
    folder = chosen.cache / settings
    folder.mkdir(parents=True, exist_ok=True)
    return folder / ("-".join(cell) + ".jsonl")


def truths(names: list[str], cache: Path) -> dict[str, dict[str, float]]:
    cache.mkdir(parents=True, exist_ok=True)
    by_population = {}
    for population in EVERY:
        if population.name in names:
            path = cache / f"truth-{population.name}.json"
            if not path.exists():
                path.write_text(json.dumps(truth(population)))
            by_population[population.name] = json.loads(path.read_text())
    return by_population


def records(cells: list[tuple[str, str, str]], chosen: Any) -> Iterator[dict[str, Any]]:
    known = truths([cell[0] for cell in cells], chosen.cache)
    for cell in cells:
        for text in cache_of(cell, chosen).read_text().splitlines()[: chosen.releases]:
            line = json.loads(text)
            for key, entry in line["estimands"].items():
                if key not in known[cell[0]]:
                    continue
                facts = dict(zip(("population", "generator", "features"), cell, strict=True))
                share = entry.get("support_noise_aware", np.nan)
                verdict = entry.get("verdict_noise_aware", ORDER[-1])
                for method in METHODS:
                    if method in entry:
                        value, low, high = entry[method]
                        yield {
                            **facts, "estimand": key, "method": method, "support": share,
                            "release_verdict": line["verdict"],
                            "verdict": verdict,
                            "kind": KINDS[key.split(".")[0]],
                            "error": value - known[cell[0]][key], "width": high - low,
                            "covered": low <= known[cell[0]][key] <= high,
                        }  # fmt: skip


def _table(frame: pd.DataFrame, by: list[str]) -> list[str]:
    cover = frame.pivot_table(index=by, columns="method", values="covered", observed=True)
    width = frame.pivot_table(
        index=by, columns="method", values="relative_width", aggfunc="median", observed=True
    )
    count = frame[frame.method == "weighted"].groupby(by, observed=True).size()
    lines = [
        "| " + " | ".join([*by, "intervals", *METHODS, "width"]) + " |",
        "|" + "---|" * (len(by) + len(METHODS) + 2),
    ]
    for index, row in cover.iterrows():
        keys = index if isinstance(index, tuple) else (index,)
        cells = [f"{row.get(method, np.nan):.3f}" for method in METHODS]
        lines.append(
            "| " + " | ".join([*map(str, keys), str(count.get(index, 0)), *cells,
                               f"{width.loc[index].get('noise_aware', np.nan):.1f}"]) + " |"
        )  # fmt: skip
    return lines


def per_estimand(frame: pd.DataFrame) -> pd.DataFrame:
    by = ["population", "generator", "features", "estimand"]
    groups = frame.groupby([*by, "method"])
    table = pd.DataFrame({
        "releases": groups.size(), "bias": groups["error"].mean(), "sd": groups["error"].std(),
        "rmse": groups["error"].apply(lambda e: float(np.sqrt((e**2).mean()))),
        "coverage": groups["covered"].mean(), "mean_width": groups["width"].mean(),
        "support": groups["support"].median(),
    })  # fmt: skip
    return table.reset_index()


def against_none(frame: pd.DataFrame) -> list[str]:
    """Root mean square errors of weighted estimates over those without weights, one total."""
    apart = ["population", "estimand"]
    by = ["population", "generator", "estimand"]

    def errors(part: pd.DataFrame) -> pd.Series[float]:
        return part.groupby(by)["error"].apply(lambda e: float(np.sqrt((e**2).mean())))

    alone = errors(frame[frame.features == "none"])
    lines = ["## Against no weights, whose generator has the whole budget", ""]
    for features in dict.fromkeys(frame.features):
        if features == "none":
            continue
        weighted = errors(frame[(frame.features == features) & (frame.method == "weighted")])
        ratios = (weighted / alone).dropna().rename("ratio").reset_index()
        lines.append(f"- `{features}`: a smaller root mean square error in"
                     f" {int((ratios.ratio < 1).sum())} of {len(ratios)} (population x generator x"
                     f" estimand); median ratio {ratios.ratio.median():.2f}.")  # fmt: skip
        pooled = (weighted**2).groupby(apart).mean() / (alone**2).groupby(apart).mean()
        lines.append(f"    - both generators together, by (population x estimand):"
                     f" {int((pooled < 1).sum())} of {pooled.notna().sum()}.")  # fmt: skip
        worse = ratios[ratios.ratio >= 1].sort_values("ratio", ascending=False)
        lines += [f"    - {r.population} {r.generator} {r.estimand}: {r.ratio:.2f}"
                  for r in worse.itertuples()]  # fmt: skip
    return [*lines, ""]


def report(frame: pd.DataFrame, chosen: Any, command: str) -> list[str]:
    """Markdown. Width: of the noise-aware interval, in those of the weighted sandwich."""
    comparison = against_none(frame) if "none" in set(frame.features) else []
    frame = frame[frame.features != "none"].copy()
    by = ["population", "generator", "features", "estimand"]
    naive = frame[frame.method == "weighted"].groupby(by)["width"].mean().rename("naive")
    frame = frame.join(naive, on=by)
    frame["relative_width"] = frame["width"] / frame["naive"]
    frame["support_band"] = pd.cut(frame["support"], BANDS)
    used_rows = frame[frame.verdict == "use"]
    cells = per_estimand(used_rows)
    aware = cells[cells.method == "noise_aware"]
    used = aware[aware.releases >= chosen.releases / 2]
    inside = ((used.coverage >= 0.93) & (used.coverage <= 0.97)).sum()
    low, high = used[used.coverage < 0.93], used[used.coverage > 0.97]
    error = np.sqrt(0.95 * 0.05 / max(int(cells.releases.median()), 1))
    return [
        "# Coverage of nominal 95% intervals", "",
        f"`{command}`, dpiw {__version__}: {chosen.releases} releases per cell, n0 = {chosen.rows},"
        f" {chosen.synthetic} synthetic rows, epsilon = {chosen.epsilon}, delta = 1e-6.", "",
        *(line for line in (__doc__ or "").split("Methods: ")[1].splitlines()), "",
        f"A cell's coverage has a standard error of {error:.3f}.", "",
        *comparison, "## By verdict of the interval", "", *_table(frame, ["verdict"]), "",
        "## `use` only: by kind of estimand", "", *_table(used_rows, ["kind"]), "",
        "Bias and root mean square error, in standard deviations of the noise-aware interval"
        " (`use` only):", "", *_errors(used_rows), "",
        "## `use` only: by population", "", *_table(used_rows, ["population"]), "",
        "## By verdict of the interval and of the release", "",
        *_table(frame, ["verdict", "release_verdict"]), "",
        "## By support", "", *_table(frame, ["support_band"]), "",
        "## By generator, feature map and verdict", "",
        *_table(frame, ["generator", "features", "verdict"]), "",
        "## Cells with verdict `use` in at least half of the releases, noise-aware", "",
        f"{len(used)} cells; coverage within 93-97% in {inside}, below in"
        f" {len(low)}, above in {len(high)}. By chance alone, at a true 95%,"
        f" {_by_chance(used):.1f} would lie outside.", "",
        "Below 93%:", "", *_cells(low), "", "Above 97%:", "", *_cells(high),
    ]  # fmt: skip


def _by_chance(cells: pd.DataFrame) -> float:
    """Cells expected outside 93-97% if every interval covered with probability 0.95."""
    n = cells.releases
    return float((1 - binom.cdf(n * 0.97, n, 0.95) + binom.cdf(n * 0.93 - 1e-9, n, 0.95)).sum())


def _errors(frame: pd.DataFrame) -> list[str]:
    by = ["population", "generator", "features", "estimand"]
    scale = frame[frame.method == "noise_aware"].groupby(by)["width"].mean() / (2 * 1.96)
    cells = frame.groupby([*by, "kind", "method"])["error"].agg(
        bias="mean", rmse=lambda e: float(np.sqrt((e**2).mean()))
    )
    cells = cells.join(scale.rename("scale"), on=by)
    cells["bias"], cells["rmse"] = cells.bias.abs() / cells.scale, cells.rmse / cells.scale
    medians = cells.groupby(["kind", "method"])[["bias", "rmse"]].median().unstack()
    lines = ["| kind | " + " | ".join(f"{m}: bias, rmse" for m in METHODS) + " |",
             "|" + "---|" * (len(METHODS) + 1)]  # fmt: skip
    for kind, row in medians.iterrows():
        texts = [
            f"{row.get(('bias', m), np.nan):.2f}, {row.get(('rmse', m), np.nan):.2f}"
            for m in METHODS
        ]
        lines.append(f"| {kind} | " + " | ".join(texts) + " |")
    return lines


def _cells(cells: pd.DataFrame) -> list[str]:
    names = ["population", "generator", "features", "estimand", "coverage", "support", "bias", "sd",
             "mean_width"]  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in cells.sort_values("coverage")[names].itertuples(index=False):
        texts = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row]
        lines.append("| " + " | ".join(texts) + " |")
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
    parser.add_argument("--features", nargs="+", default=[*MAPS][:-1], choices=[*MAPS])
    parser.add_argument("--generators", nargs="+", default=list(GENERATORS), choices=GENERATORS)
    parser.add_argument("--name", default="coverage", help="of the result files")
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "coverage")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    cells = [
        (p, g, f) for p in chosen.populations for g in chosen.generators for f in chosen.features
    ]
    truths(chosen.populations, chosen.cache)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for future in as_completed([pool.submit(run_cell, cell, chosen) for cell in cells]):
            print(future.result(), flush=True)
    frame = pd.DataFrame(records(cells, chosen))
    command = "python benchmarks/coverage.py " + " ".join(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = report(frame, chosen, command.strip())
    (chosen.out / f"{chosen.name}.md").write_text("\n".join(text) + "\n")
    used = frame[frame.verdict == "use"]
    record = {"command": command, "dpiw": __version__, "python": platform.python_version(),
              "cells": per_estimand(frame).round(6).to_dict("records"),
              "cells_use": per_estimand(used).round(6).to_dict("records")}  # fmt: skip
    (chosen.out / f"{chosen.name}.json").write_text(
        json.dumps(record, separators=(",", ":")) + "\n"
    )
    print("\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
