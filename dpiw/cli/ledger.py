"""`dpiw ledger register | show | verify | void | backup | ...`: a custodian's commands."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import (
    add_ledger_command,
    add_signing,
    exact_decimal,
    named_ledger,
    signing_key,
    write_lines,
)
from dpiw.cli.register import add_register
from dpiw.cli.show import add_show, run_of, run_show
from dpiw.errors import (
    KEEP_AND_AUDIT,
    LedgerConflictError,
    LedgerTamperedError,
    SignatureError,
    SpecError,
)

if TYPE_CHECKING:
    from dpiw.ledger import Ledger, PublishedHead, Recovery
    from dpiw.ledger.from_releases import MissingRelease


def add_ledger_commands(subparsers: Any) -> None:
    """Add `ledger` and its commands; handlers write to the arguments' `stream`, if set."""
    ledger = subparsers.add_parser("ledger", help="read and write the record of what was spent")
    commands = ledger.add_subparsers(dest="ledger_command", required=True)
    register = commands.add_parser("register", help="set a population's lifetime budget, once")
    add_register(register)
    add = partial(add_ledger_command, commands)
    add_show(add("show", "print budgets, runs, and what was spent when", run_show))
    verify = add("verify", "check the whole chain and every rule", run_verify)
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="HASH[:MANIFEST]",
        help="`ledger_head` of a certificate: the ledger must hold that entry, or have recovered"
        " its release (MANIFEST: SHA-256 of its manifest.json); may be repeated",
    )
    verify.add_argument(
        "--key",
        action="append",
        default=[],
        type=Path,
        metavar="PUB",
        help="public key of a person who may sign entries, got from that person: other signatures"
        " are refused; may be repeated",
    )
    void = add("void", "give back the budget of an attempt that drew nothing", run_void)
    void.add_argument("run_key", metavar="RUN", help="the run's key, or its first digits")
    void.add_argument("--attempt", type=int, default=1, help="attempt number (1)")
    void.add_argument(
        "--state",
        required=True,
        type=Path,
        metavar="DIR",
        help="the spec's state folder; an attempt whose draw is in its workspace stays charged",
    )
    add_signing(void)
    recover = add("recover", "charge again what a ledger lost", run_recover)
    add_recover(recover)
    add_signing(recover)
    backup = add("backup", "write all entries to a file, verified", run_backup)
    backup.add_argument(
        "file", metavar="FILE", type=Path, help="an earlier backup of this ledger is replaced"
    )
    restore = add("restore", "make a ledger of a backup, verified", run_restore)
    restore.add_argument("file", metavar="FILE", type=Path, help="what `dpiw ledger backup` wrote")
    _add_published(restore, required=True)
    witness = add("witness", "print the head for a witness outside", run_witness)
    form = witness.add_mutually_exclusive_group()
    form.add_argument(
        "--request", type=Path, metavar="TSQ", help="write a timestamp request (RFC 3161)"
    )
    form.add_argument(
        "--check", type=Path, metavar="TSR", help="check an authority's timestamp, offline"
    )
    witness.add_argument(
        "--certificate", type=Path, metavar="PEM", help="with --check: of the authority, or its CA"
    )


def run_verify(arguments: argparse.Namespace) -> int:
    """Return 0, or the exit code of LedgerTamperedError or (with keys) of SignatureError."""
    from dpiw.ledger import Ledger
    from dpiw.release.signing import load_public_key

    heads = [_head(text) for text in arguments.head]
    keys = [load_public_key(path).key_id for path in arguments.key]
    ledger = Ledger.open(named_ledger(arguments.ledger))
    report = ledger.verify()
    if not report.ok:
        write_lines(arguments, [f"BROKEN {report.fault}", KEEP_AND_AUDIT.typed({})])
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
            f"its workspace has no folder of run {run.run_key[:12]}",
            field="state",
            allowed="the spec's state folder, where dpiw looks for draws before it gives back",
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
        raise SpecError(field="head", allowed="HASH or HASH:MANIFEST, 64 hexadecimal digits each")
    return PublishedHead(hash=digests[0], manifest_digest=(*digests, None)[1])


