"""The features of the paper's regressions: the centred row, with public bounds.

The regression's sensitivity needs nothing of the features but public bounds on the norm of a row
and on the distance of two rows (docs/method.md section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.methods.weights.geometry import blocks

CONSTANT = 0.5
"""Value of the appended constant; 1/2 matches the centred box (docs/method.md section 3)."""


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
        return np.hstack([self.schema.centred(scaled), np.full((scaled.rows, 1), CONSTANT)])
