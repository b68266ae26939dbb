"""Settings, tables and calibrated methods that tests of `measured` weights share."""

import numpy as np

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.thinning import calibrated as calibrated_rows
from dpiw.methods.weights.measured.tilting import Tilt
from tests.support.worlds import uniform_rows

EFFORT = 0.5


def method(**changes):
    given = {
        "omega_seed": 3, "frequencies": 20, "features": {"fourier": 1.0, "target": 0.3},
        "scales": (2.0,),
    } | changes  # fmt: skip
    return Measured(**given)


def calibrated(schema, unit, **changes):
    return method(**changes).calibrate(rho=EFFORT, schema=schema, unit=unit, nominal_rows=500)


def private(schema, rows=500, seed=1, power=2.0):
    rng = np.random.default_rng(seed)
    return PrivateTable(schema=schema, scaled=uniform_rows(schema, rows, rng, power=power))


def base_of(schema, rows=4000, seed=2):
    rng = np.random.default_rng(seed)
    return SyntheticTable(schema=schema, scaled=uniform_rows(schema, rows, rng))


def nothing(schema):
    return base_of(schema, rows=0)


def above(least, solved, targets):
    """By how much F lies above its minimum, where it is a parabola."""
    off = solved.theta - least.theta
    return float(off @ (least.covariance + least.credit * targets.ridge) @ off) / 2


def calibration_of(logs, rows, targets, features, *, design_effect=2.0, rng):
    """`thinning.calibrated`, told the features of rows by their indices, uniform ones."""
    dimension = features.shape[1]
    law = Tilt(
        theta=np.zeros(dimension), log_weights=np.zeros(0), log_mass=0.0,
        means=np.zeros(dimension), covariance=np.eye(dimension) / 12,
        credit=1.0, gap=0.0, steps=0,
    )  # fmt: skip

    def taken(chosen, log_weights):
        return BaseRows(features[chosen], log_weights=log_weights)

    return calibrated_rows(
        logs, rows, targets, taken=taken, law=law, design_effect=design_effect, rng=rng
    )
