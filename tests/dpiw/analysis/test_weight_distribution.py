"""What an analyst recovers from a published folder alone."""

from __future__ import annotations

import numpy as np
import pytest

from dpiw import analysis
from dpiw.analysis.errors.law import law_of_release
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
