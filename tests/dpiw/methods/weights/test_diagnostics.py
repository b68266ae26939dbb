"""Effective sample sizes, tails and verdicts: of a release and of its intervals."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpiw import analysis
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import WeightError
from dpiw.methods.weights import diagnostics
from dpiw.methods.weights.diagnostics import (
    RULE,
    Stability,
    Verdict,
    diagnose,
    effective_sample_size,
    fit_generalised_pareto,
    k_hat,
    k_hat_threshold,
    objection,
    tail_length,
    worst,
)
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.measured.verdict import base_objections
from dpiw.methods.weights.measured.weighing import _judged


def test_kish_by_hand():
    for shift in (-2000.0, 0.0, 2000.0):
        assert effective_sample_size(np.log([1.0, 1.0, 2.0]) + shift) == pytest.approx(16 / 6)
    assert effective_sample_size(np.full(7, 123.0)) == pytest.approx(7)
    diagnosis = diagnose(np.log([1.0, 1.0, 2.0]))
    assert diagnosis.design_effect == pytest.approx(3 * 6 / 16)


@pytest.mark.parametrize("rows", [5, 24, 25, 26, 200, 3000])
@pytest.mark.parametrize("ties", [False, True])
def test_k_hat_is_of_the_largest_weights_in_order(rows, ties):
    """The same to the last bit as of all weights, sorted."""
    logs = np.random.default_rng(rows).normal(size=rows) * 2
    logs = np.round(logs, 1) if ties else logs
    weights, count = np.sort(np.exp(logs - logs.max())), tail_length(rows)
    excesses = weights[-count:] - weights[-count - 1]
    excesses = excesses[excesses > 1e-12]
    shape = k_hat(logs)
    assert (shape is not None) is (rows >= diagnostics.MIN_ROWS and excesses.size >= 5)
    if shape is not None:
        assert shape == fit_generalised_pareto(excesses)[0]


def test_a_tail_of_ties_has_a_shape():
    """A point of the grid is then zero, where the profile is 0/0 with a limit."""
    tied = np.r_[0.5, np.ones(109)]
    moved = tied * np.r_[np.ones(109), 1 + 1e-7]
    assert fit_generalised_pareto(tied) == pytest.approx(fit_generalised_pareto(moved), rel=1e-4)


def test_tail_length_and_threshold():
    assert [tail_length(n) for n in (25, 225, 10_000)] == [5, 45, 300]
    assert k_hat_threshold(100) == 0.5
    assert k_hat_threshold(10_000) == 0.7
    assert k_hat_threshold(1) == pytest.approx(1 - 1 / math.log10(2))


def mild(rows=2000):
    return 0.3 * np.random.default_rng(55).standard_normal(rows)


@pytest.mark.parametrize(
    ("log_weights", "verdict"),
    [(np.zeros(1000), Verdict.USE), (mild(), Verdict.USE), (np.zeros(10), Verdict.CARE)],
    ids=["equal", "mild", "few rows"],
)
def test_weights_that_hardly_differ_are_fine_if_rows_are_many(log_weights, verdict):
    diagnosis = diagnose(log_weights)
    assert diagnosis.verdict is verdict
    assert bool(diagnosis.reasons) is (verdict is Verdict.CARE)


@pytest.mark.parametrize(
    ("rows", "share", "verdict"),
    [
        (4000, 0.6, Verdict.USE),
        (4000, 0.2, Verdict.CARE),
        (4000, 0.02, Verdict.DO_NOT_USE),
        (100, 0.4, Verdict.DO_NOT_USE),  # fewer than 50 effective rows
    ],
)
def test_effective_sample_size_enters_the_verdict(rows, share, verdict):
    # Two weights only: the tail is constant, so that k-hat stays out of the way.
    diagnosis = diagnose(np.where(np.arange(rows) < share * rows, 0.0, -40.0))
    assert diagnosis.k_hat is None
    assert diagnosis.effective_sample_size == pytest.approx(share * rows)
    assert diagnosis.verdict is verdict


@pytest.mark.parametrize(("shape", "verdict"), [(0.85, Verdict.CARE), (1.4, Verdict.DO_NOT_USE)])
def test_heavy_tails_enter_the_verdict(shape, verdict, monkeypatch):
    monkeypatch.setattr(diagnostics, "ESS_SHARE_CARE", 0.0)
    monkeypatch.setattr(diagnostics, "ESS_CARE", 0.0)
    draws = stats.genpareto.rvs(shape, size=5000, random_state=np.random.default_rng(56))
    diagnosis = diagnose(np.log1p(draws))
    assert diagnosis.verdict is verdict
    assert any("k-hat" in reason for reason in diagnosis.reasons)


def test_further_findings_are_added():
    findings = [*objection(True, False, "few"), *objection(False, True, "no signal")]
    diagnosis = diagnose(mild()).judged_with(findings, rule=" And more.")
    assert (diagnosis.reasons, diagnosis.rule) == (("few", "no signal"), RULE + " And more.")
    assert diagnosis.verdict is Verdict.DO_NOT_USE


def test_k_hat_is_that_of_the_raw_weights():
    raw = np.log1p(stats.genpareto.rvs(1.0, size=5000, random_state=np.random.default_rng(56)))
    clipped = np.minimum(raw, np.log(3.0))
    assert diagnose(clipped, raw=raw).k_hat == k_hat(raw)
    assert diagnose(clipped).k_hat is None
    assert diagnose(clipped, raw=raw).effective_sample_size == effective_sample_size(clipped)


def test_json_names_every_number():
    document = json.loads(json.dumps(diagnose(mild()).to_json(), allow_nan=False))
    assert (document["verdict"], document["reasons"], document["rule"]) == ("use", [], RULE)
    assert (document["rows"], document["noise"]) == (mild().size, None)


@pytest.mark.parametrize(
    "bad", [np.zeros(0), np.array([np.nan]), np.array([0.0, -np.inf]), np.zeros((2, 2))]
)
def test_log_weights_that_are_none(bad):
    with pytest.raises(WeightError):
        diagnose(bad)


def test_rule_states_the_constants():
    for number in (
        diagnostics.K_HAT_USE, f"{diagnostics.ESS_SHARE_USE:.0%}",
        f"{diagnostics.ESS_SHARE_CARE:.0%}", diagnostics.MIN_ROWS, f">= {diagnostics.ESS_CARE:.0f}",
        f"k-hat < {diagnostics.K_HAT_CARE:.0f}",
    ):  # fmt: skip
        assert str(number) in RULE


TIED = {
    "constant": lambda rng, n: np.ones(n),
    "rounding": lambda rng, n: 1 + 1e-12 * rng.standard_normal(n),
    "nearly tied": lambda rng, n: 1 + 10 ** rng.uniform(-9, -2.5) * rng.standard_normal(n),
    "nearly tied, long tail": lambda rng, n: 1 + 1e-9 * rng.exponential(1, n) ** 3,
    "two values": lambda rng, n: np.where(np.arange(n) < n // 40, 3.0, 1.0),
    "two values, nearly": lambda rng, n: (
        np.where(np.arange(n) < n // 40, 3.0, 1.0)
        * np.exp(10 ** rng.uniform(-9, -1) * rng.standard_normal(n))
    ),
    "three values, nearly": lambda rng, n: (
        rng.choice([1.0, 1.5, 3.0], n, p=[0.9, 0.07, 0.03]) * np.exp(1e-5 * rng.standard_normal(n))
    ),
    "bounded": lambda rng, n: rng.uniform(0.5, 1.5, n),
    "mild": lambda rng, n: np.exp(0.3 * rng.standard_normal(n)),
}
"""Of 500 rows and more, all stable."""

HEAVY = {
    "Pareto 1.2": lambda rng, n: rng.random(n) ** -1.2,
    "Pareto 2": lambda rng, n: rng.random(n) ** -2.0,
    "one row": lambda rng, n: np.where(np.arange(n) == 0, n * 10.0, 1.0),
    "ties and a tail": lambda rng, n: 1 + 0.1 * (rng.random(n) ** -1.5),
    "uneven": lambda rng, n: np.exp(3 * rng.standard_normal(n)),
}
"""Of which few rows carry the weight."""

MIDDLING = {"log-normal": lambda rng, n: np.exp(rng.uniform(0.5, 2) * rng.standard_normal(n))}
ALL = TIED | HEAVY | MIDDLING
ROWS = st.sampled_from([1, 10, 24, 25, 30, 100, 499, 1000, 4000])
SEEDS = st.integers(0, 10**6)
examined = settings(derandomize=True, database=None, deadline=None, max_examples=12)


def logs_of(family, rows, seed):
    return np.log(ALL[family](np.random.default_rng(seed), rows))


def sample_of(logs, *, base=None):
    """A release with these weights, of a base without faults where none is given."""
    weights = np.exp(logs - logs.max())
    weights /= weights.mean()
    x = np.linspace(-0.5, 0.5, logs.size)
    law = MeansLaw(
        features=x[:, None], weights=weights, covariance=np.eye(1) * 1e-6, rows=1e6, credit=100.0,
        base_rows=np.inf if base is None else base.effective_sample_size,
        base_k_hat=None if base is None else base.k_hat,
    )  # fmt: skip
    return WeightedSample(frame=pd.DataFrame({"x": x}), weights=weights, law=law)


def kept_back(sample, where=None):
    """Why an interval is not `use`, of what is about the weights' stability."""
    reasons = analysis.mean(sample, "x", where=where).interval().reasons[0]
    return [why for why in reasons if any(word in why for word in WORDS)]


