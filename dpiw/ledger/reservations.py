"""Reservations: what an entry states, which attempt may come next, what repeats another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpiw.errors import GrantSpentError, LedgerConflictError, SpecError
from dpiw.ledger.entries import Entry, canonical, check_count, check_digest, check_label, check_name
from dpiw.ledger.values import AttemptRecord, Charge, RunRecord, StageRecord, StageState
from dpiw.privacy.resumption import Resumption


def reservation_payload(
    charge: Charge,
    stages: Mapping[str, Sequence[Mapping[str, Any]]],
    plan_digest: str,
    period: str,
    max_attempts: int,
    resumptions: Mapping[str, Resumption],
    release: str | None = None,
) -> dict[str, Any]:
    """What a `reserve` entry states. Raises SpecError if something is malformed."""
    payload = {
        "relation": charge.cost.relation.value,
        **charge.to_payload(),
        "stages": {
            check_name("stage", name): [
                canonical(event, field=f"stages.{name}") for event in events
            ]
            for name, events in stages.items()
        },
        "plan_digest": check_digest("plan_digest", plan_digest),
        "period": check_label("period", period),
        "max_attempts": check_count("max_attempts", max_attempts),
    }
    if resumptions:
        payload["resumable"] = {name: terms.to_json() for name, terms in resumptions.items()}
    if release is not None:
        payload["release"] = check_name("release", release)
    resumptions_of(payload)
    return payload


def check_same_reservation(
    run: RunRecord, population: str, attempt: int, payload: Mapping[str, Any]
) -> None:
    """Raise LedgerConflictError unless this asks for exactly the reservation that exists."""
    check_same_run(run, population, payload)
    record = run.attempts[attempt - 1]
    stages = {name: list(stage.events) for name, stage in record.stages.items()}
    relation = record.charge.cost.relation.value
    before = {**record.charge.to_payload(), "relation": relation, "stages": stages}
    terms = {name: stage.resumption for name, stage in record.stages.items() if stage.resumption}
    if before != {name: payload.get(name) for name in before} or terms != resumptions_of(payload):
        raise _conflict(attempt, "this attempt was reserved with another cost, stages or events")
    if record.voided:
        following = len(run.attempts) + 1
        raise _conflict(attempt, f"this attempt was voided; reserve attempt {following} instead")


def _conflict(attempt: int, found: str) -> LedgerConflictError:
    return LedgerConflictError(found, field=f"attempt {attempt}")


def run_with_attempt(run: RunRecord | None, entry: Entry, charge: Charge) -> RunRecord:
    """The run (None: a new one) with the attempt of a reserving entry, if it may come next."""
    terms = resumptions_of(entry.payload)
    stages = {
        check_name("stage", name): StageRecord(
            stage=name,
            attempt=check_count("attempt", entry.attempt or 0),
            state=StageState.RESERVED,
            events=tuple(events),
            resumption=terms.get(name),
        )
        for name, events in entry.payload["stages"].items()
    }
    if not stages:
        raise SpecError(field="stages", allowed="at least one stage and its privacy events")
    attempt = AttemptRecord(
        attempt=entry.attempt or 0,
        charge=charge,
        stages=stages,
        voided=False,
        head=entry.head,
        at=entry.at,
        by=entry.by,
    )
    return _first_attempt(entry, attempt) if run is None else _further_attempt(run, entry, attempt)


def resumptions_of(payload: Mapping[str, Any]) -> dict[str, Resumption]:
    """Terms of the stages that may be resumed; SpecError if events do not pay for all repeats."""
    resumptions = {}
    for name, facts in payload.get("resumable", {}).items():
        terms = Resumption.from_json(facts)
        if not terms.is_paid_by(payload["stages"].get(name, ())):
            raise SpecError(
                "its privacy events do not pay for the steps that a resume may repeat",
                field=f"stage {name}",
                allowed=f"one event of count {terms.steps + terms.reserve}, and others of count 1",
            )
        resumptions[name] = terms
    return resumptions


def _first_attempt(entry: Entry, attempt: AttemptRecord) -> RunRecord:
    if attempt.attempt != 1:
        raise _conflict(attempt.attempt, "this run has no attempt yet; its first one is 1")
    return RunRecord(
        run_key=check_digest("run_key", entry.run_key or ""),
        population=entry.population or "",
        plan_digest=check_digest("plan_digest", entry.payload["plan_digest"]),
        period=check_label("period", entry.payload["period"]),
        max_attempts=check_count("max_attempts", entry.payload["max_attempts"]),
        attempts=(attempt,),
        release=_release(entry),
    )


def _release(entry: Entry) -> str | None:
    name = entry.payload.get("release")
    return None if name is None else check_name("release", name)


def _further_attempt(run: RunRecord, entry: Entry, attempt: AttemptRecord) -> RunRecord:
    check_same_run(run, entry.population, entry.payload)
    following = len(run.attempts) + 1
    if attempt.attempt != following:
        raise _conflict(attempt.attempt, f"this run's next attempt is {following}")
    current = run.stages
    for name, stage in attempt.stages.items():
        prior = current.get(name)
        if prior is None or (prior.events, prior.resumption) != (stage.events, stage.resumption):
            raise LedgerConflictError(
                "this run was first reserved without this stage, or with other events for it;"
                " another plan is another run, with a key of its own",
                field=f"stage {name}",
            )
        if prior.state not in (StageState.LOST, StageState.VOIDED):
            raise GrantSpentError(
                f"stage {name} is {prior.state.value} in attempt {prior.attempt}; "
                "only a lost or voided stage may be reserved again"
            )
    if run.counted_attempts >= run.max_attempts:
        raise GrantSpentError(
            f"this run has used up its max_attempts={run.max_attempts} (attempts given back do not"
            " count). A new source.snapshot or period in the spec makes a new run, and pays again",
            field=f"{_lost(run)}attempt {attempt.attempt}",
        )
    release = run.release or _release(entry)  # earlier versions did not state it
    return replace(run, attempts=(*run.attempts, attempt), release=release)


def _lost(run: RunRecord) -> str:
    numbers = [
        str(attempt.attempt)
        for attempt in run.attempts
        if any(stage.state is StageState.LOST for stage in attempt.stages.values())
    ]
    outcome = "was cut off in its draw: it is lost, and stays charged; "
    return f"attempt {' and '.join(numbers)} {outcome}" if numbers else ""


def check_same_run(run: RunRecord, population: str | None, payload: Mapping[str, Any]) -> None:
    """Raise LedgerConflictError unless these are the terms of the run's first reservation."""
    terms = {
        "population": (run.population, population),
        "plan_digest": (run.plan_digest, payload["plan_digest"]),
        "period": (run.period, payload["period"]),
        "max_attempts": (run.max_attempts, payload["max_attempts"]),
    }
    for name, (before, now) in terms.items():
        if before != now:
            allowed = f"{before}, as in the run's first reservation"
            raise LedgerConflictError(f"found {now!s:.80}", field=name, allowed=allowed)
