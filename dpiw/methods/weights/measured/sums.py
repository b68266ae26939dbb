"""An exact sum of rows' features, and its sensitivity and noise (docs/method.md section 14)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.threads import in_threads
from dpiw.methods.weights.measured.features import Stack
from dpiw.methods.weights.measured.fourier import UNIT
from dpiw.privacy.mechanisms import calibrated_law
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]

_LARGEST = 2**53
"""Sums of more units are clipped, as whole numbers: below, they are exact as doubles."""

LOUD = 0.1
"""Largest expected squared noise of all means, over R_phi^2, for ranges and a credit of products.

Chosen on Boston and Breast (docs/method.md section 14)."""

_BLOCK, _FEW = 8192, 4096
"""Rows of a thread, and of a matrix: with fewer, threads mostly wait."""


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """Every public number of one calibrated measurement.

    Attributes:
        nominal_rows: n0; under replace-one the public number of rows.
        dimension: d, features of a row.
        norm: R_phi, bound on a row's features.
        constant: c, by which a row counts beside its features; 0 where the number is public.
        multiplier: noise scale over sensitivity, as accounted.
        sensitivity: of the sum in L2, rounding of the rows included.
        law: of the noise; its scale covers the lattice rounding as well.
    """

    unit: PrivacyUnit
    nominal_rows: int
    dimension: int
    norm: float
    constant: float
    multiplier: float
    sensitivity: float
    law: NoiseLaw

    @property
    def is_loud(self) -> bool:
        """Whether the means' noise is more than `LOUD`: public."""
        return self.share > LOUD

    @property
    def share(self) -> float:
        """Expected squared noise of all features' means together, over R_phi^2."""
        return self.dimension * (self.law.scale / self.nominal_rows / self.norm) ** 2

    def is_of(self, stack: Stack) -> bool:
        """Whether it was calibrated for features of these sizes."""
        return (self.dimension, self.norm) == (stack.dimension, stack.norm)

    def to_json(self) -> dict[str, Any]:
        """Public numbers for the certificate."""
        return {
            "relation": self.unit.relation.value,
            "max_rows": self.unit.max_rows,
            "nominal_rows": self.nominal_rows,
            "dimension": self.dimension,
            "norm_bound": self.norm,
            "constant": self.constant,
            "sensitivity": self.sensitivity,
            "noise_multiplier": self.multiplier,
            "scale": self.law.scale,
        }


def sum_noise(stack: Stack, *, multiplier: float, unit: PrivacyUnit, nominal_rows: int) -> SumNoise:
    """Sensitivity and noise of the sum of a stack's features.

    Add or remove k rows: k sqrt(R_phi^2 + c^2), as the row count is a coordinate of its own, c per
    row. Replace one row: at most 2 R_phi; the count is not measured. Rounding moves a row's d (+ 1)
    coordinates by at most half a unit each.
    """
    replaced = unit.relation is NeighbouringRelation.REPLACE_ONE
    # Half the norm, as a power of two: a multiple of the unit, and then rounded by nothing.
    constant = 0.0 if replaced else 2.0 ** round(math.log2(stack.norm / 2))
    length = stack.dimension + (0 if replaced else 1)
    slack = math.sqrt(length) * UNIT / 2
    reach = 2 * (stack.norm + slack) if replaced else math.hypot(stack.norm + slack, constant)
    sensitivity = unit.max_rows * reach * (1 + 1e-12)
    law = calibrated_law(
        kind=NoiseKind.GAUSSIAN,
        noise_multiplier=multiplier,
        sensitivity=sensitivity,
        dimension=length,
    )
    return SumNoise(
        unit=unit,
        nominal_rows=nominal_rows,
        dimension=stack.dimension,
        norm=stack.norm,
        constant=constant,
        multiplier=multiplier,
        sensitivity=sensitivity,
        law=law,
    )


def _block_sum(stack: Stack, rows: ScaledTable) -> NDArray[np.int64]:
    """Sum of the rows' features in units; none of a row longer than the norm, or of NaN length.

    The sensitivity needs both. Fourier features are rounded in their table.
    """
    beside = tuple(part for part in stack.parts if part != "fourier")
    places = {part: stack.places(part) for part in stack.parts}
    places_beside = np.concatenate([np.zeros(0, dtype=np.int64), *(places[p] for p in beside)])
    longest = (stack.norm * (1 + 1e-12)) ** 2
    if "fourier" in places:  # whose length is its share, whatever a row's cells are
        longest -= stack.shares["fourier"] ** 2
    total = np.zeros(stack.dimension, dtype=np.int64)
    for few in rows.batches(_FEW):
        with np.errstate(all="ignore"):  # of rows outside the box, which may be too long
            if beside:
                features = np.empty((few.rows, places_beside.size), order="F")  # made by columns
                stack.write(few, features, beside)
                inside = _squared_lengths(features) <= longest
                if not inside.all():
                    few, features = few.take(np.flatnonzero(inside)), features[inside]
                features *= 1 / UNIT
                units = np.rint(features, out=features).sum(axis=0)  # exact: below 2^53
                total[places_beside] += units.astype(np.int64)
            if "fourier" in places:
                total[places["fourier"]] += stack.waves_sum(few, unit=UNIT)
    return total


def _squared_lengths(features: Array) -> Array:
    """Squared length of each row, column by column: the same bits whatever rows are beside it."""
    squares = np.zeros(len(features))
    for column in features.T:
        squares += column * column
    return squares


@cache
def _matrix_threads() -> ThreadpoolController:
    """Cached: to look for NumPy's loaded libraries takes longer than a small sum."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def exact_sum(stack: Stack, batches: Iterable[ScaledTable], *, constant: float) -> Array:
    """Sum of the rounded features, and c times the number of rows; exact in doubles.

    Privacy:
        Unprotected: of private rows it is confidential. One row changes it by that row's rounded
        features alone, to the last bit. A row longer than the norm, or NaN, adds only its count.
    """
    total, rows = np.zeros(stack.dimension, dtype=np.int64), 0

    def of(block: ScaledTable) -> tuple[NDArray[np.int64], int]:
        return _block_sum(stack, block), block.rows

    blocks = (block for batch in batches for block in batch.batches(_BLOCK))
    with _matrix_threads().limit(limits=1):
        for part, count in in_threads(of, blocks):
            total += part
            rows += count
    if constant:
        total = np.append(total, rows * round(constant / UNIT))
    return np.asarray(np.clip(total, -_LARGEST, _LARGEST) * UNIT, dtype=np.float64)
