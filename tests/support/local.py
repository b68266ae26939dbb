"""A small local collection, and reports of simulated people made fast: laws alone, no lattice."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.local import Feature, LocalParameters, calibrated, privatise
from dpiw.local.collector import load_local_spec, write_parameters
from dpiw.local.estimate import LocalSample
from dpiw.privacy.randomness import SeededNoise
from dpiw.release.signing import create_key_pair

Array = NDArray[np.float64]

SPEC = """\
format: 1
name: commute
features:
  - {name: age, low: 18, high: 90}
  - {name: city, low: 0, high: 1, private: false}
label: {name: home, levels: ["no", "yes"]}
epsilon: 4
delta: 1e-6
parameters: parameters.json
reports: reports.csv
signing_key: collector.key
publish_to: releases
least_reports: 12
"""


def collection(
    *,
    private: tuple[bool, ...] = (True, True),
    levels: tuple[str, ...] = ("no", "yes"),
    epsilon: str = "4",
    delta: str | None = None,
    radius: float | None = None,
    norm: float = 0.15,
) -> LocalParameters:
    """Features a, b, ... in [0, 10], and a label `home`, unless it has no levels.

    Delta is 1e-5, or 0 where no feature is private, unless it is stated.
    """
    usual = "1e-5" if any(private) else "0"
    return calibrated(
        collection="commute",
        features=[
            Feature(name="abcdefgh"[place], low=0, high=10, private=is_private)
            for place, is_private in enumerate(private)
        ],
        label="home" if levels else None, levels=levels,
        epsilon=Decimal(epsilon), delta=Decimal(usual if delta is None else delta),
        radius=radius, parameter_norm=norm,
    )  # fmt: skip


def people(count: int, dimension: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """Features in [-1, 1], and a binary label that depends on the first of them."""
    features = rng.uniform(-1, 1, size=(count, dimension))
    labels = rng.random(count) < 1 / (1 + np.exp(0.5 - 2 * features[:, 0]))
    return features, labels.astype(np.int64)


def reports_of(parameters: LocalParameters, count: int = 12) -> pd.DataFrame:
    """Reports for `SPEC` as clients send them, by seeded noise."""
    features, labels = people(count, 2, np.random.default_rng(1))
    told, answers = privatise(features, labels, parameters=parameters, noise=SeededNoise(2))
    frame = pd.DataFrame(told, columns=["age", "city"])
    frame["home"] = [parameters.levels[answer] for answer in answers]
    frame["report_id"] = [f"{row:032x}" for row in range(count)]
    return frame.assign(parameters=parameters.digest)


def collectors_desk(folder: Path) -> Path:
    """Fill a collector's folder: spec, key, public parameters and twelve reports."""
    (folder / "collection.yaml").write_text(SPEC)
    create_key_pair(folder, "collector")
    parameters = write_parameters(load_local_spec(folder / "collection.yaml"))
    reports_of(parameters).to_csv(folder / "reports.csv", index=False)
    return folder


def told(
    parameters: LocalParameters, features: Array, labels: NDArray[np.int64],
    rng: np.random.Generator,
) -> LocalSample:  # fmt: skip
    """Reports by the same laws as a client's, in floats."""
    noise = rng.normal(size=features.shape) * np.sqrt(parameters.variances)
    response = parameters.response
    if response is not None:
        moved = rng.integers(1, response.levels, size=labels.size)
        truthful = rng.random(labels.size) < response.keep
        labels = np.where(truthful, labels, (labels + moved) % response.levels)
    return LocalSample(parameters=parameters, features=features + noise, labels=labels)


def expectation(dimension: int, *, nodes: int = 24) -> tuple[Array, Array]:
    """Gauss-Hermite points of a standard normal, shape (points, dimension), and their weights."""
    abscissae, mass = np.polynomial.hermite_e.hermegauss(nodes)
    mass = mass / mass.sum()
    points = np.stack(np.meshgrid(*[abscissae] * dimension, indexing="ij"), axis=-1)
    weights = np.prod(np.stack(np.meshgrid(*[mass] * dimension, indexing="ij"), axis=-1), axis=-1)
    return points.reshape(-1, dimension), weights.ravel()
