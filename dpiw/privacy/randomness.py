"""Sources of noise: integer draws in lattice units, so that no float ever carries a secret.

DP-SGD alone gets doubles. Only `SecureNoise` may be published: a seed subtracts its noise. Source:
Mironov (2012); docs/privacy.md section 4.
"""

import decimal
import math
import os
import re
import secrets
from collections.abc import Callable
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.privacy.keystream import bernoulli_rows, keystream_normals, keystream_uniforms

LARGEST_SCALE = 2.0**50
"""Largest scale in lattice units; a draw beyond 2^62 then has probability below exp(-4000)."""

LARGEST_INTEGER = 2**62
"""Bound on every lattice integer, so that value plus noise fits 64 bits."""

_BITS = 256
_DIGITS = 110
_EXACT_TABLE_SCALE = 1024.0


class NoiseSource(Protocol):
    """Draws independent integers; `scale` in lattice units. A failed generator raises."""

    @property
    def publishable(self) -> bool:
        """Whether a release may be made from these draws."""

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        """`size` independent integers with P(z) proportional to exp(-z^2 / (2 scale^2))."""

    def discrete_laplace(self, *, scale: float, size: int) -> NDArray[np.int64]:
        """`size` independent integers with P(z) proportional to exp(-|z| / scale)."""

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        """One vector of density exp(-norm(z)/scale), each coordinate rounded to an integer.

        Added to a vector of integers this equals rounding the sum, that is, post-processing.
        """

    def noisy_argmax(self, scores: NDArray[np.int64], *, scale: float) -> int:
        """Index i drawn with probability proportional to exp(scores[i] / scale)."""

    def whole_below(self, bound: int) -> int:
        """A whole number from 0 to bound - 1, exactly uniform."""

    def gaussian_vector(self, *, scale: float, size: int) -> NDArray[np.float64]:
        """`size` independent N(0, scale^2) doubles, not exact; for `mechanisms.noisy_sum` alone."""

    def poisson_sample(self, *, rows: int, probability: float) -> NDArray[np.int64]:
        """Indices, ascending: each of `rows` rows with `probability`, independently."""


def _check(scale: float, size: int) -> None:
    if not (math.isfinite(scale) and 0 < scale <= LARGEST_SCALE):
        raise UncalibratedError(field="noise scale in lattice units", allowed="0 < scale <= 2^50")
    if size < 1:
        raise SpecError(field="noise size", allowed="a whole number >= 1")


def _check_vector(scale: float, size: int) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise UncalibratedError(field="noise scale", allowed="a finite number > 0")
    if size < 1:
        raise SpecError(field="noise size", allowed="a whole number >= 1")


def _check_probability(probability: float) -> None:
    if not 0 < probability <= 1:
        raise SpecError(field="sampling probability", allowed="a number in (0, 1]")


def _check_bound(bound: int) -> None:
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
        raise SpecError(field="bound of a draw", allowed="a whole number >= 1")


def _check_scores(scores: NDArray[np.int64]) -> None:
    if scores.ndim != 1 or scores.size == 0 or scores.dtype != np.int64:
        raise SpecError(field="scores", allowed="a non-empty vector of 64-bit integers")
    if np.any(scores > LARGEST_INTEGER) or np.any(scores < -LARGEST_INTEGER):
        raise PrivacyError(
            "a score leaves the lattice range: clip |score| to 2^62 steps", field="scores"
        )


