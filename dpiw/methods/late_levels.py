"""What the plan and a run may know of a generator that finds the levels of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol, Self, runtime_checkable

from dpiw.data.schema import PublicSchema
from dpiw.privacy.measurement import Measurement


@runtime_checkable
class FindsLevels(Protocol):
    """A generator of the columns of unseen levels alone: its rows have a schema of their own."""

    def within(self, delta: Decimal) -> Self:
        """The same, with a total delta to divide between thresholds and noise."""
        ...

    def found_schema(
        self, measurement: Measurement, *, schema: PublicSchema, provenance: str
    ) -> PublicSchema:
        """The schema of the rows: the unseen columns, with the levels that were shown.

        Args:
            measurement: of this generator.
            schema: of the table.
            provenance: of the levels (`dpiw.data.declarations`).

        Raises:
            SpecError: a measurement of something else.
        """
        ...

    def level_files(self, measurement: Measurement) -> Mapping[str, bytes]:
        """For each column in order a `levels_file`: its levels, and their noisy counts."""
        ...
