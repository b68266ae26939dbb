"""A person's report: drawn once, from a projected record, and never holding or telling a value."""

import dataclasses
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import kstest

from dpiw.errors import ManifestError, NotPublishableError, PrivacyError, ReleaseError, SourceError
from dpiw.local import privatise, report_once, told_numbers, told_record
from dpiw.local.client import projected
from dpiw.privacy.mechanisms import lattice_step
from dpiw.privacy.randomness import SeededNoise
from tests.support.local import collection, people


class NeverAsked(SeededNoise):
    """Publishable by its word, and an error when something is drawn from it."""

    publishable = True

    def __init__(self):
        super().__init__(0)

    def __getattribute__(self, name):
        assert name in ("publishable", "__class__"), name
        return super().__getattribute__(name)


ME = {"a": 3.0, "b": 9.5, "home": "yes"}


def test_asking_again_gives_the_same_report(tmp_path):
    parameters, path = collection(), tmp_path / "me.json"
    first = report_once(path, ME, parameters=parameters)
    assert report_once(path, ME, parameters=parameters) == first
    assert report_once(path, {"a": 0.0}, parameters=parameters) == first  # not looked at
    assert report_once(tmp_path / "other.json", ME, parameters=parameters) != first
    assert first["parameters"] == parameters.digest
    assert first["home"] in parameters.levels
    assert json.loads(path.read_bytes()) == first
    assert sorted(os.listdir(tmp_path)) == ["me.json", "other.json"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_of_many_at_once_one_report_is_kept(tmp_path):
    parameters = collection()
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(
            lambda _: report_once(tmp_path / "me", ME, parameters=parameters), range(8)
        ))  # fmt: skip
    assert all(report == reports[0] for report in reports)
    assert os.listdir(tmp_path) == ["me"]


def test_a_file_of_something_else_is_refused(tmp_path):
    parameters = collection()
    report = report_once(tmp_path / "me", ME, parameters=parameters)
    with pytest.raises(ManifestError, match="another collection"):
        report_once(tmp_path / "me", ME, parameters=collection(epsilon="3"))
    for name, text in (("a", "{}"), ("b", "no JSON"), ("c", json.dumps(report))):
        (tmp_path / name).write_text(text)
        with pytest.raises(ManifestError):
            report_once(tmp_path / name, ME, parameters=parameters)
    with pytest.raises(ReleaseError, match="gone"):
        report_once(tmp_path / "gone" / "gone", ME, parameters=parameters)


def test_nothing_is_drawn_from_a_seed_or_for_a_broken_promise(tmp_path):
    parameters = collection()
    with pytest.raises(NotPublishableError):
        report_once(tmp_path / "me", ME, parameters=parameters, noise=SeededNoise(1))
    lying = dataclasses.replace(parameters, stddev=parameters.stddev / 2)
    with pytest.raises(PrivacyError, match="do not report"):
        report_once(tmp_path / "me", ME, parameters=lying)
    assert not os.listdir(tmp_path)


SHAPES = [(False,), (True, False), (False, True), (False, False, True), (True, True), (False,) * 2]


@pytest.mark.parametrize(
    ("shape", "levels"),
    [(shape, ("no", "yes")) for shape in SHAPES] + [(shape, ()) for shape in SHAPES if any(shape)],
)
def test_no_feature_goes_bare_that_nobody_named(shape, levels, tmp_path):
    parameters = collection(private=shape, levels=levels)
    bare = [name for name, is_private in zip("abc", shape, strict=False) if not is_private]
    assert parameters.bare == tuple(bare)
    me = {"a": 3.0, "b": 9.5, "c": 1.0, "home": "yes"}

    def refuses(agreed):
        with pytest.raises(PrivacyError) as refused:
            report_once(tmp_path / "me", me, parameters=parameters, bare=agreed, noise=NeverAsked())
        assert not os.listdir(tmp_path)
        return str(refused.value)

    for left in range(len(bare)):  # all but one are not enough, nor are names that look alike
        others = [name for place, name in enumerate(bare) if place != left]
        for agreed in (others, [*others, bare[left].upper()], [*others, f"{bare[left]} "],
                       {"abc": 1}, dict.fromkeys(bare, False), "abc",
                       [*others, "home"]):  # fmt: skip
            assert f"'{bare[left]}'" in refuses(agreed)
    if bare:
        assert all(f"'{name}'" in refuses(()) for name in bare)
    for agreed in (bare, set(bare), [*bare, "home", "b"]):
        name = f"me{len(os.listdir(tmp_path))}"
        report = report_once(tmp_path / name, me, parameters=parameters, bare=agreed)
        assert [report[name] for name in bare] == [me[name] / 5 - 1 for name in bare]
    if len(bare) == 1:
        assert report_once(tmp_path / "me0", me, parameters=parameters, bare=bare[0])


