"""How far one unit moves the teachers' votes, and the noise of a count; see `pategan`."""

from __future__ import annotations

from dataclasses import dataclass

from dpiw.data.schema import PublicSchema
from dpiw.methods.generators.histogram import Histogram
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit


def vote_sensitivity(unit: PrivacyUnit, teachers: int) -> int:
    """How many votes of a query one unit can move; see `pategan`."""
    reach = unit.max_rows
    if unit.relation is NeighbouringRelation.REPLACE_ONE and unit.max_rows > 1:
        reach *= 2
    return min(reach, teachers)


@dataclass(frozen=True, kw_only=True)
class VoteNoise:
    """What `calibrate` decides.

    Attributes:
        schema: for which schema.
        unit: for which unit.
        teachers: k.
        multiplier: noise scale of one count over its sensitivity.
        marginals: the calibrated histogram of every column; None where none is drawn.
    """

    schema: PublicSchema
    unit: PrivacyUnit
    teachers: int
    multiplier: float
    marginals: Histogram | None

    @property
    def scale(self) -> float:
        """Noise scale of one count, in votes; rounded up, against ourselves."""
        sensitivity = vote_sensitivity(self.unit, self.teachers)
        return self.multiplier * sensitivity * (1 + 1e-15)
