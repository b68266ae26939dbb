"""MNIST: `dpcgan` at the paper's epsilon 9.64, judged by classifiers trained on what it draws.

    make bench-mnist DATA=FOLDER
    python benchmarks/mnist.py --data FOLDER [--device auto] [--sizes full|half ...] [--runs 5]
    python benchmarks/mnist.py --page

FOLDER holds the four idx files and paper_tables.csv. delta is 10^-6 / 60,000 (Table 3's caption).
Every pixel is a column in [0, 1], the digit the target; all 60,000 training images are private.
`full`: 28 x 28 pixels and convolutional networks. `half`: images averaged down to 14 x 14 pixels,
and perceptrons. A size that is not run keeps what the page says of it. Classifiers are fitted on
synthetic digits, with and without weights, and tested on the 10,000 real test images. Noise is
seeded: nothing here may be published.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imsave
from metrics import Array, Perceptron, auc, design, ess_share, level_scores
from mnist_page import page
from numpy.typing import NDArray
from paper_page import printed
from paper_weights import Tables, alone, weights_of
from provenance import RESULTS, stamp
from sklearn.linear_model import LogisticRegression
from study import mean_and_error, one_thread, read, write

from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.gan.model import GANModel
from dpiw.methods.neural.backend import make_backend
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

EPSILON = "9.64"
DELTA = "1.666E-11"
"""10^-6 / 60,000, rounded down."""

ROWS = 60_000
SYNTHETIC_ROWS = 10_000
NEXT = 1000
"""Between seeds of what a run draws one after the other."""

SEED = 1
CLASSIFIER = Perceptron(hidden=64, steps=1500, learning_rate=0.003, rows=10_000)

FILES = {"train": "train", "test": "t10k"}
SIDE, DIGITS, GRID = 28, 10, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Size:
    """How large a run is: pixels of an image's side, and settings of the generator."""

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
    "full": Size(
        side=28,
        settings={
            "image": [28, 28], "steps": 1500, "lot": 400, "batch": 64, "latent": 16,
            "generator": [32, 16], "discriminator": [8, 16], "learning_rate": 1e-3,
            "discriminator_rate": 2e-3, "settle": 0.1, "label_scale": 3.0,
        },
    ),
    "half": Size(
        side=14,
        settings={
            "steps": 6000, "lot": 600, "latent": 32, "generator": [128, 128],
            "discriminator": [128], "discriminator_rate": 2e-3, "marginals_share": 0,
            "learning_rate": 1e-3, "batch": 128, "label_scale": 14.0,
        },
    ),
}  # fmt: skip
"""Rates, steps per step and `label_scale` were varied on scikit-learn's digits, turned and shifted
into a public stand-in, where these had the best area and variety after 300 steps; larger networks
and lots were no better there. On MNIST itself a first run with lots of 200 ended in one image for
each digit, so lots were doubled; `label_scale` was added at 14 x 14 pixels after a first run."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of bytes, gzipped: shape as its header says."""
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def images(data: Path, part: str, side: int) -> tuple[Array, NDArray[np.int32]]:
    """Grey values in [0, 1] averaged to side x side, shape (n, side^2), and digits, shape (n,)."""
    name = FILES[part]
    grey = read_idx(data / f"{name}-images-idx3-ubyte.gz") / 255.0
    block = SIDE // side
    pooled = grey.reshape(len(grey), side, block, side, block).mean(axis=(2, 4))
    labels = read_idx(data / f"{name}-labels-idx1-ubyte.gz").astype(np.int32)
    return pooled.reshape(len(grey), side**2), labels


def grid(pixels: Array, digits: NDArray[Any], side: int) -> Array:
    """The first ten images drawn of each digit, digit by digit, as one picture."""
    rows = []
    for digit in range(DIGITS):
        sample = pixels[digits == digit][:GRID]
        blank = np.zeros((GRID - len(sample), side**2))
        parts = np.vstack([sample, blank]).reshape(GRID, side, side)
        rows.append(np.hstack([np.pad(part, 1) for part in parts]))
    return np.vstack(rows)


