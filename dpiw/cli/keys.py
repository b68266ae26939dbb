"""`dpiw approve`, `dpiw key add | revoke | list`: who may spend, and what was agreed to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import (
    add_ledger_command,
    add_signing,
    aligned,
    named_ledger,
    names_a_spec,
    signing_key,
    write_lines,
)
from dpiw.errors import SpecError, one_of

if TYPE_CHECKING:
    from dpiw.ledger import Ledger
    from dpiw.ledger.keyring import Keyring, RingKey

_ROLES = ("curator", "approver")


def add_key_commands(commands: Any, key: Any) -> None:
    """Add `approve` to the commands, and `add`, `revoke` and `list` to those of `key`."""
    approve = commands.add_parser("approve", help="agree to a run with a second key; reads no data")
    approve.add_argument("spec", type=Path, help="a release spec (YAML)")
    approve.add_argument("--period", help="label (the current period's)")
    approve.add_argument(
        "--key", required=True, type=Path, metavar="KEY", help="the approver's private key"
    )
    approve.set_defaults(handler=run_approve)
    add = _add(key, "add", "add a public key to a population", run_add)
    _public(add)
    add.add_argument("--role", required=True, choices=_ROLES, help="what the key may sign")
    add.add_argument("--from", dest="since", metavar="MOMENT", help="valid from (now)")
    add.add_argument("--until", metavar="MOMENT", help="valid until, such as 2028-01-31T00:00:00Z")
    add_signing(add)
    revoke = _add(key, "revoke", "revoke a key, from a moment on", run_revoke)
    _public(revoke)
    revoke.add_argument(
        "--from", dest="since", metavar="MOMENT", help="from when (now); the past for a stolen key"
    )
    add_signing(revoke)
    listed = _add(key, "list", "print a population's keys and their validity", run_list)
    listed.add_argument(
        "--json", action="store_true", help="print a signed statement, for dpiw verify --keys"
    )
    add_signing(listed)


def _add(commands: Any, name: str, help_text: str, handler: Any) -> argparse.ArgumentParser:
    parser = add_ledger_command(commands, name, help_text, handler)
    parser.add_argument("--population", help="whose keys (the spec's, or the only population's)")
    return parser


def _public(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--public", required=True, type=Path, metavar="PUB", help="the public key's file"
    )


def _opened(arguments: argparse.Namespace, *, signing: bool = True) -> tuple[Ledger, str]:
    from dpiw.ledger import Ledger

    key = signing_key(arguments) if signing else None
    ledger = Ledger.open(named_ledger(arguments.ledger), key=key)
    if arguments.population is not None:
        return ledger, str(arguments.population)
    if names_a_spec(arguments.ledger):
        from dpiw.plan.spec import load_spec

        return ledger, load_spec(Path(arguments.ledger)).population
    names = [population.name for population in ledger.populations()]
    if len(names) != 1:
        raise SpecError("not given", field="--population", allowed=one_of("", names))
    return ledger, names[0]


def _hexadecimal(path: Path) -> str:
    from dpiw.release.signing import load_public_key

    return load_public_key(path).raw.hex()


def run_add(arguments: argparse.Namespace) -> int:
    """Add a key; NotApprovedError unless a key that may add it signs."""
    from dpiw.ledger.keyring import Role

    ledger, name = _opened(arguments)
    key = ledger.add_key(
        name,
        _hexadecimal(arguments.public),
        Role(arguments.role),
        since=arguments.since,
        until=arguments.until,
    )
    until = f" until {key.until}" if key.until else ""
    said = f"population {name}: key id {key.key_id}, {key.role.value}, from {key.since}{until}"
    peers = [one for one in ledger.keyring(name).keys if one.role is key.role and one.ends is None]
    few = (
        f"note: add a second {key.role.value}'s key and keep it elsewhere; without a valid one"
        " nothing can be reserved, ever"
    )
    write_lines(arguments, [said, *([few] if len(peers) < 2 else [])])
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke a key; NotApprovedError unless a valid key signs."""
    ledger, name = _opened(arguments)
    key = ledger.revoke_key(name, _hexadecimal(arguments.public), since=arguments.since)
    lines = [f"population {name}: key id {key.key_id} is revoked from {key.revoked} on"]
    theirs = [one for one in ledger.keyring(name).keys if one.added_by == key.key_id]
    if left := [one.key_id for one in theirs if one.revoked is None]:
        lines.append(f"it added key id {', '.join(left)}: after a theft, revoke what a thief added")
    lines.append("give readers a new statement: dpiw key list --json, for dpiw verify --keys")
    write_lines(arguments, lines)
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print the keys; with `--json` the signed statement of the curators' keys."""
    from dpiw.ledger.reading import label, utc_now

    ledger, name = _opened(arguments)
    ring = ledger.keyring(name)
    if arguments.json:
        write_lines(arguments, [_statement(arguments, ledger, ring).decode().rstrip()])
        return 0
    now = ring.now(label(utc_now))
    rows = [("key id", "role", "from", "until", "now", "added by")]
    rows += [
        (k.key_id, k.role.value, k.since, k.ends or "-", _state(k, now), k.added_by or "nobody")
        for k in ring.keys
    ]
    approved = f"{len(ring.approvals)} approvals"
    write_lines(arguments, aligned(rows) if ring.keys else [f"population {name}: no keys"])
    write_lines(arguments, [approved] if ring.needs_approval else [])
    return 0


