"""The steps of a run, which publish often: without the figures of their reports."""

from tests.support.undrawn import undrawn  # noqa: F401