def test_a_report_that_is_there_is_not_handed_out_unnamed_either(tmp_path):
    parameters = collection(private=(True, False))
    report_once(tmp_path / "me", ME, parameters=parameters, bare=["b"])
    with pytest.raises(PrivacyError, match="'b'"):
        report_once(tmp_path / "me", ME, parameters=parameters)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, None, "31337", True, [31337], 10**400, np.float64("nan")],
)
def test_a_value_that_is_no_number_is_named_and_not_told(value, tmp_path):
    with pytest.raises(SourceError) as refused:
        report_once(tmp_path / "me", ME | {"b": value}, parameters=collection())
    assert str(refused.value) == "feature b: expected a finite number"
    assert refused.value.__cause__ is None
    assert not os.listdir(tmp_path)


def test_a_level_that_is_none_is_not_told():
    for value in ("canary-31337", None, 1, ["yes"]):
        with pytest.raises(
            SourceError, match=r"^label home: expected under this name one of no, yes$"
        ):
            told_record(ME | {"home": value}, collection())
    with pytest.raises(SourceError, match="feature a"):
        told_record({"b": 1.0, "home": "no"}, collection())


def test_numbers_are_clipped_to_public_bounds():
    told = told_numbers(np.array([[0.0, 10.0], [5.0, 7.5], [-1e300, 1e300]]), collection())
    assert told.tolist() == [[-1.0, 1.0], [0.0, 0.5], [-1.0, 1.0]]
    with pytest.raises(SourceError):
        told_numbers(np.array([[0.0, math.nan]]), collection())


@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@given(
    rows=arrays.arrays(
        np.float64, (3, 4), elements=st.floats(-1e300, 1e300, allow_subnormal=False)
    ),
    radius=st.floats(1e-3, 1e3),
)
def test_the_projection_is_one(rows, radius):
    inside = projected(rows, radius)
    norms = np.linalg.norm(inside, axis=1)
    assert (norms <= radius * (1 + 1e-13)).all()
    assert np.allclose(projected(inside, radius), inside, rtol=1e-13, atol=0)
    for row, kept in zip(rows, inside, strict=True):
        largest = max(np.abs(row).max(), 1e-300)
        shorter = np.linalg.norm(row / largest) * largest <= radius
        assert not shorter or (row == kept).all()
        assert (np.sign(row) == np.sign(kept)).all() or np.abs(kept).min() < 1e-290


def test_told_values_have_the_stated_law_and_no_other():
    """False alarm 1e-6; two thirds and three halves of the noise are refuted."""
    parameters = collection(private=(True, False), levels=())
    features, _ = people(4000, 2, np.random.default_rng(2))
    none = np.empty(0, dtype=np.int64)
    told, labels = privatise(features, none, parameters=parameters, noise=SeededNoise(7))
    assert labels.size == 0
    assert (told[:, 1] == features[:, 1]).all()
    steps = told[:, 0] / lattice_step(parameters.stddev)
    assert (steps == np.rint(steps)).all()
    noise = (told[:, 0] - features[:, 0]) / parameters.stddev
    p = [kstest(noise * share, "norm").pvalue for share in (1.0, 2 / 3, 3 / 2)]
    assert p[0] > 1e-6 > max(p[1:])


def test_rows_of_another_shape_or_not_finite_are_refused():
    parameters = collection()
    with pytest.raises(SourceError):
        projected(np.array([[1.0, math.nan]]), 1.0)
    for features, labels in ((np.zeros((2, 3)), np.zeros(2)), (np.zeros((2, 2)), np.zeros(1)),
                             (np.full((2, 2), math.nan), np.zeros(2))):  # fmt: skip
        with pytest.raises(SourceError):
            privatise(features, labels.astype(np.int64), parameters=parameters,
                      noise=SeededNoise(1))  # fmt: skip
