from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from dpiw.errors import WeightError
from dpiw.methods.weights.paper.regression import GRADIENT_TOLERANCE, Regression, sigmoid, solve


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


def test_gradient_and_hessian_are_those_of_the_printed_objective():
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


def test_hessian_does_not_depend_on_the_chunking(monkeypatch):
    p = problem()
    b = np.full(6, 0.3)
    whole = p.hessian(b)
    monkeypatch.setattr("dpiw.methods.weights.paper.regression._CHUNK_ROWS", 7)
    np.testing.assert_allclose(p.hessian(b), whole, rtol=1e-12)


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
    for penalty in (0.5, 5.0, 50.0):
        p = problem(penalty=penalty)
        ours = solve(p, tolerance=1e-11)
        newton = scikit(p, solver="newton-cholesky", tol=1e-12)
        np.testing.assert_allclose(ours, newton, atol=1e-8)
        direct = minimize(
            lambda b, p=p: objective(p, b),
            np.zeros(6),
            jac=p.gradient,
            method="BFGS",
            options={"gtol": 1e-7},
        )
        np.testing.assert_allclose(ours, direct.x, atol=1e-6)


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
    assert texts == {"weights: the regression did not reach its certified gradient"}


def test_failure_when_no_step_helps():
    # A tolerance below rounding error: the iteration stops instead of running for ever.
    with pytest.raises(WeightError, match="certified gradient"):
        solve(problem(), tolerance=1e-30)


def test_sigmoid_has_no_overflow():
    np.testing.assert_allclose(
        sigmoid(np.array([-800.0, -1.0, 0.0, 1.0, 800.0])),
        [0.0, 1 / (1 + np.e), 0.5, np.e / (1 + np.e), 1.0],
    )


def test_repr_shows_no_row():
    assert "0." not in repr(problem(penalty=3, weight=2))
