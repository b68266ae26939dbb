"""Partition selection as it is run: how often a level of one person alone is shown.

The exact laws of small neighbours are in `test_partition_selection.py`; here the method itself
draws, from the secure source. A test accepts when p > 1e-9 and refutes when p < 1e-9.
"""

import dataclasses
from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.unseen_levels import UnseenLevels
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.support.worlds import declared

FALSE_ALARM = 1e-9
DELTA = "0.2"  # so large that draws can count it
SCHEMA = declared({"name": "trade", "kind": "categorical", "unseen": True}, name="trades")
OWN = {"together": ["own"] * 3, "apart": ["own", "mine", "alone"]}
"""Where a person's three rows lie."""


def shown(method: UnseenLevels, rows: list[str], draws: int) -> int:
    """In how many draws some level of the person alone is shown."""
    texts = np.array([*rows, *["smith"] * 40], dtype=object)
    table = PrivateTable(schema=SCHEMA, scaled=ScaledTable({"trade": texts}, len(texts)))
    levels, noise = set(rows), SecureNoise()
    return sum(
        bool(levels & set(method.measure(table, noise=noise).facts["levels"][0]))
        for _ in range(draws)
    )


@pytest.mark.nightly_cases("200-together")
@pytest.mark.parametrize("way", OWN)
@pytest.mark.parametrize("draws", [200, pytest.param(10_000, marks=pytest.mark.proof)])
@pytest.mark.slow
def test_own_levels_are_shown_as_rarely_as_was_paid_for(way, draws):
    unit = PrivacyUnit(
        relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=3, id_column="person"
    )
    method = (
        UnseenLevels()
        .within(Decimal(DELTA))
        .calibrate(rho=0.5, schema=SCHEMA, unit=unit, nominal_rows=40)
    )
    ready = method.calibrated

    def p_value(seen):
        return float(stats.binomtest(seen, draws, ready.delta, alternative="greater").pvalue)

    assert p_value(shown(method, OWN[way], draws)) > FALSE_ALARM
    low = dataclasses.replace(ready, threshold=ready.threshold - ready.scale)  # planted
    assert (
        p_value(shown(dataclasses.replace(method, calibrated=low), OWN[way], draws)) < FALSE_ALARM
    )
