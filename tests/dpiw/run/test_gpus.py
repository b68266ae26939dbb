"""GPUs that are not there are asked for first; one that vanishes is gone on without, at no cost."""

from typing import Any

import pytest

from dpiw.errors import SpecError, StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.methods.neural import backend
from dpiw.run import steps
from dpiw.run.checkpoints import goes_on_without_gpu
from dpiw.run.run import ReleaseRun
from tests.support.devices import DEVICES, PosedGPU
from tests.support.noise import LOTS, Cut
from tests.support.whole_runs import ingested, prepared

GENERATOR = "dpgan, settings: {device: DEVICE, steps: 40, lot: 32, batch: 8, generator: [4]}"
WEIGHTS = "dp_mlp, settings: {device: DEVICE, hidden: [4], steps: 40, lot: 32}"
STEPS, EVERY, ACCOUNTED = 40, 2, 42


@pytest.fixture
def make_run(make_workplace):
    """A run, ready to train its generator where a word of the spec says."""

    def make(word, weights=WEIGHTS):
        place = make_workplace(weights=weights.replace("DEVICE", word))
        place.rewrite("histogram, settings: {bins: 4}", GENERATOR.replace("DEVICE", word))
        return ingested(place)

    return make


def train(run: ReleaseRun, stage: str = "fit_generator") -> int:
    noise = Cut(of=LOTS)
    getattr(steps, stage)(run, noise=noise)
    return noise.drawn


def lose(run: ReleaseRun, gpu: PosedGPU, stage: str = "fit_generator", after: int = 60) -> int:
    """Train until the GPU has been handed this many arrays; how many lots were drawn."""
    noise, gpu.vanishes_at = Cut(of=LOTS), gpu.handed + after
    with pytest.raises(StageFailedError) as failed:
        getattr(steps, stage)(run, noise=noise)
    assert failed.value.exit_code == 70  # as whatever else may depend on rows
    assert not gpu.there
    return noise.drawn


def record(run: ReleaseRun, stage: str = "fit_generator") -> Any:
    return run.open_ledger().run(run.key).stages[stage]


def entries(run: ReleaseRun, kind: EntryKind) -> int:
    return [entry.kind for entry in run.open_ledger().entries()].count(kind)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_what_may_use_a_gpu_goes_on_without_it_at_the_planned_cost(make_run, monkeypatch, device):
    """Both trainings of one release lose it: as many draws as are accounted, and on the record."""
    gpu, run = PosedGPU(monkeypatch, device), make_run("auto")
    before = run.open_ledger().spent("town")
    for stage in ("fit_generator", "fit_weights"):
        gpu.there = True
        drawn = lose(run, gpu, stage)
        kept = record(run, stage).checkpoint.step
        assert 0 < kept <= drawn < STEPS
        assert drawn - kept <= EVERY
        assert goes_on_without_gpu(run, stage)
        again = train(run, stage)  # in the same run: nothing has to be settled
        assert (again, record(run, stage).state) == (STEPS - kept, StageState.COMMITTED)
        assert drawn + again <= ACCOUNTED
        assert not goes_on_without_gpu(run, stage)
        if stage == "fit_generator":
            steps.draw_synthetic(run)
    assert run.open_ledger().spent("town") == before
    counts = [event.count for one in run.plan.stages for event in one.events]
    assert counts == [1] * 4 + [ACCOUNTED] * 2  # the histograms of four columns first
    assert (entries(run, EntryKind.RESUME), entries(run, EntryKind.LOSE)) == (2, 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_what_asks_for_a_gpu_waits_for_one_at_no_cost(make_run, monkeypatch, device):
    """Where there is none it is refused before it draws or resumes; another worker goes on."""
    gpu, run = PosedGPU(monkeypatch, device), make_run("cuda", "none")
    gpu.there = False
    before = run.open_ledger().spent("town")
    refused(run)
    assert record(run).state is StageState.RESERVED
    gpu.there = True
    drawn = lose(run, gpu)
    assert not goes_on_without_gpu(run, "fit_generator")
    refused(run)
    assert (record(run).state, record(run).resumes_left) == (StageState.ARMED, 1)
    gpu.there, gpu.vanishes_at = True, None
    steps.reserve(run)
    assert drawn + train(run) <= ACCOUNTED
    assert run.open_ledger().spent("town") == before


def refused(run: ReleaseRun) -> None:
    steps.reserve(run)
    with pytest.raises(SpecError, match="no CUDA device here"):
        train(run)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_a_checkpoint_of_either_loads_on_the_other(make_run, monkeypatch, device):
    """Of the CPU on a GPU; and of one that vanishes before its first lot, which loses no draw."""
    gpu, run = PosedGPU(monkeypatch, device), make_run("auto")
    gpu.there, dies = False, Cut(11, of=LOTS)
    with pytest.raises(StageFailedError):
        steps.fit_generator(run, noise=dies)
    assert (dies.drawn, gpu.handed) == (11, 0)
    gpu.there = True
    assert train(run) == STEPS - 10
    assert gpu.handed > STEPS - 10
    steps.draw_synthetic(run)
    assert lose(run, gpu, "fit_weights", after=0) == 0
    assert record(run, "fit_weights").checkpoint.step == 0
    assert train(run, "fit_weights") == STEPS


@pytest.fixture(params=["fit_generator", "fit_weights"])
def asking(request, make_workplace):
    def make(device):
        trains = request.param == "fit_weights"
        place = make_workplace(weights=WEIGHTS.replace("DEVICE", device) if trains else "none")
        if not trains:
            place.rewrite("histogram, settings: {bins: 4}", GENERATOR.replace("DEVICE", device))
        return prepared(place)

    return make


@pytest.mark.slow
def test_nothing_is_reserved_where_no_gpu_is(asking, monkeypatch):
    monkeypatch.setattr(backend, "_cuda_is_there", lambda **_: False)
    run = asking("cuda")
    with pytest.raises(SpecError, match="cuda"):
        steps.reserve(run)
    assert entries(run, EntryKind.RESERVE) == 0


def test_no_read_is_counted_where_a_gpu_has_gone(asking, monkeypatch):
    """It was there when the run was reserved, or is not on the machine that would read."""
    monkeypatch.setattr(backend, "_cuda_is_there", lambda *, computes=True: not computes)
    run = asking("cuda")
    steps.reserve(run)
    for _ in range(2):
        with pytest.raises(SpecError, match="cuda"):
            steps.ingest(run)
    assert run.open_ledger().account("town").unpaid_reads == 0
    assert entries(run, EntryKind.READ) == 0
