"""Which weights go with which generator, and releases whose weights ask the discriminator."""

import importlib.metadata

import numpy as np
import pytest

from dpiw.analysis.errors.law import law_of_release
from dpiw.errors import SpecError, StageFailedError
from dpiw.ledger import Ledger, StageState
from dpiw.methods.neural import clipping
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.table import plan_table
from dpiw.run import steps
from tests.support.whole_runs import draw, finish, loaded, prepared

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
        ("dpgan", GAME.replace("{", "{loss: wasserstein, "), LOGIT, r"critics are no ratios\)"),
    ],
)  # fmt: skip
def test_weights_that_ask_what_is_not_there_are_refused(
    workplace, generator, settings, weights, told
):
    with pytest.raises(SpecError, match=told):
        planned(workplace, generator=generator, settings=settings, weights=weights)


@pytest.mark.slow
def test_a_release_whose_weights_ask_the_discriminator(workplace):
    """Free weights leave the whole budget to the generator."""
    spec_of(workplace, generator="dpgan", settings=GAME, weights=LOGIT)
    run = prepared(workplace)
    assert [stage.name for stage in run.plan.stages] == ["fit_generator"]
    assert run.plan.forecast is None
    assert 2 * 0.999 < run.plan.composed["pld"] <= 2
    assert "weights: discriminator, free, no forecast" in plan_table(run.plan)
    steps.debias(draw(run))
    before = (run.directory / "weights.npz").read_bytes()
    release = loaded(finish(run))
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
    assert law_of_release(release) is None
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2


@pytest.mark.slow
def test_where_torch_does_not_work_network_weights_are_not_armed(make_workplace, monkeypatch):
    """The same run goes on where it does."""
    place = make_workplace(weights="dp_mlp, settings: {hidden: [8], steps: 20}")
    run = prepared(place)
    with monkeypatch.context() as patch:
        patch.setattr(clipping, "clipped_sum", lambda *_, **__: 1 / 0)
        with pytest.raises(StageFailedError):
            draw(run)
    states = {name: one.state for name, one in run.open_ledger().run(run.key).stages.items()}
    assert states["fit_weights"] is StageState.RESERVED
    assert states["fit_generator"] is StageState.COMMITTED
    certificate = loaded(finish(draw(run))).certificate
    assert certificate.stages[1].method == "dp_mlp"
    assert certificate.versions["torch"] == importlib.metadata.version("torch")
    assert any("double precision" in said for said in certificate.assumptions)