class SecureNoise:
    """Exact noise from the operating system's generator. Takes no seed and keeps no state.

    OpenDP's exact integer samplers draw, except the spherical law (256-bit arithmetic below) and
    whole numbers (`secrets`). Nothing is buffered, so a forked process draws other values.

    Source: Canonne, Kamath & Steinke (2020) for the discrete laws; docs/privacy.md section 4.
    """

    @property
    def publishable(self) -> bool:
        """True: only these draws may be released."""
        return True

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        """See `NoiseSource`. About 10 microseconds a draw, whatever the scale."""
        _check(scale, size)
        opendp = _OpenDP()
        sampler = opendp.measurements.make_gaussian(*opendp.integers("l2"), scale=scale)
        return np.asarray(sampler([0] * size), dtype=np.int64)

    def discrete_laplace(self, *, scale: float, size: int) -> NDArray[np.int64]:
        """See `NoiseSource`. About 6 microseconds a draw, whatever the scale."""
        _check(scale, size)
        opendp = _OpenDP()
        sampler = opendp.measurements.make_laplace(*opendp.integers("l1"), scale=scale)
        return np.asarray(sampler([0] * size), dtype=np.int64)

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        """See `NoiseSource`. The law is within total variation 2^-150 of the ideal one."""
        _check(scale, dimension)
        return spherical_integers(scale=scale, dimension=dimension, draw=_system_uniform)

    def noisy_argmax(self, scores: NDArray[np.int64], *, scale: float) -> int:
        """See `NoiseSource`. OpenDP compares the Gumbel sums lazily and exactly."""
        _check(scale, scores.size)
        _check_scores(scores)
        opendp = _OpenDP()
        # zCDP: Gumbel noise. The pure form is permute-and-flip, whose loss has no bounded range.
        sampler = opendp.measurements.make_noisy_max(
            *opendp.integers("linf"), opendp.measures.zero_concentrated_divergence(), scale=scale
        )
        return int(sampler(scores.tolist()))

    def whole_below(self, bound: int) -> int:
        """See `NoiseSource`. Redraws bits of the operating system until they are below."""
        _check_bound(bound)
        return secrets.randbelow(bound)

    def gaussian_vector(self, *, scale: float, size: int) -> NDArray[np.float64]:
        """See `NoiseSource`. About 10 nanoseconds a draw."""
        _check_vector(scale, size)
        noise = keystream_normals(size)
        noise *= scale
        return noise

    def poisson_sample(self, *, rows: int, probability: float) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        _check_probability(probability)
        return bernoulli_rows(rows, probability, uniforms=keystream_uniforms)


