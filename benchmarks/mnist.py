"""MNIST: `dpcgan` at the paper's epsilon 9.64, judged by classifiers trained on what it draws.

    make bench-mnist DATA=FOLDER
    python benchmarks/mnist.py --data FOLDER [--device auto] [--sizes full|half|quarter ...]
        [--runs 5] [--jobs 1]

FOLDER holds the four idx files and paper_tables.csv. delta is 10^-6 / 60,000 (Table 3's caption).
Every pixel is a column in [0, 1], the digit the target; all 60,000 training images are private.
`full`: 28 x 28 pixels and convolutional networks, which need torch and Opacus. `half`, `quarter`:
images averaged down to 14 x 14 and 7 x 7 pixels, and perceptrons. Sizes that are not run keep what
the page says of them. Classifiers are fitted on synthetic digits, with and without weights, and
tested on the 10,000 real test images. A run has noise, starts and rows of its own. Finished fits
are kept in `--keep`, in files named by settings, run and code. Noise is seeded: nothing here may be
published.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from metrics import Array, design
from mnist_files import DIGITS, draw, grid, images
from mnist_judge import SEED, Judge, classified
from mnist_page import page
from mnist_settings import FULL, SMALL
from numpy.typing import NDArray
from paper_summary import printed
from threadpoolctl import threadpool_limits
from weights_cells import CODE
from weights_table import commit

from dpiw import __version__
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators.game import GameState
from dpiw.methods.generators.gan_model import GANModel
from dpiw.methods.neural.backend import make_backend
from dpiw.methods.recipe import Recipe
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.weigh import weigh
from dpiw.methods.weights.registry import make_weights
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.calibration import calibrate
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

ROOT = Path(__file__).resolve().parents[1]
EPSILON = "9.64"
DELTA = "1.666E-11"
"""10^-6 / 60,000, rounded down."""

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
ROWS = 60_000
SYNTHETIC_ROWS = 10_000
MEASURED = {
    "weights": {
        "method": "measured", "when_infeasible": "keep",
        "settings": {"features": {"patches": 1.0}, "omega_seed": 1, "base_rows": 30_000},
    },
    "shares": {"generator": 0.95, "weights": 0.05},
}  # fmt: skip
"""A twentieth of the effort: the noise of a mean of patches, about 1e-4, is then far below what
the mean can be."""

NEXT = 1000
"""Between seeds of what a run draws one after the other."""

PARTS = (0.1, 0.25, 0.5, 1.0)
"""Of the steps, after which the generator is judged."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a run is.

    Attributes:
        side: pixels of an image's side; 28 is divisible by it.
        settings: of the generator, where not its defaults.
    """

    side: int
    settings: Mapping[str, Any]

    @cached_property
    def schema(self) -> PublicSchema:
        """A column per pixel and the digit: bounds are those of a grey value, known to all."""
        pixels = [
            Column(name=f"p{place}", kind=ColumnKind.CONTINUOUS, lower=0, upper=1)
            for place in range(self.side**2)
        ]
        digit = Column(name="digit", levels=tuple(map(str, range(DIGITS))), role=ColumnRole.TARGET)
        return PublicSchema(name="mnist", columns=(*pixels, digit))


SIZES: Mapping[str, Size] = {
    "full": Size(side=28, settings=FULL),
    "half": Size(side=14, settings={**SMALL, "label_scale": 14.0}),
    "quarter": Size(side=7, settings={**SMALL, "label_scale": 7.0}),
}
"""How they were chosen: `CHOICES` of `mnist_page`."""


def scaled(pixels: Array, digits: NDArray[np.int32]) -> ScaledTable:
    """Images as rows of the schema."""
    columns: dict[str, Any] = {f"p{place}": pixels[:, place] for place in range(pixels.shape[1])}
    return ScaledTable(columns | {"digit": digits}, len(pixels))


def plan_of(size: Size, device: str, weights: Mapping[str, Any] | None = None) -> Plan:
    """The compiled plan, without weights or with those sections of a spec; reads no image."""
    spec = parse_spec(
        {
            "format": 1, "name": "mnist", "population": "mnist",
            "source": {"path": "unused", "format": "csv"}, "schema": "unused",
            "epsilon": EPSILON, "delta": DELTA, "nominal_rows": ROWS,
            "generator": {"method": "dpcgan", "settings": {**size.settings, "device": device}},
            "weights": {"method": "none"}, "synthetic_rows": SYNTHETIC_ROWS, "state": "unused",
            "signing_key": "unused", "publish_to": "unused", **(weights or {}),
        }
    )  # fmt: skip
    return compile_plan(spec, size.schema)


@dataclass(kw_only=True)
class Stages:
    """A watch that keeps the generator at some of its checkpoints.

    Attributes:
        kept: parameters after so many steps.
    """

    kept: dict[int, Array] = field(default_factory=dict)

    def resumed(self) -> bytes | None:
        """None: nothing is resumed."""
        return None

    def at(self, step: int, steps: int, state: Callable[[], bytes]) -> None:
        """Keep it where a part of the steps is taken."""
        if step and any(step - steps / 20 < part * steps <= step for part in PARTS):
            self.kept[step] = GameState.from_bytes(state()).generator.average


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fitted generator, and what the fit took.

    Attributes:
        model: the generator.
        stages: its parameters after so many steps.
        facts: times, noise, load.
    """

    model: GANModel
    stages: Mapping[int, Array]
    facts: Mapping[str, Any]


