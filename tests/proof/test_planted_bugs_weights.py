"""E5, the weights: bugs of regressions under noise, planted, and the checks that find them.

See `test_planted_bugs.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.privacy import NeighbouringRelation, NoiseKind
from dpiw.weights import beta, calibration, solver
from dpiw.weights.beta import BetaNoised
from tests.proof import test_canaries_weights as weights
from tests.proof.test_planted_bugs import ADD, REPLACE, Bug, Patch, laws_of

# Checks


def check_weights_draw_once() -> None:
    """One draw of the coefficients, of the event's multiplier times the stated sensitivity."""
    world, own = weights.regression(BetaNoised, 2, tight=0), weights.schema(2)
    laws, _ = laws_of(lambda noise: world.attack(True, noise))
    ready = weights.calibrated(BetaNoised(penalty=20.0), own)
    assert len(laws) == sum(e.count for e in ready.events(schema=own, unit=ADD)) == 1
    wanted = ready.calibrated.multiplier * ready.calibrated.sensitivity
    assert laws[0].scale == pytest.approx(wanted, rel=1e-6)


def check_exact_sensitivity() -> None:
    """Exact coefficients of neighbours, in the norm that the noise pays for: corners and crowds."""
    for columns in (1, 6, 13):
        own = weights.schema(columns)
        top, low = (1.0,) * columns, (0.0,) * columns
        crowd = [tuple(row) for row in np.random.default_rng(columns).random((25, columns))]
        pairs = {ADD: [([], [top]), (crowd, [*crowd, top])], REPLACE: [([low], [top])]}
        for unit, kind in ((u, k) for u in (ADD, REPLACE) for k in NoiseKind):
            ready = BetaNoised(noise=kind, penalty=float(columns)).calibrate(
                rho=5.0, schema=own, unit=unit, nominal_rows=10**9
            )
            synthetic = weights.SyntheticTable(
                schema=own, scaled=weights.scaled((0.5,) * columns, columns=columns)
            )
            for pair in pairs[unit]:
                ends = [
                    ready.solution(ready.regression(private(own, rows), synthetic)) for rows in pair
                ]
                order = 1 if kind is NoiseKind.LAPLACE else 2
                moved = float(np.linalg.norm(ends[1] - ends[0], order))
                assert moved <= ready.calibrated.sensitivity * (1 + 1e-9)


def private(own: Any, rows: Any) -> Any:
    columns = len(own.columns)
    return weights.PrivateTable(schema=own, scaled=weights.scaled(*rows, columns=columns))


CHECKS = [check_weights_draw_once, check_exact_sensitivity]


# Bugs


def best_of_three(patch: Patch) -> None:
    """Three draws, and the one that fits the private rows best."""
    real = beta.noisy_vector

    def best(vector: Any, *, law: Any, noise: Any) -> Any:
        drawn = [real(vector, law=law, noise=noise) for _ in range(3)]
        return min(drawn, key=lambda one: np.linalg.norm(one - vector))

    patch.setattr(beta, "noisy_vector", best)


def laplace_at_l2(patch: Patch) -> None:
    patch.setattr(calibration, "l1_reach", calibration.l2_reach)


def free_intercept(patch: Patch) -> None:
    """The constant's coefficient is not penalised."""
    gradient, hessian = solver.Regression.gradient, solver.Regression.hessian

    def without(self: Any, b: Any) -> Any:
        found = gradient(self, b)
        found[-1] -= self.penalty * (1 - 1e-6) * b[-1]
        return found

    def flat(self: Any, b: Any) -> Any:
        found = hessian(self, b)
        found[-1, -1] -= self.penalty * (1 - 1e-6)
        return found

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
        found = real(self, table, synthetic)
        share = max(1, len(found.private)) / len(found.synthetic)
        return dataclasses.replace(found, synthetic_weight=1e4 * share)

    patch.setattr(BetaNoised, "regression", regression)


BUGS = {
    "best of three draws": Bug(
        plant=best_of_three, check=check_weights_draw_once,
        known="tensorflow/privacy#76 (selection not accounted); sarus-tech/dp-xgboost#3"),
    "Laplace noise at the L2 sensitivity": Bug(
        plant=laplace_at_l2, check=check_exact_sensitivity,
        known="arXiv 2108.10934, section 3 (METHOD 2.1)"),
    "intercept not penalised": Bug(
        plant=free_intercept, check=check_exact_sensitivity,
        known="default of scikit-learn's LogisticRegression (METHOD 1)"),
    "half the sensitivity under replace-one": Bug(
        plant=half_for_replace, check=check_exact_sensitivity,
        known="google/differential-privacy#378"),
    "sensitivity from one end of the bounds": Bug(
        plant=one_end_of_the_bounds, check=check_exact_sensitivity,
        known="IBM/differential-privacy-library#105; interpretml/interpret#523"),
    "weights normalised by the private row count": Bug(
        plant=normaliser_from_private_rows, check=check_exact_sensitivity,
        known="known class: class_weight='balanced' (METHOD 1 and 5)"),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch) -> None:
    bug = BUGS[name]
    assert bug.check in CHECKS
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError):
        bug.check()
