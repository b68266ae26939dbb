"""MST and AIM in whole runs: published with measured weights, and resumed after a kill."""

import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.errors import StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.methods.generators.registry import GENERATORS
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun
from tests.support.fits import fitted_at_once
from tests.support.noise import Cut
from tests.support.whole_runs import finish, ingested

MEASURED = "measured, settings: {frequencies: 20, omega_seed: 1, base_rows: 2000}"


@pytest.fixture
def no_process():
    with fitted_at_once():
        yield


def ready_to_draw(make_workplace: Callable[..., Any], generator: str) -> ReleaseRun:
    place = make_workplace(weights=MEASURED)
    place.rewrite("{method: histogram, settings: {bins: 4}}", generator)
    return ingested(place)


def published(run: ReleaseRun) -> dict[str, Any]:
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    folder = finish(run)
    verify(folder)
    facts: dict[str, Any] = json.loads((folder / "certificate.json").read_text())
    return facts


@pytest.mark.nightly
@pytest.mark.usefixtures("no_process")
def test_mst_is_published_and_its_marginals_are_targets_of_the_weights(make_workplace):
    facts = published(ready_to_draw(make_workplace, "{method: mst}"))
    known = facts["diagnostics"]["measured"]["one_way"]
    assert known["variances"]
    assert all(np.isfinite(value) for value in known["variances"].values())


@pytest.mark.usefixtures("no_process")
def test_aim_goes_on_after_a_kill_at_the_cost_planned(make_workplace):
    run = ready_to_draw(make_workplace, "{method: aim, settings: {resumes: 1}}")
    before = run.open_ledger().spent("town")
    with pytest.raises(StageFailedError):
        steps.fit_generator(run, noise=Cut(3, of=("noisy_argmax",)))
    stage = run.open_ledger().run(run.key).stages["fit_generator"]
    assert stage.state is StageState.ARMED
    assert stage.checkpoint is not None
    assert stage.checkpoint.step > 0
    steps.reserve(run)
    steps.fit_generator(run, noise=SecureNoise())
    assert run.open_ledger().spent("town") == before
    kinds = [entry.kind for entry in run.open_ledger().entries()]
    assert (kinds.count(EntryKind.RESUME), kinds.count(EntryKind.LOSE)) == (1, 0)


@pytest.mark.nightly
def test_aim_fits_inside_its_confidential_stage(make_workplace):
    """In the processes of production: the stage's limits and its bare environment let jax run."""
    pytest.importorskip("mbi")
    run = ready_to_draw(make_workplace, "{method: aim, settings: {bins: 2}}")
    launch_stage("fit_generator", run.directory)
    stage = run.open_ledger().run(run.key).stages["fit_generator"]
    assert stage.state is StageState.COMMITTED
    steps.draw_synthetic(run)
    assert (run.directory / "synthetic_rows.parquet").exists()


@pytest.mark.parametrize("generator", ["mst", "aim"])
def test_nothing_is_charged_where_nothing_fits(make_workplace, monkeypatch, generator):
    """What fits is tried before the stage is armed, so the same run goes on once it is mended."""

    def broken():
        raise StageFailedError("fit", StageFailedError.exit_code)

    run = ready_to_draw(make_workplace, f"{{method: {generator}}}")
    module = importlib.import_module(GENERATORS[generator].__module__)
    monkeypatch.setattr(module, "check_fits", broken)
    with pytest.raises(StageFailedError, match="stage fit"):
        steps.fit_generator(run, noise=SecureNoise())
    stage = run.open_ledger().run(run.key).stages["fit_generator"]
    assert stage.state is StageState.RESERVED
    assert not run.measurement("fit_generator").exists()
    with fitted_at_once():
        steps.fit_generator(run, noise=SecureNoise())
    assert run.open_ledger().run(run.key).stages["fit_generator"].state is StageState.COMMITTED
