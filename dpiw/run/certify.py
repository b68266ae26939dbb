"""The certificate of a run: what was promised and spent, from plan, ledger and measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dpiw.ledger import EntryKind, Ledger, RunRecord
from dpiw.plan.assumptions import caveats
from dpiw.plan.plan import Plan, composed_epsilon
from dpiw.plan.stages import StagePlan
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.certificate import Certificate, CertifiedStage
from dpiw.run.as_drawn import check_drawn
from dpiw.run.certifiable import decimals, planned_facts, stage_record, versions_of
from dpiw.run.run import ReleaseRun
from dpiw.run.weigh import admission_of, committed_measurement


def certify(run: ReleaseRun, ledger: Ledger) -> Certificate:
    """Return the certificate of a run whose draws are committed and whose weights are diagnosed.

    Costs are what all attempts hold, lost draws included. Raises LedgerConflictError if a stage was
    drawn with other events or settings than the plan's.
    """
    check_drawn(run, ledger)
    plan, spec = run.plan, run.spec
    weights = json.loads((run.directory / "weights.json").read_bytes())
    diagnostics = json.loads((run.directory / "diagnostics.json").read_bytes())
    head = ledger.certify(run.key)  # first: later reads can only find more
    record = ledger.run(run.key)
    epsilon, delta = decimals(record.held)
    account = ledger.account(spec.population)
    spent_epsilon, spent_delta = decimals(account.spent)
    budget, most_reads = account.population.budget, account.population.max_unpaid_reads
    planned = planned_facts(
        plan,
        run.generator,
        max_unpaid_reads=most_reads,
        read_before=_read_before(ledger, record),
    )
    return Certificate(
        release_id=run.release_id,
        period=run.period,
        epsilon=epsilon,
        delta=delta,
        attempts=_attempts(record),
        spent_epsilon=spent_epsilon,
        spent_delta=spent_delta,
        account={
            "composition": account.population.composition.value,
            "held": account.held.to_payload(),
            "drawn": account.drawn.to_payload(),
            "max_unpaid_reads": most_reads,
        },
        budget_epsilon=decimal_text(budget.epsilon_units, EPSILON_UNIT),
        budget_delta=decimal_text(budget.delta_units, DELTA_UNIT),
        accountants=_accountants(plan),
        stages=tuple(_certified(run, stage) for stage in plan.stages),
        post_processing=tuple(weights["steps"]),
        diagnostics=diagnostics,
        verdict=diagnostics["verdict"],
        verdict_rule=diagnostics["rule"],
        versions=versions_of(plan),
        ledger_head=head,
        **planned | {"caveats": (*planned["caveats"], *_constraint_caveats(run))},
    )


def certify_more_rows(run: ReleaseRun, ledger: Ledger, first: Certificate) -> Certificate:
    """Return the certificate of more rows from a published release's draws; charges nothing.

    Promise and cost are those of the certificate `first`, rows and weights these. Raises
    LedgerConflictError as `certify`.
    """
    check_drawn(run, ledger)
    plan = run.plan
    weights = json.loads((run.directory / "weights.json").read_bytes())
    diagnostics = json.loads((run.directory / "diagnostics.json").read_bytes())
    named = {"release_id": first.release_id, "manifest": ledger.run(run.key).manifest_digest}
    again = (
        f"These are more rows from the draws of release {first.release_id}, at no further cost: the"
        " weights of both carry the same privacy noise, so both together are no second look."
    )
    return replace(
        first,
        release_id=run.release_id,
        generator={**first.generator, "more_rows_of": named},
        post_processing=tuple(weights["steps"]),
        diagnostics=diagnostics,
        verdict=diagnostics["verdict"],
        verdict_rule=diagnostics["rule"],
        caveats=(
            *caveats(plan, weighted=plan.weights is not None), *_constraint_caveats(run), again,
        ),
        versions=versions_of(plan),
    )  # fmt: skip


def _certified(run: ReleaseRun, stage: StagePlan) -> CertifiedStage:
    measurement = committed_measurement(run, stage.name)
    return stage_record(
        stage,
        measurement.stated_noise,
        threshold=measurement.threshold,
        alone=run.plan.stage_cost(frozenset({stage.name})).epsilon,
    )


def _read_before(ledger: Ledger, record: RunRecord) -> bool:
    """Whether the table was read under another plan before this run's first draw, and never drawn.

    This run's settings could depend on that read. A read stated in a recovery was under an unknown
    plan, so it counts.
    """
    plans = {run.run_key: run for run in ledger.runs(record.population)}
    for entry in ledger.entries(population=record.population):
        if entry.kind is EntryKind.ARM and entry.run_key == record.run_key:
            return False
        if entry.kind is EntryKind.RECOVER and entry.payload["reads"]:
            return True
        if entry.kind is EntryKind.READ and entry.run_key and entry.attempt:
            other = plans[entry.run_key]
            drawn = other.attempts[entry.attempt - 1].committed
            if other.plan_digest != record.plan_digest and not drawn:
                return True
    return False


def _attempts(record: RunRecord) -> tuple[dict[str, Any], ...]:
    """What each reservation held, and for which stages; lost draws are paid too.

    Voided attempts are left out and nothing is numbered: a failed read is not published.
    """
    attempts = []
    for attempt in (attempt for attempt in record.attempts if not attempt.voided):
        epsilon, delta = decimals(attempt.held)
        states = {name: stage.state.value for name, stage in sorted(attempt.stages.items())}
        facts: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "stages": states}
        resumed = {
            name: len(stage.earlier_tokens)
            for name, stage in sorted(attempt.stages.items())
            if stage.earlier_tokens
        }
        attempts.append(facts | {"resumed": resumed} if resumed else facts)
    return tuple(attempts)


def _constraint_caveats(run: ReleaseRun) -> tuple[str, ...]:
    admission = admission_of(run)
    return () if admission is None else admission.caveats


def _accountants(plan: Plan) -> dict[str, float]:
    composed = composed_epsilon(plan.spec, plan.stages)  # not as stored: the signer computes it
    epsilons = {"pld": composed.pld, "rdp": composed.rdp}
    return {name: epsilon for name, epsilon in epsilons.items() if epsilon is not None}
