"""`dpiw key add | revoke | list`, `dpiw approve`, `dpiw withdraw`: what a person's key signs."""

from __future__ import annotations

import argparse
import os
import shlex
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
from dpiw.errors import REASONS, SpecError, one_of

if TYPE_CHECKING:
    from dpiw.ledger import Ledger
    from dpiw.release.signing import PrivateKey

_ROLES = ("curator", "approver")
_PUBLIC: dict[str, Any] = {
    "required": True, "type": Path, "metavar": "PUB", "help": "the public key's file",
}  # fmt: skip


def add_key_commands(commands: Any, key: Any) -> None:
    """Add `approve` and `withdraw` to the commands, and `add`, `revoke`, `list` to those of `key`.

    Their handlers write to the arguments' `stream`, if set.
    """
    approve = commands.add_parser("approve", help="agree to a run with a second key; reads no data")
    approve.add_argument("spec", type=Path, help="a release spec (YAML)")
    approve.add_argument("--period", help="label (the current period's)")
    approve.add_argument(
        "--key", required=True, type=Path, metavar="KEY", help="the approver's private key"
    )
    approve.set_defaults(handler=run_approve)
    withdraw = add_ledger_command(
        commands, "withdraw", "withdraw a published release", run_withdraw
    )
    withdraw.add_argument("folder", type=Path, help="the folder of one release, or of more rows")
    words = "; ".join(f"{name}: {meaning}" for name, meaning in REASONS.items())
    withdraw.add_argument("--reason", required=True, choices=REASONS, help=words)
    withdraw.add_argument(
        "--replaced-by", metavar="NAME",
        help="the published release to use instead; needed with --reason superseded",
    )  # fmt: skip
    add_signing(withdraw)
    add = _add(key, "add", "add a public key to a population", run_add)
    add.add_argument("--public", **_PUBLIC)
    add.add_argument("--role", required=True, choices=_ROLES, help="what the key may sign")
    revoke = _add(key, "revoke", "revoke a key, from a moment on", run_revoke)
    revoke.add_argument("--public", **_PUBLIC)
    revoke.add_argument(
        "--from", dest="ends", metavar="MOMENT", help="from when (now); the past for a stolen key"
    )
    listed = _add(key, "list", "print a population's keys and their validity", run_list)
    listed.add_argument(
        "--json", action="store_true", help="print a signed statement, for dpiw verify --keys"
    )


def _add(commands: Any, name: str, help_text: str, handler: Any) -> argparse.ArgumentParser:
    parser = add_ledger_command(commands, name, help_text, handler)
    parser.add_argument("--population", help="whose keys (the spec's, or the only population's)")
    add_signing(parser)
    return parser


def _opened(arguments: argparse.Namespace) -> tuple[Ledger, str]:
    """The ledger, and the name of the population that is meant."""
    from dpiw.ledger import Ledger

    ledger = Ledger.open(named_ledger(arguments.ledger), key=signing_key(arguments))
    if arguments.population is not None:
        return ledger, str(arguments.population)
    if names_a_spec(arguments.ledger):
        from dpiw.plan.spec import load_spec

        return ledger, load_spec(Path(arguments.ledger)).population
    names = [population.name for population in ledger.populations()]
    if len(names) != 1:
        raise SpecError("not given", field="--population", allowed=one_of("", names))
    return ledger, names[0]


