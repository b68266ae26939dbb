"""Specs for the tests of plans, and what no spec may hold."""

import copy
from decimal import Decimal

from dpiw.plan.spec import parse_spec
from tests.support.worlds import declared

GOOD = {
    "format": 1, "name": "survey", "population": "town",
    "source": {"path": "data.csv", "format": "csv"}, "schema": "schema.yaml",
    "epsilon": Decimal("1.5"), "delta": "1e-6", "nominal_rows": 1000,
    "generator": {"method": "privbayes", "settings": {"degree": 1}},
    "weights": {"method": "beta_debiased"}, "synthetic_rows": 500,
    "state": "state", "signing_key": "key", "publish_to": "out",
}  # fmt: skip


def changed(path, value):
    mapping = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    target = mapping
    for part in parents:
        target = target.setdefault(part, {})
    target[last] = value
    return mapping


_REFUSED = {
    # rows of tests/hostile/bad_inputs/rows.py. 35: exact decimals, nothing else; 36: policy maximum
    "epsilon": [0, Decimal(0), -1, "-1", 0.1, True, "1,0", "NaN", Decimal("NaN"),
                Decimal("Infinity"), "1e-400", "1e-13", None, 11],
    "delta": [-1, 1, "0.01", "1e-19", 1e-6],  # 37; the third is above 1/nominal_rows
    "name": ["../etc", "CON ", "", "a" * 64],  # 31
    "population": ["Town"],
    "source.snapshot": ["a/b"],
    "relation": ["bounded"],  # 46, 47
    "source.format": ["xlsx"],
    "weights.when_infeasible": ["maybe"],
    "state": ["postgresql://user:secret@host/db"],  # 51
    "nominal_rows": [0, 10.5, "many"],
    "synthetic_rows": [0],
    "max_attempts": [0],
    "unit.max_rows": [0],
    "shares.generator": [0, 10**400],  # no float holds it
    "shares.weights": [0, "half", 1.5],
    "generator.settings": [{"bins": 10**400}, {"noise_penalty": 10**400}],
    "weights.settings": [{"features": 10**400}],
    "format": [2],
    "seed": [42],  # unknown keys
    "source.password": ["x"],
}  # fmt: skip
REFUSED_FIELDS = [(path, value, path) for path, values in _REFUSED.items() for value in values]
"""Path, value, and the field that the refusal names."""

SCHEMA = declared(
    *({"name": f"x{i}", "kind": "continuous", "lower": 0, "upper": 1} for i in range(5)),
    {"name": "y", "kind": "boolean", "role": "target"},
    name="town",
)


def spec(**changes):
    mapping = {
        "format": 1, "name": "town", "population": "town",
        "source": {"path": "nowhere.csv", "format": "csv"}, "schema": "nowhere.yaml",
        "epsilon": "1", "delta": "1e-6", "nominal_rows": 5000,
        "generator": {"method": "privbayes", "settings": {"bins": 8}},
        "weights": {"method": "beta_debiased", "when_infeasible": "keep"},
        "synthetic_rows": 100, "state": "s", "signing_key": "k", "publish_to": "p",
    }  # fmt: skip
    return parse_spec(mapping | changes)


REFUSED_SETTINGS = [
    ({"generator": {"method": "magic"}}, "generator.method"),
    ({"generator": {"method": "privbayes", "settings": {"seed": 1}}}, "generator.settings"),
    ({"generator": {"method": "privbayes", "settings": {"degree": "two"}}}, "degree"),
    ({"generator": {"method": "privbayes", "settings": {"noise": "none"}}}, "noise"),
    ({"weights": {"method": "magic"}}, "weights.method"),
    ({"weights": {"method": "beta_debiased", "settings": {"lambda": 1}}}, "lambda"),
    ({"weights": {"method": "beta_debiased", "settings": {"penalty": 0}}}, "penalty"),
    ({"weights": {"method": "beta_debiased", "settings": {"penalty": -1}}}, "penalty"),
    ({"weights": {"method": "beta_debiased", "settings": {"features": "deep"}}}, "features"),
]
"""Changes to `spec`, and what the refusal says."""

PUBLIC = {"step": "beta_calibrate", "rows": "survey.csv", "declared": "the 2020 survey"}


def calibrating(step, **weights):
    return changed("weights", {"method": "beta_debiased", "post_processing": [step], **weights})


REFUSED_CALIBRATIONS = [
    (calibrating(PUBLIC) | {"shares": {"calibration": 0.1}}, r"^shares.calibration: unknown key"),
    (calibrating(PUBLIC, method="none"), "expected weights.method beta_debiased or"),
    (calibrating(PUBLIC, method="output_noised"), "expected weights.method beta_debiased or"),
    (calibrating({**PUBLIC, "a": 1, "b": 1, "c": 0}), "beta_calibrate.a: "),
    (calibrating(PUBLIC | {"source": "private"}), "source: expected public"),
    (calibrating(PUBLIC | {"tau": Decimal("0.1")}), "beta_calibrate.tau: "),
    (calibrating(PUBLIC | {"rows": 7}), "rows: expected text"),
    (calibrating(PUBLIC | {"declared": ""}), "expected `rows`, a file"),
    (calibrating(PUBLIC | {"declared": "  "}), "expected `rows`, a file"),
    (calibrating(PUBLIC | {"declared": "\ud800"}), "declared: expected at most 4096"),
    (calibrating(PUBLIC | {"rows": "x" * 5000}), "rows: expected at most 4096"),
    (calibrating(PUBLIC, normalisation="unnormalised"), "loses the scale"),
    (calibrating(PUBLIC | {"limit": 51}), "limit=51"),
]
"""Changes to `GOOD`, and what the refusal says."""
