"""Bugs of regressions and sums under noise, and the checks that must find them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.methods.weights.measured import method as measured
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.credit import Misfit, evidence_credit
from dpiw.methods.weights.measured.features import Stack
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.paper import beta
from dpiw.methods.weights.paper import regression as calibration
from dpiw.methods.weights.paper import regression as solver
from dpiw.methods.weights.paper.beta import BetaNoised
from dpiw.privacy.units import NeighbouringRelation, NoiseKind
from tests.proof import blind as noninterference
from tests.proof import weight_worlds as weights
from tests.proof.attacks import Silent
from tests.proof.bugs import ADD, REPLACE, Bug, Patch
from tests.support.draws import drawn


# Checks
def check_weights_draw_once() -> None:
    """One draw of the coefficients, of the event's multiplier times the stated sensitivity."""
    world, public_schema = weights.regression(BetaNoised, 2, tight=0), weights.schema(2)
    laws, _ = drawn(lambda noise: world.attack(True, noise))
    ready = weights.calibrated(BetaNoised(penalty=20.0), public_schema)
    assert len(laws) == sum(e.count for e in ready.events(schema=public_schema, unit=ADD)) == 1
    wanted = ready.calibrated.multiplier * ready.calibrated.sensitivity
    assert laws[0].scale == pytest.approx(wanted, rel=1e-6)


def check_exact_sensitivity() -> None:
    """Exact coefficients of neighbours, in the norm that the noise pays for: corners and crowds."""
    for columns in (1, 6, 13):
        public_schema = weights.schema(columns)
        top, low = (1.0,) * columns, (0.0,) * columns
        crowd = [tuple(row) for row in np.random.default_rng(columns).random((25, columns))]
        pairs = {ADD: [([], [top]), (crowd, [*crowd, top])], REPLACE: [([low], [top])]}
        for unit, kind in ((u, k) for u in (ADD, REPLACE) for k in NoiseKind):
            ready = BetaNoised(noise=kind, penalty=float(columns)).calibrate(
                rho=5.0, schema=public_schema, unit=unit, nominal_rows=10**9
            )
            synthetic = weights.SyntheticTable(
                schema=public_schema, scaled=weights.scaled((0.5,) * columns, columns=columns)
            )
            for pair in pairs[unit]:
                ends = [
                    ready.solution(ready.regression(private(public_schema, rows), synthetic))
                    for rows in pair
                ]
                order = 1 if kind is NoiseKind.LAPLACE else 2
                moved = float(np.linalg.norm(ends[1] - ends[0], order))
                assert moved <= ready.calibrated.sensitivity * (1 + 1e-9)


def private(public_schema: Any, rows: Any) -> Any:
    columns = len(public_schema.columns)
    return weights.PrivateTable(schema=public_schema, scaled=weights.scaled(*rows, columns=columns))


PEOPLE = (ADD, REPLACE, weights.THREE_ROWS)
SHARES = dict.fromkeys(("linear", "squares", "products", "fourier"), 0.5)
"""Of a stack of norm 1 on several columns; a row then counts 1/2 beside it."""


def measuring(unit: Any, columns: int) -> tuple[Any, Any]:
    public_schema = weights.schema(columns)
    ready = Measured(features=SHARES, frequencies=3, omega_seed=2).calibrate(
        rho=2.0, schema=public_schema, unit=unit, nominal_rows=500
    )
    return ready, public_schema


def check_the_sum_draws_once() -> None:
    """One draw for all of the sum, of the event's multiplier times a sensitivity of our own."""
    for unit in PEOPLE:
        ready, public_schema = measuring(unit, 4)
        table = private(public_schema, [(1.0,) * 4] * 5)
        laws, _ = drawn(lambda noise, m=ready, t=table: m.measure(t, None, noise=noise))
        assert len(laws) == sum(e.count for e in ready.events(schema=public_schema, unit=unit)) == 1
        replaced = unit is REPLACE
        reach = 2.0 if replaced else math.hypot(1.0, 0.5)
        assert laws[0].dimension == 4 + 4 + 6 + 6 + (not replaced)
        (event,) = ready.events(schema=public_schema, unit=unit)
        wanted = event.noise_multiplier * unit.max_rows * reach
        assert laws[0].scale == pytest.approx(wanted, rel=1e-5)


def check_exact_sums() -> None:
    """Sums of neighbours as `measure` has them, against the noise that is drawn for them."""
    for columns, unit in ((c, u) for c in (1, 4) for u in PEOPLE):
        ready, public_schema = measuring(unit, columns)
        top, low, middle = ((v,) * columns for v in (1.0, 0.0, 0.5))
        crowd = [tuple(row) for row in np.random.default_rng(columns).random((25, columns))]
        added, k = [top] * unit.max_rows, unit.max_rows
        pairs = [(crowd, crowd + added), ([], added), ([], [low] * k)]
        if unit is REPLACE:
            pairs = [([low, *crowd], [top, *crowd]), ([middle], [top])]
        for pair in pairs:
            tables = [private(public_schema, rows) for rows in pair]
            laws, _ = drawn(lambda noise, m=ready, t=tables[0]: m.measure(t, None, noise=noise))
            ends = [ready.measure(t, None, noise=Silent()).arrays["sum"] for t in tables]
            moved = float(np.linalg.norm(ends[1] - ends[0]))
            assert moved * ready.calibrated.multiplier <= laws[0].scale


