"""MNIST: `dpcgan` at the paper's epsilon 9.64, judged by a classifier trained on what it draws.

    python benchmarks/mnist.py --data FOLDER [--device auto] [--sizes full|half|quarter ...]

FOLDER holds the four idx files. delta is 10^-6 / 60,000 (Table 3's caption). Every pixel is a
column in [0, 1], the digit the target. `full`: 28 x 28 pixels, for torch on CUDA. Without CUDA two
reduced runs are made, `half` and `quarter`: images averaged down to 14 x 14 and 7 x 7 pixels,
smaller networks, fewer steps; the output says so. All 60,000 training images are private in each.
The classifier is fitted on synthetic digits, with and without the free `discriminator` weights, and
tested on the 10,000 real test images. Noise is seeded: nothing here may be published.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imsave
from metrics import Array, Perceptron, auc, design, ess_share
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from weights_table import commit

from dpiw import __version__
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.gan_model import GANModel
from dpiw.methods.neural.backend import make_backend
from dpiw.methods.weights.discriminator import DiscriminatorWeights
from dpiw.methods.weights.weigh import weigh
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

ROOT = Path(__file__).resolve().parents[1]
EPSILON = "9.64"
DELTA = "1.666E-11"
"""10^-6 / 60,000, rounded down."""

FILES = {"train": "train", "test": "t10k"}
ROWS, SIDE, DIGITS, GRID = 60_000, 28, 10, 10
SYNTHETIC_ROWS = 10_000
SEED = 1
CLASSIFIER = Perceptron(hidden=64, steps=1500, learning_rate=0.003, rows=SYNTHETIC_ROWS)


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


_SMALL = {"steps": 6000, "lot": 600, "latent": 32, "generator": [128, 128],
          "discriminator": [128], "discriminator_rate": 2e-3}  # fmt: skip
SIZES: Mapping[str, Size] = {
    "full": Size(
        side=28,
        settings={"steps": 20_000, "lot": 600, "latent": 64, "generator": [256, 256],
                  "discriminator": [256], "discriminator_rate": 2e-3, "label_scale": 28.0},
    ),
    "half": Size(side=14, settings={**_SMALL, "label_scale": 14.0}),
    "quarter": Size(side=7, settings={**_SMALL, "label_scale": 7.0}),
}  # fmt: skip
"""Rates, lots and the rule for `label_scale` were chosen on scikit-learn's 1,797 digits, the last
after a first run here without it (the classifier's AUC: 0.551 at 14 x 14, 0.879 at 7 x 7)."""


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


def scaled(pixels: Array, digits: NDArray[np.int32]) -> ScaledTable:
    """Images as rows of the schema."""
    columns: dict[str, Any] = {f"p{place}": pixels[:, place] for place in range(pixels.shape[1])}
    return ScaledTable(columns | {"digit": digits}, len(pixels))


def plan_of(size: Size, device: str) -> Plan:
    """The compiled plan; reads no image."""
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


def classified(train: tuple[Array, Array], w: Array, test: tuple[Array, Array]) -> dict[str, float]:
    """Macro one-vs-rest AUC and accuracy on real digits of a perceptron fitted on `train`."""
    found = CLASSIFIER.score(*train, w, test[0], regression=False, seed=SEED, levels=DIGITS)
    if found is None:
        return {"auc": 0.5, "accuracy": 1 / DIGITS}
    hits = np.argmax(found, axis=1) == test[1]
    return {"auc": auc(test[1], found), "accuracy": float(hits.mean())}


def grid(pixels: Array, digits: NDArray[Any], side: int) -> Array:
    """The first ten images drawn of each digit, digit by digit, as one picture."""
    rows = []
    for digit in range(DIGITS):
        own = pixels[digits == digit][:GRID]
        blank = np.zeros((GRID - len(own), side**2))
        parts = np.vstack([own, blank]).reshape(GRID, side, side)
        rows.append(np.hstack([np.pad(part, 1) for part in parts]))
    return np.vstack(rows)


def judged(size: Size, model: GANModel, data: Path) -> tuple[dict[str, Any], Array]:
    """What classifiers make of the model's digits, and of real ones; the picture."""
    every, digits = images(data, "train", size.side)
    chosen = np.random.default_rng(SEED).permutation(len(every))[:SYNTHETIC_ROWS]
    real = design(size.schema, scaled(every[chosen], digits[chosen]))
    test = design(size.schema, scaled(*images(data, "test", size.side)))
    drawn = model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng(SEED))
    synthetic = design(size.schema, drawn.scaled)
    ready = DiscriminatorWeights().informed(model)
    private = PrivateTable(schema=size.schema, scaled=scaled(every[:1], digits[:1]))
    free = ready.measure(private, drawn, noise=SeededNoise(SEED))  # reads nothing, draws nothing
    weights = weigh(ready.ratio(free, schema=size.schema), drawn, debias=ready.debias)
    w, ones = np.exp(weights.log_weights), np.ones(SYNTHETIC_ROWS)
    found = {
        "synthetic": classified(synthetic, ones, test),
        "synthetic, discriminator weights": classified(synthetic, w, test)
        | {"ess_share": ess_share(w)},
        "real": classified(real, ones, test),
    }
    return found, grid(synthetic[0], synthetic[1], size.side)


