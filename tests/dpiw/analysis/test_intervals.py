"""Intervals: what each part claims, checked by simulation in worlds where it is all there is."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import ReleaseError
from dpiw.methods.weights.weigh import normalised
from dpiw.release.manifest import REPLICATES
from tests.dpiw.analysis.conftest import publish
from tests.support.worlds import KnownMeans, at_weights

BETA = np.array([1.0, -0.8])


def rows(count, rng):
    """Synthetic rows: two uniforms on [-1/2, 1/2]."""
    return rng.uniform(-0.5, 0.5, (count, 2))


def world(x, coefficients, *, scale, rows=1e9):
    """A sample of log-linear weights, in a law where noise of the means is all beside samples."""
    weights = np.exp(normalised(x @ coefficients))
    law = KnownMeans(
        features=x, weights=weights, covariance=scale**2 * np.eye(2), rows=rows, credit=1e-3
    )
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0] + 2 * x[:, 0] * x[:, 1]})
    return WeightedSample(frame=table, weights=weights, law=law)


ESTIMANDS = {
    "mean": lambda s: analysis.mean(s, "a"),
    "deviation": lambda s: analysis.std(s, "b"),
    "linear": lambda s: analysis.linear_regression(s, "y", ["a", "b"]),
}


@pytest.mark.parametrize("name", ESTIMANDS)
@pytest.mark.slow
def test_drawn_errors_agree_with_linearisation(name):
    # 400 replicates: standard error of a standard deviation 3.5%; 25% for the curvature.
    rng = np.random.default_rng(47)
    sample = world(rows(2000, rng), BETA, scale=0.01, rows=2000)
    estimate, w = ESTIMANDS[name](sample), sample.weights
    at = at_weights(ESTIMANDS[name], sample)
    again = [at(w * rng.exponential(size=w.size)) for _ in range(400)]
    replicates = sample.law.replicates(400, rng).variance(at, w)
    for method, drawn in (("sandwich", np.var(again, axis=0)), ("noise_aware", replicates)):
        stated = sum(estimate.interval(method=method).parts.values())
        np.testing.assert_allclose(np.sqrt(drawn), np.sqrt(stated), rtol=0.25)


def test_verdicts_follow_support():
    rng = np.random.default_rng(49)
    sample = world(rows(3000, rng), BETA, scale=0.01, rows=1e6)
    found = [analysis.mean(sample, column).interval()
             for column in ("a", lambda t: t["a"] > 0.38, lambda t: t["a"] * t["b"])]  # fmt: skip
    assert [one.verdicts[0] for one in found] == ["use", "use with care", "do not use"]
    assert found[0].reasons == ((),)
    assert found[2].reasons[0][0].replace(">", "&gt;") in found[2]._repr_html_()
    for one in found[1:]:
        shown = np.floor(100 * one.support[0]) / 100
        assert any(f"support {shown:.2f}" in reason for reason in one.reasons[0])
    frame = found[0].frame()
    assert list(frame.columns) == ["estimate", "lower", "upper", "support", "verdict", "why"]
    assert frame["why"].tolist() == [""]


def test_a_table_says_why_and_groups_are_told_by_their_level():
    rng = np.random.default_rng(50)
    sample = world(rows(3000, rng), BETA, scale=0.01, rows=150.0)  # 75 people a group
    table = sample.table.assign(g=np.where(sample.table["a"] > 0, "high", "low"))
    interval = analysis.mean(replace(sample, frame=table), "b", by="g", where="a < 0.9").interval()
    assert "use" not in interval.verdicts
    assert interval.frame()["why"].tolist() == ["; ".join(texts) for texts in interval.reasons]
    for level, reasons in zip(("high", "low"), interval.reasons, strict=True):
        assert any(line.startswith("g=") and level in line and line.endswith("; ".join(reasons))
                   for line in repr(interval).splitlines())  # fmt: skip


def test_unstable_weights_cap_the_verdict():
    rng = np.random.default_rng(52)
    sample = world(rows(3000, rng), BETA, scale=0.01, rows=1e6)
    few = np.where(np.arange(3000) < 40, 1.0, 1e-6)  # effective sample size 40
    interval = analysis.mean(replace(sample, weights=few / few.mean()), "a").interval()
    assert interval.verdicts == ("do not use",)
    assert "effective sample size 40.0" in " ".join(interval.reasons[0])


def test_intervals_that_leave_noise_out_are_not_assessed():
    rng = np.random.default_rng(53)
    sample = world(rows(500, rng), BETA, scale=0.01, rows=1e6)
    with_law, without = (analysis.mean(s, "a") for s in (sample, (sample.table, None)))
    for estimate, method, verdict in (
        (with_law, "sandwich", "not assessed"), (with_law, "noise_aware", "use"),
        (without, "sandwich", "not assessed"),
    ):  # fmt: skip
        interval = estimate.interval(method=method)
        assert interval.verdicts == (verdict,)
        assert (interval.frame()["why"] == "").all() == (verdict == "use")


REFERENCE = [
    "{method: beta_debiased, when_infeasible: keep}",
    "{method: beta_debiased, when_infeasible: keep, normalisation: unnormalised}",
    pytest.param("{method: beta_noised, when_infeasible: keep}", marks=pytest.mark.nightly),
    pytest.param(
        "{method: beta_debiased, when_infeasible: keep,"
        " post_processing: [{step: temper, alpha: 0.5}]}",
        marks=pytest.mark.nightly,
    ),
]
ASKED = [
    lambda s: analysis.mean(s, "age"),
    lambda s: analysis.median(s, "income"),
    lambda s: analysis.value_counts(s, "region"),
    lambda s: analysis.total(s, "age", population=400),
    lambda s: analysis.linear_regression(s, "income", ["age", "ill"]),
    lambda s: analysis.t_test(s, "age", by="ill").estimate,
]


@pytest.fixture(scope="module", params=REFERENCE)
def reference(request, make_workplace):
    """A release of the paper's weights, once for all tests."""
    place = make_workplace()
    place.rewrite("{method: beta_debiased, when_infeasible: keep}", request.param)
    return publish(place)[1]


@pytest.mark.slow
def test_reference_weights_have_no_noise_aware_interval(reference):
    assert law_of_release(reference) is None
    for ask in ASKED:
        estimate = ask(reference)
        interval = estimate.interval()
        assert interval.method == "sandwich"
        assert set(interval.parts) == {"rows"}
        assert set(interval.verdicts) == {"not assessed"}
        assert all("measured" in why for reasons in interval.reasons for why in reasons[1:])
        assert {len(reasons) for reasons in interval.reasons} == {2}
        with pytest.raises(ReleaseError, match="method: measured"):
            estimate.interval(method="noise_aware")


def test_only_a_total_of_unnormalised_weights_takes_their_scale(reference):
    if any("self-normalise" in step for step in reference.certificate.post_processing):
        with pytest.raises(ReleaseError):
            analysis.total(reference, "age")
        return
    total = analysis.total(reference, "age")
    weights = np.exp(np.asarray(reference.log_weights))
    assert total.value == pytest.approx(400 * np.mean(weights * reference.table["age"]))
    assert total.verdict == "not assessed"


def test_no_weights_no_law(publishing):
    release = publishing(weights="none")[1]
    assert law_of_release(release) is None
    assert analysis.mean(release, "age").value == pytest.approx(release.table["age"].mean())
    assert release.replicate_weights is None
    assert REPLICATES not in release.verified.manifest.files
