"""The steps of a run without Prefect: draw once, resume, refuse, pay."""

import json
import signal
import subprocess
import sys
from decimal import Decimal

import pytest

from dpiw import errors
from dpiw.ledger import Ledger, RunState, StageState
from dpiw.plan import plan
from dpiw.plan.sections import UnitSpec
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import process, steps
from dpiw.run.launch import failure_file, failure_text
from dpiw.run.run import ReleaseRun
from tests.support.ledger import restore
from tests.support.noise import Cut
from tests.support.whole_runs import (
    draw,
    finish,
    ingested,
    loaded,
    prepared,
    publish_run,
    reloaded,
    reserved,
    spent,
)


def test_the_same_run_twice_publishes_once_and_costs_once(workplace):
    run, folder = publish_run(workplace.spec)
    release = loaded(folder)
    certificate = release.certificate
    assert len(release.table) == 300
    assert list(release.table.columns) == ["age", "income", "region", "ill"]
    assert release.weights.mean() == pytest.approx(1)
    assert release.weights.std() > 0
    assert (certificate.epsilon, certificate.delta) == ("2", "1E-6")
    assert certificate.accountants["pld"] <= 2
    assert [stage.stage for stage in certificate.stages] == ["fit_generator", "fit_weights"]
    ledger = Ledger.open(workplace.ledger)
    assert ledger.run(run.key).state is RunState.PUBLISHED
    assert ledger.verify().ok
    assert ledger.contains(certificate.ledger_head)
    # The same run again publishes nothing more and costs nothing more.
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert finish(draw(prepared(workplace))) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert spent(workplace).epsilon == 2
    assert len(list(workplace.releases.iterdir())) == 1


def test_no_private_byte_is_read_before_the_reservation(workplace):
    run = prepared(workplace)
    with pytest.raises(errors.LedgerError):
        steps.ingest(run)
    with pytest.raises(errors.LedgerError):
        steps.fit_generator(run, noise=SecureNoise())
    assert list(run.private.iterdir()) == []


def test_a_structural_failure_voids_the_reservation_and_leaves_nothing(workplace):
    workplace.source.write_text("age,income,region\n1,2,north\n")
    run = reserved(workplace)
    with pytest.raises(errors.SourceError):
        steps.ingest(run)
    assert spent(workplace).epsilon == 0
    assert not workplace.releases.exists()
    # the custodian mends the file and starts again: the voided attempt does not count
    workplace.source.write_text("age,income,region,ill\n1,2,north,true\n")
    draw(run)
    assert spent(workplace).epsilon == 2


def test_a_second_attempt_pays_again_for_the_lost_stage_alone(make_workplace):
    """And the certificate names the noise and both attempts."""
    place = make_workplace(max_attempts=2)
    run = ingested(place)
    Ledger.open(place.ledger).arm(run.key, 1, "fit_generator")
    draw(run)
    certificate, total = loaded(finish(run)).certificate, spent(place)
    again = run.plan.stage_cost(frozenset({"fit_generator"}))
    assert total.epsilon_units == run.plan.spec.cost.epsilon_units + again.epsilon_units
    assert total.delta_units == 2 * run.plan.spec.cost.delta_units
    assert certificate.epsilon == str(total).split(",")[0].removeprefix("epsilon=")
    assert [len(stage.noise) for stage in certificate.stages] == [1, 1]
    assert all(law["scale"] > 0 for stage in certificate.stages for law in stage.noise)
    first, second = certificate.attempts
    assert first["stages"] == {"fit_generator": "lost", "fit_weights": "committed"}
    assert second["stages"] == {"fit_generator": "committed"}
    assert Decimal(first["epsilon"]) + Decimal(second["epsilon"]) == Decimal(certificate.epsilon)


def test_a_committed_output_that_changed_is_refused(workplace):
    run = draw(prepared(workplace))
    path = run.measurement("fit_weights")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(errors.LedgerTamperedError):
        steps.debias(run)
    path.unlink()
    with pytest.raises(errors.LedgerTamperedError):
        steps.debias(run)


def test_postprocessing_needs_a_committed_draw(workplace):
    run = reserved(workplace)
    with pytest.raises(errors.StageFailedError):
        steps.draw_synthetic(run)


