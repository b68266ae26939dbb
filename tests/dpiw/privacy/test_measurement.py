"""A measurement is one file: the same bytes for the same values, never a pickle."""

import io

import numpy as np
import pytest

from dpiw.privacy.measurement import Measurement


def measured(**changes):
    facts = {"kind": "toy", "facts": {"a": 1, "b": [1.5]}, "publishable": True}
    arrays = {"x": np.arange(6.0).reshape(2, 3), "n": np.array([1, -2])}
    return Measurement(**({"arrays": arrays} | facts | changes))


def test_round_trip_keeps_values_and_types():
    again = Measurement.from_bytes(measured().to_bytes())
    assert (again.kind, again.facts, again.publishable) == ("toy", {"a": 1, "b": [1.5]}, True)
    np.testing.assert_array_equal(again.arrays["x"], measured().arrays["x"])
    assert again.arrays["n"].dtype == np.int64


def test_equal_measurements_have_equal_bytes():
    other = Measurement(
        kind="toy", facts={"b": [1.5], "a": 1}, publishable=True,
        arrays=dict(reversed(measured().arrays.items())),
    )  # fmt: skip
    assert other.to_bytes() == measured().to_bytes()
    assert measured(publishable=False).digest != measured().digest


def test_objects_are_refused_on_both_sides():
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        measured(arrays={"x": np.array([{}], dtype=object)}).to_bytes()
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        Measurement.from_bytes(buffer.getvalue())


def test_a_number_json_does_not_know_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        measured(facts={"a": float("nan")}).to_bytes()
