"""Figures of reports are not drawn here."""

from tests.support.undrawn import undrawn as undrawn
