"""Tests of the sensitivity tests: with a bound planted too small each fails, even its slice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.methods.generators import histogram, marginal_noise, privbayes
from dpiw.methods.neural.clipping import ClipRule
from dpiw.methods.weights import measured
from dpiw.methods.weights import penalty as calibration
from dpiw.methods.weights.stack import PARTS
from dpiw.privacy.units import NoiseKind
from tests.proof import test_sensitivity_counts as counts
from tests.proof import test_sensitivity_measured as test_measured
from tests.proof import test_sensitivity_outputs as outputs
from tests.proof import test_sensitivity_regression as regression

Plant = Callable[[pytest.MonkeyPatch], None]


def silent(*_: Any, **__: Any) -> None:
    """In place of `prove`."""


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def scaled(module: Any, name: str, factor: Callable[..., float]) -> Plant:
    """The function's result times a factor of its arguments."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = getattr(module, name)
        patch.setattr(module, name, lambda *a, **k: factor(*a) * real(*a, **k))

    return plant


def both_reaches(patch: pytest.MonkeyPatch) -> None:
    for name in ("l2_reach", "l1_reach"):
        scaled(calibration, name, lambda *_: 0.9)(patch)


def add_for_replace(patch: pytest.MonkeyPatch) -> None:
    """Replace-one is charged the norm of a row, not the distance of two."""
    patch.setattr(calibration, "l2_reach", lambda bounds, unit: unit.max_rows * bounds.norm)


def wider(module: Any, name: str, factor: float) -> Plant:
    """The clip bound that is used is larger than the one that is stated."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = getattr(module, name)
        patch.setattr(module, name, lambda *a, clip, **k: real(*a, clip=factor * clip, **k))

    return plant


PLANTS: dict[str, Plant] = {
    "reach 10% too small": both_reaches,
    "max_rows forgotten": scaled(
        calibration, "l2_reach", lambda bounds, unit: 1 / unit.max_rows
    ),
}  # fmt: skip


def coefficients(features: str) -> Callable[[], None]:
    return lambda: regression.test_the_coefficients_move_by_at_most_their_sensitivity(
        240, features, rng(), silent
    )


SEARCHES: dict[str, Callable[[], None]] = {
    **{features: coefficients(features)
       for features in ("linear", "interactions", "fourier", "critic")},
    "output_noised": lambda:
        outputs.test_published_log_weights_move_by_at_most_their_sensitivity(
            60, NoiseKind.GAUSSIAN, rng(), silent),
}  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_regression_s_bound_that_is_too_small_is_found(plant, search, monkeypatch):
    SEARCHES[search]()
    PLANTS[plant](monkeypatch)
    with pytest.raises(AssertionError):
        SEARCHES[search]()


@pytest.mark.proof
def test_replace_one_charged_as_add_or_remove_is_found(monkeypatch):
    add_for_replace(monkeypatch)
    with pytest.raises(AssertionError):
        SEARCHES["linear"]()


def marginals(method: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: counts.test_marginals_and_scores_move_by_at_most_their_sensitivity(
        60, method, NoiseKind.GAUSSIAN, rng(), patch, silent
    )


def half_score(patch: pytest.MonkeyPatch) -> None:
    for module in (privbayes, counts):  # stated and expected alike, so that only the search can see
        scaled(module, "score_sensitivity", lambda *_: 0.5)(patch)


def sums(features: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda _: test_measured.test_the_sum_moves_by_at_most_its_sensitivity(
        240, features, rng(), silent
    )


def paid(sensitivity: Callable[[Any, Any], float]) -> Plant:
    """The noise of a measured sum is for another sensitivity, of its stack and its numbers."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = measured.sum_noise

        def noise(stack: Any, **rest: Any) -> Any:
            found = real(stack, **rest)
            less = sensitivity(stack, found) / found.sensitivity
            law = dataclasses.replace(found.law, scale=found.law.scale * less)
            return dataclasses.replace(found, law=law, sensitivity=found.sensitivity * less)

        patch.setattr(measured, "sum_noise", noise)

    return plant


def largest_part(stack: Any, found: Any) -> float:
    """As if the longest part were all of the stack."""
    longest = max(stack.shares[part] for part in stack.parts)
    return float(found.sensitivity * longest / stack.norm)


OTHERS: dict[str, tuple[Plant, Callable[[pytest.MonkeyPatch], None]]] = {
    "marginals 10% too small": (
        scaled(marginal_noise, "marginal_sensitivity", lambda *_: 0.9),
        marginals(histogram.Histogram)),
    "PrivBayes score halved": (half_score, marginals(privbayes.PrivBayes)),
    "clip 5% too wide": (
        wider(counts, "clipped_sum", 1.05),
        lambda _: counts.test_a_clipped_sum_moves_by_at_most_its_bound(
            150, ClipRule.LOSS, rng(), silent)),
    **{f"measured sum, {features}, 10% too small": (
        paid(lambda _, found: 0.9 * found.sensitivity), sums(features))
       for features in (*PARTS, "stack")},
    "measured sum, max_rows forgotten": (
        paid(lambda _, found: found.sensitivity / found.unit.max_rows), sums("linear")),
    "measured sum, its count forgotten": (
        paid(lambda stack, found: found.sensitivity * stack.norm
             / math.hypot(stack.norm, found.constant)), sums("linear")),
    "measured sum, a stack's largest part": (paid(largest_part), sums("stack")),
}  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize("name", OTHERS)
def test_a_bound_that_is_too_small_is_found(name, monkeypatch):
    plant, search = OTHERS[name]
    search(monkeypatch)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        search(monkeypatch)
