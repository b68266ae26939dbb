"""The only path from confidential numbers to noisy ones: integer sums on a dyadic lattice.

The step depends on the public scale alone (at most 2^-20 scales). Discrete laws are accounted as
continuous ones with `dpiw.privacy.accounting.LATTICE_MARGIN`. Source: docs/privacy.md section 4;
Mironov (2012); Canonne, Kamath & Steinke (2020).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.privacy.randomness import LARGEST_INTEGER, NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw

_VECTOR_BITS = 30
"""2^30 steps in one noise scale: values up to 2^31 scales fit, and the slack is 1e-9 scales."""

_COUNT_BITS = 20
"""2^20 steps in one noise scale: counts need no slack, and values up to 2^41 scales fit."""

_SUM_BITS = 10
"""2^10 steps in one noise scale: coarse against the errors of doubles, fine against the noise."""

_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-500, 2.0**500


def lattice_step(scale: float, *, bits: int = _VECTOR_BITS) -> float:
    """Return the power of two with 2^bits <= scale/step < 2^(bits+1), else UncalibratedError."""
    if not (math.isfinite(scale) and _SMALLEST_SCALE <= scale <= _LARGEST_SCALE):
        allowed = "a finite number > 0: calibrate the noise before you draw it"
        raise UncalibratedError(field="noise scale", allowed=allowed)
    _, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 - bits)


def lattice_slack(law: NoiseLaw) -> float:
    """Return what rounding a vector to the lattice adds to its sensitivity, in its units.

    Two neighbours' coordinates differ by at most one step more: sqrt(dimension) steps in L2
    (Gaussian, spherical), dimension steps in L1 (Laplace).
    """
    return lattice_step(law.scale) * _slack_steps(law.kind, law.dimension)


def calibrated_law(
    *, kind: NoiseKind, noise_multiplier: float, sensitivity: float, dimension: int
) -> NoiseLaw:
    """Return the law of scale `noise_multiplier` times (sensitivity + lattice slack), rounded up.

    `sensitivity`, before rounding, is L2, or L1 for `laplace`. Raises UncalibratedError for numbers
    not finite and > 0, or a multiplier so large that rounding would outweigh it.
    """
    if not all(math.isfinite(value) and value > 0 for value in (noise_multiplier, sensitivity)):
        what = "noise multiplier and sensitivity"
        raise UncalibratedError(field=what, allowed="finite numbers > 0")
    # step <= 2^-30 scale gives scale <= m S / (1 - m k 2^-30) for slack k steps; the last factor
    # rounds up, against ourselves.
    slack = _slack_steps(kind, dimension)
    share = noise_multiplier * slack * 2.0**-_VECTOR_BITS
    if share >= 0.5:
        raise UncalibratedError(
            f"{noise_multiplier:.4g} is too large for the lattice in {dimension} dimensions",
            field="noise multiplier",
            allowed=f"less than {2.0 ** (_VECTOR_BITS - 1) / slack:.4g}: raise epsilon",
        )
    scale = noise_multiplier * sensitivity / (1 - share) * (1 + 1e-15)
    return NoiseLaw(kind=kind, scale=scale, dimension=dimension)


def _slack_steps(kind: NoiseKind, dimension: int) -> float:
    return float(dimension) if kind is NoiseKind.LAPLACE else math.sqrt(dimension)


def noisy_counts(counts: NDArray[Any], *, law: NoiseLaw, noise: NoiseSource) -> NDArray[np.float64]:
    """Release exact whole counts with lattice noise, as float64 of the same shape.

    Raises UncalibratedError for a scale not finite and > 0 or a wrong dimension, PrivacyError for
    counts that are no integers or leave the lattice range.

    `counts`: integers of any shape, `law.dimension` in all; `law`: its scale is in counts.

    Privacy: the caller's sensitivity; the lattice step is at most 1, so rounding adds nothing.
        Event: `GaussianEvent(scale / L2)`, `LaplaceEvent(scale / L1)`, or for spherical noise
        `LaplaceEvent(scale / L2)`.
    """
    step = min(1.0, lattice_step(law.scale, bits=_COUNT_BITS))
    if not np.issubdtype(counts.dtype, np.signedinteger):
        raise PrivacyError(field="counts", allowed="an array of signed integers")
    _check_length(counts, law)
    units_per_count = int(1 / step)
    most = LARGEST_INTEGER // units_per_count
    if np.any(np.abs(counts) >= most):
        raise PrivacyError(
            "a count leaves the lattice range of this noise scale",
            field="counts",
            allowed=f"|count| < {most}",
        )
    exact = counts.astype(np.int64).ravel() * units_per_count
    noisy = exact + _draw(law, step=step, noise=noise)
    return (noisy.astype(np.float64) * step).reshape(counts.shape)


def noisy_vector(
    vector: NDArray[np.float64], *, law: NoiseLaw, noise: NoiseSource
) -> NDArray[np.float64]:
    """Release a real vector: rounded to the lattice, then given lattice noise; float64.

    Raises UncalibratedError for a scale not finite and > 0 or a wrong dimension, PrivacyError for
    entries that are not finite or leave the lattice range.

    `vector`: shape (law.dimension,); errors hold no value. `law`: its scale is in the vector's
    units, best from `calibrated_law`.

    Privacy: the caller's sensitivity, to which `lattice_slack(law)` must have been added. Event: as
        of `noisy_counts`.
    """
    step = lattice_step(law.scale)
    if vector.ndim != 1:
        found = f"found {vector.ndim} dimensions"
        raise PrivacyError(found, field="vector", allowed="an array of one dimension")
    _check_length(vector, law)
    units = _integers(vector.astype(np.float64), step=step, what="vector")
    noisy = units + _draw(law, step=step, noise=noise)
    return noisy.astype(np.float64) * step


def noisy_sum(
    total: NDArray[np.float64], *, scale: float, noise: NoiseSource
) -> NDArray[np.float64]:
    """Release a real vector with Gaussian noise in doubles, rounded to a coarse lattice: fast.

    For DP-SGD. Rounding to 2^-10 scales hides the doubles' errors: an output's probability is off
    by a relative 1e-10 per coordinate. Over 10^4 coordinates and 10^4 lots the privacy loss moves
    by less than 1e-5, except with probability 1e-12, if the errors average out as independent ones
    do. `LATTICE_MARGIN` is larger. This is an assumption, not a proof, and the certificate says so.

    `total`: shape (p,), finite float64: single precision would err by more than the margin;
    `scale`: standard deviation of the noise, in the vector's units.

    Privacy: the caller's L2 sensitivity. Event: `GaussianEvent(scale / L2)`, sampled if the rows of
        `total` were. UncalibratedError unless the scale is a finite number > 0; PrivacyError for
        another type or shape, or an entry that is not finite. Errors hold no value.
    """
    step = lattice_step(scale, bits=_SUM_BITS)
    if total.ndim != 1 or total.dtype != np.float64:
        raise PrivacyError(field="sum", allowed="a vector of float64")
    noisy = noise.gaussian_vector(scale=scale, size=total.size)
    noisy += total
    if not np.isfinite(noisy).all():
        raise PrivacyError("an entry is not finite", field="sum")
    noisy *= 1.0 / step
    np.rint(noisy, out=noisy)
    noisy *= step
    return noisy


def select(
    scores: NDArray[np.float64], *, epsilon: float, sensitivity: float, noise: NoiseSource
) -> int:
    """Choose an index by the exponential mechanism; larger scores are better.

    P(i) is proportional to exp(epsilon * score[i] / (2 S')), where S' = S + one lattice step covers
    the rounding of the scores. Raises UncalibratedError unless epsilon and sensitivity are finite
    numbers > 0, PrivacyError for a score that is not finite or leaves the lattice range.

    `scores`: shape (candidates,), finite; `sensitivity`: S, most that one unit changes any score.

    Privacy: the caller's sensitivity. Event: `ExponentialMechanismEvent(epsilon)`: epsilon-DP, with
        bounded range epsilon.

    Source: McSherry & Talwar (2007); Gumbel noise: Durfee & Rogers (2019).
    """
    if not all(math.isfinite(value) and value > 0 for value in (epsilon, sensitivity)):
        raise UncalibratedError(field="select", allowed="finite epsilon > 0 and sensitivity > 0")
    step = lattice_step(2 * sensitivity / epsilon)
    if scores.ndim != 1 or scores.size == 0:
        raise PrivacyError(field="scores", allowed="a non-empty vector")
    units = _integers(scores.astype(np.float64), step=step, what="scores")
    # Rounded up twice (1e-15), against ourselves.
    scale = 2 * (sensitivity + step) / epsilon / step * (1 + 1e-15)
    return noise.noisy_argmax(units, scale=scale)


def draw_below(bound: int, *, noise: NoiseSource) -> int:
    """Draw from 0 to `bound` - 1, exactly uniform; SpecError unless `bound` is whole and >= 1.

    Privacy: none: nothing confidential enters.
    """
    return noise.whole_below(bound)


def _check_length(values: NDArray[Any], law: NoiseLaw) -> None:
    if values.size != law.dimension:
        found = "its dimension is not the number of values; make a law of that dimension"
        raise UncalibratedError(found, field="noise law")


def _integers(values: NDArray[np.float64], *, step: float, what: str) -> NDArray[np.int64]:
    """Nearest lattice integers; the division by a power of two is exact."""
    if not np.all(np.isfinite(values)):
        raise PrivacyError(field=what, allowed="finite numbers")
    units = values / step
    if np.any(np.abs(units) >= LARGEST_INTEGER):
        raise PrivacyError(
            "an entry leaves the lattice range of this noise scale",
            field=what,
            allowed=f"|value| < {LARGEST_INTEGER * step:g}",
        )
    return np.rint(units).astype(np.int64)


def _draw(law: NoiseLaw, *, step: float, noise: NoiseSource) -> NDArray[np.int64]:
    scale = law.scale / step
    if law.kind is NoiseKind.GAUSSIAN:
        return noise.discrete_gaussian(scale=scale, size=law.dimension)
    if law.kind is NoiseKind.LAPLACE:
        return noise.discrete_laplace(scale=scale, size=law.dimension)
    if law.kind is NoiseKind.SPHERICAL:
        return noise.spherical_laplace(scale=scale, dimension=law.dimension)
    raise SpecError("unknown kind", field="noise law", allowed="gaussian, laplace or spherical")
