from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpiw.methods.weights.paper.regression import (
    LinearMap,
    calibration,
    l1_reach,
    l2_reach,
    penalty_rule,
    resolved_share,
)
from dpiw.privacy.mechanisms import lattice_slack
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit

GOLDEN = json.loads((Path(__file__).parents[4] / "golden" / "weights.json").read_text())


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
    from dpiw.methods.weights.paper.ratio import log_weight_noise

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
