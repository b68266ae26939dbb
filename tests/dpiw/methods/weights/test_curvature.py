"""A Hessian corrected by what steps told: its two forms agree, and what is far off is not near."""

from __future__ import annotations

import numpy as np
import pytest

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.tilting import Curvature

SIZE = 6


def hessian(seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(40, SIZE))
    return rows.T @ rows / 40


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_the_matrix_and_its_inverse_are_those_of_one_hessian(count: int) -> None:
    true, near, rng = hessian(1), hessian(2), np.random.default_rng(3)
    curvature = Curvature(near)
    for step in rng.normal(size=(count, SIZE)):
        curvature.learn(step, true @ step)
        assert curvature.corrected() @ step == pytest.approx(true @ step)  # the secant equation
    gradient = rng.normal(size=SIZE)
    assert curvature.step(gradient) == pytest.approx(
        -np.linalg.solve(curvature.corrected(), gradient)
    )
    assert np.linalg.eigvalsh(curvature.corrected()).min() > 0


def test_what_steps_told_stays_with_another_hessian() -> None:
    true, step = hessian(1), np.arange(1.0, SIZE + 1)
    curvature = Curvature(hessian(2))
    curvature.learn(step, true @ step)
    renewed = curvature.renewed(hessian(4))
    assert renewed.corrected() @ step == pytest.approx(true @ step)
    assert not np.allclose(renewed.corrected(), curvature.corrected())


@pytest.mark.parametrize(
    ("wrong", "is_right"), [(1.0, True), (1.4, True), (0.75, True), (1.55, False), (0.65, False)]
)
def test_right_is_what_every_step_finds_right(wrong: float, is_right: bool) -> None:
    true, curvature = hessian(1), Curvature(wrong * hessian(1))
    assert not curvature.is_right  # no step has told anything yet
    for step in np.eye(SIZE):
        curvature.learn(step, true @ step)
    assert curvature.is_right is is_right


def test_what_rounding_has_spoilt_tells_nothing_and_no_curvature_is_negative() -> None:
    near = hessian(2)
    curvature = Curvature(near)
    curvature.learn(np.ones(SIZE), np.zeros(SIZE))
    curvature.learn(np.ones(SIZE), -near @ np.ones(SIZE))
    assert np.array_equal(curvature.corrected(), near)
    with pytest.raises(WeightError, match="positive definite"):
        Curvature(-near)
