"""Steps over all rows that are found over some: to the same minimum, in few passes over all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpiw.methods.weights import surrogate
from dpiw.methods.weights.base_rows import BaseRows
from dpiw.methods.weights.surrogate import Lead, led
from dpiw.methods.weights.targets import Targets
from dpiw.methods.weights.tilting import tilt
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
    lead = Lead(base=some, solved=tilt(some, targets, credit=CREDIT))
    gap = 0.01 * SIZE / ROWS
    found = led(lead, base, targets, gap=gap)
    assert found is not None
    solution, lead_there = found
    assert above(least, solution, targets) < 1.5 * gap < above(least, lead.solved, targets) / 5
    assert solution.steps <= 2
    logs, _, means = base.tilted(solution.coefficients)
    assert solution.log_weights == pytest.approx(logs)
    assert solution.means == pytest.approx(means)
    assert solution.gap >= above(least, solution, targets)
    # Whoever leads stands where it led to: it may go on to yet more rows.
    assert np.array_equal(lead_there.solved.coefficients, solution.coefficients)
    assert lead_there.solved.means == pytest.approx(some.tilted(solution.coefficients)[2])
    along = np.linalg.eigvals(np.linalg.solve(least.covariance, solution.covariance)).real
    assert 0.6 < along.min() <= along.max() < 1.5


def test_a_step_over_all_costs_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    lead = Lead(base=some, solved=tilt(some, targets, credit=CREDIT))
    passes, real = list[int](), BaseRows.tilted

    def counted(self: BaseRows, theta: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        passes.append(self.rows)
        return real(self, theta)

    monkeypatch.setattr(BaseRows, "tilted", counted)
    found = led(lead, base, targets, gap=0.01 * SIZE / ROWS)
    assert found is not None
    assert passes.count(ROWS) == found[0].steps + 1


@pytest.mark.parametrize(("wrong", "is_exact"), [(0.5, True), (1.1, False)])
def test_a_covariance_that_steps_find_wrong_is_made_of_the_rows_that_led(
    wrong: float, is_exact: bool
) -> None:
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    targets = replace(targets, covariance=1e-3 * np.eye(SIZE))  # then a gap is soon certified
    solved = tilt(some, targets, credit=CREDIT)
    solved = replace(solved, covariance=wrong * solved.covariance)
    found = led(Lead(base=some, solved=solved), base, targets, gap=1e-4 / ROWS)
    assert found is not None
    last = found[1].solved
    of_some = some.covariance(last.weights, last.means)
    assert np.allclose(found[0].covariance, of_some, rtol=1e-9) is is_exact
    assert np.array_equal(last.covariance, found[0].covariance)  # and so does who leads on


def test_rows_of_another_law_lead_nowhere() -> None:
    """Whose Hessian says nothing of all: then it is said, and another way is gone."""
    matrix, other = rows(), rows(9)[:SOME] * np.linspace(0.05, 3.0, SIZE)
    targets, base = targets_of(matrix), BaseRows.of(matrix)
    few = BaseRows.of(other)
    near = replace(targets, means=other.mean(axis=0))
    lead = Lead(base=few, solved=tilt(few, near, credit=CREDIT))
    assert led(lead, base, targets, gap=1e-9) is None
    own = BaseRows.of(matrix[:SOME])  # the control
    lead = Lead(base=own, solved=tilt(own, targets, credit=CREDIT))
    assert led(lead, base, targets, gap=1e-9) is not None


def test_steps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = rows()
    targets, base, some = targets_of(matrix), BaseRows.of(matrix), BaseRows.of(matrix[:SOME])
    lead = Lead(base=some, solved=tilt(some, targets, credit=CREDIT))
    assert led(lead, base, targets, gap=1e-9) is not None
    monkeypatch.setattr(surrogate, "_STEPS", 1)
    assert led(lead, base, targets, gap=1e-9) is None
