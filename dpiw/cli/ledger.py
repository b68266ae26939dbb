"""`dpiw ledger register | show | verify | void | recover | export`: a custodian's commands.

Handlers take the parsed arguments and return an exit code. Errors of dpiw pass through, for the
command line to turn into their own exit codes. SQLAlchemy is loaded only when one of them runs.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.recover import add_export, add_recover, run_export, run_recover, since
from dpiw.cli.text import exact_decimal, write_lines
from dpiw.errors import LedgerTamperedError, SpecError
from dpiw.privacy.units import NeighbouringRelation

if TYPE_CHECKING:
    from dpiw.ledger import Entry, Ledger, Population, PublishedHead, RunRecord


def add_ledger_commands(subparsers: Any) -> None:
    """Add `ledger` and its commands to what `ArgumentParser.add_subparsers` returned.

    Each sets `handler`, a function of the parsed arguments that returns the exit code. A caller
    may set `stream` on the arguments; otherwise they write to standard output.
    """
    ledger = subparsers.add_parser("ledger", help="register, show, verify, void, recover, export")
    commands = ledger.add_subparsers(dest="ledger_command", required=True)
    _add_register(commands)
    _add_show(commands)
    verify = _add(commands, "verify", "replay the whole chain and every rule", run_verify)
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="HASH[:MANIFEST]",
        help="a published head that must be in the chain, or whose release, named by SHA-256 of its"
        " manifest.json, was recovered; may be repeated",
    )
    void = _add(commands, "void", "give back an attempt of which nothing was armed", run_void)
    void.add_argument("run_key", metavar="RUN", help="the run's key")
    void.add_argument("--attempt", type=int, default=1, help="attempt number (1)")
    void.add_argument(
        "--state",
        required=True,
        type=Path,
        metavar="DIR",
        help="the spec's state folder; an attempt whose draw lies in its workspace stays charged",
    )
    add_recover(_add(commands, "recover", "take a ledger up again that lost entries", run_recover))
    add_export(_add(commands, "export", "entries as JSON lines", run_export))


def _add(commands: Any, name: str, help_text: str, handler: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text)
    parser.add_argument("--ledger", required=True, metavar="PATH", help="path or sqlite:///PATH")
    parser.set_defaults(handler=handler)
    return parser


def _add_register(commands: Any) -> None:
    parser = _add(commands, "register", "set a population's lifetime budget, once", run_register)
    parser.add_argument("name", help="lower-case letters, digits, - and _")
    parser.add_argument("--epsilon", required=True, help="lifetime epsilon, an exact decimal")
    parser.add_argument("--delta", required=True, help="lifetime delta, an exact decimal")
    parser.add_argument(
        "--relation",
        required=True,
        choices=[relation.value for relation in NeighbouringRelation],
        help="the only neighbouring relation its costs may be stated under",
    )
    parser.add_argument(
        "--composition",
        default="basic",
        choices=["basic", "renyi"],
        help="how runs add up: sums, or a Renyi filter that admits more small releases (basic)",
    )
    parser.add_argument("--max-rows", type=int, default=1, help="rows per privacy unit (1)")
    parser.add_argument(
        "--id-column", help="the column that names a privacy unit (none: each row is a unit)"
    )
    parser.add_argument(
        "--max-unpaid-reads",
        type=int,
        metavar="N",
        help="how many reads of its tables may end without a draw, for life: operators see how each"
        " ended, and no epsilon pays for it (20)",
    )
    parser.add_argument(
        "--create",
        action="store_true",
        help="make the ledger if there is none, and its folder for you alone (a new ledger knows"
        " nothing that was spent before)",
    )


def _add_show(commands: Any) -> None:
    parser = _add(commands, "show", "budgets, what is spent, and every run", run_show)
    parser.add_argument("--population", help="only this one")
    parser.add_argument("--run", help="only the run of this key, or of its first digits")
    parser.add_argument(
        "--since", metavar="SEQ|DATE", help="only runs and recoveries with an entry since then"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run_register(arguments: argparse.Namespace) -> int:
    """Register a population; the same terms again are no error."""
    from dpiw.ledger import MAX_UNPAID_READS, CompositionRule, Ledger, Population

    reads = arguments.max_unpaid_reads
    population = Population(
        name=arguments.name,
        relation=NeighbouringRelation(arguments.relation),
        max_rows=arguments.max_rows,
        epsilon=exact_decimal("epsilon", arguments.epsilon),
        delta=exact_decimal("delta", arguments.delta),
        composition=CompositionRule(arguments.composition),
        id_column=arguments.id_column,
        max_unpaid_reads=MAX_UNPAID_READS if reads is None else reads,
    )
    ledger = (Ledger.create if arguments.create else Ledger.open)(arguments.ledger)
    known = ledger.register(population)
    rule = ", composition renyi" if known.renyi else ""
    unit = f", id_column={known.id_column}" if known.id_column else ""
    write_lines(
        arguments, [f"population {known.name}: {known.budget}, {known.relation.value}{unit}{rule}"]
    )
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Show populations and their runs, as a table or as JSON."""
    from dpiw.ledger import Ledger

    ledger = Ledger.open(arguments.ledger)
    facts = _facts(ledger, arguments.population, arguments.run, arguments.since)
    if arguments.json:
        write_lines(arguments, [json.dumps(facts, indent=2, sort_keys=True)])
    else:
        write_lines(arguments, _table(facts))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """0 if the chain and every rule hold; else the exit code of LedgerTamperedError."""
    from dpiw.ledger import Ledger

    heads = [_head(text) for text in arguments.head]
    ledger = Ledger.open(arguments.ledger)
    report = ledger.verify()
    if not report.ok:
        write_lines(arguments, [f"BROKEN {report.fault}"])
        return LedgerTamperedError.exit_code
    ledger.check_heads(heads)
    head = ledger.head()
    write_lines(arguments, [f"ok: {report.entries} entries, head {head.hash}", *_notes(ledger)])
    return 0


