"""`dpiw ledger register | show | verify | void`: what a custodian does with a ledger.

Handlers take the parsed arguments and return an exit code. Errors of dpiw pass through, for the
command line to turn into their own exit codes. SQLAlchemy is loaded only when one of them runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TextIO

from dpiw.errors import LedgerTamperedError, SpecError
from dpiw.privacy import NeighbouringRelation

if TYPE_CHECKING:
    from dpiw.ledger import Ledger, RunRecord


def add_ledger_commands(subparsers: Any) -> None:
    """Add `ledger` and its commands to what `ArgumentParser.add_subparsers` returned.

    Each sets `handler`, a function of the parsed arguments that returns the exit code. A caller
    may set `stream` on the arguments; otherwise they write to standard output.
    """
    ledger = subparsers.add_parser("ledger", help="register, show, verify, void")
    commands = ledger.add_subparsers(dest="ledger_command", required=True)
    _add_register(commands)
    _add_show(commands)
    verify = _add(commands, "verify", "replay the whole chain and every rule", run_verify)
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="SEQ:HASH",
        help="a published head that must be in the chain; may be repeated",
    )
    void = _add(commands, "void", "give back an attempt of which nothing was armed", run_void)
    void.add_argument("run_key", metavar="RUN", help="the run's key")
    void.add_argument("--attempt", type=int, default=1, help="attempt number (1)")


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
    parser.add_argument("--max-rows", type=int, default=1, help="rows per privacy unit (1)")
    parser.add_argument(
        "--create",
        action="store_true",
        help="make the ledger if there is none (a new ledger knows nothing that was spent before)",
    )


def _add_show(commands: Any) -> None:
    parser = _add(commands, "show", "budgets, what is spent, and every run", run_show)
    parser.add_argument("--population", help="only this one")
    parser.add_argument("--run", help="only the run of this key")
    parser.add_argument("--json", action="store_true", help="for programs")


def run_register(arguments: argparse.Namespace) -> int:
    """Register a population; the same terms again are no error."""
    from dpiw.ledger import Ledger, Population

    population = Population(
        name=arguments.name,
        relation=NeighbouringRelation(arguments.relation),
        max_rows=arguments.max_rows,
        epsilon=_decimal("epsilon", arguments.epsilon),
        delta=_decimal("delta", arguments.delta),
    )
    ledger = (Ledger.create if arguments.create else Ledger.open)(arguments.ledger)
    known = ledger.register(population)
    _write(arguments, [f"population {known.name}: {known.budget}, {known.relation.value}"])
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Show populations and their runs, as a table or as JSON."""
    from dpiw.ledger import Ledger

    facts = _facts(Ledger.open(arguments.ledger), arguments.population, arguments.run)
    if arguments.json:
        _write(arguments, [json.dumps(facts, indent=2, sort_keys=True)])
    else:
        _write(arguments, _table(facts))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """0 if the chain and every rule hold; else the exit code of LedgerTamperedError."""
    from dpiw.ledger import Ledger

    heads = [_head(text) for text in arguments.head]
    ledger = Ledger.open(arguments.ledger)
    report = ledger.verify()
    if not report.ok:
        _write(arguments, [f"BROKEN {report.fault}"])
        return LedgerTamperedError.exit_code
    ledger.check_heads(heads)
    head = ledger.head()
    _write(arguments, [f"ok: {report.entries} entries, head {head.seq}:{head.hash}"])
    return 0


def run_void(arguments: argparse.Namespace) -> int:
    """Void an attempt and show what its population has left."""
    from dpiw.ledger import Ledger

    ledger = Ledger.open(arguments.ledger)
    ledger.void(arguments.run_key, arguments.attempt)
    name = ledger.run(arguments.run_key).population
    _write(arguments, [f"voided; population {name} has {ledger.remaining(name)} left"])
    return 0


def _facts(ledger: Ledger, population: str | None, run_key: str | None) -> dict[str, Any]:
    run = ledger.run(run_key) if run_key else None
    if run and population not in (None, run.population):
        raise SpecError("run: belongs to another population")
    wanted = run.population if run else population
    known = [ledger.population(wanted)] if wanted else ledger.populations()
    head = ledger.head()
    return {
        "head": {"seq": head.seq, "hash": head.hash},
        "populations": [
            {
                "name": one.name,
                "relation": one.relation.value,
                "max_rows": one.max_rows,
                "composition": one.composition.value,
                "budget": str(one.budget),
                "spent": str(ledger.spent(one.name)),
                "remaining": str(ledger.remaining(one.name)),
                "runs": [_run(each) for each in ([run] if run else ledger.runs(one.name))],
            }
            for one in known
        ],
    }


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
    lines = [f"ledger head {facts['head']['seq']}:{facts['head']['hash']}"]
    for population in facts["populations"]:
        lines += [
            "",
            f"population {population['name']}  ({population['relation']}, "
            f"max_rows={population['max_rows']}, composition {population['composition']})",
            f"  budget     {population['budget']}",
            f"  spent      {population['spent']}",
            f"  remaining  {population['remaining']}",
        ]
        lines += [f"  {line}" for line in _run_lines(population["runs"])]
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
            number = f"{attempt['attempt']} (max {run['max_attempts']})"
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


def _decimal(field: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise SpecError(f"{field}: expected an exact decimal such as 0.5 or 1e-6") from error


def _head(text: str) -> Any:
    from dpiw.ledger import LedgerHead

    seq, _, digest = text.partition(":")
    if not seq.isdecimal() or not digest:
        raise SpecError("head: expected SEQ:HASH")
    return LedgerHead(seq=int(seq), hash=digest)


def _write(arguments: argparse.Namespace, lines: Iterable[str]) -> None:
    stream: TextIO = getattr(arguments, "stream", None) or sys.stdout
    for line in lines:
        stream.write(line + "\n")
