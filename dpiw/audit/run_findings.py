"""Findings on runs that are legal and charged, and still worth a look."""

from __future__ import annotations

from dpiw.audit.findings import Finding
from dpiw.audit.records import AttemptTally, RunTally, Tally
from dpiw.release.certificate import Certificate


def findings_of_runs(counted: Tally) -> list[Finding]:
    """Findings on all runs, recoveries, losses and unpaid reads of a ledger."""
    findings = []
    for digest, release in counted.recovered.items():
        text = f"the ledger had lost release {digest[:12]} of run {release.run}; charged again"
        findings.append(Finding("recovered", f"entry {release.seq}", text))
    for seq, name, loss in counted.losses:
        findings.append(Finding("loss_stated", f"entry {seq}", f"population {name}: {loss}"))
    for name, population in counted.populations.items():
        if reads := counted.unpaid_reads(name):
            most = population.max_unpaid_reads
            text = f"its tables were read {reads} of at most {most} times without a draw"
            findings.append(Finding("unpaid_reads", f"population {name}", text))
    findings += _period_twice(counted)
    for run in counted.runs.values():
        for attempt in run.attempts:
            subject = f"run {run.key[:12]} attempt {attempt.number}"
            findings += [Finding("cost_declared", subject, claim) for claim in _declared(attempt)]
            if attempt.voided:
                text = f"population {run.population}, period {run.period}: given back"
                findings.append(Finding("attempt_voided", subject, text))
            for name, stage in attempt.stages.items():
                if stage.state == "lost":
                    text = f"stage {name} was armed (it may have drawn), and left no output"
                    if run.manifest_digest is not None:
                        text += f"; its attempt's charge, {attempt.cost}, is in its release's total"
                    findings.append(Finding("draw_lost", subject, text))
                if stage.state == "armed":
                    text = f"stage {name} is armed (it may draw), and neither committed nor lost"
                    findings.append(Finding("stage_armed", subject, text))
                if stage.conflicts:
                    outputs = f"{stage.conflicts} further output{'s' * (stage.conflicts > 1)}"
                    text = f"stage {name}: {outputs} beside the committed one"
                    findings.append(Finding("draw_conflict", subject, text))
        findings += _waiting(run)
    return findings


def _period_twice(counted: Tally) -> list[Finding]:
    """Runs that drew for a release and period of an earlier run; lost draws do not count."""
    findings, first = [], dict[tuple[str, str, str], RunTally]()
    for run in counted.runs.values():
        states = {stage.state for attempt in run.attempts for stage in attempt.stages.values()}
        names = (attempt.stated.get("release") for attempt in run.attempts)
        release = next((str(name) for name in names if name), None)
        if release is None or not states & {"armed", "committed"}:
            continue
        before = first.setdefault((run.population, release, str(run.period)), run)
        if before is not run:
            text = f"release {release}, period {run.period}: run {before.key[:12]} drew for it too"
            findings += [Finding("period_twice", f"run {run.key[:12]}", text)]
    return findings


def _declared(attempt: AttemptTally) -> list[str]:
    return [
        f"stage {name}: epsilon={event['epsilon']}, delta={event['delta']} of its charge was"
        " declared, not computed, for rows made elsewhere"
        for name, stage in attempt.stages.items()
        for event in stage.events
        if event.get("type") == "declared"
    ]


def _waiting(run: RunTally) -> list[Finding]:
    states = {stage.state for stage in run.latest.values()}
    if run.manifest_digest is not None or "committed" not in states or "armed" in states:
        return []
    drawn = "drawn" if states == {"committed"} else "drawn in part"
    text = f"population {run.population}, period {run.period}: paid and {drawn}, not published"
    return [Finding("not_published", f"run {run.key[:12]}", text)]


def published_otherwise(certificate: Certificate, counted: Tally) -> str:
    """Text that the run a certificate names has published another manifest; empty if none has."""
    for run in counted.runs_of(certificate.population):
        same = (run.plan_digest, run.period) == (certificate.plan_digest, certificate.period)
        if same and run.manifest_digest is not None:
            return (
                f"; the ledger published its run {run.key[:12]} as {run.manifest_digest[:12]}, so"
                " this folder was changed and signed again, or drawn under another ledger"
            )
    return ""