def _notes(ledger: Ledger) -> list[str]:
    """What is legal but should be known: conflicting outputs, recoveries, budgets overdrawn."""
    notes = [
        f"note: run {run.run_key[:12]}, stage {stage.stage}, attempt {stage.attempt}:"
        f" {len(stage.conflicts)} conflicting output(s), each charged again"
        for population in ledger.populations()
        for run in ledger.runs(population.name)
        for attempt in run.attempts
        for stage in attempt.stages.values()
        if stage.conflicts
    ]
    notes += [
        f"note: population {one.population} was recovered by entry {one.head.seq}:"
        f" {len(one.releases)} release(s), charged {one.charged.cost}"
        for one in ledger.recoveries()
    ]
    return notes + [
        f"note: population {one.name} has spent more than its budget; nothing more is granted,"
        " nor drawn"
        for one in ledger.populations()
        if ledger.account(one.name).overdrawn
    ]


def run_void(arguments: argparse.Namespace) -> int:
    """Void an attempt and show what its population has left."""
    from dpiw.ledger import Ledger
    from dpiw.run.restored import check_undrawn
    from dpiw.run.run import run_folder

    ledger = Ledger.open(arguments.ledger)
    run = ledger.run(arguments.run_key)
    name = run.population
    folder = run_folder(arguments.state, name, run.run_key)
    if not folder.is_dir():
        raise SpecError(
            "state: the folder of this run is not in its workspace; expected the spec's state"
            " folder, so that a draw that lies there is not given back"
        )
    for attempt in run.attempts:
        if attempt.attempt == arguments.attempt and not attempt.armed:
            check_undrawn(folder, run, attempt)
    ledger.void(run.run_key, arguments.attempt)
    write_lines(arguments, [f"voided; population {name} has {ledger.remaining(name)} left"])
    return 0


def _facts(
    ledger: Ledger, population: str | None, run_key: str | None, start: str | None
) -> dict[str, Any]:
    entries = ledger.entries()
    run = _one_run(ledger, run_key, entries) if run_key else None
    if run and population not in (None, run.population):
        raise SpecError("run: belongs to another population")
    wanted = run.population if run else population
    known = [ledger.population(wanted)] if wanted else ledger.populations()
    head = ledger.head()
    recent = {entry.seq for entry in since(entries, start)}
    active = {entry.run_key for entry in entries if entry.seq in recent}
    facts: dict[str, Any] = {"head": {"seq": head.seq, "hash": head.hash}, "populations": []}
    for one in known:
        runs = [run] if run else [r for r in ledger.runs(one.name) if r.run_key in active]
        shown = _population(ledger, one)
        shown["recoveries"] = [r for r in shown["recoveries"] if r["seq"] in recent]
        facts["populations"].append(shown | {"runs": [_run(each) for each in runs]})
    if run:
        facts["entries"] = [
            {"seq": e.seq, "kind": e.kind.value, "attempt": e.attempt, "stage": e.stage, "at": e.at}
            for e in entries
            if e.run_key == run.run_key and e.seq in recent
        ]
    return facts