def run_backup(arguments: argparse.Namespace) -> int:
    """Write a backup and print what it holds."""
    from dpiw.ledger import Ledger
    from dpiw.ledger.backup import write_backup

    count = write_backup(Ledger.open(named_ledger(arguments.ledger)), arguments.file)
    write_lines(arguments, [f"{arguments.file}: {count} entries, verified"])
    return 0


def run_restore(arguments: argparse.Namespace) -> int:
    """Make a ledger of a backup; return 0, or LedgerTamperedError's code if a release is missing.

    The releases are read first, so that a wrong folder or key leaves no ledger.
    """
    from dpiw.ledger.backup import read_backup, restore
    from dpiw.ledger.entries import EntryKind
    from dpiw.ledger.from_releases import missing_releases, verified_releases

    entries = read_backup(arguments.file)
    location = named_ledger(arguments.ledger)
    full = [root for root in arguments.releases if not root.is_dir() or any(root.iterdir())]
    releases = verified_releases(full, arguments.key)
    ledger = restore(location, entries)
    last = entries[-1]
    lines = [f"restored: {last.seq} entries, verified; the last is of {last.at}"]
    missing = [one for several in missing_releases(ledger, releases).values() for one in several]
    lines += [f"missing: {one.release.certificate.release_id}, published later" for one in missing]
    command = ["dpiw", "ledger", "recover", "--ledger", arguments.ledger]
    command += [word for root in full for word in ("--releases", str(root))]
    command += [word for key in arguments.key for word in ("--key", str(key))]
    if any(entry.kind is EntryKind.KEY for entry in entries):
        command += ["--sign-with", "CURATOR.key"]
    lines += [
        f"draws and reads later than {last.at} are not in this ledger, so"
        f" {'before you' if missing else 'if there were any, before you'} release, type:",
        f"  {shlex.join(command)} --loss-epsilon E --loss-delta D --loss-reads N"
        + ("" if missing else " --loss-only --population NAME"),
    ]
    write_lines(arguments, lines)
    return LedgerTamperedError.exit_code if missing else 0


def _add_published(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "--releases", default=[], action="append", type=Path, metavar="FOLDER", required=required,
        help="a release, or a folder of releases; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--key", default=[], action="append", type=Path, metavar="PUB", required=required,
        help="the curator's public key; may be repeated: older keys too",
    )  # fmt: skip


def add_recover(parser: argparse.ArgumentParser) -> None:
    """The arguments of `recover`."""
    _add_published(parser)
    parser.add_argument("--population", help="needed if several populations lost releases")
    parser.add_argument(
        "--loss-epsilon", required=True, metavar="EPSILON",
        help="epsilon of draws that no release shows; type 0 if there are none",
    )  # fmt: skip
    parser.add_argument("--loss-delta", required=True, metavar="DELTA", help="their delta")
    parser.add_argument(
        "--loss-reads", required=True, type=int, metavar="READS",
        help="lost reads of the table that ended without a draw; type 0 if there are none",
    )  # fmt: skip
    parser.add_argument(
        "--loss-only", action="store_true",
        help="charge a loss though no release is missing; then --releases may be left out",
    )  # fmt: skip
    parser.add_argument(
        "--previous-lost", action="store_true",
        help="the release before a missing one is lost too: charge all that was spent by then",
    )  # fmt: skip