def check_a_blind_sum_says_nothing() -> None:
    """With the draws replaced by public numbers, nothing of a table is left."""
    noninterference.compare_measurements("measured stack", 6)


CHECKS = [
    check_weights_draw_once, check_exact_sensitivity, check_the_sum_draws_once, check_exact_sums,
    check_a_blind_sum_says_nothing,
]  # fmt: skip


# Bugs
def best_of_three(patch: Patch) -> None:
    """Three draws, and the one that fits the private rows best."""
    real = beta.noisy_vector

    def best(vector: Any, *, law: Any, noise: Any) -> Any:
        drawn = [real(vector, law=law, noise=noise) for _ in range(3)]
        return min(drawn, key=lambda draw: np.linalg.norm(draw - vector))

    patch.setattr(beta, "noisy_vector", best)


def laplace_at_l2(patch: Patch) -> None:
    patch.setattr(calibration, "l1_reach", calibration.l2_reach)


def free_intercept(patch: Patch) -> None:
    """The constant's coefficient is not penalised."""
    gradient, hessian = solver.Regression.gradient, solver.Regression.hessian

    def without(self: Any, b: Any) -> Any:
        adjusted = gradient(self, b)
        adjusted[-1] -= self.penalty * (1 - 1e-6) * b[-1]
        return adjusted

    def flat(self: Any, b: Any) -> Any:
        adjusted = hessian(self, b)
        adjusted[-1, -1] -= self.penalty * (1 - 1e-6)
        return adjusted

    patch.setattr(solver.Regression, "gradient", without)
    patch.setattr(solver.Regression, "hessian", flat)


def half_for_replace(patch: Patch) -> None:
    real = calibration.l2_reach
    patch.setattr(
        calibration, "l2_reach", lambda bounds, unit: real(bounds, unit) / (
            2 if unit.relation is NeighbouringRelation.REPLACE_ONE else 1)
    )  # fmt: skip


def one_end_of_the_bounds(patch: Patch) -> None:
    """The norm bound from the lower ends of the columns alone: 0 each, and the constant."""
    patch.setattr(calibration, "l2_reach", lambda bounds, unit: 0.5 * unit.max_rows)


def normaliser_from_private_rows(patch: Patch) -> None:
    """Synthetic rows weigh N_D/N_G, not n0/N_G."""
    real = BetaNoised.regression

    def regression(self: Any, table: Any, synthetic: Any) -> Any:
        problem = real(self, table, synthetic)
        share = max(1, len(problem.private)) / len(problem.synthetic)
        return dataclasses.replace(problem, synthetic_weight=1e4 * share)

    patch.setattr(BetaNoised, "regression", regression)


def changed_noise(patch: Patch, change: Callable[[Any], Any]) -> None:
    real = measured.sum_noise
    patch.setattr(measured, "sum_noise", lambda *a, **k: change(real(*a, **k)))


def noise_of_the_mean(patch: Patch) -> None:
    """The noise of a mean over n0 rows, on the sum."""

    def change(sum_noise: Any) -> Any:
        law = dataclasses.replace(sum_noise.law, scale=sum_noise.law.scale / sum_noise.nominal_rows)
        return dataclasses.replace(sum_noise, law=law)

    changed_noise(patch, change)


def exact_count(patch: Patch) -> None:
    """The number of rows is released as it is: sums are private, sizes are thought not to be."""
    real = Measured.measure

    def measure(self: Any, table: Any, synthetic: Any, *, noise: Any) -> Any:
        measurement = real(self, table, synthetic, noise=noise)
        total = measurement.arrays["sum"].copy()
        total[-1] = self.calibrated.constant * table.confidential().rows
        return dataclasses.replace(measurement, arrays={"sum": total})

    patch.setattr(Measured, "measure", measure)


def free_count(patch: Patch) -> None:
    """The count is measured, and the sensitivity is that of the features alone."""
    real = measured.sum_noise

    def without(stack: Any, *, multiplier: float, unit: Any, nominal_rows: int) -> Any:
        sum_noise = real(stack, multiplier=multiplier, unit=unit, nominal_rows=nominal_rows)
        reach = unit.max_rows * stack.norm * (1 + (unit.relation is REPLACE.relation))
        scale = multiplier * min(sum_noise.sensitivity, reach * (1 + 1e-6))
        return dataclasses.replace(sum_noise, law=dataclasses.replace(sum_noise.law, scale=scale))

    patch.setattr(measured, "sum_noise", without)


def norm_of_one_part(patch: Patch) -> None:
    """The whole stack has the noise of its largest part."""
    patch.setattr(Stack, "norm", property(lambda self: max(self.shares[p] for p in self.parts)))


