"""What an analyst recovers from a published folder alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw import analysis
from dpiw.analysis.bootstrap import mechanism_of
from dpiw.analysis.weight_distribution import law_of_release
from dpiw.errors import ReleaseError
from tests.dpiw.analysis.conftest import publish

REFERENCE = [
    "{method: beta_noised, when_infeasible: keep}",
    "{method: beta_debiased, when_infeasible: keep}",
    "{method: beta_debiased, when_infeasible: keep, normalisation: unnormalised}",
    "{method: beta_debiased, when_infeasible: keep, post_processing: [{step: temper, alpha: 0.5}]}",
]
ASKED = [
    lambda s: analysis.mean(s, "age"),
    lambda s: analysis.median(s, "income"),
    lambda s: analysis.value_counts(s, "region"),
    lambda s: analysis.total(s, "age", population=400),
    lambda s: analysis.linear_regression(s, "income", ["age", "ill"]),
    lambda s: analysis.t_test(s, "age", by="ill").estimate,
]


@pytest.mark.parametrize("weights", REFERENCE)
def test_reference_weights_have_no_noise_aware_interval(make_workplace, weights):
    """Every estimate says so, in the name of the method that has one; none is `use`."""
    place = make_workplace()
    text = place.spec.read_text()
    before = "{method: beta_debiased, when_infeasible: keep}"
    assert before in text
    place.spec.write_text(text.replace(before, weights))
    _, release = publish(place)
    assert law_of_release(release) is None
    for ask in ASKED:
        estimate = ask(release)
        interval = estimate.interval()
        assert interval.method == "sandwich"
        assert set(interval.parts) == {"rows"}
        assert set(interval.verdicts) == {"not assessed"}
        assert all("measured" in why for reasons in interval.reasons for why in reasons[1:])
        assert {len(reasons) for reasons in interval.reasons} == {2}
        for method in ("noise_aware", "noise_aware_bootstrap"):
            with pytest.raises(ReleaseError, match="method: measured"):
                estimate.interval(method=method, rng=np.random.default_rng(1))
        other = estimate.interval(method="bootstrap", rng=np.random.default_rng(1), replicates=20)
        assert set(other.verdicts) == {"not assessed"}


def test_a_total_of_unnormalised_weights_takes_their_scale(make_workplace):
    place = make_workplace()
    text = place.spec.read_text()
    place.spec.write_text(
        text.replace("when_infeasible: keep", "when_infeasible: keep, normalisation: unnormalised")
    )
    _, release = publish(place)
    total = analysis.total(release, "age")
    weights = np.exp(np.asarray(release.log_weights))
    assert total.value == pytest.approx(400 * np.mean(weights * release.table["age"]))
    assert total.verdict == "not assessed"


def test_no_weights_no_law(publishing):
    release = publishing(weights="none")[1]
    assert law_of_release(release) is None
    assert analysis.mean(release, "age").value == pytest.approx(release.table["age"].mean())


def test_estimates_agree_with_the_release_itself(released):
    naive = np.average(released.table["age"], weights=released.weights)
    assert released.mean("age").value == pytest.approx(naive)
    with pytest.raises(ReleaseError, match="hold no scale"):
        analysis.total(released, "age")


@pytest.mark.parametrize("generator", ["histogram", "privbayes", "bayes"])
def test_the_mechanism_is_rebuilt_from_the_certificate(publishing, generator):
    run, release = publishing(generator=generator)
    mechanism = mechanism_of(release)
    unit = release.certificate.unit
    for ours, theirs in (
        (mechanism.recipe.generator, run.plan.generator),
        (mechanism.recipe.weights, run.plan.weights),
    ):
        ours_events = ours.events(schema=mechanism.recipe.schema, unit=unit)
        theirs_events = theirs.events(schema=mechanism.recipe.schema, unit=unit)
        for a, b in zip(ours_events, theirs_events, strict=True):
            for name, value in vars(b).items():
                assert getattr(a, name) == pytest.approx(value, rel=1e-6)
    assert mechanism.recipe.weights.parameters()["penalty"] == pytest.approx(
        run.plan.weights.parameters()["penalty"], rel=1e-6
    )


def test_a_certificate_that_cannot_be_rebuilt_is_refused(released):
    stages = tuple(dataclasses.replace(s, events=()) for s in released.certificate.stages)
    certificate = dataclasses.replace(released.certificate, stages=stages)
    with pytest.raises(ReleaseError, match="states no noise that tells"):
        mechanism_of(dataclasses.replace(released, certificate=certificate))
    certificate = dataclasses.replace(released.certificate, stages=())
    with pytest.raises(ReleaseError, match="no stage fit_"):
        mechanism_of(dataclasses.replace(released, certificate=certificate))


def test_a_rehearsal_measures_bias_and_spread(released):
    rng = np.random.default_rng(32)
    rehearsal = analysis.rehearse(
        released, lambda s: analysis.mean(s, "age"), rng=rng, replicates=20
    )
    assert rehearsal.replays.shape == (20, 1)
    assert rehearsal.failed == 0
    low, high = rehearsal.interval()
    middle = (low + high) / 2
    np.testing.assert_allclose(middle, rehearsal.values - rehearsal.bias)
    assert np.all(high - low > 2 * 1.96 * rehearsal.spread)
    # A stand-in table of 400 rows alone spreads by sd/20; noise and shrinkage add to it.
    assert rehearsal.spread[0] > released.table["age"].std() / 20 / 2
    with pytest.raises(ReleaseError, match="at least 20"):
        analysis.rehearse(released, lambda s: analysis.mean(s, "age"), rng=rng, replicates=3)
    with pytest.raises(ReleaseError, match="expected a release, or its mechanism"):
        analysis.rehearse((released.table, None), lambda s: analysis.mean(s, "age"), rng=rng)


def test_what_fails_in_a_replay_alone_is_counted(released):
    """Replays know the schema, so that levels keep their order; a group may be empty in some."""
    declared, calls = [], []

    def estimator(sample):
        declared.append(dict(sample.declared))
        calls.append(sample)
        nobody = len(calls) in (2, 3)  # the first is of the release itself
        return analysis.mean(sample, "age", where="age > 1000" if nobody else None)

    rng = np.random.default_rng(33)
    rehearsal = analysis.rehearse(released, estimator, rng=rng, replicates=22)
    assert rehearsal.failed == 2
    assert all(columns == released.sample.declared for columns in declared)