def run_recover(arguments: argparse.Namespace) -> int:
    """Recover one population and print what was done."""
    from dpiw.ledger import Ledger
    from dpiw.ledger.from_releases import missing_releases, recover, verified_releases

    loss = {
        "loss_epsilon": exact_decimal("loss-epsilon", arguments.loss_epsilon),
        "loss_delta": exact_decimal("loss-delta", arguments.loss_delta),
        "loss_reads": arguments.loss_reads,
    }
    if not arguments.loss_only and not (arguments.releases and arguments.key):
        raise SpecError(field="releases, key", allowed="both, or --loss-only for a loss alone")
    ledger = Ledger.open(named_ledger(arguments.ledger), key=signing_key(arguments))
    missing = missing_releases(ledger, verified_releases(arguments.releases, arguments.key))
    name = _population(arguments, missing)
    releases = missing.get(name, ())
    if not releases and not (arguments.loss_only and any(loss.values())):
        raise LedgerConflictError(
            "nothing to recover: the ledger knows these releases. Lost draws that no release shows"
            " are charged with --loss-only",
            field=f"population {name}",
        )
    recovery = recover(ledger, name, releases, previous_lost=arguments.previous_lost, **loss)
    report = ledger.check()
    lines = [
        *_recovery_lines(recovery, releases),
        f"population {name} has spent {ledger.spent(name)}; {ledger.remaining(name)} is left",
        f"ledger verifies: {report.entries} entries",
        *_others(ledger, name),
    ]
    write_lines(arguments, lines)
    return 0


def _population(
    arguments: argparse.Namespace, missing: dict[str, tuple[MissingRelease, ...]]
) -> str:
    if arguments.population is not None:
        return str(arguments.population)
    if len(missing) == 1:
        return next(iter(missing))
    if arguments.loss_only:
        raise SpecError("needed with --loss-only: whose loss it is", field="population")
    if not missing:
        raise LedgerConflictError(
            "nothing to recover: the ledger knows every release in these folders"
        )
    raise SpecError(
        "several populations lost releases, and each is recovered by itself",
        field="population",
        allowed=f"--population with one of {', '.join(sorted(missing))}",
    )


def _others(ledger: Ledger, name: str) -> list[str]:
    others = [population.name for population in ledger.populations() if population.name != name]
    if not others:
        return []
    return [
        f"also in this ledger: {', '.join(others)}. If entries were lost, state the losses of"
        " each (--population NAME --loss-only)"
    ]


def _recovery_lines(recovery: Recovery, releases: Sequence[MissingRelease]) -> list[str]:
    lines = [
        f"recovered {release.release.certificate.release_id}: head {record.hash[:12]} was missing;"
        f" its certificate states {record.charge.cost}"
        for release, record in zip(releases, recovery.releases, strict=True)
    ]
    return [
        *lines,
        f"stated loss: {recovery.loss.cost}, and {recovery.reads} reads without a draw",
        f"charged in all: {recovery.charged.cost}, by entry {recovery.head.seq}",
    ]


def run_witness(arguments: argparse.Namespace) -> int:
    """Print the head, write a timestamp request of it, or check a timestamp against the chain."""
    from dpiw.data.files import write_durably
    from dpiw.ledger import Ledger
    from dpiw.ledger.witness import timestamp_request, witnessed

    if (arguments.check is None) is not (arguments.certificate is None):
        raise SpecError(field="--check, --certificate", allowed="both, or neither of them")
    ledger = Ledger.open(named_ledger(arguments.ledger))
    ledger.check()
    if arguments.check is not None:
        shown, trusted = (_bytes(path) for path in (arguments.check, arguments.certificate))
        entry, at = witnessed(shown, trusted, ledger.entries(), location=ledger.location)
        line = f"ok: entry {entry.seq}, head {entry.hash}, was there at {at:%Y-%m-%dT%H:%M:%SZ}"
        write_lines(arguments, [line])
        return 0
    head = ledger.head().hash
    lines = [f"dpiw ledger head {head}"]
    if arguments.request is not None:
        write_durably(arguments.request, timestamp_request(head))
        lines.append(f"wrote {arguments.request}: send it to a timestamp authority")
    else:
        lines.append(f"check it later: dpiw ledger verify --ledger PATH --head {head}")
    write_lines(arguments, lines)
    return 0


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as reason:
        raise SpecError(reason.strerror, field=f"file {path.name}") from reason