def draw(picture: Array, path: Path, side: int) -> None:
    """Write the picture in sixteen greys, every pixel as large as of a 28 x 28 image, doubled."""
    block = 2 * SIDE // side
    greys = np.rint(15 * np.clip(picture, 0, 1)) / 15
    imsave(path, np.kron(greys, np.ones((block, block))), cmap="gray_r", vmin=0, vmax=1)


def scaled(pixels: Array, digits: NDArray[np.int32]) -> ScaledTable:
    """Images as rows of the schema."""
    columns: dict[str, Any] = {f"p{place}": pixels[:, place] for place in range(pixels.shape[1])}
    return ScaledTable(columns | {"digit": digits}, len(pixels))


def plan_of(size: Size, device: str) -> Plan:
    """The compiled plan, without weights; reads no image."""
    spec = parse_spec(
        {
            "format": 1, "name": "mnist", "population": "mnist",
            "source": {"path": "unused", "format": "csv"}, "schema": "unused",
            "epsilon": EPSILON, "delta": DELTA, "nominal_rows": ROWS,
            "generator": {"method": "dpcgan", "settings": {**size.settings, "device": device}},
            "weights": {"method": "none"}, "synthetic_rows": SYNTHETIC_ROWS, "state": "unused",
            "signing_key": "unused", "publish_to": "unused",
        }
    )  # fmt: skip
    return compile_plan(spec, size.schema)


def classified(scores: Array | None, digits: Array) -> list[float]:
    """Macro one-vs-rest AUC and accuracy of scores; by chance alone without them."""
    if scores is None:
        return [0.5, 1 / DIGITS]
    return [auc(digits, scores), float((np.argmax(scores, axis=1) == digits).mean())]


def spread(x: Array, y: Array, w: Array) -> float:
    """Standard deviation of a pixel among images of one digit, mean over pixels and digits."""
    deviations = []
    for digit in np.unique(y):
        images, weights = x[y == digit], w[y == digit]
        mean = np.average(images, axis=0, weights=weights)
        deviations.append(np.sqrt(np.average((images - mean) ** 2, axis=0, weights=weights)).mean())
    return float(np.mean(deviations))


def linear(x: Array, y: Array, w: Array) -> LogisticRegression:
    """Multinomial logistic regression with scikit-learn's default penalty."""
    return LogisticRegression(max_iter=300).fit(x, y, sample_weight=w / w.mean())


def slopes(model: LogisticRegression) -> Array:
    """Slopes of every digit, shape (digits, pixels); zero for a digit that was not drawn."""
    coefficients = np.zeros((DIGITS, model.n_features_in_))
    coefficients[model.classes_.astype(int)] = model.coef_
    return coefficients


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What classifiers make of digits, on the real test digits (pixels and digits)."""

    schema: PublicSchema
    test: tuple[Array, Array]

    @cached_property
    def _slopes(self) -> Array:
        return slopes(linear(*self.test, np.ones(len(self.test[1]))))

    def variety(self, x: Array, y: Array, w: Array) -> float:
        """The digits' `spread` over that of the test digits: 0 where each is one image."""
        return spread(x, y, w) / spread(*self.test, np.ones(len(self.test[1])))

    def figures(self, rows: ScaledTable, w: Array | None = None) -> dict[str, float]:
        """Of both classifiers; with weights, their share of effective rows too."""
        x, y = design(self.schema, rows)
        weights = np.ones(len(y)) if w is None else w
        model, (tx, ty) = linear(x, y, weights), self.test
        deep = CLASSIFIER.score(x, y, weights, tx, regression=False, seed=SEED, levels=DIGITS)
        names = ("auc", "accuracy", "linear_auc", "linear_accuracy")
        scores = classified(deep, ty) + classified(level_scores(model, tx, DIGITS), ty)
        return {
            **dict(zip(names, scores, strict=True)),
            "variety": self.variety(x, y, weights),
            "beta_mse": float(((slopes(model) - self._slopes) ** 2).mean()),
        } | ({} if w is None else {"ess_share": ess_share(w)})


@cache
def digits_of(data: Path, part: str, size: Size) -> ScaledTable:
    """The `train` or `test` images as rows of the schema."""
    return scaled(*images(data, part, size.side))


@cache
def judge_of(size: Size, data: Path) -> Judge:
    """By the real test digits."""
    test = design(size.schema, digits_of(data, "test", size))
    return Judge(schema=size.schema, test=test)


