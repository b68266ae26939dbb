from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpiw.methods.weights.beta import BetaDebiased
from dpiw.methods.weights.features import FourierMap, LinearMap
from dpiw.methods.weights.penalty import (
    balanced_penalty,
    calibration,
    l1_reach,
    l2_reach,
    noise_level,
    penalty_rule,
    resolved_share,
)
from dpiw.privacy.mechanisms import lattice_slack
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "weights.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["penalty_rule"]["rows"])
def test_penalty_rule_by_hand(row, numeric, unit):
    bounds = LinearMap(numeric(row["d"])).bounds
    calibrated = calibration(
        bounds,
        multiplier=row["multiplier"],
        noise=NoiseKind(row["noise"]),
        unit=unit,
        nominal_rows=row["nominal_rows"],
        tau=0.2,
    )
    assert calibrated.noise_level == pytest.approx(row["level"], rel=1e-9)
    assert calibrated.penalty == pytest.approx(row["penalty"], rel=1e-9)
    assert calibrated.capped is row["capped"]
    assert calibrated.noise_level / calibrated.penalty <= 0.2 * (1 + 1e-12)


def test_penalty_rule_switches_where_both_branches_meet():
    level, tau = 2.0, 0.2
    meeting = level / (0.05 * tau**2)
    assert penalty_rule(level, nominal_rows=int(meeting / 2), tau=tau) == level / tau
    assert penalty_rule(level, nominal_rows=int(meeting * 2), tau=tau) > level / tau


@pytest.mark.parametrize("nominal_rows", [3000, 10_000, 1_000_000])
def test_balanced_penalty_is_the_linear_rule_on_equal_eigenvalues(nominal_rows):
    """Where little is shrunk; the closed form drops Lam beside (n0/2) l. Grid: half a per cent."""
    penalty = balanced_penalty(0.1, np.full(4, 1 / 12), nominal_rows=nominal_rows, tau=1.0)
    linear = penalty_rule(0.1, nominal_rows=nominal_rows, tau=1.0)
    share = 24 * linear / nominal_rows
    assert share < 0.04
    assert penalty == pytest.approx(linear, rel=0.005 + 2 * share)


@pytest.mark.parametrize("nominal_rows", [1, 100, 10_000, 10**7])
@pytest.mark.parametrize("level", [0.5, 4.0, 40.0])
def test_balanced_penalty_minimises_its_printed_error(level, nominal_rows):
    eigenvalues = np.array([0.2, 0.05, 0.01, 1e-4, 0.0])

    def error(penalty):
        shrinkage = nominal_rows / 2 * eigenvalues / (nominal_rows / 2 * eigenvalues + penalty)
        signal = (eigenvalues * (1 - shrinkage) ** 2).sum() / eigenvalues.sum()
        return 25 / 36 * signal + (level / penalty) ** 2

    balanced = balanced_penalty(level, eigenvalues, nominal_rows=nominal_rows, tau=0.2)
    floor, top = level / 0.2, math.sqrt(0.6 * level * nominal_rows * 0.2)
    if top <= floor:
        assert balanced == floor
    else:
        assert floor <= balanced <= top * (1 + 1e-12)
        least = min(error(p) for p in np.geomspace(floor, top, 5000))
        assert error(balanced) <= least * 1.001
    assert balanced_penalty(level, np.zeros(3), nominal_rows=nominal_rows, tau=0.2) == floor


def test_fourier_noise_falls_with_the_size_and_never_passes_the_cap(numeric, unit):
    schema, penalties = numeric(3), []
    for nominal_rows in (100, 1000, 10_000, 100_000):
        estimator = BetaDebiased(features="fourier", omega_seed=1, frequencies=40).calibrate(
            rho=0.05, schema=schema, unit=unit, nominal_rows=nominal_rows
        )
        penalties.append(estimator.calibrated.penalty)
        assert estimator.predicted_log_weight_noise(schema=schema) <= 0.2 * (1 + 1e-12)
        assert estimator.warnings(schema=schema, nominal_rows=nominal_rows) == ()
    assert penalties[0] == estimator.calibrated.noise_level / 0.2
    assert penalties[3] > penalties[2] > 1.2 * penalties[0]


