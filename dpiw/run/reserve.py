"""Hold a run's budget, and settle what an earlier attempt left behind.

Source: docs/privacy.md section 3; docs/operations.md, "What a rerun does".
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from dpiw.data.files import check_is_file, check_state_folder, sync_directory
from dpiw.errors import GrantSpentError
from dpiw.ledger import Ledger, Population, RunRecord, RunState, StageRecord, StageState
from dpiw.ledger.values import Charge
from dpiw.methods.neural.backend import check_device
from dpiw.plan.plan import Plan, promised_epsilon
from dpiw.plan.stages import PrivateMethods
from dpiw.privacy import accounting
from dpiw.privacy.randomness import check_noise_library
from dpiw.release.signing import load_private_key
from dpiw.run.ahead import (
    check_approved,
    check_label,
    check_mode,
    check_not_overtaken,
    check_not_paid,
    check_spends,
    source_fault,
)
from dpiw.run.checkpoints import check_checkpoints, last_checkpoint, old_copy
from dpiw.run.declared import check_paid, check_registered
from dpiw.run.draw import check_drawn
from dpiw.run.locks import drawing
from dpiw.run.restored import check_heads, drawn_under
from dpiw.run.run import ReleaseRun, RunRequest, ledger_url
from dpiw.run.withdrawal import revised


def reserve(
    run: ReleaseRun, told: Callable[[str], None] = lambda _: None, *, pay_again: bool = False
) -> None:
    """Hold the run's budget in the ledger before any private byte is read.

    Settles an earlier reservation: a durable output is committed; a training with a checkpoint
    stays ARMED and resumes, as often as was reserved; any other dead draw is LOST, stays charged,
    and is reserved again only if `max_attempts` and the budget allow. `told` receives the cost of
    another draw before it is paid. `pay_again`: a person agreed to pay this release and period
    again.

    Raises:
        AlreadyPaidError: another run drew for this release and period, without `pay_again`.
        ReleaseError: the signing key, or a folder beside the releases, cannot be read.
        UnknownPopulationError, LedgerError: no such population or ledger.
        UnsupportedRelationError, SpecError: the terms are not the population's, or a GPU is
            missing.
        LedgerConflictError: another stage was drawn, and not as the plan says.
        PrivacyError: the plan costs more than promised, or the noise library draws another law.
        NotApprovedError: a valid key did not sign, or a second one did not approve.
        BudgetExceededError: too little budget, or too many reads without a draw; nothing was
            written.
        LedgerTamperedError: the ledger lacks a published head, or did not arm a draw on disk.
        SourceError: the source is no regular file; no byte of it was read.
        WithdrawnError: the run's release was withdrawn.
        GrantSpentError: another process draws, no attempts are left, or the release was recovered.
    """
    check_spends(run.spec)
    key = load_private_key(Path(run.spec.signing_key))  # do not pay for what cannot be signed
    ledger = run.open_ledger(key=key)
    check_heads(run.spec, ledger)
    check_registered(run.spec, ledger)
    record = ledger.find_run(run.key)
    ledger.check_not_withdrawn(record)
    check_not_recovered(run, ledger, record)
    if record is None:
        revised(run.spec, ledger, own=run.release_id)  # do not pay for what cannot be certified
        if not pay_again:
            check_not_paid(run, ledger)
        check_mode(run.spec, ledger)
        _reserve_attempt(run, ledger, 1, frozenset(stage.name for stage in run.plan.stages))
        return
    if record.state is RunState.RESERVED:
        check_not_overtaken(run.spec, ledger, record)
    for stage in record.stages.values():
        if stage.state is StageState.ARMED:
            _settle(run, ledger, stage)
    record = ledger.run(run.key)
    again = frozenset(
        name
        for name, stage in record.stages.items()
        if stage.state in (StageState.LOST, StageState.VOIDED)
    )
    if again:
        if not pay_again:
            check_not_paid(run, ledger)
        check_mode(run.spec, ledger)
        check_drawn(run, ledger)  # drawn and redrawn are published together
        population = ledger.population(run.spec.population)
        _tell_paid_again(record, charge_of(run.plan, again, population), told)
        _reserve_attempt(run, ledger, len(record.attempts) + 1, again)


def _tell_paid_again(record: RunRecord, charge: Charge, told: Callable[[str], None]) -> None:
    stages = record.stages.items()
    lost = sorted(name for name, stage in stages if stage.state is StageState.LOST)
    if lost and record.counted_attempts < record.max_attempts:
        told(
            f"the draw of {' and '.join(lost)} was cut off and stays charged: to draw it again is"
            f" paid once more, {charge.cost} (max_attempts {record.max_attempts})"
        )


def charge_of(plan: Plan, names: frozenset[str], population: Population) -> Charge:
    """Return what an attempt of these stages pays: of all of them, what the spec promises."""
    covers_plan = names == {stage.name for stage in plan.stages}
    cost = plan.spec.cost if covers_plan else plan.stage_cost(names)
    return Charge(cost=cost, renyi=plan.stage_renyi(names) if population.renyi else None)


def check_ahead(request: RunRequest, *, pay_again: bool = False) -> None:
    """Refuse at once, for a person, what `reserve` would refuse; a run that began may go on.

    Raises as `reserve` (if costs are plain sums) and `check_label`; SpecError for a state folder
    open to others; SourceError with the source's path, which only the custodian sees.
    """
    check_label(request.spec, request.period)
    found = request.found()
    if found is not None:
        ledger = found.open_ledger()
        record = ledger.find_run(found.key)
        ledger.check_not_withdrawn(record)
        if record is None:
            if not pay_again:
                check_not_paid(found, ledger)
            signer = load_private_key(Path(found.spec.signing_key)).public
            check_approved(found, ledger, signer)
        return
    spec = request.spec
    check_spends(spec)
    PrivateMethods.of_spec(spec, request.schema)  # a faulty spec has the key of another run
    if fault := source_fault(spec, names_others=True):
        raise fault
    check_state_folder(Path(spec.state))
    ledger = Ledger.open(ledger_url(spec))
    check_registered(spec, ledger)
    ledger.check_not_withdrawn(ledger.find_run(request.key))
    revised(spec, ledger, own=f"{spec.name}-{request.period}-{request.key[:8]}")
    if not pay_again:
        check_not_paid(request, ledger)
    check_approved(request, ledger, load_private_key(Path(spec.signing_key)).public)
    account = ledger.account(spec.population)
    if not account.population.renyi:
        account.admit(Charge(cost=spec.cost))


def check_not_recovered(run: ReleaseRun, ledger: Ledger, record: RunRecord | None) -> None:
    """Raise GrantSpentError if the run's release was recovered, unless all its draws are here."""
    recovery = ledger.recovery_of_run(run.key, run.plan.digest, run.period)
    is_drawn = record is not None and all(
        stage.state is StageState.COMMITTED for stage in record.stages.values()
    )
    if recovery is not None and not is_drawn:
        raise GrantSpentError(
            f"this run's release was recovered by ledger entry {recovery.head.seq}: it was"
            " published, and is never drawn again. Use the published folder; another period or"
            " source.snapshot is a new run"
        )


