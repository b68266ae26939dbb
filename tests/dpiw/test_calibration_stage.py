"""A beta calibration on private rows as the third private stage of a run."""

import warnings
from decimal import Decimal

import numpy as np
import pytest

from dpiw import analysis, steps
from dpiw.analysis.recovery import law_of_release
from dpiw.audit import Severity, audit
from dpiw.certificate import Certificate
from dpiw.errors import (
    GrantSpentError,
    LedgerConflictError,
    LedgerTamperedError,
    ReleaseError,
    StageFailedError,
)
from dpiw.ledger import EntryKind, Ledger, RunState, StageState
from dpiw.randomness import SecureNoise
from dpiw.recovery import certificate_vector
from dpiw.release import UnreliableWeightsWarning, load_release
from dpiw.runs import ReleaseRun
from dpiw.stages import launch_stage
from dpiw.steps.locks import drawing
from dpiw.steps.postprocessing import FITTING_ROWS, committed_measurement, read_rows
from dpiw.verification import verify
from dpiw.weights.beta_map import calibration_features
from dpiw.workspace import purge, survey
from tests.conftest import CALIBRATED

STAGES = ("fit_generator", "fit_weights", "fit_calibration")


@pytest.fixture
def place(make_workplace):
    made = make_workplace(max_attempts=2)
    made.add_steps(CALIBRATED)
    return made


def prepared(place):
    return ReleaseRun.prepare(place.spec, period=None)


def until_weights(run):
    noise = SecureNoise()
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=noise)
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise)