def add_for_replace_in_sums(patch: Patch) -> None:
    """A row that is replaced pays its norm, not the distance of two."""
    changed_noise(
        patch, lambda sum_noise: sum_noise if sum_noise.constant else dataclasses.replace(
            sum_noise, law=dataclasses.replace(sum_noise.law, scale=sum_noise.law.scale / 2))
    )  # fmt: skip


def credit_from_private_rows(patch: Patch) -> None:
    """alpha by the exact means of the private rows, told beside the noisy sum."""
    real = Measured.measure

    def measure(self: Any, table: Any, synthetic: Any, *, noise: Any) -> Any:
        measurement = real(self, table, synthetic, noise=noise)
        stack = self.stack(table.schema)
        exact = measured.exact_sum(stack, table.batches(), constant=self.calibrated.constant)
        features = stack.matrix(synthetic.scaled)
        exact_measurement = dataclasses.replace(measurement, arrays={"sum": exact})
        targets = self.targets(exact_measurement, about=features.mean(axis=0))
        base = BaseRows(features)
        credit = evidence_credit(Misfit.of(base, targets))
        return dataclasses.replace(measurement, facts={**measurement.facts, "credit": credit})

    patch.setattr(Measured, "measure", measure)


def ranges_from_private_rows(patch: Patch) -> None:
    """Features within the range of the private rows, which the measurement states."""
    real = Measured.measure

    def measure(self: Any, table: Any, synthetic: Any, *, noise: Any) -> Any:
        rows = SyntheticTable(schema=table.schema, scaled=table.confidential())
        return real(self.for_rows(rows), table, synthetic, noise=noise)

    patch.setattr(Measured, "measure", measure)


def one_row_a_person(patch: Patch) -> None:
    """A person's further rows are not paid for."""
    real = measured.sum_noise
    patch.setattr(
        measured, "sum_noise", lambda stack, *, unit, **rest: dataclasses.replace(
            real(stack, unit=dataclasses.replace(unit, max_rows=1, id_column=None), **rest),
            unit=unit)
    )  # fmt: skip


def rows_counted_twice(patch: Patch) -> None:
    """Where a person has several rows, each is added for every one of them."""
    real = Measured.measure

    def measure(self: Any, table: Any, synthetic: Any, *, noise: Any) -> Any:
        rows = table.confidential()
        many = ScaledTable.concatenate([rows] * self.calibrated.unit.max_rows)
        table = weights.PrivateTable(schema=table.schema, scaled=many)
        return real(self, table, synthetic, noise=noise)

    patch.setattr(Measured, "measure", measure)


BUGS = {
    "noise of the mean on the sum": Bug(
        plant=noise_of_the_mean, check=check_the_sum_draws_once,
        known="DataResponsibly/DataSynthesizer#34 is of this kind: noise of shares on counts"),
    "count released without noise": Bug(
        plant=exact_count, check=check_a_blind_sum_says_nothing,
        known="known class: an exact total beside noisy sums"),
    "count measured and not paid for": Bug(
        plant=free_count, check=check_exact_sums, known="known class"),
    "a stack's noise from its largest part": Bug(
        plant=norm_of_one_part, check=check_the_sum_draws_once,
        known="known class: opendp/smartnoise-sdk#472 (all columns on one column's budget)"),
    "sums under replace-one paid as add/remove": Bug(
        plant=add_for_replace_in_sums, check=check_exact_sums,
        known="google/differential-privacy#378"),
    "credit from private rows": Bug(
        plant=credit_from_private_rows, check=check_a_blind_sum_says_nothing,
        known="known class: a tuning constant from exact private statistics"),
    "ranges of features from private rows": Bug(
        plant=ranges_from_private_rows, check=check_a_blind_sum_says_nothing,
        known="alan-turing-institute/reprosyn#38, sassoftware/dpmm#18: a domain from the data"),
    "sums of a person's rows paid as one row": Bug(
        plant=one_row_a_person, check=check_exact_sums,
        known="known class: OpenMined/PipelineDP#263"),
    "sums with a person's rows added twice": Bug(
        plant=rows_counted_twice, check=check_exact_sums, known="known class"),
    "best of three draws": Bug(
        plant=best_of_three, check=check_weights_draw_once,
        known="tensorflow/privacy#76 (selection not accounted); sarus-tech/dp-xgboost#3"),
    "Laplace noise at the L2 sensitivity": Bug(
        plant=laplace_at_l2, check=check_exact_sensitivity,
        known="arXiv 2108.10934, section 3 (docs/method.md section 4)"),
    "intercept not penalised": Bug(
        plant=free_intercept, check=check_exact_sensitivity,
        known="default of scikit-learn's LogisticRegression (docs/method.md section 3)"),
    "half the sensitivity under replace-one": Bug(
        plant=half_for_replace, check=check_exact_sensitivity,
        known="google/differential-privacy#378"),
    "sensitivity from one end of the bounds": Bug(
        plant=one_end_of_the_bounds, check=check_exact_sensitivity,
        known="IBM/differential-privacy-library#105; interpretml/interpret#523"),
    "weights normalised by the private row count": Bug(
        plant=normaliser_from_private_rows, check=check_exact_sensitivity,
        known="known class: class_weight='balanced' (docs/method.md sections 2 and 3)"),
}  # fmt: skip
