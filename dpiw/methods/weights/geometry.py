"""Public geometry of centred rows: how far each column can move a feature vector."""

import math
from dataclasses import dataclass

from dpiw.data.schema.schema import PublicSchema


@dataclass(frozen=True, kw_only=True)
class ColumnBlock:
    """One column's share of the centred row (`PublicSchema.centred`).

    A missing number is 0 in the first coordinate. A level l of L is (e_l - 1/L)/sqrt(2): squared
    norm (1 - 1/L)/2, inner product of two levels -1/(2L).

    Attributes:
        numeric: whether its first coordinate is a scaled value.
        levels: size of its one-hot block; 0 when there is none.
    """

    start: int
    numeric: bool
    levels: int

    @property
    def stop(self) -> int:
        """End of its coordinates."""
        return self.start + self.numeric + self.levels

    @property
    def _apart(self) -> float:
        """1 - 1/L, or 0 without levels."""
        return 1 - 1.0 / self.levels if self.levels else 0.0

    @property
    def squared_norm(self) -> float:
        """Largest squared L2 norm."""
        return 0.25 * self.numeric + self._apart / 2

    @property
    def squared_diameter(self) -> float:
        """Largest squared distance of two rows: of two values, or of a value and a missing one."""
        return max(float(self.numeric), 0.25 * self.numeric + (self.levels > 1))

    @property
    def l1_norm(self) -> float:
        """Largest L1 norm."""
        return 0.5 * self.numeric + math.sqrt(2) * self._apart

    @property
    def l1_diameter(self) -> float:
        """Largest L1 distance of two rows."""
        return max(float(self.numeric), 0.5 * self.numeric + math.sqrt(2) * (self.levels > 1))

    @property
    def coordinate(self) -> float:
        """Largest absolute coordinate."""
        return max(0.5 * self.numeric, self._apart / math.sqrt(2))

    @property
    def variances(self) -> tuple[float, ...]:
        """Eigenvalues of its covariance under a uniform row, one per coordinate.

        Upper bounds for a number that may be missing: it is there, and its flag is down half the
        time. That of levels is (I - 11'/L)/(2L), constant along the constant direction.
        """
        number = (1.0 / 12.0,) * self.numeric
        if not self.levels:
            return number
        return (*number, *(1.0 / self.levels / 2,) * (self.levels - 1), 0.0)

    @property
    def reference_squared_norm(self) -> float:
        """Mean squared norm under the uniform reference row (every block has mean zero)."""
        return math.fsum(self.variances)


def blocks(schema: PublicSchema) -> tuple[ColumnBlock, ...]:
    """The blocks of `schema.centred`, in its order."""
    parts: list[ColumnBlock] = []
    for column in schema.released:
        levels = 2 * column.nullable if column.is_numeric else column.cardinality + column.nullable
        start = parts[-1].stop if parts else 0
        parts.append(ColumnBlock(start=start, numeric=column.is_numeric, levels=levels))
    return tuple(parts)
