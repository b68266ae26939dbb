"""Figures of the privacy proof suite: one row per promise.

A test takes the fixture `prove` (conftest.py) and says, once it has passed its assertions,

    prove(
        "P1", "beta regression, linear map",
        power="the paper's noise breaks its epsilon on 12 of 12 pairs",
        reached="10,000 pairs, 0 above the bound, worst 0.97 of it",
        limit="neighbours searched, not all neighbours",
    )

Rows are told by tests of the marker `proof` alone; in the default run `prove` is silent, so one
test function can serve both tiers:

    @tiers("pairs", fast=200, full=10_000)
    def test_...(pairs, prove, rng):      # rng: fixed seed when fast, a fresh one when full

The first argument is an id of the promise (P1 sensitivity, S1 samplers, E1 hockey-stick, ...).
`reached` is measured by the test, never written by hand; the test's own name is added. A row is one
JSON line of the fixture `figures` (tests/conftest.py), so it is printed, and kept with `--figures`.

`make proof` runs the suite part by part and ends with the table of all rows (tests/assurance).
"""

from __future__ import annotations

import pytest

PREFIX = "proof "
"""Of a JSON line's name; the promise follows."""


def tiers(name: str, *, fast: object, full: object) -> pytest.MarkDecorator:
    """Parametrize `name`: a slice for the default run, the whole under the marker `proof`."""
    whole = pytest.param(full, marks=pytest.mark.proof, id="full")
    return pytest.mark.parametrize(name, [pytest.param(fast, id="fast"), whole])
