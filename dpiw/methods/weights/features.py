"""Feature maps with a public norm bound (docs/method.md sections 3 and 8).

The regression's sensitivity needs nothing of the features but public bounds on the norm of a row
and on the distance of two rows. Every map is fixed from public information before data is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.errors import SpecError
from dpiw.methods.weights.geometry import ColumnBlock, blocks, characteristic
from dpiw.methods.weights.public_normals import public_normals

CONSTANT = 0.5
"""Value of the appended constant; 1/2 matches the centred box (docs/method.md section 3)."""

FEATURE_MAPS = ("linear", "interactions", "fourier", "critic")
"""`critic` is of `dpiw.methods.weights.critic_features`."""


@dataclass(frozen=True, kw_only=True)
class FeatureBounds:
    """Public bounds on feature rows x, x' of a map.

    Attributes:
        dimension: d', length of a row, constant included.
        norm: R, bound on norm(x)_2.
        diameter: bound on norm(x - x')_2.
        l1_norm, l1_diameter: the same in L1.
        coordinate: bound on |x_j|.
        reference_norm: r_ref, root mean square norm of a row under a uniform public row.
    """

    dimension: int
    norm: float
    diameter: float
    l1_norm: float
    l1_diameter: float
    coordinate: float
    reference_norm: float


class FeatureMap(Protocol):
    """A public map from scaled rows to feature rows."""

    @property
    def bounds(self) -> FeatureBounds:
        """Public bounds; cheap to compute."""
        ...

    def reference_eigenvalues(self) -> NDArray[np.float64]:
        """Eigenvalues of the feature covariance under a uniform public row, shape (d',)."""
        ...

    def matrix(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """Feature rows, shape (rows, d')."""
        ...


def _with_constant(columns: list[NDArray[np.float64]], rows: int) -> NDArray[np.float64]:
    return np.hstack([*columns, np.full((rows, 1), CONSTANT)])


def bounds_of(
    *,
    dimension: int,
    squared_norm: float,
    squared_diameter: float,
    l1_norm: float,
    l1_diameter: float,
    coordinate: float,
    reference: float,
) -> FeatureBounds:
    """Bounds from squares; L1 by Cauchy and Schwarz where that is tighter."""
    norm = math.sqrt(squared_norm)
    diameter = min(2 * norm, math.sqrt(squared_diameter))
    root = math.sqrt(dimension)
    l1_norm = min(l1_norm, root * norm)
    return FeatureBounds(
        dimension=dimension,
        norm=norm,
        diameter=diameter,
        l1_norm=l1_norm,
        l1_diameter=min(l1_diameter, 2 * l1_norm, root * diameter),
        coordinate=max(coordinate, CONSTANT),
        reference_norm=math.sqrt(reference),
    )


@dataclass(frozen=True)
class LinearMap:
    """The centred row and the constant 1/2. Corrects first moments only (docs/method.md section 8).

    R^2 = largest squared norm of a row + 1/4; on d numeric columns R = sqrt(d+1)/2, diam = sqrt(d).
    """

    schema: PublicSchema

    @cached_property
    def bounds(self) -> FeatureBounds:
        """Attained at the corners of the schema's box."""
        parts = blocks(self.schema)
        return bounds_of(
            dimension=parts[-1].stop + 1,
            squared_norm=math.fsum(part.squared_norm for part in parts) + CONSTANT**2,
            squared_diameter=math.fsum(part.squared_diameter for part in parts),
            l1_norm=math.fsum(part.l1_norm for part in parts) + CONSTANT,
            l1_diameter=math.fsum(part.l1_diameter for part in parts),
            coordinate=max(part.coordinate for part in parts),
            reference=math.fsum(part.reference_squared_norm for part in parts) + CONSTANT**2,
        )

    def reference_eigenvalues(self) -> NDArray[np.float64]:
        """1/12 per numeric column, 1/(2L) per level direction, 0 for the constant."""
        return np.array([v for part in blocks(self.schema) for v in part.variances] + [0.0])

    def matrix(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """Centred coordinates, then the constant."""
        return _with_constant([self.schema.centred(scaled)], scaled.rows)


@dataclass(frozen=True)
class InteractionMap:
    """The centred row u, twice the products of two columns' blocks, and the constant 1/2.

    With a target column the products are target x feature; otherwise every pair of columns.
    Twice, because a product of two centred values has range 1/2: all coordinates then have unit
    range, as the constants of the Lam rule assume. The row is not divided by its norm bound: that
    would only rescale Lam, and take the rule out of the range it was checked in.

    Bounds, with q_a = max norm(u_a)^2 and g_a = u_a.u'_a in [-q_a, q_a]: products of blocks have
    inner product g_a g_b, so x.x' = 1/4 + sum g_a + 4 sum_pairs g_a g_b. Hence
    R^2 = 1/4 + sum q_a + 4 sum_pairs q_a q_b, attained at a corner, and
    diam^2 <= 2 R^2 - 2 min x.x':

    - all pairs: 4 sum_{a<b} g_a g_b = 2 G^2 - 2 sum g_a^2 with G = sum g_a, and G + 2 G^2 >= -1/8,
      so min x.x' >= 1/8 - 2 sum q_a^2. On d numeric columns this gives diam = (d+1)/2, attained
      for odd d.
    - target: x.x' = 1/4 + g_t + F + 4 g_t F is bilinear in g_t and F = sum of the other g_a, so
      its minimum is at a corner of their rectangle.
    """

    schema: PublicSchema

    def _pairs(self) -> Iterator[tuple[ColumnBlock, ColumnBlock]]:
        parts = blocks(self.schema)
        names = [column.name for column in self.schema.released]
        target = self.schema.target
        for i, first in enumerate(parts):
            for j in range(i + 1, len(parts)):
                if target is None or target.name in (names[i], names[j]):
                    yield first, parts[j]

    def _smallest_inner(self) -> float:
        parts = blocks(self.schema)
        target = self.schema.target
        if target is None:
            return 0.125 - 2 * math.fsum(part.squared_norm**2 for part in parts)
        names = [column.name for column in self.schema.released]
        target_block = parts[names.index(target.name)]
        others = [part for part in parts if part is not target_block]
        low = math.fsum(part.smallest_inner for part in others)
        high = math.fsum(part.squared_norm for part in others)
        return min(
            0.25 + g + f + 4 * g * f
            for g in (target_block.smallest_inner, target_block.squared_norm)
            for f in (low, high)
        )

    @cached_property
    def bounds(self) -> FeatureBounds:
        """See the class; L1 by the triangle inequality."""
        parts, pairs = blocks(self.schema), list(self._pairs())
        squared = math.fsum(part.squared_norm for part in parts) + CONSTANT**2
        squared += 4 * math.fsum(a.squared_norm * b.squared_norm for a, b in pairs)
        reference = math.fsum(part.reference_squared_norm for part in parts) + CONSTANT**2
        reference += 4 * math.fsum(
            a.reference_squared_norm * b.reference_squared_norm for a, b in pairs
        )
        l1 = math.fsum(part.l1_norm for part in parts) + CONSTANT
        products = [2 * a.coordinate * b.coordinate for a, b in pairs]
        return bounds_of(
            dimension=self.reference_eigenvalues().size,
            squared_norm=squared,
            squared_diameter=2 * squared - 2 * self._smallest_inner(),
            l1_norm=l1 + 2 * math.fsum(a.l1_norm * b.l1_norm for a, b in pairs),
            l1_diameter=math.inf,
            coordinate=max([part.coordinate for part in parts] + products),
            reference=reference,
        )

    def reference_eigenvalues(self) -> NDArray[np.float64]:
        """Independent centred columns make products uncorrelated with all else: 4 v_a v_b."""
        variances = [np.array(part.variances) for part in blocks(self.schema)]
        variances += [4 * np.outer(a.variances, b.variances).ravel() for a, b in self._pairs()]
        return np.concatenate([*variances, np.zeros(1)])

    def matrix(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """Centred coordinates, twice the products by pair of columns, then the constant."""
        centred = self.schema.centred(scaled)
        columns = [centred]
        for a, b in self._pairs():
            left, right = centred[:, a.start : a.stop], centred[:, b.start : b.stop]
            width = left.shape[1] * right.shape[1]  # -1 would fail on a table without rows
            products = left[:, :, None] * right[:, None, :]
            columns.append(2 * products.reshape(scaled.rows, width))
        return _with_constant(columns, scaled.rows)


@dataclass(frozen=True)
class FourierMap:
    """Random Fourier features phi(x) = D^{-1/2} [cos(Omega'z), sin(Omega'z)], z the centred row.

    norm(phi(x)) = 1 for every x, D and number of columns, so the noise in a log weight does not
    grow with the dimension. Two rows are at most 2 apart. No constant is appended: it would add
    to every norm, and what it would fit, log(n0/N_D), drops out of self-normalised weights. The
    cost: an n0 far from the true number of rows is absorbed by the features with some distortion.

    Omega is public: it comes from the public integer `omega_seed` and is no privacy noise.
    Source: Rahimi & Recht (2007); docs/method.md section 8.

    Attributes:
        frequencies: D; the map has 2 D features.
        frequency_scale: s, standard deviation of Omega's entries. None: the public rule
            s^2 = (5/3) / E norm(z)^2, which is s = 2 on five numeric columns and keeps
            the kernel as wide when columns are added.
        omega_seed: public integer >= 0 that fixes Omega.
    """

    schema: PublicSchema
    frequencies: int
    frequency_scale: float | None
    omega_seed: int

    @property
    def scale(self) -> float:
        """s, as given or by the public rule."""
        if self.frequency_scale is not None:
            return self.frequency_scale
        spread = math.fsum(part.reference_squared_norm for part in blocks(self.schema))
        if spread <= 0:
            raise SpecError("weights.settings.features: fourier needs a column that can vary")
        return math.sqrt(5.0 / 3.0 / spread)

    @cached_property
    def omega(self) -> NDArray[np.float64]:
        """Shape (p, D)."""
        size = blocks(self.schema)[-1].stop * self.frequencies
        normal = public_normals(self.omega_seed, size)
        return np.asarray(self.scale * normal.reshape(-1, self.frequencies))

    @cached_property
    def bounds(self) -> FeatureBounds:
        """R = 1 and diam = 2 whatever the schema."""
        count = 2 * self.frequencies
        return FeatureBounds(
            dimension=count,
            norm=1.0,
            diameter=2.0,
            l1_norm=math.sqrt(count),
            l1_diameter=2 * math.sqrt(count),
            coordinate=self.frequencies**-0.5,
            reference_norm=1.0,
        )

    def reference_eigenvalues(self) -> NDArray[np.float64]:
        """From the closed form of E cos and E sin of sums and differences of frequencies."""
        return _fourier_eigenvalues(self)

    def _eigenvalues(self) -> NDArray[np.float64]:
        parts, omega = blocks(self.schema), self.omega
        plus = characteristic(parts, omega[:, :, None] + omega[:, None, :])
        minus = characteristic(parts, omega[:, :, None] - omega[:, None, :])
        mean = characteristic(parts, omega)
        first = np.concatenate([mean.real, mean.imag])
        cross = (plus.imag - minus.imag) / 2  # E cos(w_i z) sin(w_j z)
        second = np.block(
            [[(minus.real + plus.real) / 2, cross], [cross.T, (minus.real - plus.real) / 2]]
        )
        covariance = (second - np.outer(first, first)) / self.frequencies
        return np.asarray(np.maximum(np.linalg.eigvalsh(covariance), 0.0))

    def matrix(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """All cosines, then all sines."""
        angle = self.schema.centred(scaled) @ self.omega
        trigonometric = np.hstack([np.cos(angle), np.sin(angle)])
        return np.asarray(trigonometric / math.sqrt(self.frequencies))


@lru_cache(maxsize=8)
def _fourier_eigenvalues(features: FourierMap) -> NDArray[np.float64]:
    """Kept per map: a plan asks at every step of its search, and one answer takes a second."""
    eigenvalues = features._eigenvalues()
    eigenvalues.setflags(write=False)
    return eigenvalues


def feature_map(
    name: str,
    schema: PublicSchema,
    *,
    frequencies: int,
    frequency_scale: float | None,
    omega_seed: int | None,
) -> FeatureMap:
    """The map called `name`; the Fourier settings matter to `fourier` alone.

    Raises:
        SpecError: unknown name, or `fourier` without an `omega_seed`.
    """
    if name == "linear":
        return LinearMap(schema)
    if name == "interactions":
        return InteractionMap(schema)
    if name == "fourier" and omega_seed is not None:
        return FourierMap(schema, frequencies, frequency_scale, omega_seed)
    if name == "fourier":
        raise SpecError("weights.settings.omega_seed: fourier features need a public integer >= 0")
    if name == "critic":
        raise SpecError("weights.settings.features=critic: expected a method that asks a generator")
    raise SpecError(f"weights.settings.features={name}: expected one of {', '.join(FEATURE_MAPS)}")
