"""The scripts of benchmarks/, which is no package, and a table of a made-up shop."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from tests.support.worlds import declared

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name, alias=None):
    """A script of the folder, which is no package; its own imports find their neighbours."""
    sys.path.insert(0, str(FOLDER))  # as `python benchmarks/name.py` has it
    try:
        if alias is None:
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(alias, FOLDER / f"{name}.py")
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
        return sys.modules[alias]
    finally:
        sys.path.remove(str(FOLDER))


metrics = load("metrics")
study = load("study")


def schema(target="label"):
    number = {"kind": "continuous", "lower": 0, "upper": 10}
    columns = [
        {"name": "size", **number},
        {"name": "grade", "kind": "ordinal", "levels": ["a", "b", "c"]},
        {"name": "colour", "kind": "categorical", "levels": ["red", "green", "blue"]},
        {"name": "label", "kind": "boolean"},
        {"name": "price", **number},
    ]
    roles = {target: {"role": "target"}, "colour": {"nullable": True}}
    return declared(*(column | roles.get(column["name"], {}) for column in columns), name="shop")


def rows(rng, n, shift=0.0):
    size = rng.random(n) * 6 + shift
    frame = pd.DataFrame(
        {
            "size": size,
            "grade": rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2]),
            "colour": rng.choice(["red", "green", "blue", ""], n),
            "label": rng.random(n) < 1 / (1 + np.exp(3 - size)),
            "price": np.clip(size + rng.normal(size=n), 0, 10),
        }
    )
    return schema().scale(frame.astype(str))
