"""A run that failed: what is told of it, and starts by itself, is what `reserve` then does."""

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from dpiw import errors
from dpiw.errors import DPIWError, GrantSpentError, StageFailedError
from dpiw.ledger import Ledger, RunRecord, StageState
from dpiw.ledger.accounts import Account
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import steps
from dpiw.run.continuation import Rerun, goes_on, rerun
from dpiw.run.locks import drawing
from dpiw.run.run import ReleaseRun
from tests.support.ledger import digest
from tests.support.noise import Cut
from tests.support.whole_runs import reserved, spent

KILLED = StageFailedError("fit_generator", StageFailedError.exit_code)
STATES = ("reserved", "armed", "lost", "committed")
STAGES = ("fit_generator", "fit_weights")


def brought(run: ReleaseRun, states: tuple[str, ...], *, outputs: bool, snapshot: bool) -> None:
    """Reserve, and bring each stage to a state, without reading or drawing anything."""
    steps.reserve(run)
    ledger = run.open_ledger()
    ledger.read(run.key, 1)
    for stage, state in zip(STAGES, states, strict=True):
        if state == "armed":
            ledger.arm(run.key, 1, stage)
    files(run, states, outputs=outputs, snapshot=snapshot)


def files(run: ReleaseRun, states: tuple[str, ...], *, outputs: bool, snapshot: bool) -> None:
    """Leave the files of these states in a run's folder, and no others."""
    wanted = {run.snapshot: snapshot}
    for stage, state in zip(STAGES, states, strict=True):
        wanted[run.measurement(stage)] = outputs and state in ("armed", "committed")
    for path, is_there in wanted.items():
        path.write_bytes(b"") if is_there else path.unlink(missing_ok=True)


class Asked:
    """A ledger that answers three questions, and writes nothing."""

    def __init__(self, ledger: Ledger, run: ReleaseRun, states: tuple[str, ...]) -> None:
        record, self._account = ledger.run(run.key), ledger.account("town")
        stages = {
            name: replace(record.stages[name], state=StageState(state), token_digest=digest(8))
            for name, state in zip(STAGES, states, strict=True)
        }
        self._record = replace(record, attempts=(replace(record.attempts[0], stages=stages),))

    def find_run(self, _: str) -> RunRecord:
        return self._record

    def account(self, _: str) -> Account:
        return self._account

    def recovery_of_run(self, *_: str) -> None:
        return None


def expected(
    states: tuple[str, ...], *, outputs: bool, snapshot: bool, attempts: int, fits: bool
) -> Rerun:
    """By the rules of docs/operations.md, "What a rerun does", said once more."""
    if "committed" in states and not outputs:
        return Rerun.NEVER
    lost = [s for s in states if s == "lost" or (s == "armed" and not outputs)]
    if not lost:
        return Rerun.FREE
    mixes = not snapshot and len(lost) < len(states)
    return Rerun.PAID if attempts > 1 and fits and not mixes else Rerun.NEVER


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("fits", [True, False])
def test_the_ledger_decides_in_every_state(make_workplace, monkeypatch, attempts, fits):
    """Every pair of states of both stages, with and without their outputs and the snapshot."""
    place = make_workplace(max_attempts=attempts)
    run = reserved(place)
    ledger = run.open_ledger()
    if not fits:
        monkeypatch.setattr(Account, "admits", lambda *_: 0)
    for states, outputs, snapshot in itertools.product(
        itertools.product(STATES, STATES), (False, True), (False, True)
    ):
        files(run, states, outputs=outputs, snapshot=snapshot)
        asked = Asked(ledger, run, states)
        monkeypatch.setattr(ReleaseRun, "open_ledger", lambda _, asked=asked: asked)
        rule = expected(states, outputs=outputs, snapshot=snapshot, attempts=attempts, fits=fits)
        assert rerun(run, KILLED) is rule, (states, outputs, snapshot)


@pytest.mark.parametrize("error", [
    DPIWError("x"), *(
        kind("x") for kind in (
            errors.SpecError, errors.SchemaError, errors.SourceError, errors.PrivacyError,
            errors.UnsupportedRelationError, errors.UncalibratedError, errors.NotPublishableError,
            errors.UnknownPopulationError, errors.LedgerConflictError, errors.LedgerTamperedError,
            errors.WeightError, errors.ManifestError, errors.ChecksumError, errors.SignatureError,
        )
    ),
    errors.BudgetExceededError("x", requested="1", remaining="0"),
    errors.AlreadyPaidError("x", run="1", period="once"),
    *(StageFailedError("ingest", code) for code in (10, 11, 12, 20, 21, 22, 24, 25, 32, 33)),
], ids=lambda error: f"{type(error).__name__}{getattr(error, 'code', '')}")  # fmt: skip
def test_what_starting_again_cannot_mend_is_for_a_person(workplace, error):
    assert rerun(ReleaseRun.prepare(workplace.spec, period=None), error) is Rerun.NEVER