WORDS = ("effective sample size", "k-hat", "rows are too few", "are behind the weights")


@pytest.mark.parametrize("family", TIED)
@examined
@given(rows=st.integers(500, 6000), seed=SEEDS)
def test_weights_without_a_tail_are_stable(family, rows, seed):
    stable = Stability.of(logs_of(family, rows, seed))
    assert stable.findings == []
    assert stable.k_hat is None or stable.k_hat < 0.7


@pytest.mark.parametrize("family", HEAVY)
def test_weights_that_few_rows_carry_are_not(family):
    """Of 60 draws two may be `use with care`: of 900 one was."""
    found = [
        [kind for kind, _ in Stability.of(logs_of(family, rows, seed)).findings]
        for rows in (500, 1000, 4000)
        for seed in range(20)
    ]
    assert all(found)
    assert sum(Verdict.DO_NOT_USE not in kinds for kinds in found) <= 2


def test_a_tail_counts_where_the_effective_size_says_nothing():
    """4,000 rows that are all but tied, and a Pareto tail whose largest weighs as much as 46."""
    shares = (np.arange(4000) + 0.5) / 4000
    stable = Stability.of(np.log(1 + 5e-4 * (shares**-1.3 - 1) / 1.3))
    assert stable.effective_sample_size > 0.5 * 4000
    assert stable.k_hat == pytest.approx(1.3, abs=0.15)
    assert [kind for kind, _ in stable.findings] == [Verdict.DO_NOT_USE]