def finish(run):
    steps.debias(run)
    steps.diagnose(run)
    folder = steps.publish(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        return folder, load_release(folder)


def states(place, run):
    found = Ledger.open(place.ledger).run(run.key).stages
    return {name: stage.state.value for name, stage in found.items()}


def test_a_release_with_three_private_stages(place):
    run = prepared(place)
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    folder, release = finish(run)
    certificate = release.certificate
    assert tuple(stage.stage for stage in certificate.stages) == STAGES
    assert certificate.epsilon == "2"  # one total, not a stage more
    assert certificate.accountants["pld"] <= 2 <= certificate.accountants["rdp"]
    assert states(place, run) == dict.fromkeys(STAGES, "committed")
    ledger = Ledger.open(place.ledger)
    assert ledger.verify().ok
    assert ledger.run(run.key).state is RunState.PUBLISHED
    assert ledger.spent("town").epsilon == 2

    third = certificate.stages[2]
    drawn = committed_measurement(run, "fit_calibration")
    assert third.method == "beta_calibration"
    (law,) = third.noise
    assert (law["law"], law["scale"]) == ("gaussian", drawn.facts["scale"])
    assert drawn.arrays["coefficients"].shape == (3,)
    a, b, c = run.plan.calibration.map(drawn)
    assert certificate.post_processing == (
        "debias b(x - mu) before the calibration",
        f"beta calibration (a={a:.4g}, b={b:.4g}, c={c:.4g}; a private stage of its own)",
        "debias b(g - mu)",
        "self-normalise",
    )
    assert any("no interval of dpiw.analysis includes it" in said for said in certificate.caveats)
    assert Certificate.from_json(certificate.to_json()) == certificate
    manifest = verify(folder).manifest
    assert manifest.facts.mechanisms[2] == "fit_calibration:beta_calibration"
    assert certificate_vector(certificate) == run.plan.stage_renyi(frozenset(STAGES))
    found = audit(f"sqlite:///{place.ledger}", [folder], place.root / "state/keys/test.pub")
    assert found.number(Severity.ERROR) == 0
    page = (folder / "report.html").read_text()
    assert "fit_calibration: beta_calibration" in page
    assert "beta calibration (a=" in page

    # once more: nothing is drawn, nothing is spent, the same bytes
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    assert finish(run)[0] == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_the_weights_are_the_calibrated_ratio_of_the_released_coefficients(place):
    """By hand from the three measurements: log w = g(u).c - sigma^2 |g - mu|^2/2 + constant."""
    run = prepared(place)
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    steps.debias(run)
    plan = run.plan
    published, fitting = (read_rows(run, name) for name in ("synthetic_rows.parquet", FITTING_ROWS))
    first = committed_measurement(run, "fit_weights")
    x = plan.weights.feature_map(plan.schema).matrix

    def mean_under(logs, rows):
        weights = np.exp(logs - logs.max())
        return weights @ rows / weights.sum()

    beta, scale = first.arrays["coefficients"], first.facts["scale"]
    fitted = x(fitting.scaled)
    mu = mean_under(fitted @ beta, fitted)
    rows = x(published.scaled)
    u = rows @ beta - scale**2 * ((rows - mu) ** 2).sum(axis=1) / 2
    second = committed_measurement(run, "fit_calibration")
    g = calibration_features(u, 2.0)
    logs = g @ second.arrays["coefficients"]
    centred = g - mean_under(logs, g)
    logs = logs - second.facts["scale"] ** 2 * (centred**2).sum(axis=1) / 2
    with np.load(run.directory / "weights.npz") as stored:
        released = stored["log_weights"]
    np.testing.assert_allclose(released - released[0], logs - logs[0], atol=1e-10)
    assert np.exp(released).mean() == pytest.approx(1)


def test_analysts_are_told_that_the_law_of_these_weights_is_not_known(place):
    run = prepared(place)
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    _, release = finish(run)
    assert law_of_release(release) is None
    found = analysis.mean(release, "age").interval()
    assert (found.method, found.verdicts) == ("sandwich", ("not assessed",))
    with pytest.raises(ReleaseError, match="law of these weights is not known"):
        analysis.mean(release, "age").interval(method="noise_aware")
    with pytest.raises(ReleaseError, match="beta calibrated weights cannot be replayed"):
        analysis.rehearse(
            release, lambda s: analysis.mean(s, "age"), rng=np.random.default_rng(1), replicates=20
        )
    _, size = analysis.bayes.scaled_weights(release)
    assert size.sum() <= 400  # no more evidence than nominal_rows


def test_nothing_is_armed_before_the_weights_are_released(place):
    run = prepared(place)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    with pytest.raises(StageFailedError, match="fit_weights"):
        steps.fit_calibration(run, noise=SecureNoise())
    assert states(place, run)["fit_calibration"] == "reserved"
    steps.fit_weights(run, noise=SecureNoise())
    with pytest.raises(StageFailedError, match="fit_calibration"):
        steps.debias(run)  # what was promised is not left out in silence
    with drawing(run, "fit_calibration"), pytest.raises(GrantSpentError, match="another process"):
        steps.fit_calibration(run, noise=SecureNoise())
    assert states(place, run)["fit_calibration"] == "reserved"


def test_a_lost_third_draw_is_reserved_again_alone(place):
    run = prepared(place)
    until_weights(run)
    ledger = Ledger.open(place.ledger)
    kept = {name: run.measurement(name).read_bytes() for name in STAGES[:2]}
    ledger.arm(run.key, 1, "fit_calibration")  # and the process dies here
    with pytest.raises(GrantSpentError, match="armed"):
        steps.fit_calibration(run, noise=SecureNoise())
    steps.reserve(run)
    record = ledger.run(run.key)
    again = record.attempts[1]
    assert set(again.stages) == {"fit_calibration"}
    assert again.held == run.plan.stage_cost(frozenset({"fit_calibration"}))
    assert 0 < again.held.epsilon < Decimal(1)
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    assert {name: run.measurement(name).read_bytes() for name in STAGES[:2]} == kept
    _, release = finish(run)
    first, second = release.certificate.attempts
    assert first["stages"] == {
        "fit_generator": "committed", "fit_weights": "committed", "fit_calibration": "lost",
    }  # fmt: skip
    assert second["stages"] == {"fit_calibration": "committed"}
    total = Decimal(first["epsilon"]) + Decimal(second["epsilon"])
    assert Decimal(release.certificate.epsilon) == total
    assert ledger.spent("town").epsilon == float(total)


def test_with_one_attempt_a_lost_third_draw_ends_the_run(make_workplace):
    place = make_workplace(max_attempts=1)
    place.add_steps(CALIBRATED)
    run = prepared(place)
    until_weights(run)
    Ledger.open(place.ledger).arm(run.key, 1, "fit_calibration")
    with pytest.raises(GrantSpentError, match="max_attempts=1"):
        steps.reserve(run)
    assert states(place, run)["fit_calibration"] == "lost"
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_a_durable_third_output_is_committed_and_not_drawn_again(place, monkeypatch):
    run = prepared(place)
    until_weights(run)

    def die(*_):
        raise KeyboardInterrupt  # after the draw is on the disk, before the ledger knows

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            steps.fit_calibration(run, noise=SecureNoise())
    drawn = run.measurement("fit_calibration").read_bytes()
    assert states(place, run)["fit_calibration"] == "armed"
    steps.reserve(run)
    assert states(place, run)["fit_calibration"] == "committed"
    steps.fit_calibration(run, noise=SecureNoise())
    assert run.measurement("fit_calibration").read_bytes() == drawn
    finish(run)
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_a_changed_third_output_is_refused(place):
    run = prepared(place)
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    path = run.measurement("fit_calibration")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(LedgerTamperedError, match="fit_calibration"):
        steps.debias(run)
    with pytest.raises(LedgerTamperedError, match="fit_calibration"):
        steps.fit_calibration(run, noise=SecureNoise())


def test_the_stage_has_a_process_of_its_own(place):
    run = prepared(place)
    until_weights(run)
    launch_stage("fit_calibration", run.directory)
    assert states(place, run)["fit_calibration"] == "committed"
    assert (run.directory / "log" / "fit_calibration.log").read_bytes() == b""
    kinds = [e.kind for e in Ledger.open(place.ledger).entries() if e.stage == "fit_calibration"]
    assert kinds == [EntryKind.ARM, EntryKind.COMMIT]


def test_a_purge_needs_the_third_lock_and_keeps_the_third_draw(place):
    run = prepared(place)
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    folder, _ = finish(run)
    (found,) = survey(place.root / "state")
    with drawing(run, "fit_calibration"), pytest.raises(GrantSpentError, match="working on it"):
        purge(found)
    purge(found)
    assert run.measurement("fit_calibration").exists()
    assert not run.snapshot.exists()
    place.source.unlink()
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    assert finish(run)[0] == folder


def test_a_lost_third_stage_is_not_drawn_on_newly_read_rows(place):
    run = prepared(place)
    until_weights(run)
    Ledger.open(place.ledger).arm(run.key, 1, "fit_calibration")
    run.snapshot.unlink()
    steps.reserve(run)
    with pytest.raises(LedgerConflictError, match="purged since"):
        steps.ingest(run)
    record = Ledger.open(place.ledger).run(run.key)
    assert record.attempts[1].stages["fit_calibration"].state is StageState.VOIDED
    assert record.held == run.plan.cost  # what was reserved to repeat it is given back


def test_dropped_weights_take_their_calibration_with_them(make_workplace):
    """`when_infeasible: none`: one stage, rows unweighted, and the whole budget its own."""
    place = make_workplace(epsilon="5")
    place.add_steps(CALIBRATED)
    text = place.spec.read_text().replace("when_infeasible: keep", "when_infeasible: none")
    place.spec.write_text(text.replace("epsilon: 2", "epsilon: 0.01"))
    run = prepared(place)
    assert [stage.name for stage in run.plan.stages] == ["fit_generator"]
    assert run.plan.calibration is None
    assert not run.draws("fit_calibration")
    until_weights(run)
    steps.fit_calibration(run, noise=SecureNoise())
    _, release = finish(run)
    assert release.certificate.verdict == "none"
    assert len(release.certificate.stages) == 1
    assert np.all(release.weights == 1)
