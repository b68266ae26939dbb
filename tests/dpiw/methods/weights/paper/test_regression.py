"""Public bounds, penalty, sensitivity and the solver of the paper's regression."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from dpiw.errors import WeightError
from dpiw.methods.weights.paper.regression import (
    GRADIENT_TOLERANCE,
    LinearMap,
    Regression,
    calibration,
    l1_reach,
    l2_reach,
    resolved_share,
    solve,
)
from dpiw.privacy.mechanisms import lattice_slack
from dpiw.privacy.units import NoiseKind
from tests.dpiw.data.centred_bounds import reference_squared_norm, squared_diameter, squared_norm
from tests.proof.neighbours import extreme_rows
from tests.support.worlds import REPLACED, UNIT, mixed, numbers, uniform_rows


def extremes(matrix):
    gaps = matrix[:, None, :] - matrix[None, :, :]
    return {
        "norm": np.sqrt((matrix**2).sum(axis=1)).max(), "l1_norm": np.abs(matrix).sum(axis=1).max(),
        "coordinate": np.abs(matrix).max(), "diameter": np.sqrt((gaps**2).sum(axis=2)).max(),
        "l1_diameter": np.abs(gaps).sum(axis=2).max(),
    }  # fmt: skip


def test_bounds_hold_at_corners_and_inside():
    """Those of the schema, attained at the corners."""
    schema, feature_rows = mixed(), LinearMap(mixed())
    rng = np.random.default_rng(3)
    corners = feature_rows.matrix(extreme_rows(schema, 1000, rng))
    bounds, attained = feature_rows.bounds, extremes(corners)
    inside = feature_rows.matrix(uniform_rows(schema, 400, rng))
    assert inside.shape == (400, bounds.dimension) == (400, schema.width + 1)
    for found in (attained, extremes(inside)):
        for field, value in found.items():
            assert value <= getattr(bounds, field) * (1 + 1e-12), field
    for field in ("norm", "diameter", "l1_norm"):
        assert attained[field] == pytest.approx(getattr(bounds, field), rel=1e-12), field
    assert bounds.norm**2 == pytest.approx(squared_norm(schema) + 0.25)
    assert bounds.diameter**2 == pytest.approx(squared_diameter(schema))
    assert bounds.reference_norm**2 == pytest.approx(reference_squared_norm(schema) + 0.25)


def test_reference_moments_match_simulated_uniform_rows():
    schema = numbers(4, target=True)
    matrix = LinearMap(schema).matrix(uniform_rows(schema, 60_000, np.random.default_rng(5)))
    eigenvalues = np.linalg.eigvalsh(np.cov(matrix.T))
    stated = np.sort(LinearMap(schema).reference_eigenvalues())
    np.testing.assert_allclose(eigenvalues, stated, atol=0.003)
    reference = LinearMap(schema).bounds.reference_norm
    assert np.sqrt((matrix**2).sum(1).mean()) == pytest.approx(reference, rel=0.01)


GOLDEN = json.loads((Path(__file__).parents[4] / "golden" / "weights.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["penalty_rule"]["rows"])
def test_penalty_rule_by_hand(row):
    bounds = LinearMap(numbers(row["d"])).bounds
    calibrated = calibration(
        bounds, multiplier=row["multiplier"], noise=NoiseKind(row["noise"]), unit=UNIT,
        nominal_rows=row["nominal_rows"], tau=0.2,
    )  # fmt: skip
    assert calibrated.noise_level == pytest.approx(row["level"], rel=1e-9)
    assert calibrated.penalty == pytest.approx(row["penalty"], rel=1e-9)
    assert calibrated.capped is row["capped"]
    assert calibrated.noise_level / calibrated.penalty <= 0.2 * (1 + 1e-12)


@pytest.mark.parametrize("d", [1, 4, 13, 30])
def test_reaches_of_method_section_1(d):
    bounds = LinearMap(numbers(d)).bounds
    assert l2_reach(bounds, UNIT) == pytest.approx(math.sqrt(d + 1) / 2)
    assert l1_reach(bounds, UNIT) == pytest.approx((d + 1) / 2)
    assert l2_reach(bounds, REPLACED) == pytest.approx(max(math.sqrt(d), math.sqrt(d + 1) / 2))
    assert l1_reach(bounds, REPLACED) == pytest.approx((d + math.sqrt(d * (d + 1))) / 2)


@pytest.mark.parametrize("kind", NoiseKind)
def test_scale_covers_reach_solver_and_lattice(kind):
    bounds = LinearMap(numbers(30)).bounds
    calibrated = calibration(
        bounds, multiplier=3.0, noise=kind, unit=UNIT, nominal_rows=5000, tau=0.2
    )
    laplace = kind is NoiseKind.LAPLACE
    reach = l1_reach(bounds, UNIT) if laplace else l2_reach(bounds, UNIT)
    solver = 2e-6 * bounds.norm * (math.sqrt(31) if laplace else 1.0)
    needed = (reach + solver) / calibrated.penalty
    assert calibrated.sensitivity >= needed
    assert calibrated.law.scale >= 3.0 * (needed + lattice_slack(calibrated.law))
    assert calibrated.law.scale == pytest.approx(3.0 * needed, rel=1e-5)  # and not much more


def test_resolved_share_by_hand():
    # One eigenvalue 1/12, n0 = 2400, Lam = 100: (n0/2)/12 = 100, so one half survives.
    assert resolved_share(np.array([1 / 12, 0.0]), nominal_rows=2400, penalty=100.0) == 0.5
    two = resolved_share(np.array([1 / 12, 1 / 4]), nominal_rows=2400, penalty=100.0)
    assert two == pytest.approx((1 / 12 * 0.5 + 1 / 4 * 0.75) / (1 / 3))
    assert resolved_share(np.zeros(2), nominal_rows=10, penalty=1.0) == 0.0


def coefficients(private, synthetic, *, weight, penalty):
    problem = Regression(
        private=private, synthetic=synthetic, synthetic_weight=weight, penalty=penalty
    )
    return solve(problem, tolerance=1e-7)


def test_centred_replace_one_attains_the_diameter():
    """docs/method.md section 3, "Tightness": sqrt(13) is Lam times the shift of the fits.

    A public pile with no features pushes the constant's coefficient to -40. Every private row then
    has the slope 1 and no curvature (Lam = d keeps its own score from coming back), and the
    features have none at all: Lam Delta b is the gradient's feature part.
    """
    d = 13
    pile, weight = np.r_[np.zeros(d), 0.5][None], d * 80 * (1 + math.exp(20))
    top, bottom = np.full((1, d + 1), 0.5), np.r_[np.full(d, -0.5), 0.5][None]
    fits = [coefficients(rows, pile, weight=weight, penalty=d) for rows in (bottom, top)]
    assert d * np.linalg.norm(fits[1] - fits[0]) == pytest.approx(math.sqrt(13), rel=1e-3)


def problem(n=300, m=500, d=5, penalty=3.0, weight=None, seed=0):
    rng = np.random.default_rng(seed)
    private = np.c_[rng.random((n, d)) ** 2 - 0.5, np.full(n, 0.5)]
    synthetic = np.c_[rng.random((m, d)) - 0.5, np.full(m, 0.5)]
    return Regression(
        private=private,
        synthetic=synthetic,
        synthetic_weight=n / m if weight is None else weight,
        penalty=penalty,
    )


def objective(p: Regression, b):
    """The objective as docs/method.md section 2 prints it: the slow twin."""
    value = sum(np.log1p(np.exp(-x @ b)) for x in p.private)
    value += p.synthetic_weight * sum(np.log1p(np.exp(x @ b)) for x in p.synthetic)
    return value + p.penalty / 2 * b @ b


def scikit(p: Regression, **options):
    model = LogisticRegression(C=1 / p.penalty, fit_intercept=False, **options)
    n, m = len(p.private), len(p.synthetic)
    model.fit(
        np.vstack([p.private, p.synthetic]),
        np.repeat([1, 0], [n, m]),
        sample_weight=np.repeat([1.0, p.synthetic_weight], [n, m]),
    )
    return model.coef_[0]


def test_gradient_and_hessian_are_those_of_the_printed_objective(monkeypatch):
    monkeypatch.setattr("dpiw.methods.weights.paper.regression._CHUNK_ROWS", 7)
    p = problem(n=20, m=30)
    b = np.linspace(-1, 1, 6)
    step = 1e-5
    gradient = [
        (objective(p, b + step * e) - objective(p, b - step * e)) / (2 * step) for e in np.eye(6)
    ]
    np.testing.assert_allclose(p.gradient(b), gradient, rtol=1e-6, atol=1e-8)
    ends = [(p.gradient(b + step * e), p.gradient(b - step * e)) for e in np.eye(6)]
    hessian = [(up - down) / (2 * step) for up, down in ends]
    np.testing.assert_allclose(p.hessian(b), hessian, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("penalty", [1e-4, 0.1, 30.0])
@pytest.mark.parametrize(("n", "m"), [(300, 500), (0, 500), (1, 4000), (2000, 1)])
def test_certificate_holds(n, m, penalty):
    p = problem(n=n, m=m, penalty=penalty, weight=300 / m)
    tolerance = GRADIENT_TOLERANCE * np.sqrt(6) / 2
    assert np.linalg.norm(p.gradient(solve(p, tolerance=tolerance))) <= tolerance


def test_certificate_holds_when_every_row_saturates():
    rows = np.zeros((1, 6))
    rows[0, -1] = 0.5
    p = Regression(private=np.full((1, 6), 0.5), synthetic=rows, synthetic_weight=1e9, penalty=1e-3)
    assert np.linalg.norm(p.gradient(solve(p, tolerance=1e-6))) <= 1e-6


def test_agrees_with_scikit_learn_two_ways():
    for penalty in (0.5, 50.0):
        p = problem(penalty=penalty)
        ours = solve(p, tolerance=1e-11)
        newton = scikit(p, solver="newton-cholesky", tol=1e-12)
        np.testing.assert_allclose(ours, newton, atol=1e-8)
    direct = minimize(lambda b: objective(p, b), np.zeros(6), jac=p.gradient, method="BFGS")
    np.testing.assert_allclose(ours, direct.x, atol=1e-5)


def test_default_lbfgs_tolerance_is_coarser_than_the_certificate():
    # At lbfgs's default tolerance 2 norm(grad)/Lam is no small part of Delta2.
    p = problem(n=20_000, m=20_000, d=13, penalty=40.0)
    reach = np.sqrt(14) / 2
    loose = scikit(p, solver="lbfgs")
    assert 2 * np.linalg.norm(p.gradient(loose)) > 0.05 * reach
    ours = solve(p, tolerance=GRADIENT_TOLERANCE * reach)
    assert 2 * np.linalg.norm(p.gradient(ours)) <= 2e-6 * reach


def test_unpenalised_intercept_has_no_bounded_sensitivity():
    # An intercept that is not penalised: from 2 private rows to 1 it moves by log 2 whatever C.
    moves = []
    for penalty in (1.0, 1e3, 1e6):
        fits = []
        for n in (2, 1):
            x = np.zeros((n + 50, 1))
            model = LogisticRegression(C=1 / penalty, solver="newton-cholesky", tol=1e-12)
            fits.append(model.fit(x, np.repeat([1, 0], [n, 50])).intercept_[0])
        moves.append(abs(fits[0] - fits[1]))
    np.testing.assert_allclose(moves, np.log(2), rtol=1e-3)


def test_failure_has_one_text(monkeypatch):
    monkeypatch.setattr("dpiw.methods.weights.paper.regression._MAX_STEPS", 0)
    texts = set()
    for seed in range(3):
        with pytest.raises(WeightError) as caught:
            solve(problem(seed=seed), tolerance=1e-6)
        texts.add(str(caught.value))
    assert texts == {
        "weights: the regression did not reach the precision that its privacy proof needs; raise"
        " `penalty`, or use weights.method: measured"
    }


def test_repr_shows_no_row():
    assert "0." not in repr(problem(penalty=3, weight=2))
