"""Settings, tables and calibrated methods that tests of `measured` weights share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import Tilt
from dpiw.privacy.units import PrivacyUnit
from tests.dpiw.methods.weights.conftest import uniform_rows

EFFORT = 0.5


def method(**changes: Any) -> Measured:
    given: dict[str, Any] = {
        "omega_seed": 3, "frequencies": 20, "features": {"fourier": 1.0, "target": 0.3},
        "scales": (2.0,),
    } | changes  # fmt: skip
    return Measured(**given)


def calibrated(schema: PublicSchema, unit: PrivacyUnit, **changes: Any) -> Measured:
    return method(**changes).calibrate(rho=EFFORT, schema=schema, unit=unit, nominal_rows=500)


def private(schema: PublicSchema, rows: int = 500, seed: int = 1, power: float = 2.0) -> Any:
    rng = np.random.default_rng(seed)
    return PrivateTable(schema=schema, scaled=uniform_rows(schema, rows, rng, power=power))


def base_of(schema: PublicSchema, rows: int = 4000, seed: int = 2) -> SyntheticTable:
    rng = np.random.default_rng(seed)
    return SyntheticTable(schema=schema, scaled=uniform_rows(schema, rows, rng))


def nothing(schema: PublicSchema) -> SyntheticTable:
    return base_of(schema, rows=0)


def above(least: Tilt, solved: Tilt, targets: Targets) -> float:
    """By how much F lies above its minimum, where it is a parabola."""
    off = solved.coefficients - least.coefficients
    return float(off @ (least.covariance + least.credit * targets.ridge) @ off) / 2
