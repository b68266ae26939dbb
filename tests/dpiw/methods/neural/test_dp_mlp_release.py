"""A whole release with `dp_mlp` weights: planned, charged, drawn, judged, published, verified."""

import importlib.metadata
import json
import warnings

import numpy as np
import pytest

from dpiw.analysis.release import UnreliableWeightsWarning, load_release
from dpiw.errors import StageFailedError
from dpiw.ledger import StageState
from dpiw.methods.neural import clipping
from dpiw.privacy import accounting
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.whole_runs import draw


def test_a_release_with_network_weights(make_workplace, monkeypatch):
    """And where torch does not work, the weights' stage is not armed: the same run goes on."""
    place = make_workplace(weights="dp_mlp")
    text = place.spec.read_text().replace(
        "weights: {method: dp_mlp,",
        "weights: {method: dp_mlp, settings: {hidden: [8], steps: 40, lot: 64, replays: 39},",
    )
    place.spec.write_text(text)
    run = ReleaseRun.prepare(place.spec, period=None)
    (stage,) = [stage for stage in run.plan.stages if stage.name == "fit_weights"]
    (event,) = stage.events
    assert (event.sampling_probability, event.count) == (64 / 400, 42)
    events = [event for one in run.plan.stages for event in one.events]
    assert 2 * (1 - 2e-4) < accounting.epsilon(events, delta=1e-6) <= 2
    with monkeypatch.context() as patch:
        patch.setattr(clipping, "clipped_sum", lambda *_, **__: 1 / 0)
        with pytest.raises(StageFailedError):
            draw(run)
    states = {name: one.state for name, one in run.open_ledger().run(run.key).stages.items()}
    assert states["fit_weights"] is StageState.RESERVED
    assert states["fit_generator"] is StageState.COMMITTED
    draw(run)
    steps.debias(run)
    found = steps.diagnose(run)
    folder = steps.publish(run)
    assert found["verdict"] in ("use with care", "do not use")
    assert found["signal_p_value"] is not None
    verified = verify(folder)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["stages"][1]["method"] == "dp_mlp"
    assert certificate["versions"]["torch"] == importlib.metadata.version("torch")
    assert any("double precision" in line for line in certificate["assumptions"])
    assert any("no interval" in line for line in certificate["caveats"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        release = load_release(folder)
    assert np.all(np.isfinite(release.weights))
    assert verified.certificate.verdict == found["verdict"]