def fitted(size: Size, plan: Plan, private: PrivateTable, keep: Path, seed: int) -> Fit:
    """Fit, or read a fit that was finished before."""
    parameters = json.dumps([plan.generator.parameters(), seed, CODE], sort_keys=True)
    path = keep / f"{hashlib.sha256(parameters.encode()).hexdigest()[:16]}.fit"
    if not path.exists():
        stages = Stages()
        wall, processor = time.perf_counter(), time.process_time()
        measured = plan.generator.measure(private, noise=SeededNoise(seed), watch=stages)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        steps = size.settings["steps"]
        facts = {
            "fit_seconds": round(wall, 1), "fit_cpu_seconds": round(processor, 1),
            "steps_per_second": round(steps / wall, 1),
            "steps_per_cpu_second": round(steps / processor, 1),
            "noise_multiplier": plan.generator.parameters()["training"]["noise_multiplier"],
            "epsilon_pld": plan.epsilon_pld, "load": round(os.getloadavg()[2], 1),
        }  # fmt: skip
        keep.mkdir(parents=True, exist_ok=True)
        store = Measurement(
            kind="fit", publishable=False, facts=facts,
            arrays={"model": np.frombuffer(measured.to_bytes(), dtype=np.uint8)}
            | {str(step): values for step, values in stages.kept.items()},
        )  # fmt: skip
        path.write_bytes(store.to_bytes())
    stored = Measurement.from_bytes(path.read_bytes())
    arrays = dict(stored.arrays)
    measured = Measurement.from_bytes(arrays.pop("model").tobytes())
    model = plan.generator.model(measured, schema=size.schema)
    assert isinstance(model, GANModel)
    return Fit(model=model, stages={int(k): v for k, v in arrays.items()}, facts=stored.facts)


def _discriminator(
    model: GANModel, drawn: SyntheticTable, private: PrivateTable, seed: int
) -> Array:
    """The generator's own weights: free."""
    ready = DiscriminatorWeights().informed(model)
    free = ready.measure(private, drawn, noise=SeededNoise(seed))  # reads nothing, draws nothing
    ratio = ready.ratio(free, schema=drawn.schema)
    return np.exp(weigh(ratio, drawn, debias=ready.debias).log_weights)


def _dp_mlp(model: GANModel, drawn: SyntheticTable, private: PrivateTable, seed: int) -> Array:
    """A network's, which spends (epsilon, delta) beside the generator's."""
    estimator = make_weights("dp_mlp", {"replays": 0})
    assert estimator is not None

    def at(rho: float) -> Any:
        return estimator.calibrate(rho=rho, schema=drawn.schema, unit=UNIT, nominal_rows=ROWS)

    rho = calibrate(
        lambda rho: at(rho).events(schema=drawn.schema, unit=UNIT),
        epsilon=float(EPSILON), delta=float(DELTA),
    )  # fmt: skip
    fitting = model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng([seed, 1]))
    ready = at(rho)
    measured = ready.measure(private, fitting, noise=SeededNoise(NEXT + seed))
    ratio = ready.ratio(measured, schema=drawn.schema)
    return np.exp(weigh(ratio, drawn, debias=ready.debias).log_weights)


def _measured(
    recipe: Recipe, model: GANModel, private: PrivateTable, seed: int
) -> tuple[ScaledTable, Array]:
    """Rows and their weights, of a generator that left the weights their share of the total."""
    rng = np.random.default_rng(seed)
    rows, estimator = recipe.sample(model, rng=rng), recipe.weights
    assert estimator is not None
    sums = estimator.measure(private, rows.fitting, noise=SeededNoise(2 * NEXT + seed))
    weights = recipe.weigh(estimator, sums, rows, rng=rng)
    return rows.weighed.scaled.take(weights.chosen), np.exp(weights.log_weights)


def stages_of(fit: Fit, judge: Judge, seed: int) -> list[dict[str, float]]:
    """What a perceptron makes of the generator on its way."""
    records = []
    for step, parameters in sorted(fit.stages.items()):
        model = replace(fit.model, generator=parameters)
        drawn = model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng(seed)).scaled
        x, y = design(judge.schema, drawn)
        figures, ones = {"step": step}, np.ones(len(y))
        figures |= classified((x, y), ones, judge.test) | {"variety": judge.variety(x, y, ones)}
        records.append({name: round(value, 4) for name, value in figures.items()})
    return records


