"""`dpiw ledger recover | export`: recover a ledger that lost entries, and export its chain."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpiw.cli.parser import (
    check_population,
    exact_decimal,
    named_ledger,
    signing_key,
    write_lines,
)
from dpiw.errors import LedgerConflictError, LedgerTamperedError, SpecError

if TYPE_CHECKING:
    from dpiw.ledger import Entry, Ledger, Recovery
    from dpiw.ledger.from_releases import MissingRelease

_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?")


def add_recover(parser: argparse.ArgumentParser) -> None:
    """The arguments of `recover`."""
    parser.add_argument(
        "--releases", default=[], action="append", type=Path, metavar="FOLDER",
        help="a release, or a folder of releases; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--key", default=[], action="append", type=Path, metavar="PUB",
        help="the curator's public key; may be repeated after a change of keys",
    )  # fmt: skip
    parser.add_argument("--population", help="which one, if several have missing releases")
    parser.add_argument(
        "--loss-epsilon", required=True, metavar="EPSILON",
        help="what was drawn after the last release and is on no record; 0 must be typed",
    )  # fmt: skip
    parser.add_argument("--loss-delta", required=True, metavar="DELTA", help="its delta")
    parser.add_argument(
        "--loss-reads", required=True, type=int, metavar="READS",
        help="reads of the table that ended without a draw and are on no record; 0 must be typed",
    )  # fmt: skip
    parser.add_argument(
        "--loss-only", action="store_true",
        help="state a loss though no release is missing; --releases may then be left out",
    )  # fmt: skip
    parser.add_argument(
        "--previous-lost", action="store_true",
        help="the release before a missing one is lost, too: charge all that was spent by then",
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
        raise SpecError("releases, key: expected both, unless --loss-only is said")
    ledger = Ledger.open(named_ledger(arguments.ledger), key=signing_key(arguments))
    missing = missing_releases(ledger, verified_releases(arguments.releases, arguments.key))
    name = _population(arguments, missing)
    releases = missing.get(name, ())
    if not releases and not (arguments.loss_only and any(loss.values())):
        raise LedgerConflictError(
            f"population {name}: nothing to recover; every head of these releases is in the ledger"
            " or recovered"
        )
    recovery = recover(ledger, name, releases, previous_lost=arguments.previous_lost, **loss)
    report = ledger.verify()
    if not report.ok:
        raise LedgerTamperedError(f"ledger {ledger.location}: {report.fault}")
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
        raise SpecError("population: needed with --loss-only")
    if not missing:
        raise LedgerConflictError(
            "nothing to recover: every head of these releases is in the ledger or recovered"
        )
    raise SpecError(f"population: expected one of {', '.join(sorted(missing))}, each by itself")


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


def add_export(parser: argparse.ArgumentParser) -> None:
    """The arguments of `export`."""
    parser.add_argument(
        "--since", metavar="SEQ|DATE", help="from this entry on, or from the first of this day on"
    )
    parser.add_argument("--population", help="only entries of this one")


def run_export(arguments: argparse.Namespace) -> int:
    """Write entries as JSON lines; docs/operations.md says how to check their chain."""
    from dpiw.ledger import Ledger

    all_entries = Ledger.open(named_ledger(arguments.ledger)).entries()
    check_population(all_entries, arguments.population)
    entries = since(all_entries, arguments.since)
    write_lines(
        arguments,
        (
            json.dumps(entry.to_json(), sort_keys=True)
            for entry in entries
            if arguments.population in (None, entry.population)
        ),
    )
    return 0


def since(entries: Sequence[Entry], text: str | None) -> Sequence[Entry]:
    """Entries from a number on, or from the first whose time label (UTC) is not earlier.

    Raises:
        SpecError: neither a number nor `2027-01-31` nor `2027-01-31T06:00:00Z`.
    """
    if text is None:
        return entries
    if text.isdecimal():
        return [entry for entry in entries if entry.seq >= int(text)]
    if not _MOMENT.fullmatch(text):
        raise SpecError("since: expected an entry's number, 2027-01-31 or 2027-01-31T06:00:00Z")
    first = next((i for i, entry in enumerate(entries) if entry.at >= text), len(entries))
    return entries[first:]