def _one_run(ledger: Ledger, prefix: str, entries: tuple[Entry, ...]) -> RunRecord:
    """The run whose key begins so; SpecError unless there is exactly one."""
    keys = {entry.run_key for entry in entries if (entry.run_key or "").startswith(prefix)}
    if len(keys) > 1:
        raise SpecError("run: several keys begin so; expected more digits")
    return ledger.run(next(iter(keys)) or "" if keys else prefix)


def _population(ledger: Ledger, one: Population) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": one.name,
        "relation": one.relation.value,
        "max_rows": one.max_rows,
        "id_column": one.id_column,
        "composition": one.composition.value,
        "budget": str(one.budget),
        "spent": str(ledger.spent(one.name)),
        "remaining": str(ledger.remaining(one.name)),
        "unpaid_reads": ledger.account(one.name).unpaid_reads,
        "max_unpaid_reads": one.max_unpaid_reads,
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
            for recovery in ledger.recoveries(one.name)
        ],
    }
    vector = ledger.renyi_spent(one.name)
    if vector is not None:
        terms = one.to_payload()["renyi"]
        facts["renyi"] = {**terms, "spent_units": list(vector.units)}
    return facts


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "run_key": run.run_key,
        "period": run.period,
        "state": run.state.value,
        "plan_digest": run.plan_digest,
        "manifest_digest": run.manifest_digest,
        "max_attempts": run.max_attempts,
        "held": str(run.held),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "cost": str(attempt.cost),
                "held": str(attempt.held),
                "reads": attempt.reads,
                "at": attempt.at,
                "stages": {
                    name: {
                        "state": stage.state.value,
                        "output_digest": stage.output_digest,
                        "conflicts": list(stage.conflicts),
                    }
                    for name, stage in attempt.stages.items()
                },
            }
            for attempt in run.attempts
        ],
    }


def _table(facts: dict[str, Any]) -> list[str]:
    lines = [f"ledger head {facts['head']['hash']}, entry {facts['head']['seq']}"]
    for population in facts["populations"]:
        lines += [
            "",
            f"population {population['name']}  ({population['relation']}, "
            f"max_rows={population['max_rows']}, id_column={population['id_column']}, "
            f"composition {population['composition']})",
            f"  budget     {population['budget']}",
            f"  spent      {population['spent']}",
            f"  remaining  {population['remaining']}",
            f"  reads      {population['unpaid_reads']} of at most"
            f" {population['max_unpaid_reads']} for life ended without a draw",
        ]
        lines += [
            f"  recovered  by entry {one['seq']}: {len(one['releases'])} release(s), charged"
            f" {one['charged']}, {one['at']}"
            for one in population["recoveries"]
        ]
        lines += [f"  {line}" for line in _run_lines(population["runs"])]
    if "entries" in facts:
        lines += ["", "entries of this run"]
        lines += [
            f"  {one['seq']:>6}  {one['kind']:<9} {one['attempt'] or '':>2} {one['stage'] or ''}"
            f"  {one['at']}"
            for one in facts["entries"]
        ]
    return lines


def _run_lines(runs: list[dict[str, Any]]) -> list[str]:
    if not runs:
        return ["no runs"]
    rows = [("period", "run", "state", "attempt", "stages", "held", "when")]
    for run in runs:
        for attempt in run["attempts"]:
            stages = " ".join(
                f"{name}={stage['state']}" + "+conflict" * len(stage["conflicts"])
                for name, stage in attempt["stages"].items()
            )
            number = f"{attempt['attempt']} (at most {run['max_attempts']} paid)"
            rows.append(
                (
                    run["period"],
                    run["run_key"][:12],
                    run["state"],
                    number,
                    stages,
                    attempt["held"],
                    attempt["at"],
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _head(text: str) -> PublishedHead:
    from dpiw.ledger import PublishedHead

    digests = text.split(":")
    if len(digests) > 2 or not all(re.fullmatch("[0-9a-f]{64}", one) for one in digests):
        raise SpecError("head: expected HASH or HASH:MANIFEST, 64 hexadecimal digits each")
    return PublishedHead(hash=digests[0], manifest_digest=(*digests, None)[1])
