"""One rule of stability: of a release and of its intervals, over families of weights."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw import analysis
from dpiw.analysis.sample import WeightedSample
from dpiw.methods.weights.diagnostics import Stability, Verdict, diagnose, worst
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.measured.verdict import base_objections
from dpiw.methods.weights.measured.weighing import _judged

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
    return WeightedSample(table=pd.DataFrame({"x": x}), weights=weights, law=law)


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


class _Nothing:
    """A fit that finds what there is to find."""

    p_value, gain = 0.0, 1.0


@pytest.mark.parametrize("base", ["mild", "two values, nearly", "Pareto 2"])
@pytest.mark.parametrize("family", ALL)
@settings(examined, max_examples=4)
@given(rows=ROWS, seed=SEEDS)
def test_measured_weights_are_judged_by_base_and_published_rows(base, family, rows, seed):
    logs, base_logs = logs_of(family, rows, seed), logs_of(base, 10_000, seed)
    found = _judged(_Nothing(), logs, base_logs, np.zeros(rows), slice(None))
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
