"""Intervals: what each part claims, checked by simulation in worlds where it is all there is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.coefficients_law import CoefficientsLaw, ridge_projection, spectrum, spread, tilt
from dpiw.analysis.intervals import variance_parts
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import ReleaseError
from dpiw.methods.weights.debiasing import debias_self_normalised
from dpiw.methods.weights.solver import Regression, solve
from dpiw.privacy.units import NoiseKind, NoiseLaw

BETA = np.array([1.0, -0.8, 0.0])


def rows(count, rng):
    """Synthetic rows: two uniforms on [-1/2, 1/2], with the constant 1/2."""
    return np.column_stack([rng.uniform(-0.5, 0.5, (count, 2)), np.full(count, 0.5)])


def world(x, coefficients, *, scale, kind=NoiseKind.GAUSSIAN, n0=10**9, penalty=1e-3):
    """A sample weighted by `coefficients`, with a declared law."""
    noise = NoiseLaw(kind=kind, scale=scale, dimension=3)
    law = CoefficientsLaw(
        features=x, coefficients=coefficients, noise=noise, penalty=penalty, nominal_rows=n0,
        fitting_rows=10**9, debias=True,
    )  # fmt: skip
    logs, _ = debias_self_normalised(x @ coefficients, x, noise)
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0] + 2 * x[:, 0] * x[:, 1]})
    return WeightedSample(table=table, weights=np.exp(logs), law=law)


def tilted_mean(b):
    """E[x] under the density proportional to exp(b x) on [-1/2, 1/2]."""
    return 0.5 / math.tanh(b / 2) - 1 / b


ESTIMANDS = {
    "mean": lambda s: analysis.mean(s, "a"),
    "quantile": lambda s: analysis.quantile(s, "b", 0.5),
    "linear": lambda s: analysis.linear_regression(s, "y", ["a", "b"]),
}


@pytest.mark.parametrize("kind", NoiseKind)
def test_noise_aware_covers_and_the_sandwich_does_not(kind):
    # Exact coefficients plus noise of the declared law; n0 and the fitting rows are so many, and
    # the penalty so small, that noise and rows are all the error there is. 800 releases: the
    # standard error of a coverage of 0.95 is 0.0077, the tolerance is 3 of them (false alarms:
    # 0.3%). A noise scale wrong by 3/2 either way would give 0.82 or 0.997.
    rng = np.random.default_rng(41)
    truth, inside, naive = tilted_mean(BETA[0]), 0, 0
    scale = {NoiseKind.GAUSSIAN: 0.3, NoiseKind.SPHERICAL: 0.15, NoiseKind.LAPLACE: 0.21}[kind]
    for _ in range(800):
        x = rows(1000, rng)
        exact = world(x, BETA, scale=scale, kind=kind)
        estimate = analysis.mean(world(x, BETA + exact.law.draw(rng), scale=scale, kind=kind), "a")
        aware, plain = estimate.interval(), estimate.interval(method="sandwich")
        assert aware.method == "noise_aware"
        inside += bool(aware.lower[0] <= truth <= aware.upper[0])
        naive += bool(plain.lower[0] <= truth <= plain.upper[0])
    assert inside / 800 == pytest.approx(0.95, abs=3 * 0.0077)
    assert naive / 800 < 0.75


@pytest.mark.parametrize("name", ESTIMANDS)
def test_the_noise_part_is_the_estimates_variance_over_the_law(name):
    # The same rows, 1,000 draws of the noise: standard error of a variance 4.5%, tolerance 18%.
    rng = np.random.default_rng(42)
    x = rows(2000, rng)
    sample = world(x, BETA, scale=0.1)
    estimate = ESTIMANDS[name](sample)
    drawn = np.array([estimate.refit(sample.law.reweighted(sample.law.draw(rng)))
                      for _ in range(1000)])  # fmt: skip
    np.testing.assert_allclose(variance_parts(estimate)["noise"], drawn.var(axis=0), rtol=0.18)


def test_the_private_part_is_the_sampling_variance_of_n0_rows():
    rng = np.random.default_rng(43)
    sample = world(rows(5000, rng), BETA, scale=0.1, n0=500)
    estimate = ESTIMANDS["linear"](sample)
    shares = sample.weights / sample.weights.sum()
    drawn = []
    for _ in range(600):
        counts = rng.multinomial(500, shares).astype(float)
        drawn.append(estimate.refit(counts))
    np.testing.assert_allclose(
        variance_parts(estimate)["private"], np.var(drawn, axis=0), rtol=0.25
    )


def fitted(rng, *, n0, count, penalty, scale):
    """A real fit: private rows of density exp(BETA x) against `count` synthetic rows."""
    pool = rows(8 * n0, rng)
    accepted = rng.random(len(pool)) < np.exp(pool @ BETA - 0.9)
    private = pool[accepted][:n0]
    problem = Regression(private=private, synthetic=rows(count, rng), synthetic_weight=n0 / count,
                         penalty=penalty)  # fmt: skip
    exact = solve(problem, tolerance=1e-6)
    return exact + rng.normal(scale=scale, size=3)


def test_spectrum_predicts_shrinkage_and_fitting_error():
    # The regression is real here. H and its shrinkage, estimated from weighted rows and public
    # numbers, predict where the coefficients end up, and how they scatter over fitting rows.
    rng = np.random.default_rng(44)
    n0, penalty = 3000, 150.0
    coefficients = np.array([fitted(rng, n0=n0, count=1000, penalty=penalty, scale=1e-9)
                             for _ in range(150)])  # fmt: skip
    mean = coefficients.mean(axis=0)
    sample = world(rows(20_000, rng), mean, scale=1e-9, n0=n0, penalty=penalty)
    law = replace(sample.law, fitting_rows=1000)
    base = spectrum(law, sample.weights)
    shrunk = base.directions @ (base.shrinkage * (base.directions.T @ BETA))
    np.testing.assert_allclose(mean[:2], shrunk[:2], rtol=0.08)
    assert np.all(np.abs(mean[:2]) < 0.9 * np.abs(BETA[:2]))
    # Scatter: of the fitting rows, and of as many more private rows as there are.
    share = base.fitting * (1 + 1000 / 3000)
    expected = np.diag(base.directions @ np.diag(share) @ base.directions.T)
    np.testing.assert_allclose(coefficients[:, :2].var(axis=0), expected[:2], rtol=0.45)


def test_tilt_undoes_the_shrinkage_of_a_real_fit():
    rng = np.random.default_rng(45)
    n0, penalty, scale = 20_000, 600.0, 0.02
    shrunk, undone, truth = [], [], tilted_mean(BETA[0])
    for _ in range(12):
        b = fitted(rng, n0=n0, count=n0, penalty=penalty, scale=scale)
        sample = world(rows(10_000, rng), b, scale=scale, n0=n0, penalty=penalty)
        shrunk.append(analysis.mean(sample, "a").value - truth)
        undone.append(analysis.mean(analysis.unshrunk(sample), "a").value - truth)
    assert np.mean(shrunk) < -0.010  # bias of the released weights
    assert abs(np.mean(undone)) < 0.25 * abs(np.mean(shrunk))


def test_unshrunk_weights_drop_what_is_only_noise():
    rng = np.random.default_rng(46)
    sample = world(rows(5000, rng), rng.normal(scale=0.2, size=3), scale=0.2)
    assert spread(spectrum(sample.law, sample.weights)) < 4 * 0.2**2
    tilted = tilt(sample.law, sample.weights)
    assert tilted.weights.std() < sample.weights.std()
    parts = analysis.mean(analysis.unshrunk(sample), "a").interval().parts
    assert set(parts) == {"rows", "private", "coefficients"}


@pytest.mark.parametrize("name", ESTIMANDS)
def test_bootstrap_agrees_with_linearisation(name):
    # 400 replicates: standard error of a width 3.5%; tolerance 25% for the curvature.
    rng = np.random.default_rng(47)
    sample = world(rows(2000, rng), BETA, scale=0.1, n0=2000, penalty=20.0)
    estimate = ESTIMANDS[name](sample)
    for pair in (("noise_aware", "noise_aware_bootstrap"), ("sandwich", "bootstrap")):
        closed, drawn = (estimate.interval(method=method, rng=rng) for method in pair)
        np.testing.assert_allclose(
            drawn.upper - drawn.lower, closed.upper - closed.lower, rtol=0.25
        )
        assert np.all((drawn.lower < estimate.values) & (estimate.values < drawn.upper))
    tilted = ESTIMANDS[name](analysis.unshrunk(sample))
    closed, drawn = (tilted.interval(method=m, rng=rng)
                     for m in ("noise_aware", "noise_aware_bootstrap"))  # fmt: skip
    np.testing.assert_allclose(drawn.upper - drawn.lower, closed.upper - closed.lower, rtol=0.25)


def test_support_of_what_is_and_is_not_in_the_features():
    rng = np.random.default_rng(48)
    sample = world(rows(5000, rng), BETA, scale=0.1, n0=10**6, penalty=1.0)
    inside = analysis.mean(sample, "a")
    assert sample.ridge_projection.support(inside.influence)[0] > 0.999
    outside = analysis.mean(sample, lambda t: t["a"] * t["b"])
    between = analysis.mean(sample, lambda t: t["a"] > 0.2)
    shares = [float(sample.ridge_projection.support(e.influence)[0])
              for e in (outside, between)]  # fmt: skip
    assert shares[0] < 0.2
    assert 0.4 < shares[1] < 0.9
    # A heavy penalty resolves nothing, whatever the features.
    heavy = replace(sample.law, penalty=1e9)
    assert ridge_projection(heavy, sample.weights).support(inside.influence)[0] < 0.01


def test_verdicts_follow_support():
    rng = np.random.default_rng(49)
    sample = world(rows(3000, rng), BETA, scale=0.1, n0=10**6, penalty=1.0)
    found = [analysis.mean(sample, column).interval()
             for column in ("a", lambda t: t["a"] > 0.2, lambda t: t["a"] * t["b"])]  # fmt: skip
    assert [one.verdicts[0] for one in found] == ["use", "use with care", "do not use"]
    assert found[0].reasons == ((),)
    assert "why not" not in found[0]._repr_html_()
    assert found[2].reasons[0][0].replace(">", "&gt;") in found[2]._repr_html_()
    for one in found[1:]:
        support = f"support {np.floor(100 * one.support[0]) / 100:.2f}"
        assert f"{support} (expected >= 0.9)" in one.reasons[0]
        assert f": {support}" in repr(one)
    # Shrinkage that is a large share of the variance is a guess: with care.
    shrunk = replace(sample, law=replace(sample.law, penalty=4e4))
    found = analysis.mean(shrunk, "a").interval()
    share = found.parts["shrinkage"] / sum(found.parts.values())
    assert "shrinkage is much of its error" in found.reasons[0]
    assert (found.verdicts[0], share[0] > 0.25, found.support[0] > 0.5) == (
        "use with care", True, True,
    )  # fmt: skip
    frame = analysis.mean(sample, "a").interval().frame()
    assert list(frame.columns) == ["estimate", "lower", "upper", "support", "verdict", "why"]
    assert frame["why"].tolist() == [""]
    for unknown in (analysis.mean((sample.table, None), "a").interval(),
                    analysis.mean(sample, "a").interval(method="sandwich"),
                    analysis.mean((sample.table, None), "a").interval(
                        method="bootstrap", rng=np.random.default_rng(1))):  # fmt: skip
        (why,) = unknown.frame()["why"]
        assert (
            why == "it holds the error of the synthetic rows alone: no privacy noise, and no people"
        )
        assert repr(unknown).splitlines()[-1] == f"not assessed: {why}"


def test_unshrunk_weights_leave_nothing_between_use_and_do_not_use_by_support():
    """What they add where features see little is a guess that their intervals do not hold."""
    rng = np.random.default_rng(49)
    sample = world(rows(3000, rng), BETA, scale=0.1, n0=10**6, penalty=1.0)
    for column, expected in (("a", "use"), (lambda t: t["a"] > 0.2, "do not use")):
        undone = analysis.mean(analysis.unshrunk(sample), column).interval()
        assert undone.verdicts == (expected,)
    assert 0.5 < undone.support[0] < 0.9
    assert undone.reasons[0][0].endswith("(expected >= 0.9)")


def test_a_table_says_why_and_groups_are_told_by_their_level():
    """A column for programs; for people a line for each set of faults, without the whole name."""
    rng = np.random.default_rng(50)
    sample = world(rows(3000, rng), BETA, scale=0.1, n0=10**6, penalty=1.0)
    table = sample.table.assign(g=np.where(sample.table["a"] > 0, "high", "low"))
    interval = analysis.mean(replace(sample, table=table), "b", by="g", where="a < 0.9").interval()
    assert "use" not in interval.verdicts
    assert interval.frame()["why"].tolist() == ["; ".join(texts) for texts in interval.reasons]
    for level, reasons in zip(("high", "low"), interval.reasons, strict=True):
        assert any(line.startswith("g=") and level in line and line.endswith("; ".join(reasons))
                   for line in repr(interval).splitlines())  # fmt: skip
    assert repr(interval).count("mean(b) where a < 0.9") == 2  # once in each row of the table
    assert "why" not in repr(interval).splitlines()[0]
    grouped = analysis.mean(replace(sample, table=table), "b", by="g")
    lines = analysis.joint(grouped, analysis.mean(sample, "b")).interval().told()
    assert not any(line.startswith("g=") for line in lines)  # of several estimates: whole names


def test_unstable_weights_cap_the_verdict():
    rng = np.random.default_rng(52)
    sample = world(rows(3000, rng), BETA, scale=0.1, n0=10**6, penalty=1.0)
    few = np.where(np.arange(3000) < 40, 1.0, 1e-6)  # effective sample size 40
    interval = analysis.mean(replace(sample, weights=few / few.mean()), "a").interval()
    assert interval.verdicts == ("do not use",)
    assert "effective sample size 40.0" in " ".join(interval.reasons[0])


def test_intervals_that_leave_noise_out_are_not_assessed():
    rng = np.random.default_rng(53)
    estimate = analysis.mean(world(rows(500, rng), BETA, scale=0.1, n0=10**6, penalty=1.0), "a")
    for method, verdict in (("sandwich", "not assessed"), ("bootstrap", "not assessed"),
                            ("noise_aware", "use"), ("noise_aware_bootstrap", "use")):  # fmt: skip
        assert estimate.interval(method=method, rng=rng, replicates=50).verdicts == (verdict,)


def test_a_table_with_weights_gets_the_sandwich_and_no_verdict():
    rng = np.random.default_rng(50)
    sample = world(rows(500, rng), BETA, scale=0.1)
    interval = analysis.mean((sample.table, sample.weights), "a").interval(level=0.9)
    assert (interval.method, interval.verdicts) == ("sandwich", ("not assessed",))
    error = analysis.mean((sample.table, sample.weights), "a").covariance()[0, 0] ** 0.5
    assert interval.upper[0] - interval.lower[0] == pytest.approx(2 * 1.6448536 * error)


def test_what_is_refused():
    rng = np.random.default_rng(51)
    sample = world(rows(200, rng), BETA, scale=0.1)
    estimate = analysis.mean(sample, "a")
    with pytest.raises(ReleaseError, match="between 0 and 1"):
        estimate.interval(level=95)
    with pytest.raises(ReleaseError, match="method: expected one of"):
        estimate.interval(method="exact")
    with pytest.raises(ReleaseError, match="expected rng"):
        estimate.interval(method="bootstrap")
    with pytest.raises(ReleaseError, match="law of these weights is not known"):
        analysis.unshrunk((sample.table, None))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"level": "bootstrap"}, "found 'bootstrap'; write method='bootstrap'"),
        ({"level": "0.9"}, "found '0.9'; write it without quotes"),
        ({"level": 95}, "found 95; write level=0.95"),
        ({"level": None}, "found None"),
        ({"method": "bootstrap", "replicates": 0}, "whole number >= 2, such as 400; found 0"),
        ({"method": "noise_aware_bootstrap", "replicates": 1.5}, "whole number >= 2"),
    ],
)
def test_settings_of_intervals_that_are_refused(settings, words):
    rng = np.random.default_rng(7)
    x = rows(200, rng)
    estimate = analysis.mean(world(x, BETA, scale=0.05), "a")
    with pytest.raises(ReleaseError, match=words):
        estimate.interval(rng=rng, **settings)


@pytest.mark.parametrize("other", ["mean", None, (1, 2)])
def test_intervals_are_of_estimates(other):
    with pytest.raises(ReleaseError, match="confidence_interval: expected an estimate, such as"):
        analysis.confidence_interval(other)
