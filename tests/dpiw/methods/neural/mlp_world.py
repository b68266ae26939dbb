"""Three columns with a known log ratio, and small `dp_mlp` weights that are calibrated for them."""

import numpy as np

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.paper.mlp import DensityNetwork
from tests.support.worlds import UNIT, numbers

SCHEMA = numbers(3, name="three")
SMALL = {"hidden": (8,), "steps": 60, "lot": 64, "learning_rate": 0.05}


def log_ratio(u):
    """Known truth: linear in one column, an interaction of the others."""
    return 1.5 * (u[:, 0] - 0.5) + 6 * (u[:, 1] - 0.5) * (u[:, 2] - 0.5)


def scaled(u):
    return ScaledTable({f"x{i}": u[:, i] for i in range(3)}, len(u))


def uniform(rows, seed):
    return np.random.default_rng(seed).random((rows, 3))


def real_rows(rows, seed, truth=log_ratio):
    rng = np.random.default_rng(seed)
    u = rng.random((20 * rows, 3))
    value = truth(u)
    return u[rng.random(len(u)) < np.exp(value - value.max())][:rows]


def private(u):
    return PrivateTable(schema=SCHEMA, scaled=scaled(u))


def synthetic(u):
    return SyntheticTable(schema=SCHEMA, scaled=scaled(u))


def ready(*, rho=0.5, nominal_rows=1000, unit=UNIT, **changes):
    estimator = DensityNetwork(**(SMALL | changes))
    return estimator.calibrate(rho=rho, schema=SCHEMA, unit=unit, nominal_rows=nominal_rows)
