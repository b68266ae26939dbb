"""Errors cross process and Prefect boundaries whole, with their fields."""

import pickle

import pytest

from dpiw.errors import BudgetExceededError, StageFailedError, UnreliableWeightsError

ERRORS = [
    BudgetExceededError("asks too much", requested="epsilon=2", remaining="epsilon=1"),
    UnreliableWeightsError("do not use", k_hat=1.2, effective_sample_size=3.5),
    StageFailedError("ingest", 12),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_fields(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