def run(size: Size, device: str, data: Path) -> tuple[dict[str, Any], Array]:
    """Fit, draw, judge."""
    plan = plan_of(size, device)
    private = PrivateTable(schema=size.schema, scaled=scaled(*images(data, "train", size.side)))
    wall, processor = time.perf_counter(), time.process_time()
    measured = plan.generator.measure(private, noise=SeededNoise(SEED))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    model = plan.generator.model(measured, schema=size.schema)
    assert isinstance(model, GANModel)
    found, picture = judged(size, model, data)
    steps = size.settings["steps"]
    facts = {
        "side": size.side, "settings": size.settings,
        "fit_seconds": round(wall, 1), "fit_cpu_seconds": round(processor, 1),
        "steps_per_second": round(steps / wall, 1),
        "steps_per_cpu_second": round(steps / processor, 1),
        "noise_multiplier": plan.generator.parameters()["training"]["noise_multiplier"],
        "epsilon_pld": plan.epsilon_pld,
        "proportions": [round(float(share), 4) for share in model.proportions],
        "classifier": {k: {n: round(v, 4) for n, v in own.items()} for k, own in found.items()},
    }  # fmt: skip
    return facts, picture


def told(runs: Mapping[str, Any]) -> str:
    """What kind of runs they were, in a sentence or two."""
    if "full" in runs:
        return "With the full run at 28 x 28 pixels."
    sides = " and ".join(f"{own['side']} x {own['side']}" for own in runs.values())
    return (
        f"**Reduced** for a CPU: {sides} pixels instead of 28 x 28, smaller networks, fewer steps."
        " These numbers are not those of the full run, which wants torch on CUDA and was not made;"
        " they are not to be compared with Table 3."
    )


def paper_cells(runs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cells of the paper's Table 3, as records of `paper_cells`; none from a reduced run."""
    names = {"none": "synthetic", "discriminator": "synthetic, discriminator weights"}
    return [
        {"dataset": "mnist", "generator": "dpcgan", "weights": weights,
         "metrics": {"mlp": runs["full"]["classifier"][name]["auc"]}}
        for weights, name in names.items()
        if "full" in runs
    ]  # fmt: skip


def page(facts: Mapping[str, Any]) -> list[str]:
    """The text of mnist.md."""
    lines = ["# MNIST: dpcgan at epsilon 9.64", "",
             f"`{facts['command']}`, dpiw {facts['dpiw']} ({facts['commit']}), device"
             f" {facts['device']}, {facts['python']}. One fit each, seeded noise.", "",
             facts["told"], "",
             f"- Total epsilon {EPSILON}, delta {DELTA} (10^-6 / 60,000), add/remove one image, all"
             f" {ROWS} training images; the digits' shares are a noisy histogram, charged within.",
             f"- Classifier: perceptron with {CLASSIFIER.hidden} hidden units,"
             f" {CLASSIFIER.steps} steps, on {SYNTHETIC_ROWS} rows; tested on the 10,000 real test"
             " images at the same resolution. AUC: one-vs-rest, macro; knowing nothing has 0.5,"
             " and an accuracy of 0.1. `real`: fitted on as many real training images, the"
             " ceiling.",
             "- `label_scale` was added to dpcgan after a first reduced run without it, whose AUC"
             " was 0.551 at 14 x 14 and 0.879 at 7 x 7; its rule is from scikit-learn's digits.",
             "- Times are of the fit, with one thread. The machine was shared: wall times are"
             " upper bounds.", "",
             "| pixels | fitted on | AUC | accuracy | ESS share |",
             "|---|---|---|---|---|"]  # fmt: skip
    for own in facts["runs"].values():
        for name, found in own["classifier"].items():
            share = f"{found['ess_share']:.3f}" if "ess_share" in found else ""
            lines.append(f"| {own['side']} x {own['side']} | {name} | {found['auc']:.3f} |"
                         f" {found['accuracy']:.3f} | {share} |")  # fmt: skip
    lines += ["", "| pixels | fit, s | steps/s | fit, CPU s | steps/CPU s | noise multiplier |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for own in facts["runs"].values():
        numbers = ("fit_seconds", "steps_per_second", "fit_cpu_seconds", "steps_per_cpu_second")
        cells = " | ".join(str(own[name]) for name in numbers)
        lines.append(f"| {own['side']} x {own['side']} | {cells} | {own['noise_multiplier']:.3f} |")
    lines += ["", "The first ten images drawn of each digit, 0 in the top row:"]
    for size, own in facts["runs"].items():
        lines += ["", f"{own['side']} x {own['side']} pixels, settings {dict(own['settings'])}:",
                  "", f"![digits](mnist_{size}.png)"]  # fmt: skip
    return lines


def draw(picture: Array, path: Path, side: int) -> None:
    """Write the picture, every pixel as large as of a 28 x 28 image at twice its size."""
    block = 2 * SIDE // side
    imsave(path, np.kron(picture, np.ones((block, block))), cmap="gray_r", vmin=0, vmax=1)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), help="full on CUDA, else others")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    device = make_backend(chosen.device).device
    sizes = chosen.sizes or (["half", "quarter"] if device == "cpu" else ["full"])
    threadpool_limits(limits=1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    runs = {}
    for size in sizes:
        runs[size], picture = run(SIZES[size], device, chosen.data)
        draw(picture, chosen.out / f"mnist_{size}.png", SIZES[size].side)
    facts = {
        "command": f"python benchmarks/mnist.py --data FOLDER --device {device} --sizes"
        f" {' '.join(sizes)}",
        "dpiw": __version__, "commit": commit(), "device": device,
        "python": f"Python {platform.python_version()}", "epsilon": EPSILON, "delta": DELTA,
        "runs": runs, "told": told(runs), "paper_cells": paper_cells(runs),
    }  # fmt: skip
    (chosen.out / "mnist.json").write_text(json.dumps(facts, indent=1) + "\n")
    (chosen.out / "mnist.md").write_text("\n".join(page(facts)) + "\n")
    print(f"wrote {chosen.out / 'mnist.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