def _reserve_attempt(run: ReleaseRun, ledger: Ledger, attempt: int, names: frozenset[str]) -> None:
    check_paid(run, ledger)
    check_noise_library()
    for name in sorted(names):
        check_device(run.plan.device(name), stage=name, computes=False)
    promised_epsilon(run.spec, run.plan.stages)  # the stored plan still keeps it
    if not run.snapshot.exists():  # the source will be read
        ledger.account(run.spec.population).check_readable()
        check_is_file(Path(run.spec.source.path))
    plan = run.plan
    charge = charge_of(plan, names, ledger.population(run.spec.population))
    ledger.reserve(
        population=run.spec.population,
        run_key=run.key,
        attempt=attempt,
        cost=charge.cost,
        stages={
            stage.name: [accounting.event_to_json(event) for event in stage.events]
            for stage in plan.stages
            if stage.name in names
        },
        plan_digest=plan.digest,
        period=run.period,
        release=run.spec.name,
        max_attempts=run.spec.max_attempts,
        resumptions={
            stage.name: stage.resumption
            for stage in plan.stages
            if stage.name in names and stage.resumption is not None
        },
        renyi=charge.renyi,
    )


def _settle(run: ReleaseRun, ledger: Ledger, stage: StageRecord) -> None:
    """Settle an armed stage of a dead process: commit its output, let it resume, or lose it."""
    with drawing(run, stage.stage):
        path = run.measurement(stage.stage)
        if not path.exists():
            check_checkpoints(run.directory, stage.stage, ledger.run(run.key))
            if last_checkpoint(run, stage) is None:
                ledger.lose(run.key, stage.attempt, stage.stage)
            return
        sync_directory(path.parent)  # the rename may not be durable yet
        data = path.read_bytes()
        if drawn_under(data) != stage.token_digest:
            raise old_copy("the workspace holds a draw that the ledger does not know", stage.stage)
        digest = hashlib.sha256(data).hexdigest()
        ledger.commit_found(run.key, stage.attempt, stage.stage, digest)
