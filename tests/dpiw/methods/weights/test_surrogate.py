"""Steps over all rows that are found over some: to the same minimum, in few passes over all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpiw.methods.weights.measured import many_rows as surrogate
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.many_rows import led
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import tilt
from tests.dpiw.methods.weights.measuring import above

ROWS, SOME, SIZE = 20_000, 2000, 12
CREDIT = 50.0


def rows(seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    skewed = rng.exponential(size=(ROWS, SIZE)) @ rng.normal(size=(SIZE, SIZE)) / 5
    return np.tanh(skewed)


def targets_of(matrix: np.ndarray) -> Targets:
    means = matrix.mean(axis=0) + 0.03 * np.random.default_rng(4).normal(size=SIZE)
    return Targets(means=means, covariance=1e-7 * np.eye(SIZE), rows=1e6)


def test_some_rows_lead_to_the_minimum_over_all() -> None:
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    least = tilt(base, targets, credit=CREDIT)
    solved = tilt(some, targets, credit=CREDIT)
    gap = 0.01 * SIZE / ROWS
    solution = led(some, solved, base, targets, gap=gap)
    assert solution is not None
    assert above(least, solution, targets) < 1.5 * gap < above(least, solved, targets) / 5
    assert solution.steps <= 2
    logs, _, means = base.tilted(solution.coefficients)
    assert solution.log_weights == pytest.approx(logs)
    assert solution.means == pytest.approx(means)
    assert solution.gap >= above(least, solution, targets)
    assert solution.log_mass == pytest.approx(np.log(np.exp(matrix @ solution.coefficients).mean()))
    along = np.linalg.eigvals(np.linalg.solve(least.covariance, solution.covariance)).real
    assert 0.6 < along.min() <= along.max() < 1.5


def test_a_step_over_all_costs_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    solved = tilt(some, targets, credit=CREDIT)
    passes, real = list[int](), BaseRows.tilted

    def counted(self: BaseRows, theta: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        passes.append(self.rows)
        return real(self, theta)

    monkeypatch.setattr(BaseRows, "tilted", counted)
    solution = led(some, solved, base, targets, gap=0.01 * SIZE / ROWS)
    assert solution is not None
    assert passes.count(ROWS) == solution.steps + 1


@pytest.mark.parametrize("wrong", [0.5, 1.1])
def test_a_covariance_that_is_not_right_is_corrected_by_steps(wrong: float) -> None:
    """And none is made of all rows, or of those that led."""
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    targets = replace(targets, covariance=1e-3 * np.eye(SIZE))  # then a gap is soon certified
    solved = tilt(some, targets, credit=CREDIT)
    solved = replace(solved, covariance=wrong * solved.covariance)
    least = tilt(base, targets, credit=CREDIT)
    solution = led(some, solved, base, targets, gap=1e-3 / ROWS)
    assert solution is not None
    step = solution.coefficients - solved.coefficients
    before, after, true = (step @ each.covariance @ step for each in (solved, solution, least))
    assert after == pytest.approx(true, rel=0.1)
    assert abs(before / true - 1) > abs(after / true - 1)


def test_rows_of_another_law_lead_nowhere() -> None:
    """Whose Hessian says nothing of all: then it is said, and another way is gone."""
    matrix, other = rows(), rows(9)[:SOME] * np.linspace(0.05, 3.0, SIZE)
    targets, base = targets_of(matrix), BaseRows.of(matrix)
    few = BaseRows.of(other)
    near = replace(targets, means=other.mean(axis=0))
    assert led(few, tilt(few, near, credit=CREDIT), base, targets, gap=1e-9) is None
    own = BaseRows.of(matrix[:SOME])  # the control
    assert led(own, tilt(own, targets, credit=CREDIT), base, targets, gap=1e-9) is not None


def test_steps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    solved = tilt(some, targets, credit=CREDIT)
    assert led(some, solved, base, targets, gap=1e-9) is not None
    monkeypatch.setattr(surrogate, "_STEPS", 1)
    assert led(some, solved, base, targets, gap=1e-9) is None