def run_add(arguments: argparse.Namespace) -> int:
    """Add a key; NotApprovedError unless a key that may add it signs."""
    from dpiw.ledger.keyring import Role
    from dpiw.release.signing import load_public_key

    ledger, name = _opened(arguments)
    key = ledger.add_key(name, load_public_key(arguments.public), Role(arguments.role))
    role = key.role.value
    lines = [f"population {name}: key id {key.key_id}, {role}, from {key.since}"]
    peers = [k for k in ledger.keyring(name).keys.values() if k.role is key.role and not k.ends]
    if len(peers) < 2:
        note = "keep it elsewhere; without a valid one nothing can be reserved, ever"
        lines.append(f"note: add a second {role}'s key and {note}")
    write_lines(arguments, lines)
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke a key; NotApprovedError unless a valid key signs."""
    from dpiw.release.signing import load_public_key

    ledger, name = _opened(arguments)
    key = ledger.revoke_key(name, load_public_key(arguments.public), ends=arguments.ends)
    lines = [f"population {name}: key id {key.key_id} is revoked from {key.ends} on"]
    theirs = [k for k in ledger.keyring(name).keys.values() if k.added_by == key.public_key]
    if left := [one.key_id for one in theirs if one.ends is None]:
        lines.append(f"it added key id {', '.join(left)}: after a theft, revoke what a thief added")
    lines.append("give readers a new statement: dpiw key list --json, for dpiw verify --keys")
    write_lines(arguments, lines)
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print the keys; with `--json` the signed statement of the curators' keys."""
    from dpiw.ledger.reading import label, utc_now

    ledger, name = _opened(arguments)
    ring = ledger.keyring(name).at(label(utc_now))
    if arguments.json:
        signer = signing_key(arguments)
        if signer is None:
            allowed = "a curator's private key, valid now"
            raise SpecError("not given", field="--sign-with", allowed=allowed)
        stated = ring.statement(signer.public).signed(signer)
        write_lines(arguments, [stated.to_json().decode().rstrip()])
        return 0
    rows = [("key id", "role", "from", "until", "now", "added by")]
    for key in ring.keys.values():
        state = "valid" if key.valid(ring.moment) else "revoked"
        by = ring.keys[key.added_by].key_id if key.added_by else "nobody"
        rows.append((key.key_id, key.role.value, key.since, key.ends or "-", state, by))
    write_lines(arguments, aligned(rows) if ring.keys else [f"population {name}: no keys"])
    return 0


def run_approve(arguments: argparse.Namespace) -> int:
    """Approve a run and print its terms; reads spec, dictionary and ledger alone."""
    from dpiw.data.yaml import marked
    from dpiw.ledger import Ledger
    from dpiw.ledger.values import Charge
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
    terms = terms_of(run) | Charge(cost=spec.cost).to_payload()
    approval = ledger.approve(spec.population, run.key, terms)
    write_lines(
        arguments,
        [
            f"approved by {approval.by}, entry {approval.seq}",
            f"population  {spec.population}",
            f"release     {spec.name}, period {run.period}, run {run.key[:12]}",
            f"cost        {spec.cost} an attempt, at most {spec.max_attempts} attempt(s)",
            f"plan        {terms['plan_digest']}",
            f"left        {left}, before this release",
            f"next        the curator types: {release_command(spec, arguments.spec, run.period)}",
        ],
    )
    return 0


def run_withdraw(arguments: argparse.Namespace) -> int:
    """Withdraw a folder, and print what is left to do."""
    from dpiw.ledger import Ledger
    from dpiw.run.withdrawal import further_rows, withdraw

    key = _key(arguments)
    ledger = Ledger.open(named_ledger(arguments.ledger), key=key)
    done = withdraw(
        arguments.folder, ledger, key, reason=arguments.reason, replaced_by=arguments.replaced_by
    )
    lines = done.described()
    for folder in further_rows(arguments.folder, ledger):
        words = ["dpiw", "withdraw", os.path.relpath(folder), "--ledger", arguments.ledger]
        typed = shlex.join([*words, "--reason", arguments.reason])
        lines.append(f"of the same draws, and still published: {typed}")
    write_lines(arguments, lines)
    return 0


def _key(arguments: argparse.Namespace) -> PrivateKey:
    """The key that signs tombstone and entry: the typed one, or the spec's `signing_key`."""
    key = signing_key(arguments)
    if key is not None:
        return key
    if not names_a_spec(arguments.ledger):
        allowed = "the curator's private key; a release spec as --ledger names it by itself"
        raise SpecError(field="--sign-with", allowed=allowed)
    from dpiw.plan.spec import load_spec
    from dpiw.release.signing import load_private_key

    return load_private_key(Path(load_spec(Path(arguments.ledger)).signing_key))
