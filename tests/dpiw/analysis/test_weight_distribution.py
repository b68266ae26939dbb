"""What an analyst recovers from a published folder alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw import analysis
from dpiw.analysis.bootstrap import mechanism_of
from dpiw.analysis.weight_distribution import law_of_release, recover
from dpiw.errors import ReleaseError
from dpiw.methods.weights.debiasing import debias_self_normalised, debias_unnormalised
from dpiw.plan.plan import WEIGHTS_STAGE
from dpiw.privacy.units import NoiseKind, NoiseLaw
from dpiw.run.weigh import committed_measurement


def test_law_and_coefficients_follow_from_the_folder(published):
    run, release = published
    law = law_of_release(release)
    drawn = committed_measurement(run, WEIGHTS_STAGE)
    assert law.noise.scale == drawn.facts["scale"]
    assert law.penalty == drawn.facts["penalty"]
    assert law.nominal_rows == 400
    # Up to directions no row shows (a one-hot block sums to a constant): compare log ratios.
    exact = law.features @ drawn.arrays["coefficients"]
    log_ratios = law.features @ law.coefficients
    np.testing.assert_allclose(log_ratios - log_ratios.mean(), exact - exact.mean(), atol=1e-6)
    np.testing.assert_allclose(
        law.reweighted(np.zeros(len(law.coefficients))), release.weights, rtol=1e-6
    )


@pytest.mark.parametrize("kind", NoiseKind)
@pytest.mark.parametrize("use", ["self", "unnormalised", "none"])
def test_recovery_inverts_every_debiasing(kind, use):
    rng = np.random.default_rng(31)
    x = rng.uniform(-0.5, 0.5, (200, 4))
    b = rng.normal(size=4)
    law = NoiseLaw(kind=kind, scale=0.3, dimension=4)
    if use == "self":
        logs, steps = debias_self_normalised(x @ b, x, law)[0], {"debias b(x - mu)"}
    elif use == "unnormalised":
        logs, steps = debias_unnormalised(x @ b, x, law), {"debias b(x)"}
    else:
        logs, steps = x @ b - 3.0, set()
    np.testing.assert_allclose(recover(logs, x, law, steps=steps), b, atol=1e-7)


def test_weights_that_do_not_follow_are_refused(released):
    changed = released.log_weights + 0.01 * np.sin(np.arange(len(released.log_weights)))
    with pytest.raises(ReleaseError, match="do not follow"):
        law_of_release(dataclasses.replace(released, log_weights=changed))


def test_steps_that_are_not_modelled_leave_no_law(released):
    certificate = dataclasses.replace(released.certificate, post_processing=("clip at 3",))
    release = dataclasses.replace(released, certificate=certificate)
    assert law_of_release(release) is None
    interval = analysis.mean(release, "age").interval()
    assert interval.method == "sandwich"
    assert interval.verdicts == ("not assessed",)
    with pytest.raises(ReleaseError, match="law of these weights is not known"):
        analysis.mean(release, "age").interval(method="noise_aware")


def test_no_weights_no_law(publishing):
    release = publishing(weights="none")[1]
    assert law_of_release(release) is None
    assert analysis.mean(release, "age").value == pytest.approx(release.table["age"].mean())


def test_estimates_agree_with_the_release_itself(released):
    naive = np.average(released.table["age"], weights=released.weights)
    assert released.mean("age").value == pytest.approx(naive)
    with pytest.raises(ReleaseError, match="hold no scale"):
        analysis.total(released, "age")


def test_total_of_unnormalised_weights(released):
    weights = {**released.certificate.weights, "normalisation": "unnormalised"}
    certificate = dataclasses.replace(
        released.certificate, weights=weights, post_processing=("debias b(x)",)
    )
    law = law_of_release(released)
    logs = debias_unnormalised(law.features @ law.coefficients, law.features, law.noise)
    release = dataclasses.replace(
        released, certificate=certificate, log_weights=logs, weights=np.exp(logs)
    )
    total = analysis.total(release, "age")
    assert total.value == pytest.approx(400 * np.mean(np.exp(logs) * release.table["age"]))
    # The total moves with the scale of the weights: a shift of every coefficient is felt.
    step = 1e-6 * np.ones(len(law.coefficients))
    moved = 400 * np.mean(np.exp(logs + law.features @ step) * release.table["age"])
    slope = (total.sample.weights[:, None] * total.influence).T @ law.features / len(logs)
    assert moved - total.value == pytest.approx(float(slope[0] @ step), rel=1e-3)
    assert np.all(np.array(list(total.interval().parts.values())) >= 0)
    # Noise in the scale is in the interval; 400 draws: standard error of a variance 7%.
    rng, law = np.random.default_rng(91), total.sample.law
    small = dataclasses.replace(law, noise=dataclasses.replace(law.noise, scale=1e-3))
    sample = dataclasses.replace(total.sample, law=small)
    interval = dataclasses.replace(total, sample=sample).interval()
    base = np.exp(logs) * release.table["age"].to_numpy(dtype=float)
    drawn = [400 * np.mean(base * np.exp(law.features @ small.draw(rng))) for _ in range(400)]
    assert interval.parts["noise"][0] == pytest.approx(np.var(drawn), rel=0.3)
    # Ratios take the factor that is right for ratios.
    assert analysis.mean(release, "age").value == pytest.approx(released.mean("age").value)
    with pytest.raises(ReleaseError, match="hold no scale"):
        total.interval(method="noise_aware_bootstrap", rng=rng)
    with pytest.raises(ReleaseError, match="hold no scale"):
        analysis.total(analysis.unshrunk(release), "age")


def test_unshrunk_weights_see_no_more_than_the_released_ones(released):
    sample = analysis.weighted_sample(released)
    assert sample is analysis.weighted_sample(released)  # made once
    moved = analysis.unshrunk(sample)
    influence = analysis.mean(moved, "age").influence
    assert analysis.mean(moved, "age").interval().support == sample.ridge_projection.support(
        influence
    )


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
