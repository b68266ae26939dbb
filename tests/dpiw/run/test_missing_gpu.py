"""`device: cuda` without a GPU: refused before a reservation, and before a read is counted."""

import pytest

from dpiw.errors import SpecError
from dpiw.ledger import EntryKind
from dpiw.methods.neural import backend
from dpiw.run import steps
from dpiw.run.run import ReleaseRun

NETWORK = "{method: dpgan, settings: {device: DEVICE, steps: 5, lot: 8, batch: 4, generator: [4]}}"
WEIGHTS = "dp_mlp, settings: {device: DEVICE, hidden: [4], steps: 5, replays: 0}"


@pytest.fixture(params=["fit_generator", "fit_weights"])
def make_run(request, make_workplace):
    """A run of which one stage asks for a device."""

    def make(device):
        trains = request.param == "fit_weights"
        weights = WEIGHTS.replace("DEVICE", device) if trains else "none"
        place = make_workplace(weights=weights)
        text = place.spec.read_text()
        if not trains:
            own = NETWORK.replace("DEVICE", device)
            text = text.replace("{method: histogram, settings: {bins: 4}}", own)
            assert own in text
        place.spec.write_text(text)
        return ReleaseRun.prepare(place.spec, period=None)

    return make


def kinds(run: ReleaseRun) -> set[EntryKind]:
    return {entry.kind for entry in run.open_ledger().entries()}


def test_nothing_is_reserved_where_no_gpu_is(make_run, monkeypatch):
    monkeypatch.setattr(backend, "_cuda_is_there", lambda **_: False)
    run = make_run("cuda")
    with pytest.raises(SpecError, match="cuda"):
        steps.reserve(run)
    assert EntryKind.RESERVE not in kinds(run)


def test_no_read_is_counted_where_a_gpu_has_gone(make_run, monkeypatch):
    """It was there when the run was reserved, or is not on the machine that would read."""
    monkeypatch.setattr(backend, "_cuda_is_there", lambda *, computes=True: not computes)
    run = make_run("cuda")
    steps.reserve(run)
    for _ in range(2):
        with pytest.raises(SpecError, match="cuda"):
            steps.ingest(run)
    assert run.open_ledger().account("town").unpaid_reads == 0
    assert EntryKind.READ not in kinds(run)


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_who_need_not_have_one_goes_on(make_run, device, monkeypatch):
    monkeypatch.setattr(backend, "_cuda_is_there", lambda **_: False)
    run = make_run(device)
    steps.reserve(run)
    steps.ingest(run)
    assert run.snapshot.exists()
