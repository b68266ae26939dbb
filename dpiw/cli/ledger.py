"""`dpiw ledger register | show | verify | void | recover | export`: a custodian's commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import Parser, add_signing, ledger_hint, named_ledger, signing_key, write_lines
from dpiw.cli.recover import add_export, add_recover, run_export, run_recover
from dpiw.cli.register import add_register
from dpiw.cli.show import add_show, run_of, run_show
from dpiw.errors import LedgerTamperedError, SignatureError, SpecError

if TYPE_CHECKING:
    from dpiw.ledger import Ledger, PublishedHead


def add_ledger_commands(subparsers: Any) -> None:
    """Add `ledger` and its commands; handlers write to the arguments' `stream`, if set."""
    ledger = subparsers.add_parser("ledger", help="register, show, verify, void, recover, export")
    commands = ledger.add_subparsers(dest="ledger_command", required=True)
    register = commands.add_parser("register", help="set a population's lifetime budget, once")
    add_register(register)
    add_show(_add(commands, "show", "budgets, every run, and what was spent when", run_show))
    verify = _add(commands, "verify", "replay the whole chain and every rule", run_verify)
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="HASH[:MANIFEST]",
        help="a published head that must be in the chain, or whose release, named by SHA-256 of its"
        " manifest.json, was recovered; may be repeated",
    )
    verify.add_argument(
        "--key",
        action="append",
        default=[],
        type=Path,
        metavar="PUB",
        help="the public key, from elsewhere, of a person who may sign entries: another key's are"
        " refused; may be repeated",
    )
    void = _add(commands, "void", "give back an attempt of which nothing was armed", run_void)
    void.add_argument("run_key", metavar="RUN", help="the run's key, or its first digits")
    void.add_argument("--attempt", type=int, default=1, help="attempt number (1)")
    void.add_argument(
        "--state",
        required=True,
        type=Path,
        metavar="DIR",
        help="the spec's state folder; an attempt whose draw lies in its workspace stays charged",
    )
    add_signing(void)
    recover = _add(commands, "recover", "take a ledger up again that lost entries", run_recover)
    add_recover(recover)
    add_signing(recover)
    add_export(_add(commands, "export", "entries as JSON lines", run_export))


def _add(commands: Any, name: str, help_text: str, handler: Any) -> argparse.ArgumentParser:
    parser: Parser = commands.add_parser(name, help=help_text)
    parser.hint = ledger_hint
    parser.add_argument(
        "--ledger",
        required=True,
        metavar="PATH",
        help="path or sqlite:///PATH; or a release spec (.yaml), whose ledger is meant",
    )
    parser.set_defaults(handler=handler)
    return parser


def run_verify(arguments: argparse.Namespace) -> int:
    """Return 0, or the exit code of LedgerTamperedError or (with keys) of SignatureError."""
    from dpiw.ledger import Ledger
    from dpiw.release.signing import load_public_key

    heads = [_head(text) for text in arguments.head]
    keys = [load_public_key(path).key_id for path in arguments.key]
    ledger = Ledger.open(named_ledger(arguments.ledger))
    report = ledger.verify()
    if not report.ok:
        write_lines(arguments, [f"BROKEN {report.fault}"])
        return LedgerTamperedError.exit_code
    ledger.check_heads(heads)
    head = ledger.head()
    by, signatures, faults = _signatures(ledger, keys) if keys else ("", [], [])
    word = f"SIGNED BY {by}, though the chain holds" if faults else "ok"
    summary = f"{word}: {report.entries} entries"
    write_lines(arguments, [f"{summary}, head {head.hash}", *faults, *signatures, *_notes(ledger)])
    return SignatureError.exit_code if faults else 0


def _signatures(ledger: Ledger, keys: Sequence[str]) -> tuple[str, list[str], list[str]]:
    from dpiw.audit.entry_signatures import entry_signers, listed_entries

    signers = entry_signers(ledger.snapshot().export(), ())
    lines = [f"key id {key}: signed {count}" for key, count in signers.counts(keys).items()]
    if signers.unsigned:
        lines.append(f"unsigned: {len(signers.unsigned)}; confidential stages sign nothing")
    lines += [f"note: {finding.subject}: {finding.text}" for finding in signers.findings()]
    faults = [
        f"{listed_entries(entries)}: signed by key id {key}, by none of the given keys"
        for key, entries in signers.unlike(keys).items()
    ]
    if not signers.signed.keys() & set(keys):
        faults.append("no entry is signed by a given key: nothing shows who wrote them")
    return "OTHERS" if signers.signed else "NOBODY", lines, faults


def _notes(ledger: Ledger) -> list[str]:
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
        f"note: population {recovery.population} was recovered by entry {recovery.head.seq}:"
        f" {len(recovery.releases)} release(s), charged {recovery.charged.cost}"
        for recovery in ledger.recoveries()
    ]
    return notes + [
        f"note: population {population.name} has spent more than its budget; nothing more is"
        " granted, nor drawn"
        for population in ledger.populations()
        if ledger.account(population.name).overdrawn
    ]


def run_void(arguments: argparse.Namespace) -> int:
    """Void an attempt and print what its population has left."""
    from dpiw.ledger import Ledger
    from dpiw.run.restored import check_undrawn
    from dpiw.run.run import run_folder

    ledger = Ledger.open(named_ledger(arguments.ledger), key=signing_key(arguments))
    run = run_of(ledger, arguments.run_key, ledger.entries())
    name = run.population
    folder = run_folder(arguments.state, name, run.run_key)
    if not folder.is_dir():
        raise SpecError(
            "state: the folder of this run is not in its workspace; expected the spec's state"
            " folder, so that a draw that lies there is not given back"
        )
    before = False
    for attempt in run.attempts:
        if attempt.attempt == arguments.attempt and not attempt.armed:
            check_undrawn(folder, run, attempt)
            before = attempt.voided
    ledger.void(run.run_key, arguments.attempt)
    again = f"attempt {arguments.attempt} was voided before; nothing was changed"
    done = again if before else "voided"
    write_lines(arguments, [f"{done}; population {name} has {ledger.remaining(name)} left"])
    return 0


def _head(text: str) -> PublishedHead:
    from dpiw.ledger import PublishedHead

    digests = text.lower().split(":")
    if len(digests) > 2 or not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests):
        raise SpecError("head: expected HASH or HASH:MANIFEST, 64 hexadecimal digits each")
    return PublishedHead(hash=digests[0], manifest_digest=(*digests, None)[1])