class SeededNoise:
    """The same laws from a seed, to double precision, for tests. Never publishable."""

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise SpecError(field="SeededNoise seed", allowed="a whole number >= 0")
        self._generator = np.random.default_rng(seed)

    @property
    def publishable(self) -> bool:
        """False: the noise can be subtracted by anyone who knows the seed."""
        return False

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        _check(scale, size)
        if scale >= _EXACT_TABLE_SCALE:
            return np.rint(self._generator.normal(scale=scale, size=size)).astype(np.int64)
        reach = math.ceil(12 * scale) + 2
        support = np.arange(-reach, reach + 1)
        mass = np.exp(-0.5 * (support / scale) ** 2)
        draws = self._generator.choice(support, size=size, p=mass / mass.sum())
        return np.asarray(draws, dtype=np.int64)

    def discrete_laplace(self, *, scale: float, size: int) -> NDArray[np.int64]:
        """See `NoiseSource`: the difference of two geometric draws."""
        _check(scale, size)
        # floor(scale * Exponential) is geometric with ratio exp(-1/scale), at any scale.
        up, down = np.floor(self._generator.exponential(scale=scale, size=(2, size)))
        return np.asarray(up - down, dtype=np.int64)

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        _check(scale, dimension)
        norm = self._generator.gamma(dimension, scale)
        direction = self._generator.normal(size=dimension)
        rounded = np.rint(norm * direction / np.linalg.norm(direction))
        return np.asarray(rounded, dtype=np.int64)

    def noisy_argmax(self, scores: NDArray[np.int64], *, scale: float) -> int:
        """See `NoiseSource`."""
        _check(scale, scores.size)
        _check_scores(scores)
        relative = (scores - scores.max()) / scale
        return int(np.argmax(relative + self._generator.gumbel(size=scores.size)))

    def whole_below(self, bound: int) -> int:
        """See `NoiseSource`."""
        _check_bound(bound)
        width = bound.bit_length()
        while True:
            bits = int.from_bytes(self._generator.bytes((width + 7) // 8), "big")
            value = bits >> (-width % 8)
            if value < bound:
                return value

    def gaussian_vector(self, *, scale: float, size: int) -> NDArray[np.float64]:
        """See `NoiseSource`."""
        _check_vector(scale, size)
        return self._generator.normal(scale=scale, size=size)

    def poisson_sample(self, *, rows: int, probability: float) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        _check_probability(probability)
        return bernoulli_rows(
            rows, probability, uniforms=lambda count: 1.0 - self._generator.random(count)
        )


class _OpenDP:
    """Parts of OpenDP in use, imported at the first draw only."""

    def __init__(self) -> None:
        check_noise_library()
        from opendp import domains, measurements, measures, metrics, mod

        mod.enable_features("contrib")
        self.domains, self.measurements = domains, measurements
        self.measures, self.metrics = measures, metrics

    def integers(self, norm: str) -> tuple[Any, Any]:
        metric = {
            "l1": lambda: self.metrics.l1_distance(T="i64"),
            "l2": lambda: self.metrics.l2_distance(T="f64"),
            "linf": lambda: self.metrics.linf_distance(T="i64"),
        }[norm]()
        return self.domains.vector_domain(self.domains.atom_domain(T="i64")), metric


def _system_uniform() -> Decimal:
    """A uniform on the midpoints of 2^256 cells of (0, 1), from the operating system."""
    cell = int.from_bytes(os.urandom(_BITS // 8), "big")
    return Decimal(2 * cell + 1) / Decimal(2 ** (_BITS + 1))


def spherical_integers(
    *, scale: float, dimension: int, draw: Callable[[], Decimal]
) -> NDArray[np.int64]:
    """Round a spherical Laplace vector to integers, in 110 digits; `scale` in lattice units.

    Norm: -scale * sum of d' log U_i, Gamma(d', scale); direction: independent normals. `draw`:
    uniforms on (0, 1) with at least 256 bits.

    Source: docs/method.md section 4.
    """
    context = decimal.Context(prec=_DIGITS, Emin=-(10**9), Emax=10**9)
    with decimal.localcontext(context):
        product = math.prod((draw() for _ in range(dimension)), start=Decimal(1))
        norm = -Decimal(scale) * product.ln()
        normals = _normals(dimension, draw)
        length = sum((value * value for value in normals), Decimal(0)).sqrt()
        rounded = [int((norm * value / length).to_integral_value()) for value in normals]
    if max(map(abs, rounded)) > LARGEST_INTEGER:
        raise PrivacyError("a draw leaves the lattice range, 2^62 steps", field="spherical noise")
    return np.array(rounded, dtype=np.int64)


def _normals(count: int, draw: Callable[[], Decimal]) -> list[Decimal]:
    """Independent standard normals by Marsaglia's polar method, which needs no cosine."""
    values: list[Decimal] = []
    while len(values) < count:
        first, second = 2 * draw() - 1, 2 * draw() - 1
        square = first * first + second * second
        if 0 < square < 1:
            factor = (-2 * square.ln() / square).sqrt()
            values += [first * factor, second * factor]
    return values[:count]


# The library

OLDEST_OPENDP = (0, 14, 2)
"""In 0.14.0 and 0.14.1 the discrete Gaussian is not the law it is said to be: of 300 samples of
20,000 draws, half at scale 0.7 and half at 4, 145 and 135 are refuted at 1e-4, of 0.14.2 none."""


def check_noise_library() -> None:
    """Raise PrivacyError for an OpenDP before `OLDEST_OPENDP`, whose noise has another law."""
    text = version("opendp")
    if tuple(int(part) for part in re.findall(r"\d+", text)[:3]) < OLDEST_OPENDP:
        oldest = ".".join(map(str, OLDEST_OPENDP))
        raise PrivacyError(
            "its noise has another law", field=f"opendp {text}", allowed=f"{oldest} or later"
        )
