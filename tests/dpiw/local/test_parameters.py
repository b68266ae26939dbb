"""The noise of a collection: exact total, the split, and what a client checks for itself."""

import contextlib
import dataclasses
import json
import math
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data.documents import document_json
from dpiw.errors import DPIWError, ManifestError, PrivacyError, SpecError
from dpiw.local import Feature, LocalParameters, privatise, told_record
from dpiw.local.parameters import noise_multiplier, split
from dpiw.privacy.gaussian import gaussian_delta
from dpiw.privacy.randomised_response import RandomisedResponse
from dpiw.privacy.randomness import SeededNoise
from tests.support.local import collection


@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(
    epsilon=st.floats(0.05, 12), share=st.floats(0.05, 0.95), levels=st.integers(2, 6),
    log_delta=st.floats(-9, -2),
)  # fmt: skip
def test_the_exact_curve_meets_the_total(epsilon, share, levels, log_delta):
    delta = 10**log_delta
    response = RandomisedResponse.of_epsilon(share * epsilon, levels)
    multiplier = noise_multiplier(epsilon, delta, response)
    assert response.joint_delta(multiplier, epsilon) == pytest.approx(delta, rel=1e-9)
    apart = noise_multiplier(epsilon - response.epsilon, delta, None)
    assert multiplier < apart * (1 + 1e-9)  # exact composition is never worse than adding up


STATED = json.loads(collection(private=(True,)).to_json())

SPLITS = {
    0.0: {0.5: 0.52, 1: 0.51, 2: 0.48, 3: 0.45, 5: 0.39, 8: 0.32},
    0.3: {1: 0.13, 2: 0.24, 3: 0.30, 5: 0.32},
}
"""By norm and epsilon: the label's best share at delta 1e-5, as computed apart from this code."""


@pytest.mark.parametrize("norm", SPLITS)
def test_the_split_is_the_best_one(norm):
    for epsilon, share in SPLITS[norm].items():
        assert split(epsilon, 1e-5, norm=norm) == pytest.approx(share, abs=0.006)


def test_the_textbook_noise_breaks_its_promise_where_ours_keeps_it():
    """sigma^2 = 8 log(1.25 / delta) R^2 / epsilon^2: true up to 8.42 at delta 1e-5, not above."""
    delta = 1e-5
    for epsilon, holds in ((8.4, True), (8.45, False), (20.0, False)):
        textbook = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert (gaussian_delta(textbook, epsilon) <= delta) is holds
    parameters = collection(epsilon="20", levels=())
    textbook = 2 * parameters.radius * math.sqrt(2 * math.log(1.25 / delta)) / 20
    assert parameters.stddev > textbook
    with pytest.raises(PrivacyError, match="do not report"):
        dataclasses.replace(parameters, stddev=textbook).check()


@pytest.mark.parametrize(
    ("private", "levels"),
    [((True,), ()), ((True, False), ("n", "y")), ((), ("x", "y", "z")), ((True,) * 5, ("n", "y"))],
)
def test_parameters_keep_their_promise_and_read_back(private, levels, tmp_path):
    parameters = collection(private=private, levels=levels)
    assert parameters.exact_delta() <= float(parameters.delta)
    assert parameters.exact_delta() >= 0.999 * float(parameters.delta)  # and no noise is wasted
    path = tmp_path / "parameters.json"
    path.write_bytes(parameters.to_json())
    assert LocalParameters.read(path) == parameters
    assert LocalParameters.read(path).digest == parameters.digest
    assert (parameters.variances > 0).tolist() == list(private)


def test_a_client_refuses_parameters_with_too_little_noise(tmp_path):
    stated = json.loads(collection().to_json())
    for change in (
        {"stddev": 0.99 * stated["stddev"]}, {"epsilon": "3.9"}, {"delta": "9E-6"},
        {"radius": 1.01 * stated["radius"]}, {"kept": stated["kept"] + 2**52},
        {"epsilon": "1E300"}, {"delta": "1"}, {"epsilon": "0"}, {"delta": "0.0011"},
        {"delta": "1E-300"}, {"delta": "0"}, {"epsilon": "20.5"},
    ):  # fmt: skip
        text = json.dumps(stated | change, indent=2, sort_keys=True) + "\n"
        with pytest.raises(PrivacyError, match="do not report"):
            LocalParameters.from_json(text.encode())