def _state(key: RingKey, now: str) -> str:
    if key.valid(now):
        return "valid"
    if key.revoked is not None and key.revoked <= now:
        return "revoked"
    return "expired" if key.outlasts(key.since) and not key.outlasts(now) else "not yet valid"


def _statement(arguments: argparse.Namespace, ledger: Ledger, ring: Keyring) -> bytes:
    from dpiw.ledger.witness import statement_of

    key = signing_key(arguments)
    if key is None:
        raise SpecError(
            "not given", field="--sign-with", allowed="a curator's private key, valid now"
        )
    return statement_of(ledger, ring.population, key)


def run_approve(arguments: argparse.Namespace) -> int:
    """Approve a run and print its terms; reads spec, dictionary and ledger alone."""
    from dpiw.data.yaml import marked
    from dpiw.ledger import Ledger
    from dpiw.plan.spec import load_schema, load_spec
    from dpiw.release.signing import load_private_key
    from dpiw.run.ahead import check_label, check_spends, terms_of
    from dpiw.run.commands import release_command, typed_commands
    from dpiw.run.declared import check_registered
    from dpiw.run.run import RunRequest, ledger_url

    key = load_private_key(arguments.key)
    with marked(arguments.spec, SpecError):
        spec = load_spec(arguments.spec)
        schema = load_schema(spec)
        check_spends(spec)
        check_label(spec, arguments.period)
    arguments.commands = typed_commands(spec, arguments.spec)
    run = RunRequest.settled(spec, schema, arguments.spec, period=arguments.period)
    ledger = Ledger.open(ledger_url(spec), key=key)
    check_registered(spec, ledger)
    left = ledger.remaining(spec.population)
    terms: dict[str, Any] = terms_of(run)
    approval = ledger.approve(spec.population, run.key, cost=spec.cost, **terms)
    write_lines(
        arguments,
        [
            f"approved by key id {approval.key_id}, entry {approval.head.seq}",
            f"population  {spec.population}",
            f"release     {spec.name}, period {run.period}, run {run.key[:12]}",
            f"cost        {spec.cost} an attempt, at most {spec.max_attempts} attempt(s)",
            f"plan        {terms['plan_digest']}",
            f"left        {left}, before this release",
            f"next        the curator types: {release_command(spec, arguments.spec, run.period)}",
        ],
    )
    return 0