def alone_on(size: Size, kind: str) -> Any:
    """Weights that spend the table's (epsilon, delta) beside the generator's."""
    return alone(kind, size.schema, ROWS, float(EPSILON), float(DELTA))


def fitted(size: Size, plan: Plan, private: PrivateTable, seed: int) -> tuple[GANModel, Any]:
    """A fitted generator, and what the fit took."""
    wall, processor = time.perf_counter(), time.process_time()
    measured = plan.generator.measure(private, noise=SeededNoise(seed))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    model = plan.generator.model(measured, schema=size.schema)
    assert isinstance(model, GANModel)
    training: Any = plan.generator.parameters()["training"]
    return model, {
        "fit_seconds": round(wall, 1), "fit_cpu_seconds": round(processor, 1),
        "noise_multiplier": round(training["noise_multiplier"], 4),
        "epsilon_pld": round(plan.composed["pld"], 4), "load": round(os.getloadavg()[2], 1),
    }  # fmt: skip


def run(seed: int, *, size: Size, device: str, data: Path) -> tuple[dict[str, Any], Array]:
    """Fit, draw, judge; the facts and the picture."""
    one_thread()
    train = digits_of(data, "train", size)
    private = PrivateTable(schema=size.schema, scaled=train)
    judge = judge_of(size, data)
    model, facts = fitted(size, plan_of(size, device), private, seed)
    drawn, fitting = (
        model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng(r)) for r in (seed, [seed, 1])
    )
    tables = Tables(private=private, fitting=fitting, rows=drawn)
    figures = {"synthetic": judge.figures(drawn.scaled)}
    for kind in ("discriminator", "dp_mlp"):
        ready = alone_on(size, kind) if kind == "dp_mlp" else None
        w = weights_of(kind, tables, model=model, ready=ready, seed=NEXT + seed, run=seed)
        figures[kind] = judge.figures(drawn.scaled, w)
    chosen = np.random.default_rng(seed).permutation(train.rows)[:SYNTHETIC_ROWS]
    figures["real"] = judge.figures(train.take(chosen))
    return facts | {"classifier": figures}, grid(*design(size.schema, drawn.scaled), size.side)


def repeated(size: Size, runs: int, jobs: int, one: Any) -> tuple[dict[str, Any], Array]:
    """Means with errors of the figures, facts of the first fit, and its picture."""
    seeds = range(SEED, SEED + runs)
    if jobs == 1:
        results = [one(seed) for seed in seeds]
    else:  # not forked: a process that has met CUDA cannot be
        with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(one, seeds))
    every: Sequence[Mapping[str, Any]] = [facts["classifier"] for facts, _ in results]
    figures = {
        name: {key: mean_and_error([r[name][key] for r in every]) for key in keys}
        for name, keys in every[0].items()
    }
    settings = dict(size.settings)
    facts = {"side": size.side, "settings": settings, "repeats": runs, "at_once": jobs}
    return facts | results[0][0] | {"classifier": figures}, results[0][1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; they share the GPU")
    parser.add_argument("--page", action="store_true", help="make the page of the record again")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    if chosen.page:
        write(chosen.out, "mnist", read(chosen.out, "mnist"), page)
        return 0
    if chosen.data is None:
        parser.error("--data: expected a folder with MNIST's files")
    device, path = make_backend(chosen.device).device, chosen.data / "paper_tables.csv"
    runs = read(chosen.out, "mnist")["runs"] if (chosen.out / "mnist.json").exists() else {}
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.sizes:
        size = SIZES[name]
        one = partial(run, size=size, device=device, data=chosen.data)
        command = f"python benchmarks/mnist.py --data FOLDER --sizes {name} --runs {chosen.runs}"
        stamped = stamp(command)
        facts, picture = repeated(size, chosen.runs, chosen.jobs, one)
        draw(picture, chosen.out / f"mnist_{name}.png", size.side)
        runs[name] = stamped | {"device": device} | facts
    theirs = [cell for cell in printed(path) if cell[0] == "mnist"] if path.exists() else []
    record = {"runs": {name: runs[name] for name in SIZES if name in runs}, "paper": theirs}
    write(chosen.out, "mnist", record, page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