@pytest.mark.parametrize(
    "change",
    [
        {"stddev": 0.0}, {"stddev": math.inf}, {"radius": -1.0}, {"label": None}, {"kept": 0},
        {"radius": 1e300, "stddev": 1e-100}, {"stddev": 1e-10}, {"stddev": 1e13},
        {"levels": ("no",)}, {"levels": ("no", "no")}, {"features": ()}, {"label": "a"},
        {"label": "report_id"}, {"kept": 2**60},
    ],
)  # fmt: skip
def test_what_are_no_parameters_are_refused(change):
    with pytest.raises((ManifestError, PrivacyError)):
        dataclasses.replace(collection(), **change)


def test_settings_out_of_range_are_named():
    for change, named in (
        ({"epsilon": "0"}, "epsilon"), ({"epsilon": "21"}, "epsilon"),
        ({"radius": 0.0}, "radius"), ({"norm": -1.0}, "parameter_norm"),
        ({"norm": 1e200}, "parameter_norm"), ({"delta": "1E-300"}, "delta"),
        ({"delta": "0.999"}, "delta"), ({"delta": "sNaN"}, "delta"),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=rf"^{named}: expected a \w+ in \[.*\]"):
            collection(**change)
    with pytest.raises(SpecError, match="delta: expected 0"):
        collection(private=(False,), delta="1e-6")
    with pytest.raises(ManifestError, match="nothing in it is private"):
        collection(private=(False,), levels=())
    for low, high in ((1, 1), (2, 1), (0, math.inf), (-1.7e308, 1.7e308)):
        with pytest.raises(ManifestError, match="feature x"):
            Feature(name="x", low=low, high=high)


EDGES = [0.0, -1.0, 1e-310, 1e-6, 1.0, 1e6, 1e160, 1e300, math.inf, math.nan]


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(
    epsilon=st.sampled_from(["0", "0.001", "0.5", "20", "21", "NaN", "1E-999"]),
    delta=st.sampled_from(["0", "1E-300", "1E-30", "1E-6", "0.001", "0.5", "sNaN", "Infinity"]),
    radius=st.sampled_from([None, *EDGES]), norm=st.sampled_from(EDGES),
    private=st.sampled_from([(), (True,), (True, False), (True,) * 8]),
    levels=st.integers(0, 1000).map(lambda count: tuple(map(str, range(count)))),
)  # fmt: skip
@example(epsilon="20", delta="0.001", radius=1e-6, norm=1e6, private=(True,), levels=("n", "y"))
@example(epsilon="0.001", delta="1E-30", radius=1e6, norm=0.0, private=(True,), levels=("n", "y"))
def test_settings_end_in_a_kept_promise_or_in_our_errors(
    epsilon, delta, radius, norm, private, levels
):
    with contextlib.suppress(DPIWError):
        made = collection(
            epsilon=epsilon, delta=delta, radius=radius, norm=norm, private=private, levels=levels
        )
        assert made.exact_delta() <= float(delta) <= 1e-3


HOSTILE = st.sampled_from([
    None, True, 0, 1, -1, 2**59, 2**70, 10**400, 0.0, 5e-324, 1e-100, 1e300, -1.7e308, "", "x",
    "0", "0.999", "1E-300", "1E999", [], ["n"], ["n"] * 3, {}, [[]],
])  # fmt: skip


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(
    change=st.dictionaries(st.sampled_from([*STATED, "low", "high", "name"]), HOSTILE, min_size=1)
)
@pytest.mark.slow
def test_hostile_parameters_end_in_our_errors(change):
    feature = {"name": "a", "low": 0.0, "high": 10.0, "private": True}
    feature |= {name: value for name, value in change.items() if name in feature}
    stated = STATED | {"features": [feature]}
    stated |= {name: value for name, value in change.items() if name in STATED}
    with contextlib.suppress(DPIWError):
        parameters = LocalParameters.from_json(document_json(stated))
        person = dict.fromkeys(parameters.names, 1.0) | {str(parameters.label): "no"}
        privatise(*told_record(person, parameters), parameters=parameters, noise=SeededNoise(1))


def test_a_client_loads_numpy_alone():
    code = "import sys, dpiw.local; print(*{name.split('.')[0] for name in sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pandas", "pyarrow", "prefect", "torch", "sklearn", "pydantic", "yaml", "sqlalchemy",
             "dp_accounting", "opendp", "scipy", "cryptography"}  # fmt: skip
    assert not set(shown.stdout.split()) & heavy