def run(
    seed: int, *, size: Size, device: str, data: Path, keep: Path
) -> tuple[dict[str, Any], Array]:
    """Fit, draw, judge; the facts and the picture."""
    threadpool_limits(limits=1)
    pixels, digits = images(data, "train", size.side)
    private = PrivateTable(schema=size.schema, scaled=scaled(pixels, digits))
    test = design(size.schema, scaled(*images(data, "test", size.side)))
    judge, plan = Judge(schema=size.schema, test=test), plan_of(size, device)
    fit = fitted(size, plan, private, keep, seed)
    drawn = fit.model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng(seed))
    figures = {"synthetic": judge.figures(drawn.scaled)}
    for name, weights in {"discriminator": _discriminator, "dp_mlp": _dp_mlp}.items():
        figures[name] = judge.figures(drawn.scaled, weights(fit.model, drawn, private, seed))
    facts = {**fit.facts}
    if "image" in size.settings:
        joint = plan_of(size, device, MEASURED)
        joint_fit = fitted(size, joint, private, keep, seed)
        plain = joint_fit.model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng(seed))
        figures["measured: rows"] = judge.figures(plain.scaled)
        weighted = _measured(joint.recipe, joint_fit.model, private, seed)
        figures["measured"] = judge.figures(*weighted)
        facts |= {"measured": joint_fit.facts, "stages": stages_of(fit, judge, seed)}
    chosen = np.random.default_rng(seed).permutation(len(pixels))[:SYNTHETIC_ROWS]
    figures["real"] = judge.figures(private.confidential().take(chosen))
    facts["classifier"] = figures
    return facts, grid(*design(size.schema, drawn.scaled), size.side)


def mean_of(records: Sequence[Any]) -> Any:
    """Of facts of the same shape, number by number; text of the first."""
    first = records[0]
    if isinstance(first, Mapping):
        return {name: mean_of([record[name] for record in records]) for name in first}
    if isinstance(first, list):
        return [mean_of(items) for items in zip(*records, strict=True)]
    return first if isinstance(first, str | int) else round(statistics.fmean(records), 4)


def error_of(values: Sequence[float]) -> float | None:
    """Standard error of a mean; None of one value."""
    if len(values) < 2:
        return None
    return round(statistics.stdev(values) / len(values) ** 0.5, 4)


def repeated(
    size: Size, runs: int, jobs: int, one: Callable[[int], tuple[dict[str, Any], Array]]
) -> tuple[dict[str, Any], Array]:
    """The mean facts of all runs, with errors of the figures, and the picture of the first."""
    seeds = range(SEED, SEED + runs)
    if jobs == 1:
        results = [one(seed) for seed in seeds]
    else:  # not forked: a process that has met CUDA cannot be
        with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(one, seeds))
    records = [facts for facts, _ in results]
    errors = {
        name: {key: error_of([r["classifier"][name][key] for r in records]) for key in figures}
        for name, figures in records[0]["classifier"].items()
    }
    facts = {"side": size.side, "settings": size.settings, "repeats": runs, "at_once": jobs}
    return facts | mean_of(records) | {"errors": errors}, results[0][1]


def paper_of(data: Path) -> dict[str, dict[str, list[float]]]:
    """The paper's figures of Table 3 by weights and metric, each with its error."""
    path, figures = data / "paper_tables.csv", {}
    for (dataset, _, weights, metric), figure in (printed(path) if path.exists() else {}).items():
        if dataset == "mnist":
            figures.setdefault(weights, {})[metric] = [figure.mean, figure.error]
    return figures


def named(device: str) -> str:
    """The device, and what kind of GPU it is."""
    if device != "cuda":
        return device
    import torch

    return f"cuda ({torch.cuda.get_device_name()})"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), help="full where torch is")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; they share the GPU")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "mnist", help="of fits")
    chosen = parser.parse_args(arguments)
    device = make_backend(chosen.device).device
    is_whole = importlib.util.find_spec("opacus") is not None
    sizes = chosen.sizes or (["full"] if is_whole else ["half", "quarter"])
    threadpool_limits(limits=1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "mnist.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    for size in sizes:
        one = partial(
            run, size=SIZES[size], device=device, data=chosen.data, keep=chosen.keep
        )  # fmt: skip
        runs[size], picture = repeated(SIZES[size], chosen.runs, chosen.jobs, one)
        draw(picture, chosen.out / f"mnist_{size}.png", SIZES[size].side)
        runs[size] |= {
            "command": f"python benchmarks/mnist.py --data FOLDER --device {device} --sizes {size}"
            f" --runs {chosen.runs}",
            "dpiw": __version__, "commit": commit(), "device": named(device),
            "python": f"Python {platform.python_version()}",
        }  # fmt: skip
        facts = {
            "epsilon": EPSILON, "delta": DELTA, "paper": paper_of(chosen.data),
            "runs": {name: runs[name] for name in SIZES if name in runs},
        }  # fmt: skip
        path.write_text(json.dumps(facts, indent=1) + "\n")
        (chosen.out / "mnist.md").write_text("\n".join(page(facts)) + "\n")
    print(f"wrote {chosen.out / 'mnist.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
