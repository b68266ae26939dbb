"""Settings of `dpcgan` for a GPU, chosen without a look at MNIST: on a public stand-in.

    python benchmarks/mnist_stand_in.py --device cuda [--jobs 8]

The stand-in is scikit-learn's 1,797 digits of 8 x 8 pixels: 1,400 of them turned, slanted, scaled
and shifted at random into 60,000 images of 28 x 28, the others into 4,000 test images. Every
candidate of mnist_settings.py is fitted to it at MNIST's epsilon, delta and number of images. The
rule, fixed before the first run: the highest accuracy of a linear classifier that learns from
10,000 drawn digits, among those whose variety is at least `LEAST_VARIETY`.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import mnist
import numpy as np
from metrics import Array, design
from mnist_files import SIDE
from mnist_judge import SEED, Judge
from mnist_settings import CANDIDATES, FULL
from numpy.typing import NDArray
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits
from weights_table import commit

from dpiw import __version__
from dpiw.data.tables import PrivateTable
from dpiw.methods.neural.backend import make_backend

SOURCES = 1400
"""Digits of which training images are made; the others become test images."""

TEST_IMAGES = 4000

LEAST_VARIETY = 0.8
"""Below it, images of one digit are too much alike."""


def images(part: str, count: int, seed: int = SEED) -> tuple[Array, NDArray[np.int32]]:
    """Grey values in [0, 1], shape (count, 784), and digits, shape (count,)."""
    digits = load_digits()
    chosen = slice(SOURCES) if part == "train" else slice(SOURCES, None)
    pictures, labels = digits.images[chosen] / 16.0, digits.target[chosen]
    rng = np.random.default_rng([seed, part == "train"])
    of = rng.integers(0, len(pictures), count)
    return np.array([moved(pictures[i], rng).ravel() for i in of]), labels[of].astype(np.int32)


def moved(picture: Array, rng: np.random.Generator) -> Array:
    """A picture of 8 x 8 pixels on 28 x 28: turned, slanted, scaled and shifted at random."""
    turn, slant = rng.uniform(-0.25, 0.25), rng.uniform(-0.2, 0.2)
    scale, shift = rng.uniform(0.85, 1.15, 2), rng.uniform(-2, 2, 2)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = rotation @ np.array([[1.0, 0.0], [slant, 1.0]]) @ np.diag(scale) * 8 / 22
    offset = np.full(2, 3.5) - matrix @ (np.full(2, (SIDE - 1) / 2) + shift)
    grey = affine_transform(picture, matrix, offset, (SIDE, SIDE), order=1)
    return np.clip(grey, 0.0, 1.0)


def tried(name: str, *, device: str, keep: Path) -> dict[str, float]:
    """What a candidate gives on the stand-in, and its seconds."""
    threadpool_limits(limits=1)
    size = mnist.Size(side=SIDE, settings=CANDIDATES[name])
    private = PrivateTable(
        schema=size.schema, scaled=mnist.scaled(*images("train", mnist.ROWS))
    )  # fmt: skip
    judge = Judge(
        schema=size.schema, test=design(size.schema, mnist.scaled(*images("test", TEST_IMAGES)))
    )  # fmt: skip
    fit = mnist.fitted(size, mnist.plan_of(size, device), private, keep, SEED)
    drawn = fit.model.sample(mnist.SYNTHETIC_ROWS, rng=np.random.default_rng(SEED))
    return judge.figures(drawn.scaled) | {
        "seconds": fit.facts["fit_seconds"], "multiplier": fit.facts["noise_multiplier"],
    }  # fmt: skip


def choice(figures: Mapping[str, Mapping[str, float]]) -> str:
    """The candidate that the rule takes."""
    varied = [name for name, row in figures.items() if row["variety"] >= LEAST_VARIETY]
    return max(varied or figures, key=lambda name: figures[name]["linear_accuracy"])


def page(figures: Mapping[str, Mapping[str, float]], facts: Mapping[str, Any]) -> list[str]:
    """The table of mnist_stand_in.md."""
    columns = {
        "linear_accuracy": "linear accuracy", "linear_auc": "linear AUC", "accuracy": "accuracy",
        "auc": "AUC", "variety": "variety", "multiplier": "noise multiplier",
    }  # fmt: skip
    lines = [
        "# Settings for a GPU, tried on a public stand-in of MNIST", "",
        f"`{facts['command']}`, dpiw {facts['dpiw']} ({facts['commit']}), {facts['device']},"
        f" {facts['python']}. One fit each, {facts['jobs']} at once on one GPU: seconds are upper"
        " bounds. Rule: the highest linear accuracy with a variety of at least"
        f" {LEAST_VARIETY}. **Chosen: {facts['chosen']}.**", "",
        f"| settings | {' | '.join(columns.values())} | fit, s |",
        f"|---|{'---|' * len(columns)}---|",
    ]  # fmt: skip
    for name, row in figures.items():
        cells = " | ".join(f"{row[key]:.3f}" for key in columns)
        lines.append(f"| {name} | {cells} | {row['seconds']:.0f} |")
    lines += ["", "What differs from the first (mnist_settings.py):", ""]
    for name, settings in CANDIDATES.items():
        different = {key: value for key, value in settings.items() if FULL.get(key) != value}
        lines.append(f"- {name}: {different or dict(FULL)}")
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=CANDIDATES)
    parser.add_argument("--jobs", type=int, default=1, help="candidates at once")
    parser.add_argument("--out", type=Path, default=mnist.ROOT / "benchmarks" / "results")
    parser.add_argument("--keep", type=Path, default=mnist.ROOT / "build" / "mnist", help="of fits")
    chosen = parser.parse_args(arguments)
    device = make_backend(chosen.device).device
    figures: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(tried, name, device=device, keep=chosen.keep): name
            for name in chosen.candidates
        }
        for done in as_completed(waiting):
            figures[waiting[done]] = done.result()
            print(waiting[done], figures[waiting[done]], flush=True)
    figures = {name: figures[name] for name in CANDIDATES if name in figures}
    facts = {
        "command": f"python benchmarks/mnist_stand_in.py --device {device} --jobs {chosen.jobs}",
        "dpiw": __version__, "commit": commit(), "device": mnist.named(device),
        "python": f"Python {platform.python_version()}", "jobs": chosen.jobs,
        "chosen": choice(figures),
    }  # fmt: skip
    stored = json.dumps({"facts": facts, "figures": figures}, indent=1)
    (chosen.out / "mnist_stand_in.json").write_text(stored + "\n")
    (chosen.out / "mnist_stand_in.md").write_text("\n".join(page(figures, facts)) + "\n")
    print(f"chosen: {facts['chosen']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