@pytest.mark.slow
def test_a_stage_killed_while_it_draws_is_settled_as_lost(workplace, tmp_path):
    run = ingested(workplace)
    script = tmp_path / "hang.py"
    script.write_text(
        "import sys, time\nfrom pathlib import Path\n"
        "from dpiw.run import steps\nfrom dpiw.privacy.randomness import SecureNoise\n"
        "from dpiw.run.run import ReleaseRun\n"
        "class Slow(SecureNoise):\n"
        "    def discrete_gaussian(self, *, scale, size):\n"
        "        print('drawing', flush=True)\n        time.sleep(600)\n"
        "steps.fit_generator(ReleaseRun.load(Path(sys.argv[1])), noise=Slow())\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(run.directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "drawing\n"
    with pytest.raises(errors.GrantSpentError):  # it is alive: hands off
        steps.reserve(run)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with pytest.raises(errors.GrantSpentError):
        steps.reserve(run)
    state = Ledger.open(workplace.ledger).run(run.key).stages["fit_generator"].state
    assert state is StageState.LOST
    assert spent(workplace).epsilon == 2


def test_a_run_folder_of_another_plan_is_refused(workplace):
    run = prepared(workplace)
    kept = json.loads((run.directory / "run.json").read_text())
    with pytest.raises(Exception, match="key does not belong"):
        reloaded(run, spec=kept["spec"] | {"synthetic_rows": 301})


def test_a_record_that_bounds_rows_by_another_column_than_the_person_is_refused(workplace):
    """Also if somebody gave it the key of what it states now."""
    run = prepared(workplace)
    changed = run.spec.model_copy(update={"unit": UnitSpec(max_rows=1, id_column="region")})
    stated = changed.model_dump(mode="json", by_alias=True)
    key = changed.run_key(run.plan.schema, run.period)
    with pytest.raises(errors.SpecError, match="id_column=region"):
        reloaded(run, spec=stated, key=key)


def test_a_run_that_kept_fields_of_earlier_specs_goes_on(workplace):
    run = prepared(workplace)
    kept = json.loads((run.directory / "run.json").read_text())
    earlier = {"public_truth": False, "back_fill": True}
    assert reloaded(run, spec=kept["spec"] | earlier).plan == run.plan
    assert prepared(workplace).plan == run.plan


def test_a_ledger_restored_to_before_a_draw_does_not_draw_again(workplace):
    """The copy is from between reservation and draw: nothing new is reserved, but nothing runs."""
    run = reserved(workplace)
    copy = workplace.ledger.read_bytes()
    draw(run)
    drawn = run.measurement("fit_generator").read_bytes()
    restore(workplace, copy)
    steps.reserve(run)
    with pytest.raises(errors.LedgerTamperedError):
        steps.fit_generator(run, noise=SecureNoise())
    assert run.measurement("fit_generator").read_bytes() == drawn


def test_a_ledger_restored_to_before_a_release_neither_draws_nor_publishes(workplace):
    run = reserved(workplace)
    copy = workplace.ledger.read_bytes()
    draw(run)
    finish(run)
    restore(workplace, copy)
    for step in (steps.reserve, steps.publish):
        with pytest.raises(errors.LedgerTamperedError):
            step(run)


def test_a_stored_effort_above_the_promise_is_refused(workplace):
    run = prepared(workplace)
    kept = json.loads((run.directory / "run.json").read_text())
    louder = reloaded(run, effort=kept["effort"] * 1.5)
    with pytest.raises(errors.PrivacyError):
        steps.reserve(louder)
    assert Ledger.open(workplace.ledger).find_run(run.key) is None
    steps.reserve(run)
    steps.ingest(run)
    reserved = Ledger.open(workplace.ledger).run(run.key)
    with pytest.raises(errors.LedgerConflictError):
        steps.fit_generator(louder, noise=SecureNoise())
    assert Ledger.open(workplace.ledger).run(run.key) == reserved


def test_a_loaded_plan_is_not_composed_again(workplace, monkeypatch):
    """But before anything is reserved and before each draw it is, whatever was kept.

    By Renyi DP, too, where the certificate states it, and nowhere else.
    """
    run = prepared(workplace)
    composed, looser = [], []

    def told(calls, real):
        return lambda events, *, delta: calls.append(len(events)) or real(events, delta=delta)

    accounting = plan.accounting
    monkeypatch.setattr(accounting, "epsilon", told(composed, accounting.epsilon))
    monkeypatch.setattr(accounting, "epsilon_rdp", told(looser, accounting.epsilon_rdp))
    again = ReleaseRun.load(run.directory)
    assert composed == []
    whole = [sum(len(stage.events) for stage in run.plan.stages)]
    steps.reserve(again)
    assert composed == whole
    draw(again)
    assert composed == whole * 3  # one reservation, two stages that draw
    assert looser == []
    certificate = loaded(finish(again)).certificate
    assert looser == whole
    assert certificate.accountants == run.plan.composed
    assert certificate.accountants["rdp"] > certificate.accountants["pld"] > 1


def test_a_failure_once_rows_are_open_has_one_code(workplace):
    """Whatever a mechanism raises after arming, operators see the same code."""
    run = ingested(workplace)

    broken = Cut(0, error=errors.PrivacyError("an entry leaves the lattice range"))
    with pytest.raises(errors.StageFailedError) as caught:
        steps.fit_generator(run, noise=broken)
    assert caught.value.exit_code == 70


def test_a_second_ingest_does_not_replace_the_snapshot(workplace):
    run = ingested(workplace)
    first = run.snapshot.read_bytes()
    workplace.source.write_text("age,income,region,ill\n1,2,north,true\n")
    steps.ingest(run)
    assert run.snapshot.read_bytes() == first


def test_the_row_of_a_structural_fault_stands_in_the_confidential_log_alone(workplace, monkeypatch):
    """Its number, and no cell; what is told on screens stops before it."""
    lines = workplace.source.read_text().splitlines()
    lines.insert(3, "1,2,canary-ragged")
    workplace.source.write_text("\n".join(lines) + "\n")
    run = reserved(workplace)
    monkeypatch.setattr(process, "_confine", lambda _: None)  # this process has its own limits
    assert process.run_stage("ingest", run.directory) == errors.SourceError.exit_code
    fault = "a row has more or fewer cells than the first line, or exceeds source.max_cell_bytes"
    public = f"SourceError: the CSV file is ragged: {fault}"
    row = "row 3 of the data (the header, and empty lines, are not counted)"
    written = failure_file(run.directory, "ingest")
    assert written.read_text() == f"{public}\nfor the custodian alone: {row}\n"
    assert failure_text(run.directory, "ingest") == public
    assert failure_text(run.directory, "fit_weights") is None
    written.unlink()
    kept = [file for file in workplace.root.rglob("*") if file.is_file()]
    assert not [file for file in kept if b"of the data" in file.read_bytes()]