@pytest.mark.parametrize("family", ALL)
@examined
@given(rows=ROWS, seed=SEEDS)
def test_a_release_and_its_intervals_agree(family, rows, seed):
    """Same findings in the same words, whatever the question, for all rows and for some."""
    logs = logs_of(family, rows, seed)
    found = diagnose(logs)
    for where in (None, "x < 0.4") if rows > 1 else (None,):
        kept = kept_back(sample_of(logs), where)
        assert [why for why in kept if "are behind the weights" not in why] == [*found.reasons]
    verdicts = [kind for kind, _ in Stability.of(logs).findings]
    assert found.verdict is max(verdicts, key=list(Verdict).index, default=Verdict.USE)


@pytest.mark.parametrize("base", ["mild", "two values, nearly", "Pareto 2"])
@pytest.mark.parametrize("family", ALL)
@settings(examined, max_examples=4)
@given(rows=ROWS, seed=SEEDS)
def test_measured_weights_are_judged_by_base_and_published_rows(base, family, rows, seed):
    logs, base_logs = logs_of(family, rows, seed), logs_of(base, 10_000, seed)
    nothing = SimpleNamespace(p_value=0.0, gain=1.0, tilt=SimpleNamespace(distance=0.0))
    found = _judged(nothing, logs, base_logs, np.zeros(rows), slice(None))
    far = SimpleNamespace(p_value=0.0, gain=1.0, tilt=SimpleNamespace(distance=9.0))
    reasons = _judged(far, logs, base_logs, np.zeros(rows), slice(None)).reasons
    assert [why for why in reasons if "3 times as far" in why] == [*{*reasons} - {*found.reasons}]
    assert len(reasons) == len(found.reasons) + 1
    of_base = Stability.of(base_logs)
    assert sorted(kept_back(sample_of(logs, base=of_base))) == sorted(found.reasons)
    both = [*base_objections(diagnose(logs).effective_sample_size, of_base.effective_sample_size,
                             of_base.k_hat), *Stability.of(logs).findings]  # fmt: skip
    order = list(Verdict)
    assert found.verdict is max((kind for kind, _ in both), key=order.index, default=Verdict.USE)
    assert found.k_hat == of_base.k_hat
    if base == "Pareto 2":
        assert worst(base_objections(1e9, 1e9, of_base.k_hat)) is Verdict.DO_NOT_USE
        assert any("of the base weights" in why for why in found.reasons)
