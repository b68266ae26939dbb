"""Which weights go with which generator, and releases whose weights ask the discriminator."""

import warnings

import numpy as np
import pytest

from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.release import UnreliableWeightsWarning, load_release
from dpiw.errors import SpecError
from dpiw.ledger import Ledger
from dpiw.plan.assumptions import caveats
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.table import plan_table
from dpiw.release.verification import verify
from dpiw.run import steps
from tests.support.fits import fitted_at_once
from tests.support.whole_runs import draw, prepared

GAME = "{steps: 4, lot: 40, batch: 8, generator: [4], discriminator: [4]}"
PATE = "{rounds: 2, batch: 8, generator: [4], student: [4], teacher: 3}"
LOGIT = "{method: discriminator}"


def spec_of(place, *, generator, settings, weights):
    text = place.spec.read_text()
    text = text.replace("{method: histogram, settings: {bins: 4}}", "GENERATOR")
    text = text.replace("{method: beta_debiased, when_infeasible: keep}", weights)
    text = text.replace("GENERATOR", f"{{method: {generator}, settings: {settings}}}")
    place.spec.write_text(text)
    return load_spec(place.spec)


def planned(place, **choices):
    spec = spec_of(place, **choices)
    return compile_plan(spec, load_schema(spec))


@pytest.mark.parametrize(
    ("generator", "settings", "weights", "told"),
    [
        ("histogram", "{}", LOGIT, "method=discriminator: expected generator.method dpgan"),
        ("pategan", PATE, LOGIT, "method=discriminator: expected generator.method dpgan"),
        ("dpgan", GAME.replace("{", "{loss: wasserstein, "), LOGIT, "are no ratios"),
    ],
)  # fmt: skip
def test_weights_that_ask_what_is_not_there_are_refused(
    workplace, generator, settings, weights, told
):
    with pytest.raises(SpecError, match=told):
        planned(workplace, generator=generator, settings=settings, weights=weights)


def test_free_weights_leave_the_whole_budget_to_the_generator(workplace):
    plan = planned(workplace, generator="dpgan", settings=GAME, weights=LOGIT)
    assert [stage.name for stage in plan.stages] == ["fit_generator"]
    assert plan.weights is not None
    assert plan.forecast is None
    assert 2 * 0.999 < plan.epsilon_pld <= 2
    assert any("cost nothing" in said for said in plan.warnings)
    assert "weights: discriminator, free, no forecast" in plan_table(plan)


@pytest.mark.parametrize(
    ("generator", "sentences"),
    [
        ("bayes", ["through the target alone", "normal law within the bounds", "One draw"]),
        ("mst", ["a tree of them, chosen by noisy scores", "below three standard deviations"]),
        ("aim", ["a model of at most 10000000 cells", "filter of Gaussian differential privacy"]),
    ],
)
def test_a_generator_s_caveats_stand_in_its_certificate(workplace, generator, sentences):
    choices = {"generator": generator, "settings": "{}", "weights": "{method: none}"}
    with fitted_at_once():
        told = caveats(planned(workplace, **choices), weighted=False)
    for sentence in sentences:
        assert any(sentence in said for said in told)


@pytest.mark.nightly_cases("dpcgan")
@pytest.mark.parametrize(
    ("generator", "settings", "weights", "stages"),
    [("dpcgan", GAME, LOGIT, 1), ("dpgan", GAME, LOGIT, 1)],
)
def test_a_release_from_beginning_to_end(workplace, generator, settings, weights, stages):
    spec_of(workplace, generator=generator, settings=settings, weights=weights)
    run = draw(prepared(workplace))
    steps.debias(run)
    before = (run.directory / "weights.npz").read_bytes()
    steps.debias(run)
    assert (run.directory / "weights.npz").read_bytes() == before
    steps.diagnose(run)
    folder = steps.publish(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        release = load_release(folder)
    assert verify(folder)
    certificate = release.certificate
    assert len(certificate.stages) == stages
    assert certificate.stages[0].method == generator
    noises = {law["values"]: law["scale"] for law in certificate.stages[0].noise}
    assert all(scale > 0 for scale in noises.values())
    assert set(noises) == {"gradient", "marginals"}
    assert certificate.weights["published"]
    assert len(np.unique(np.asarray(release.log_weights))) > 1
    assert certificate.weights["stage"] == ("fit_generator" if stages == 1 else "fit_weights")
    assert any("ChaCha20" in said for said in certificate.assumptions)
    assert any("no interval" in said for said in certificate.caveats)
    assert law_of_release(release) is None
    spent = Ledger.open(workplace.ledger).spent("town")
    assert spent.epsilon == 2
