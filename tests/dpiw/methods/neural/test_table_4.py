"""What the accountants say of DP-SGD, against a table made by other code."""

import json
from pathlib import Path

import pytest

from dpiw.privacy import accounting

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "dp_sgd.json").read_text())
DELTA = 1e-6


def identity(row):
    return f"{row['rows']}-{row['lot']}-{row['noise_multiplier']}-{row['steps']}"


def events(settings, row, *, rate):
    return settings.training(
        sampling_rate=rate, steps=row["steps"], noise_multiplier=row["noise_multiplier"]
    ).events()


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=identity)
def test_epsilon_of_a_training_is_that_of_the_table(settings, row):
    found = events(settings, row, rate=row["lot"] / (2 * row["rows"]))
    epsilon = accounting.epsilon(found, delta=DELTA, grid=GOLDEN["grid"])
    assert epsilon == pytest.approx(row["pld"], abs=GOLDEN["tolerance"])
    looser = accounting.epsilon_rdp(found, delta=DELTA)
    assert looser == pytest.approx(row["rdp"], abs=GOLDEN["tolerance"])


@pytest.mark.parametrize("row", GOLDEN["rows"][1::5], ids=identity)
def test_twice_the_rate_costs_what_the_table_says(settings, row):
    found = events(settings, row, rate=row["lot"] / row["rows"])
    epsilon = accounting.epsilon(found, delta=DELTA, grid=GOLDEN["grid"])
    assert epsilon == pytest.approx(row["pld_double_rate"], abs=GOLDEN["tolerance"])


@pytest.mark.parametrize("change", [{"steps": 1576}, {"noise_multiplier": 1.49}])
def test_one_percent_more_shows(settings, change):
    """The table would notice: 1% more steps or less noise is outside its tolerance."""
    row = GOLDEN["rows"][5] | change
    found = events(settings, row, rate=0.0128)
    epsilon = accounting.epsilon(found, delta=DELTA, grid=GOLDEN["grid"])
    assert epsilon > row["pld"] + GOLDEN["tolerance"]
