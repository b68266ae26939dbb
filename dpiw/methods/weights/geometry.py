"""Public geometry of centred rows: how far each column can move a feature vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpiw.data.schema import PublicSchema


@dataclass(frozen=True, kw_only=True)
class ColumnBlock:
    """One column's share of the centred row (`PublicSchema.centred`).

    Attributes:
        numeric: whether its first coordinate is a scaled value.
        levels: size of its one-hot block; 0 when there is none.
        squared_norm, squared_diameter: largest squared L2 norm, and distance of two rows' blocks.
        l1_norm, l1_diameter: the same in L1, not squared.
        coordinate: largest absolute coordinate.
        variances: eigenvalues of its covariance under a uniform row, one per coordinate.
    """

    start: int
    stop: int
    numeric: bool
    levels: int
    squared_norm: float
    squared_diameter: float
    l1_norm: float
    l1_diameter: float
    coordinate: float
    variances: tuple[float, ...]

    @property
    def reference_squared_norm(self) -> float:
        """Mean squared norm under the uniform reference row (every block has mean zero)."""
        return math.fsum(self.variances)


def _levels(start: int, count: int) -> ColumnBlock:
    # (e_l - 1/L)/sqrt(2): squared norm (1-1/L)/2, inner product of two levels -1/(2L), and the
    # covariance (I - 11'/L)/(2L) with eigenvalue 1/(2L) on all but the constant direction.
    share = 1.0 / count
    return ColumnBlock(
        start=start,
        stop=start + count,
        numeric=False,
        levels=count,
        squared_norm=(1 - share) / 2,
        squared_diameter=1.0 if count > 1 else 0.0,
        l1_norm=math.sqrt(2) * (1 - share),
        l1_diameter=math.sqrt(2) if count > 1 else 0.0,
        coordinate=(1 - share) / math.sqrt(2),
        variances=(share / 2,) * (count - 1) + (0.0,),
    )


def _number(start: int) -> ColumnBlock:
    return ColumnBlock(
        start=start,
        stop=start + 1,
        numeric=True,
        levels=0,
        squared_norm=0.25,
        squared_diameter=1.0,
        l1_norm=0.5,
        l1_diameter=1.0,
        coordinate=0.5,
        variances=(1.0 / 12.0,),
    )


def _nullable_number(start: int) -> ColumnBlock:
    # A missing value is 0 in the first coordinate, so two rows differ most either present/present
    # (1 in the value) or present/missing (1/2 in the value and a whole level). The variances are
    # an upper reference: a value that is always there, and a flag that is down half the time.
    value, flag = _number(start), _levels(start + 1, 2)
    return ColumnBlock(
        start=start,
        stop=flag.stop,
        numeric=True,
        levels=2,
        squared_norm=value.squared_norm + flag.squared_norm,
        squared_diameter=max(1.0, 0.25 + flag.squared_diameter),
        l1_norm=value.l1_norm + flag.l1_norm,
        l1_diameter=max(1.0, 0.5 + flag.l1_diameter),
        coordinate=0.5,
        variances=(*value.variances, *flag.variances),
    )


def blocks(schema: PublicSchema) -> tuple[ColumnBlock, ...]:
    """The blocks of `schema.centred`, in its order."""
    parts: list[ColumnBlock] = []
    start = 0
    for column in schema.released:
        if column.is_numeric:
            parts.append(_nullable_number(start) if column.nullable else _number(start))
        else:
            parts.append(_levels(start, column.cardinality + int(column.nullable)))
        start = parts[-1].stop
    return tuple(parts)
