"""Which weights go with which generator, and releases whose weights ask the discriminator."""

import importlib.metadata
import warnings

import numpy as np
import pytest

from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.release import UnreliableWeightsWarning, load_release
from dpiw.errors import SpecError, StageFailedError
from dpiw.ledger import Ledger, StageState
from dpiw.methods.neural import clipping
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.table import plan_table
from dpiw.privacy import accounting
from dpiw.release.verification import verify
from dpiw.run import steps
from tests.support.whole_runs import draw, prepared

GAME = "{steps: 4, lot: 40, batch: 8, generator: [4], discriminator: [4]}"
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
        ("pategan", "{rounds: 2}", LOGIT, "method=discriminator: expected generator.method dpgan"),
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


def published(run):
    """What is found when rows are weighed and judged, and the release."""
    steps.debias(run)
    found = steps.diagnose(run)
    folder = steps.publish(run)
    assert verify(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        return found, load_release(folder)


def test_a_release_whose_weights_ask_the_discriminator(workplace):
    spec_of(workplace, generator="dpgan", settings=GAME, weights=LOGIT)
    run = draw(prepared(workplace))
    steps.debias(run)
    before = (run.directory / "weights.npz").read_bytes()
    _, release = published(run)
    assert (run.directory / "weights.npz").read_bytes() == before
    certificate = release.certificate
    (stage,) = certificate.stages
    assert stage.method == "dpgan"
    scales = {law["values"]: law["scale"] for law in stage.noise}
    assert scales.keys() == {"gradient", "marginals"}
    assert min(scales.values()) > 0
    assert certificate.weights["published"]
    assert certificate.weights["stage"] == "fit_generator"
    assert len(np.unique(np.asarray(release.log_weights))) > 1
    assert any("ChaCha20" in said for said in certificate.assumptions)
    assert any("no interval" in said for said in certificate.caveats)
    assert law_of_release(release) is None
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2


def test_a_release_with_network_weights(make_workplace, monkeypatch):
    """And where torch does not work, the weights' stage is not armed: the same run goes on."""
    place = make_workplace(weights="dp_mlp")
    settings = "settings: {hidden: [8], steps: 20, lot: 64, replays: 39}"
    text = place.spec.read_text().replace("method: dp_mlp,", f"method: dp_mlp, {settings},")
    place.spec.write_text(text)
    run = prepared(place)
    (stage,) = [stage for stage in run.plan.stages if stage.name == "fit_weights"]
    (event,) = stage.events
    assert (event.sampling_probability, event.count) == (64 / 400, 21)
    events = [event for one in run.plan.stages for event in one.events]
    assert 2 * (1 - 2e-4) < accounting.epsilon(events, delta=1e-6) <= 2
    with monkeypatch.context() as patch:
        patch.setattr(clipping, "clipped_sum", lambda *_, **__: 1 / 0)
        with pytest.raises(StageFailedError):
            draw(run)
    states = {name: one.state for name, one in run.open_ledger().run(run.key).stages.items()}
    assert states["fit_weights"] is StageState.RESERVED
    assert states["fit_generator"] is StageState.COMMITTED
    found, release = published(draw(run))
    certificate = release.certificate
    assert found["verdict"] == certificate.verdict in ("use with care", "do not use")
    assert found["signal_p_value"] is not None
    assert certificate.stages[1].method == "dp_mlp"
    assert certificate.versions["torch"] == importlib.metadata.version("torch")
    assert any("double precision" in said for said in certificate.assumptions)
    assert any("no interval" in said for said in certificate.caveats)
    assert np.all(np.isfinite(release.weights))
