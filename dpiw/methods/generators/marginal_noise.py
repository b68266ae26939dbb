"""Noise of measured marginals: sensitivity, scale, size, and how effort becomes multipliers."""

from collections.abc import Mapping
from dataclasses import fields
from math import cbrt, sqrt
from typing import Any

import numpy as np

from dpiw.errors import SpecError, UnsupportedRelationError
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.measurement import ReleasedNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit

COUNT_NOISES = {kind.value: kind for kind in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE)}
"""Kinds of noise that counts may have, by the word a spec uses."""


def with_noise(settings: Mapping[str, Any], *, pure: bool) -> dict[str, Any]:
    """Return settings with `noise` as a kind (default laplace if `pure`), or raise SpecError."""
    noise = settings.get("noise", "laplace" if pure else "gaussian")
    if not isinstance(noise, str) or noise not in COUNT_NOISES:
        raise SpecError(field="generator.settings.noise", allowed="gaussian or laplace")
    if pure and noise == "gaussian":
        fault, allowed = "gaussian noise needs a delta > 0", "laplace with delta: 0"
        raise SpecError(fault, field="generator.settings.noise", allowed=allowed)
    return {**settings, "noise": COUNT_NOISES[noise]}


def stated(method: Any, **noise: str) -> dict[str, Any]:
    """Return settings, and fields of `calibrated` by their stated names, as JSON values."""
    settings = {setting.name: getattr(method, setting.name) for setting in fields(method)}
    ready = settings.pop("calibrated")
    values = {k: v.value if isinstance(v, NoiseKind) else v for k, v in settings.items()}
    return values | {name: getattr(ready, key) for key, name in noise.items() if ready is not None}


def marginal_multiplier(kind: NoiseKind, *, rho: float, share: float, count: int) -> float:
    """Noise multiplier of each of `count` marginals that together get `share` of the effort.

    A Gaussian of multiplier m costs 1/(2 m^2) of rho; Laplace costs 1/m of epsilon = sqrt(2 rho).
    """
    if kind is NoiseKind.LAPLACE:
        return count / (share * sqrt(2 * rho))
    return sqrt(count / (2 * rho * share))


def marginals_event(
    kind: NoiseKind, multiplier: float, *, count: int
) -> GaussianEvent | LaplaceEvent:
    """Return the event of `count` noisy marginals."""
    law = LaplaceEvent if kind is NoiseKind.LAPLACE else GaussianEvent
    return law(noise_multiplier=multiplier, count=count)


def selection_epsilon(kind: NoiseKind, *, rho: float, share: float, count: int) -> float:
    """Epsilon of each of `count` exponential mechanisms that together get `share` of the effort.

    With Gaussian noise each costs epsilon^2/8 (Cesar & Rogers 2021, lemma 3.2).
    """
    if kind is NoiseKind.LAPLACE:
        return share * sqrt(2 * rho) / count
    return sqrt(8 * rho * share / count)


def marginal_sensitivity(unit: PrivacyUnit, kind: NoiseKind) -> float:
    """Most that one unit moves one marginal: L2 for Gaussian noise, L1 for Laplace.

    Add/remove: L1 = L2 = k = max_rows (worst in one cell). Replace-one, k rows change cell:
    L1 = 2 k, L2 = sqrt(2) k.
    """
    if unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        return float(unit.max_rows)
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        # One ulp up: sqrt(2) is rounded, and rounds against ourselves.
        factor = 2.0 if kind is NoiseKind.LAPLACE else float(np.nextafter(np.sqrt(2.0), 2.0))
        return factor * unit.max_rows
    raise UnsupportedRelationError(
        field=f"unit.relation={unit.relation}", allowed="add_or_remove_one or replace_one"
    )


def noise_scale(kind: NoiseKind, *, multiplier: float, unit: PrivacyUnit) -> float:
    """Noise scale of a marginal in rows; rounded up, against ourselves."""
    return multiplier * marginal_sensitivity(unit, kind) * (1 + 1e-15)


def released_counts(
    values: str, kind: NoiseKind, *, multiplier: float, unit: PrivacyUnit, event: int
) -> ReleasedNoise:
    """Noise of marginals that the stage's event at index `event` accounts for."""
    return ReleasedNoise(
        values=values,
        law=kind,
        scale=noise_scale(kind, multiplier=multiplier, unit=unit),
        sensitivity=marginal_sensitivity(unit, kind),
        event=event,
    )


def noise_size(kind: NoiseKind, scale: float) -> float:
    """Expected absolute noise in one cell: sqrt(2/pi) scale (Gaussian) or scale (Laplace)."""
    return scale if kind is NoiseKind.LAPLACE else scale * float(np.sqrt(2 / np.pi))


def noise_variance(kind: NoiseKind, scale: float) -> float:
    """Variance of the noise in one cell: scale^2 (Gaussian) or 2 scale^2 (Laplace)."""
    return scale**2 * (2.0 if kind is NoiseKind.LAPLACE else 1.0)


def useful_bins(most: int, nominal_rows: int) -> int:
    """Bins that a table of that public size can fill: nominal_rows^(1/3), from 2 to `most`.

    Source: Scott (1979), section 3.
    """
    return max(2, min(most, round(cbrt(nominal_rows))))