@pytest.mark.parametrize("d", [1, 4, 13, 30])
def test_reaches_of_method_section_1(d, numeric, unit, replace_unit):
    bounds = LinearMap(numeric(d)).bounds
    assert l2_reach(bounds, unit) == pytest.approx(math.sqrt(d + 1) / 2)
    assert l1_reach(bounds, unit) == pytest.approx((d + 1) / 2)
    assert l2_reach(bounds, replace_unit) == pytest.approx(max(math.sqrt(d), math.sqrt(d + 1) / 2))
    assert l1_reach(bounds, replace_unit) == pytest.approx((d + math.sqrt(d * (d + 1))) / 2)


@pytest.mark.parametrize("relation", NeighbouringRelation)
@pytest.mark.parametrize("kind", NoiseKind)
def test_a_unit_of_k_rows_needs_k_times_the_noise(kind, relation, numeric):
    bounds = LinearMap(numeric(4)).bounds
    scales = [
        calibration(
            bounds,
            multiplier=2.0,
            noise=kind,
            unit=PrivacyUnit(relation=relation, max_rows=k, id_column="id"),
            nominal_rows=1000,
            tau=0.2,
            penalty=30.0,
        ).law.scale
        for k in (1, 5)
    ]
    assert scales[1] == pytest.approx(5 * scales[0], rel=1e-5)


def test_fourier_noise_does_not_depend_on_the_schema(numeric, mixed, unit, replace_unit):
    for schema in (numeric(2), numeric(40), mixed):
        bounds = FourierMap(schema, 50, None, 1).bounds
        assert (l2_reach(bounds, unit), l2_reach(bounds, replace_unit)) == (1.0, 2.0)
        assert noise_level(bounds, noise=NoiseKind.GAUSSIAN, unit=unit, multiplier=4.0) == 4.0


@pytest.mark.parametrize("kind", NoiseKind)
def test_scale_covers_reach_solver_and_lattice(kind, numeric, unit):
    bounds = LinearMap(numeric(30)).bounds
    calibrated = calibration(
        bounds, multiplier=3.0, noise=kind, unit=unit, nominal_rows=5000, tau=0.2
    )
    laplace = kind is NoiseKind.LAPLACE
    reach = l1_reach(bounds, unit) if laplace else l2_reach(bounds, unit)
    solver = 2e-6 * bounds.norm * (math.sqrt(31) if laplace else 1.0)
    needed = (reach + solver) / calibrated.penalty
    assert calibrated.sensitivity >= needed
    assert calibrated.law.scale >= 3.0 * (needed + lattice_slack(calibrated.law))
    assert calibrated.law.scale == pytest.approx(3.0 * needed, rel=1e-5)  # and not much more


@pytest.mark.parametrize("kind", NoiseKind)
def test_tau_is_the_noise_of_a_reference_row(kind, numeric, unit):
    from dpiw.methods.weights.debiasing import log_weight_noise

    bounds = LinearMap(numeric(6)).bounds
    calibrated = calibration(
        bounds, multiplier=2.5, noise=kind, unit=unit, nominal_rows=3000, tau=0.2
    )
    reference = np.array([[math.sqrt(1 / 12)] * 6 + [0.5]])
    tau = calibrated.noise_level / calibrated.penalty
    assert log_weight_noise(calibrated.law, reference)[0] == pytest.approx(tau, rel=1e-4)


def test_resolved_share_by_hand():
    # One eigenvalue 1/12, n0 = 2400, Lam = 100: (n0/2)/12 = 100, so one half survives.
    assert resolved_share(np.array([1 / 12, 0.0]), nominal_rows=2400, penalty=100.0) == 0.5
    two = resolved_share(np.array([1 / 12, 1 / 4]), nominal_rows=2400, penalty=100.0)
    assert two == pytest.approx((1 / 12 * 0.5 + 1 / 4 * 0.75) / (1 / 3))
    assert resolved_share(np.zeros(2), nominal_rows=10, penalty=1.0) == 0.0


def test_numbers_are_json(numeric, unit):
    calibrated = calibration(
        LinearMap(numeric(2)).bounds,
        multiplier=2.0,
        noise=NoiseKind.GAUSSIAN,
        unit=unit,
        nominal_rows=10,
        tau=0.2,
    )
    numbers = json.loads(json.dumps(calibrated.to_json()))
    assert numbers["scale"] == calibrated.law.scale
    assert replace(calibrated, penalty=1.0).to_json()["penalty"] == 1.0
