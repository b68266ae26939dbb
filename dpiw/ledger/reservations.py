"""What a request for a reservation says, and whether it is one that was made before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpiw.errors import LedgerConflictError
from dpiw.ledger.attempts import check_same_run, resumptions_of
from dpiw.ledger.charges import Charge
from dpiw.ledger.entries import canonical, check_count, check_digest, check_label, check_name
from dpiw.ledger.values import RunRecord
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
    """What a `reserve` entry states. Raises SpecError: something is malformed."""
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
    before = {
        **record.charge.to_payload(),
        "relation": record.cost.relation.value,
        "stages": stages,
    }
    terms = {name: stage.resumption for name, stage in record.stages.items() if stage.resumption}
    if before != {name: payload.get(name) for name in before} or terms != resumptions_of(payload):
        raise LedgerConflictError(f"attempt {attempt}: reserved before with another cost or stages")
    if record.voided:
        raise LedgerConflictError(
            f"attempt {attempt}: key reused after void; the next attempt is {len(run.attempts) + 1}"
        )
