"""The noise of a local collection that meets its total, and how the total is shared.

Features and label compose exactly: no epsilon of the features is ever stated. What is chosen is
the label's part, by the variance of a gradient step (docs/method.md section 17).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from dpiw.errors import SpecError
from dpiw.local.parameters import (
    RADIUS,
    ROUNDING,
    Feature,
    LocalParameters,
    total_fault,
)
from dpiw.privacy.accounting import LATTICE_MARGIN
from dpiw.privacy.gaussian import gaussian_noise_multiplier, smallest_multiplier
from dpiw.privacy.mechanisms import calibrated_law
from dpiw.privacy.randomised_response import RandomisedResponse
from dpiw.privacy.units import NoiseKind, float_below

MAX_NORM = 1e6
"""Largest guess at a norm of parameters; nothing can be learnt far below it."""


def calibrated(
    *,
    collection: str,
    features: Sequence[Feature],
    levels: Sequence[str] = (),
    label: str | None = None,
    epsilon: Decimal,
    delta: Decimal,
    radius: float | None = None,
    parameter_norm: float = 0.0,
) -> LocalParameters:
    """The public parameters of a collection with the least noise that keeps the promise.

    Args:
        collection: its name.
        features: with their public bounds.
        levels: of the label.
        label: its name; None: none.
        epsilon: of a whole report, in [0.001, 20].
        delta: likewise; in [1e-30, 1e-3] if a feature is private, else 0.
        radius: of the public ball, in units of features in [-1, 1], in [1e-6, 1e6]; None:
            sqrt(private features), which holds every record.
        parameter_norm: a public guess at the norm of the parameters that will be learnt; it
            shifts the split between features and label; in [0, 1e6].

    Raises:
        SpecError: epsilon, delta, radius or the guess is not admissible.
        ManifestError: as `LocalParameters`.
    """
    dimension = sum(feature.private for feature in features)
    fault = total_fault(epsilon, delta, noised=dimension > 0)
    if fault is not None:
        raise SpecError(fault)
    ball = math.sqrt(dimension) if radius is None or not dimension else radius
    if dimension and not RADIUS[0] <= ball <= RADIUS[1]:
        raise SpecError(f"radius: expected a number in [{RADIUS[0]:g}, {RADIUS[1]:g}]")
    if not 0 <= parameter_norm <= MAX_NORM:
        raise SpecError(f"parameter_norm: expected a number in [0, {MAX_NORM:g}]")
    target, small = float_below(epsilon), float_below(delta)
    response, stddev = None, 0.0
    if label is not None:
        share = split(target, small, levels=len(levels), norm=parameter_norm * ball)
        response = RandomisedResponse.of_epsilon(target * share if dimension else target,
                                                 len(levels))  # fmt: skip
    if dimension:
        multiplier = noise_multiplier(target, small, response) * (1 + LATTICE_MARGIN)
        stddev = calibrated_law(
            kind=NoiseKind.GAUSSIAN, noise_multiplier=multiplier * (1 + ROUNDING),
            sensitivity=2 * ball * (1 + ROUNDING), dimension=dimension,
        ).scale  # fmt: skip
    parameters = LocalParameters(
        collection=collection, features=tuple(features), radius=ball, stddev=stddev, label=label,
        levels=tuple(levels), kept=0 if response is None else response.kept,
        epsilon=str(epsilon), delta=str(delta),
    )  # fmt: skip
    parameters.check()
    return parameters


def noise_multiplier(epsilon: float, delta: float, response: RandomisedResponse | None) -> float:
    """Smallest Gaussian noise, over L2 sensitivity, that meets a total together with a response.

    Args:
        epsilon: of both together, at least the response's own.
        delta: in (0, 1).
        response: None: the Gaussian mechanism alone.
    """
    if response is None:
        return gaussian_noise_multiplier(epsilon, delta)
    return smallest_multiplier(lambda m: response.joint_delta(m, epsilon), delta)


def split(epsilon: float, delta: float, *, levels: int = 2, norm: float = 0.0) -> float:
    """The label's part of epsilon, in (0, 1), under which a gradient step has least variance.

    Minimises a(e)^2 sigma^2 exp(sigma^2 r^2), with a(e) = (exp(e) + k - 1) / (exp(e) - 1) of the
    response (coth(e / 2) for two levels) and sigma the noise of features in a ball of radius 1.

    Args:
        epsilon: the total.
        delta: in (0, 1); 0: only a label, and all is its.
        levels: k, of the label.
        norm: r, expected norm of the parameters times the radius.
    """
    from scipy.optimize import minimize_scalar

    if delta == 0:
        return 1.0

    def log_variance(share: float) -> float:
        response = RandomisedResponse.of_epsilon(share * epsilon, levels)
        sigma = 2 * noise_multiplier(epsilon, delta, response)
        gap = response.keep - response.exchange
        return 2 * math.log(sigma / gap) + (sigma * norm) ** 2

    # On a scale of log odds, where neither end is special; coarse first, as r may hide the valley.
    odds = [-6.0 + 0.5 * step for step in range(21)]
    best = min(odds, key=lambda log_odds: log_variance(1 / (1 + math.exp(-log_odds))))
    solved = minimize_scalar(
        lambda log_odds: log_variance(1 / (1 + math.exp(-log_odds))),
        bounds=(best - 0.5, best + 0.5), method="bounded", options={"xatol": 1e-6},
    )  # fmt: skip
    return float(1 / (1 + math.exp(-solved.x)))
