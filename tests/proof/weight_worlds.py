"""Weights on neighbouring tables, for attacks to tell apart."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaNoised
from dpiw.methods.weights.paper.output import OutputNoised
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.privacy.units import NoiseKind, PrivacyUnit
from tests.proof.attacks import World, additive, claim_of
from tests.proof.generator_worlds import Transcript
from tests.support.worlds import ADD, REPLACE, UNIT, coded, flags, numbers, unit_of

THREE_ROWS, REPLACED = unit_of(ADD, 3), unit_of(REPLACE)
EFFORT = 2.0
"""mu = 2, or epsilon = 2 without delta: an event of few outputs then says most."""
PILE = 10**13


def schema(columns: int) -> PublicSchema:
    return numbers(columns, name="canary")


def scaled(*rows: tuple[float, ...], columns: int) -> ScaledTable:
    values = np.array(rows, dtype=np.float64).reshape(len(rows), columns)
    return ScaledTable({f"x{j}": values[:, j] for j in range(columns)}, len(rows))


def calibrated(method: Any, public_schema: PublicSchema) -> Any:
    return method.calibrate(rho=EFFORT, schema=public_schema, unit=UNIT, nominal_rows=PILE)


def angled(features: Callable[[ScaledTable], Any], public_schema: PublicSchema, canary: Any) -> Any:
    """A row whose features are nearly at a right angle to the canary's, on its side of it."""
    columns = len(public_schema.columns)
    rng = np.random.default_rng(3)
    rows = [tuple(row) for row in rng.random((4000, columns))]
    canary_features = features(scaled(canary, columns=columns))[0]
    matrix = features(scaled(*rows, columns=columns))
    cosine = (
        matrix @ canary_features / np.linalg.norm(matrix, axis=1) / np.linalg.norm(canary_features)
    )
    return rows[int(np.argmin(np.abs(cosine - 0.17)))]


def world_of(
    ready: Any, unit: PrivacyUnit, public_schema: PublicSchema, public: ScaledTable,
    rows: tuple[ScaledTable, ScaledTable], **limits: Any,
) -> World:  # fmt: skip
    """A method on the tables without and with the canary, beside public rows."""
    synthetic = SyntheticTable(schema=public_schema, scaled=public)
    tables = [PrivateTable(schema=public_schema, scaled=table) for table in rows]
    return additive(
        ready.events(schema=public_schema, unit=unit), getattr(ready, "noise", NoiseKind.GAUSSIAN),
        lambda within, noise: ready.measure(tables[within], synthetic, noise=noise), **limits,
    )  # fmt: skip


def regression(kind: type[BetaNoised], columns: int, *, tight: float, **settings: Any) -> World:
    public_schema, canary = schema(columns), (1.0,) * columns
    ready = calibrated(kind(penalty=20.0, **settings), public_schema)
    return beside_a_pile(ready, public_schema, canary, names=["coefficients"], tight=tight)


def output_noised(noise: str, *, tight: float) -> World:
    public_schema = schema(1)
    ready = calibrated(OutputNoised(noise=noise, penalty=20.0, rows=1), public_schema)
    published = SyntheticTable(schema=public_schema, scaled=scaled((1.0,), columns=1))
    return beside_a_pile(
        ready.for_rows(published), public_schema, (1.0,), names=["log_ratio"], tight=tight
    )


def beside_a_pile(ready: Any, public_schema: PublicSchema, canary: Any, **limits: Any) -> World:
    """Nobody, or the canary, beside a very heavy row at nearly a right angle to it.

    Then its gradient has nearly its greatest length and almost no curvature resists it: exact
    coefficients move by 0.9 of the claimed sensitivity and more.
    """
    columns = len(public_schema.columns)
    pile = angled(LinearMap(public_schema).matrix, public_schema, canary)
    nobody, somebody, heavy = (scaled(*rows, columns=columns) for rows in ((), (canary,), (pile,)))
    return world_of(ready, UNIT, public_schema, heavy, (nobody, somebody), **limits)


def measured(
    features: dict[str, float], *, tight: float, unit: PrivacyUnit = UNIT, columns: int = 3
) -> World:
    """All of a person's rows at one corner, or there in place of the other."""
    public_schema = schema(columns)
    ready = Measured(features=features, frequencies=3, omega_seed=5).calibrate(
        rho=EFFORT, schema=public_schema, unit=unit, nominal_rows=100
    )
    low, top = (scaled(*[(v,) * columns] * unit.max_rows, columns=columns) for v in (0.0, 1.0))
    before = low if unit.relation is REPLACE else low.take([])
    return world_of(ready, unit, public_schema, low, (before, top), names=["sum"], tight=tight)


def chosen(*, rho: float, sharp: float = 1.0, **limits: float) -> World:
    """Three tables of two flags that have one score; the canary raises one and lowers two."""
    public_schema = flags("c0", "c1", "c2")
    ready = Measured(choose=1, omega_seed=5).calibrate(
        rho=rho, schema=public_schema, unit=UNIT, nominal_rows=100
    )
    cells = np.indices((2, 2, 2)).reshape(3, -1).T
    synthetic = SyntheticTable(
        schema=public_schema, scaled=coded(public_schema, cells).confidential()
    )
    rows = np.array([[1, 0, 1]] * 3 + [[0, 0, 0]])
    tables = [coded(public_schema, rows[:count]) for count in (3, 4)]
    told = SimpleNamespace(
        measure=lambda table, *, noise: ready.measure(table, synthetic, noise=noise)
    )
    return World(
        attack=lambda within, noise: Transcript(sharp).ratio(told, tables, within, noise),
        claim=claim_of(ready.events(schema=public_schema, unit=UNIT)), **limits,
    )  # fmt: skip


STACK = {"linear": 1.0, "squares": 0.3, "products": 0.3, "fourier": 0.5}
"""On columns without a target, so that of its parts `target` has none."""
WORLDS: dict[str, Callable[[], World]] = {
    "beta_noised gaussian": lambda: regression(BetaNoised, 1, tight=0.7),
    "beta_noised spherical": lambda: regression(BetaNoised, 1, noise="spherical", tight=0.5),
    "beta_noised laplace": lambda: regression(BetaNoised, 1, noise="laplace", tight=0.5),
    "beta_debiased gaussian": lambda: regression(BetaDebiased, 3, tight=0.7),
    "output_noised gaussian": lambda: output_noised("gaussian", tight=0.7),
    "output_noised spherical": lambda: output_noised("spherical", tight=0.6),
    "measured, linear": lambda: measured({"linear": 1.0}, tight=0.7),
    "measured, Fourier": lambda: measured({"fourier": 1.0}, tight=0.7),
    "measured, stack": lambda: measured(STACK, tight=0.7),
    "measured, stack, three rows a person": lambda: measured(STACK, tight=0.7, unit=THREE_ROWS),
    "measured, chosen": lambda: chosen(rho=1.0, tight=0.3, few=0.3, faint=0.5),
    "measured, linear, replace-one": lambda: measured({"linear": 1.0}, tight=0.7, unit=REPLACED),
}
UNPAID: dict[str, Callable[[], World]] = {
    "measured, chosen": lambda: chosen(rho=0.3, sharp=1e3, tight=0.0, few=0.05),
}
"""As `generator_worlds.UNPAID`; so small a claim that few runs refute it at its delta."""
