"""Releases of the command line's tests have no figures."""

from tests.support.undrawn import undrawn  # noqa: F401
