"""What an analyst recovers from a published folder alone."""

import numpy as np
import pytest

from dpiw import analysis
from dpiw.analysis.errors.law import law_of_release
from dpiw.errors import ReleaseError
from dpiw.release.manifest import REPLICATES
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


@pytest.fixture(params=REFERENCE)
def reference(request, make_workplace, kept):
    """A release of the paper's weights, once for all tests."""
    if request.param not in kept:
        place = make_workplace()
        text, before = place.spec.read_text(), "{method: beta_debiased, when_infeasible: keep}"
        assert before in text
        place.spec.write_text(text.replace(before, request.param))
        kept[request.param] = publish(place)[1]
    return kept[request.param]


def test_reference_weights_have_no_noise_aware_interval(reference):
    """Every estimate says so, in the name of the method that has one; none is `use`."""
    assert law_of_release(reference) is None
    for ask in ASKED:
        estimate = ask(reference)
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
