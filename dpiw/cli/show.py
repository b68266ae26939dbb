"""`dpiw ledger show`: budgets, runs by release and period, spending over time, and a forecast."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import aligned, check_population, named_ledger, names_a_spec, write_lines
from dpiw.errors import SpecError
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text

if TYPE_CHECKING:
    from dpiw.ledger import Entry, Ledger, Population, RunRecord
    from dpiw.ledger.history import Spending

CSV_FIELDS = (
    "population", "release", "period", "run_key", "attempt", "seq", "kind", "at", "actor", "key_id",
    "epsilon", "delta", "spent_epsilon", "spent_delta", "budget", "state", "relation", "max_rows",
    "id_column", "composition", "mechanisms",
)  # fmt: skip
"""Columns of `--csv`: `epsilon` and `delta` are what the entry changed, `spent_*` the sum."""

_TERMS = ("budget", "relation", "max_rows", "id_column", "composition")


def add_show(parser: argparse.ArgumentParser) -> None:
    """The arguments of `show`."""
    parser.add_argument("--population", help="only this population")
    parser.add_argument("--run", help="only the run of this key, or of its first digits")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, for programs")
    form.add_argument("--csv", action="store_true", help="every charge as a line of CSV")


def run_show(arguments: argparse.Namespace) -> int:
    """Show populations and their runs, as a table or as JSON; or what was charged, as CSV."""
    from dpiw.ledger import Ledger

    ledger = Ledger.open(named_ledger(arguments.ledger))
    check_population(ledger.entries(), arguments.population)
    facts = _facts(ledger, arguments.population, arguments.run)
    if arguments.csv:
        write_lines(arguments, _charge_lines(facts))
    elif arguments.json:
        write_lines(arguments, [json.dumps(facts, indent=2, sort_keys=True)])
    else:
        write_lines(arguments, _table(facts))
    warnings = _doubts(arguments.ledger, ledger)
    aside = argparse.Namespace(stream=sys.stderr)  # what a program reads stays what it is
    write_lines(aside if arguments.csv or arguments.json else arguments, warnings)
    return 0


def _doubts(named: str, ledger: Ledger) -> list[str]:
    if not names_a_spec(named):
        return []
    from dpiw.plan.spec import load_spec
    from dpiw.run.advice import doubts

    return doubts(load_spec(Path(named)), ledger, Path(named))


def _facts(ledger: Ledger, population: str | None, run_key: str | None) -> dict[str, Any]:
    from dpiw.ledger.history import spending

    entries = ledger.entries()
    run = run_of(ledger, run_key, entries) if run_key else None
    if run and population not in (None, run.population):
        raise SpecError(f"is of population {run.population}, not of {population}", field="run")
    name = run.population if run else population
    registered_populations = [ledger.population(name)] if name else ledger.populations()
    head = ledger.head()
    facts: dict[str, Any] = {"head": {"seq": head.seq, "hash": head.hash}, "populations": []}
    spent = spending(entries)
    for registered in registered_populations:
        all_runs = {record.run_key: record for record in ledger.runs(registered.name)}
        runs = [run] if run else list(all_runs.values())
        details = _population(ledger, registered)
        details["spending"] = [
            _charge_facts(charge, all_runs.get(charge.entry.run_key or ""))
            for charge in spent
            if charge.entry.population == registered.name
            and (run is None or charge.entry.run_key == run.run_key)
        ]
        facts["populations"].append(details | {"runs": [_run(record) for record in runs]})
    if run:
        facts["entries"] = [
            {"seq": e.seq, "kind": e.kind.value, "attempt": e.attempt, "stage": e.stage, "at": e.at}
            | {"by": None if e.by is None else str(e.by)}
            for e in entries
            if e.run_key == run.run_key
        ]
    return facts


def _forecast(ledger: Ledger, name: str) -> dict[str, Any] | None:
    from dpiw.ledger.history import more_such

    runs = ledger.runs(name)
    if not runs:
        return None
    last = runs[-1]
    return {
        "such_as": _label(last.release, last.period),
        "cost": str(last.attempts[0].charge.cost),
        "told": more_such(ledger.account(name), last),
    }


def _label(release: str | None, period: str | None) -> str:
    return " ".join((release or "(not named)", period or ""))


def run_of(ledger: Ledger, prefix: str, entries: tuple[Entry, ...]) -> RunRecord:
    """The run whose key begins so; SpecError unless there is exactly one."""
    keys = {entry.run_key for entry in entries if (entry.run_key or "").startswith(prefix)}
    if len(keys) > 1:
        raise SpecError(f"{len(keys)} keys begin so", field="run", allowed="more digits of one key")
    return ledger.run(next(iter(keys)) or "" if keys else prefix)


def _population(ledger: Ledger, population: Population) -> dict[str, Any]:
    runs = ledger.runs(population.name)
    facts: dict[str, Any] = {
        "name": population.name,
        "relation": population.relation.value,
        "max_rows": population.max_rows,
        "id_column": population.id_column,
        "composition": population.composition.value,
        "budget": str(population.budget),
        "spent": str(ledger.spent(population.name)),
        "reserved": sum(run.state.value == "reserved" and not run.drawn for run in runs),
        "remaining": str(ledger.remaining(population.name)),
        "unpaid_reads": ledger.account(population.name).unpaid_reads,
        "max_unpaid_reads": population.max_unpaid_reads,
        "armed": sum(stage.state.value == "armed" for run in runs for stage in run.stages.values()),
        "forecast": _forecast(ledger, population.name),
        "recoveries": [
            {
                "seq": recovery.head.seq,
                "at": recovery.at,
                "charged": str(recovery.charged.cost),
                "loss": str(recovery.loss.cost),
                "releases": [
                    {"head": r.hash, "manifest_digest": r.manifest_digest}
                    for r in recovery.releases
                ],
            }
            for recovery in ledger.recoveries(population.name)
        ],
    }
    vector = ledger.account(population.name).held.renyi
    if vector is not None:
        terms = population.to_payload()["renyi"]
        facts["renyi"] = {**terms, "spent_units": list(vector.units)}
    return facts


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "run_key": run.run_key,
        "release": run.release,
        "period": run.period,
        "state": run.state.value,
        "plan_digest": run.plan_digest,
        "manifest_digest": run.manifest_digest,
        "max_attempts": run.max_attempts,
        "held": str(run.held.cost),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "state": run.attempt_state(attempt).value,
                "cost": str(attempt.charge.cost),
                "held": str(attempt.held.cost),
                "reads": attempt.reads,
                "at": attempt.at,
                "by": None if attempt.by is None else str(attempt.by),
                "stages": {
                    name: {
                        "state": stage.state.value,
                        "output_digest": stage.output_digest,
                        "conflicts": list(stage.conflicts),
                    }
                    | ({"declared": list(stage.declared)} if stage.declared else {})
                    for name, stage in attempt.stages.items()
                },
            }
            for attempt in run.attempts
        ],
    }


def _table(facts: dict[str, Any]) -> list[str]:
    from dpiw.ledger.accounts import told_column

    lines = [f"ledger head {facts['head']['hash']}, entry {facts['head']['seq']}"]
    for population in facts["populations"]:
        column = told_column(str(population["id_column"]))
        reserved = population["reserved"]
        held = f" (runs that hold their part, and drew nothing: {reserved})" if reserved else ""
        lines += [
            "",
            f"population {population['name']}  ({population['relation']}, "
            f"max_rows={population['max_rows']}, id_column={column}, "
            f"composition {population['composition']})",
            f"  budget     {population['budget']}",
            f"  spent      {population['spent']}" + held,
            f"  remaining  {population['remaining']}",
            f"  reads      {population['unpaid_reads']} ended without a draw, of at most"
            f" {population['max_unpaid_reads']} that may, for life"
            + _armed_text(population["armed"]),
        ]
        lines += [
            f"  recovered  by entry {recovery['seq']}: {len(recovery['releases'])} releases,"
            f" charged {recovery['charged']}, {recovery['at']}"
            for recovery in population["recoveries"]
        ]
        lines += [f"  {line}" for line in _run_lines(population["runs"])]
        lines += _spending_lines(population)
    if "entries" in facts:
        lines += ["", "entries of this run"]
        lines += [
            f"  {entry['seq']:>6}  {entry['kind']:<10} {entry['attempt'] or '':>2}"
            f" {entry['stage'] or ''}  {entry['at']}  {entry['by'] or '-'}"
            for entry in facts["entries"]
        ]
    return lines


def _armed_text(armed: int) -> str:
    """Effect of armed stages on the count of reads; whether a draw continues is unknown here."""
    if not armed:
        return ""
    return (
        f"; {armed} armed: if cut off, {'each' if armed > 1 else 'it'} will count one more; a read"
        " counts until a draw of its run commits"
    )


def _spending_lines(population: dict[str, Any]) -> list[str]:
    forecast = population["forecast"]
    if forecast is None:
        return []
    rows = [("when", "release", "entry", "epsilon", "delta", "spent so far", "by")]
    rows += [
        (
            charge["at"],
            _label(charge["release"], charge["period"]) if charge["run_key"] else "-",
            f"{charge['kind']} {charge['seq']}",
            charge["epsilon"],
            charge["delta"],
            charge["spent"],
            f"{charge['actor'] or '-'}"
            + (f" (key {charge['key_id']})" if charge["key_id"] else ""),
        )
        for charge in population["spending"]
    ]
    text = f"{forecast['told']}, such as {forecast['such_as']} ({forecast['cost']})"
    return ["", "  spending", *(f"  {line}" for line in aligned(rows)), "", f"  forecast   {text}"]


def _run_lines(runs: list[dict[str, Any]]) -> list[str]:
    if not runs:
        return ["no runs"]
    rows = [("release", "period", "run", "state", "attempt", "stages", "held", "when")]
    for run in runs:
        for attempt in run["attempts"]:
            stages = " ".join(
                f"{name}={stage['state']}"
                + "+conflict" * len(stage["conflicts"])
                + "".join(f" (declared {event})" for event in stage.get("declared", ()))
                for name, stage in attempt["stages"].items()
            )
            number = f"{attempt['attempt']} (at most {run['max_attempts']} paid)"
            rows.append((
                run["release"] or "-", run["period"], run["run_key"][:12], attempt["state"],
                number, stages, attempt["held"], attempt["at"],
            ))  # fmt: skip
    return aligned(rows)


def _charge_facts(one: Spending, run: RunRecord | None) -> dict[str, Any]:
    from dpiw.privacy.event_records import events_text

    entry, by = one.entry, one.entry.by
    attempts = () if run is None else run.attempts
    charged = [attempt for attempt in attempts if attempt.attempt == entry.attempt]
    stages = {name: stage for attempt in charged for name, stage in attempt.stages.items()}
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind.value,
        "release": None if one.run is None else one.run.release,
        "period": None if one.run is None else one.run.period,
        "run_key": entry.run_key,
        "attempt": entry.attempt,
        "state": None if run is None or not charged else run.attempt_state(charged[0]).value,
        "epsilon": one.epsilon,
        "delta": one.delta,
        "mechanisms": "; ".join(f"{name}: {events_text(s.events)}" for name, s in stages.items()),
        "spent": str(one.spent),
        "spent_epsilon": decimal_text(one.spent.epsilon_units, EPSILON_UNIT),
        "spent_delta": decimal_text(one.spent.delta_units, DELTA_UNIT),
        "actor": None if by is None else by.actor,
        "key_id": None if by is None else by.key_id,
    }


def _charge_lines(facts: dict[str, Any]) -> list[str]:
    written = io.StringIO()
    table = csv.DictWriter(written, CSV_FIELDS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for population in facts["populations"]:
        terms = {"population": population["name"]} | {name: population[name] for name in _TERMS}
        table.writerows(terms | charge for charge in population["spending"])
    return written.getvalue().splitlines()