@pytest.mark.parametrize("error", [
    KILLED, errors.LedgerError("x"), errors.ReleaseError("x"),
    GrantSpentError("x"), StageFailedError("ingest", 30),
    StageFailedError("fit_weights", 50),
], ids=lambda error: f"{type(error).__name__}{getattr(error, 'code', '')}")  # fmt: skip
def test_what_may_pass_starts_again(workplace, error):
    run = ReleaseRun.prepare(workplace.spec, period=None)
    assert rerun(run, error) is Rerun.FREE  # nothing is reserved yet
    steps.reserve(run)
    assert rerun(run, error) is Rerun.FREE


def test_a_draw_that_a_process_is_at_is_waited_for(workplace):
    run = ReleaseRun.prepare(workplace.spec, period=None)
    brought(run, ("armed", "reserved"), outputs=False, snapshot=True)
    with drawing(run, "fit_generator"):
        assert rerun(run, GrantSpentError("x")) is Rerun.FREE
    assert rerun(run, GrantSpentError("x")) is Rerun.NEVER


@pytest.mark.parametrize(("reads", "told"), [(1, "never"), (2, "never"), (3, "free"), (4, "free")])
def test_the_last_read_is_a_person_s(make_workplace, reads, told):
    """An ingest died: its read counts, and so would the rerun's."""
    run = ReleaseRun.prepare(make_workplace(reads=reads).spec, period=None)
    brought(run, ("reserved", "reserved"), outputs=False, snapshot=False)
    assert rerun(run, KILLED).value == told


def test_what_was_given_back_and_what_was_recovered_wait_for_a_person(workplace, monkeypatch):
    run = reserved(workplace)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "recovery_of_run", lambda *_: object())
        assert rerun(run, KILLED) is Rerun.NEVER
    run.open_ledger().void(run.key, 1)
    assert rerun(run, KILLED) is Rerun.NEVER


def test_a_ledger_out_of_reach_is_asked_by_the_rerun(workplace, monkeypatch):
    """Nothing is drawn without it; one that was tampered with is another matter."""
    run = ReleaseRun.prepare(workplace.spec, period=None)
    for kind, told in ((errors.LedgerError, Rerun.FREE), (errors.LedgerTamperedError, Rerun.NEVER)):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "open", mock.Mock(side_effect=kind("x")))
            assert rerun(run, errors.LedgerError("x")) is told


SAME = "next: the same command goes on"


class Killed(BaseException):
    """Instead of a signal, which no handler of ours catches."""


def begun(place: Any, attempts: int = 1) -> ReleaseRun:
    place.rewrite("max_attempts: 1", f"max_attempts: {attempts}")
    return reserved(place)


def cut_off(run: ReleaseRun) -> None:
    with pytest.raises(Killed):
        steps.fit_generator(run, noise=Cut(0, error=Killed()))


def test_before_a_draw_nothing_is_paid(workplace):
    run = begun(workplace)
    before = spent(workplace).epsilon
    for stage in ("ingest", "fit_generator"):
        assert goes_on(run, stage).startswith(f"{SAME}: this stage drew nothing")
    steps.reserve(run)
    assert spent(workplace).epsilon == before


def test_a_draw_on_record_is_not_paid_twice(workplace, monkeypatch):
    run = begun(workplace)
    steps.ingest(run)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):  # its output is durable, and the ledger does not know yet
            steps.fit_generator(run, noise=SecureNoise())
    before = spent(workplace).epsilon
    assert goes_on(run, "fit_generator").startswith(f"{SAME}: what this stage drew is on record")
    drawn = run.measurement("fit_generator").read_bytes()
    steps.reserve(run, told=pytest.fail)  # nothing is paid
    assert goes_on(run, "fit_generator").startswith(f"{SAME}: what this stage drew is on record")
    steps.fit_generator(run, noise=Cut(0))  # and nothing is drawn
    assert run.measurement("fit_generator").read_bytes() == drawn
    assert spent(workplace).epsilon == before


def test_a_draw_that_was_cut_off_is_paid_again_where_attempts_are_left(workplace):
    run = begun(workplace, attempts=2)
    steps.ingest(run)
    cut_off(run)
    before = spent(workplace).epsilon
    told = goes_on(run, "fit_generator")
    assert told.startswith(f"{SAME}, and pays again where the budget allows it: ")
    assert told.endswith("at most 1 more of max_attempts 2")
    lines: list[tuple[str, Any]] = []
    steps.reserve(run, told=lambda line: lines.append((line, spent(workplace).epsilon)))
    paid = spent(workplace).epsilon - before
    assert paid > 0
    ((line, spent_then),) = lines
    assert spent_then == before  # it was told before it was paid
    assert line.startswith("the draw of fit_generator was cut off and stays charged: ")
    assert f"is paid once more, epsilon={paid:.11f}, delta=" in line


def test_without_attempts_it_does_not_go_on(workplace):
    run = begun(workplace)
    steps.ingest(run)
    cut_off(run)
    told = goes_on(run, "fit_generator")
    assert told.startswith("next: the draw was cut off and stays charged; this run cannot draw")
    lines: list[str] = []
    with pytest.raises(GrantSpentError, match="max_attempts"):
        steps.reserve(run, told=lines.append)
    assert lines == []
