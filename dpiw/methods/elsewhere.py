"""What the plan and a run may know of a generator whose rows another tool made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from dpiw.data.schema import PublicSchema
from dpiw.methods.generators.base import GenerativeModel
from dpiw.privacy.events import DeclaredEvent
from dpiw.privacy.units import PrivacyUnit


@runtime_checkable
class MadeElsewhere(Protocol):
    """A generator that reads no private row: its rows lie in a public file, at a declared cost."""

    @property
    def counted_by(self) -> str | None:
        """Key of the run of the same ledger that paid for the rows; None: this release pays."""
        ...

    def at(self, path: Path) -> Self:
        """The same, with its rows at another place."""
        ...

    def check_file(self, source: Path) -> None:
        """Refuse a file that is not the one meant, or the confidential `source`; SpecError."""
        ...

    def kept(self, schema: PublicSchema) -> dict[str, int]:
        """How many `rows` the file holds, and how many `distinct_rows`. Reads and checks it all.

        Raises:
            SpecError: the file or a cell is not as declared.
        """
        ...

    def rows_model(self, schema: PublicSchema) -> GenerativeModel:
        """The file's rows, read and checked as by `kept`, each to be had once; costs nothing."""
        ...

    def declared(self, unit: PrivacyUnit) -> DeclaredEvent:
        """What the rows cost by declaration, as a cost for `unit`.

        Raises:
            SpecError: it cannot be had from what was declared.
            NotPublishableError: no epsilon was declared.
        """
        ...

    def declaration(self) -> dict[str, Any]:
        """Who declares what, on what evidence, as declared: JSON values."""
        ...
