"""The command line. Only `release` reads confidential data, in processes of its own."""

from __future__ import annotations

import argparse
import errno
import functools
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dpiw import __version__
from dpiw.cli.init import add_init_command
from dpiw.cli.keys import add_key_commands
from dpiw.cli.ledger import add_ledger_commands
from dpiw.cli.local import add_local_commands
from dpiw.cli.parser import Parser, check_key, write_lines
from dpiw.cli.pipeline import add_audit_command, add_release_command
from dpiw.cli.rehearse import add_rehearse_command
from dpiw.cli.series import add_series_command, add_site_command
from dpiw.cli.workspace import add_workspace_commands
from dpiw.errors import (
    Command,
    DPIWError,
    ReleaseError,
    SchemaError,
    SpecError,
    WithdrawnError,
    install,
    shown,
)
from dpiw.series.catalogues import CATALOGUES

if TYPE_CHECKING:
    from dpiw.local.certificate import VerifiedLocal
    from dpiw.release.verification import VerifiedRelease


def _plan(arguments: argparse.Namespace) -> int:
    from dpiw.data.yaml import marked
    from dpiw.plan.plan import compile_plan
    from dpiw.plan.rehearsal.populations import released_rows
    from dpiw.plan.spec import check_header, load_schema, load_spec
    from dpiw.plan.table import plan_table
    from dpiw.run.advice import advice
    from dpiw.run.certifiable import check_certifiable
    from dpiw.run.commands import typed_commands
    from dpiw.run.run import begun, current_label

    check_key(arguments)
    with marked(arguments.spec, SpecError):
        spec = load_spec(arguments.spec)
        label = current_label(spec)
        spec.of_period(label).check_publish_to()
        schema = load_schema(spec)
        if arguments.header is not None:
            agrees = check_header(arguments.header, spec.source, schema)
        plan = compile_plan(begun(spec, schema, label).of_period(label), schema)
    check_certifiable(plan)
    if arguments.json:
        write_lines(arguments, [json.dumps(plan.to_json(), indent=2, sort_keys=True)])
        arguments.stream = sys.stderr  # a program reads the plan alone
    else:
        like = None
        if arguments.like is not None:
            spec.confidential.refuse(arguments.like, field="--like")
            like = released_rows(arguments.like, schema, public_key=arguments.key)
        table = plan_table(plan, like=like)
        write_lines(arguments, [table, *([] if arguments.header is None else [agrees])])
    arguments.commands = typed_commands(spec, arguments.spec)
    write_lines(arguments, advice(plan, arguments.spec, label, asked=False))
    return 0


def _verified(arguments: argparse.Namespace) -> VerifiedLocal | VerifiedRelease:
    from dpiw.local.certificate import is_local, verify_local
    from dpiw.release.verification import verify

    if is_local(arguments.folder):
        return verify_local(arguments.folder, public_key=arguments.key)
    return verify(arguments.folder, public_key=arguments.key, keys=arguments.keys)


def _verify(arguments: argparse.Namespace) -> int:
    write_lines(arguments, [_verified(arguments).statement])
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    try:
        verified = _verified(arguments)
    except WithdrawnError:
        if arguments.catalogue is not None or arguments.questions:
            raise  # a program would take the tombstone for what it asked for
        write_lines(arguments, _tombstone(arguments))
        return 0
    if arguments.catalogue is not None:
        text = _catalogue(verified, arguments.catalogue)
    elif arguments.questions:
        text = _answers(arguments, verified.manifest.signer.key_id)
    elif arguments.json:
        text = verified.certificate.to_json().decode()
    else:
        text = "\n".join(verified.described())
    write_lines(arguments, [text])
    return 0


def _catalogue(verified: VerifiedLocal | VerifiedRelease, form: str) -> str:
    """The release's metadata in a catalogue's form; SpecError for a local release."""
    from dpiw.release.verification import VerifiedRelease
    from dpiw.series.catalogues.forms import catalogue

    if not isinstance(verified, VerifiedRelease):
        raise SpecError(field="--catalogue", allowed="a release of synthetic rows")
    return catalogue(verified, form).decode().removesuffix("\n")


def _tombstone(arguments: argparse.Namespace) -> list[str]:
    from dpiw.release.signing import load_public_keys
    from dpiw.release.statements import read_keys
    from dpiw.release.verification import NOBODY
    from dpiw.release.withdrawn import verify_withdrawn

    keys = load_public_keys(arguments.key)
    if arguments.keys is not None:
        keys = read_keys(arguments.keys, expected=keys).public_keys
    withdrawn = verify_withdrawn(arguments.folder, public_key=keys)
    if arguments.json:
        return [withdrawn.tombstone.to_json().decode()]
    return [*([NOBODY] if keys is None else []), *withdrawn.described()]


def _answers(arguments: argparse.Namespace, signer: str) -> str:
    """The declared questions with their answers; ReleaseError where none was declared."""
    from dpiw.analysis.release import load_release
    from dpiw.release.signing import load_public_key

    keys = arguments.key or []
    key = next((path for path in keys if load_public_key(path).key_id == signer), None)
    answered = load_release(arguments.folder, public_key=key).questions()
    if answered.empty:
        allowed = "a release whose weights measured `questions` of its spec"
        raise ReleaseError("states no questions", field=str(arguments.folder), allowed=allowed)
    if arguments.json:
        return answered.to_json(orient="records")
    answered["question"] = answered["question"].where(~answered["question"].duplicated(), "")
    return answered.drop(columns="why").to_string(index=False, float_format="{:.4g}".format)


def _key_new(arguments: argparse.Namespace) -> int:
    from dpiw.release.signing import create_key_pair, load_private_key

    path: Path = arguments.path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as reason:
        raise ReleaseError(reason.strerror, field=f"folder {path.parent}") from reason
    name = path.name.removesuffix(".key")
    private, public = create_key_pair(path.parent, name)
    key_id = load_private_key(private).public.key_id
    write_lines(
        arguments,
        [f"wrote {private} (keep it secret) and {public} (give it to analysts), key id {key_id}"],
    )
    return 0


def _parser() -> Parser:
    parser = Parser(prog="dpiw")
    parser.add_argument("--version", action="version", version=f"dpiw {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    add_init_command(commands)
    plan = commands.add_parser("plan", help="calibrate a release spec; reads no data")
    plan.add_argument("spec", type=Path, help="a release spec (YAML)")
    shown_as = plan.add_mutually_exclusive_group()
    as_json = "print the plan as JSON, for programs"
    shown_as.add_argument("--json", action="store_true", help=as_json)
    earlier = "forecast questions for people like those of an earlier release"
    shown_as.add_argument("--like", type=Path, metavar="FOLDER", help=earlier)
    plan.add_argument("--key", type=Path, help="with --like: the curator's public key")
    plan.add_argument(
        "--header",
        metavar="NAMES",
        help="compare the dictionary with the table's first line, typed as text, or with the names"
        " and types of a Parquet file, and read nothing else in it",
    )
    plan.set_defaults(handler=_plan)
    add_rehearse_command(commands)
    add_release_command(commands)
    add_series_command(commands)
    add_audit_command(commands)
    add_site_command(commands)
    add_local_commands(commands)

    verify = commands.add_parser("verify", help="check a release folder, offline")
    verify.add_argument("folder", type=Path, help="the folder of one release")
    verify.add_argument(
        "--key",
        action="append",
        type=Path,
        help="public key of the curator, from the curator and not from the folder; may be repeated:"
        " one of them must have signed",
    )
    stated = "signed statement of the curator's keys (dpiw key list --json), from the curator"
    verify.add_argument("--keys", type=Path, metavar="JSON", help=stated)
    verify.set_defaults(handler=_verify)

    describe = commands.add_parser("describe", help="print what a release promises")
    describe.add_argument("folder", type=Path, help="the folder of one release")
    describe.add_argument("--key", action="append", type=Path, help="as of `dpiw verify`")
    describe.add_argument("--keys", type=Path, metavar="JSON", help="as of `dpiw verify`")
    describe.add_argument("--json", action="store_true", help="print the certificate as JSON")
    asked = "answer the questions that the release declares"
    describe.add_argument("--questions", action="store_true", help=asked)
    form = "print the metadata in the form of a data catalogue"
    describe.add_argument("--catalogue", choices=CATALOGUES, help=form)
    describe.set_defaults(handler=_describe)

    key = commands.add_parser("key", help="make, add and revoke keys").add_subparsers(
        dest="key_command", required=True, metavar="COMMAND"
    )
    new = key.add_parser("new", help="make an Ed25519 key pair: PATH.key and PATH.pub")
    new.add_argument("path", type=Path, help="where, such as keys/curator")
    new.set_defaults(handler=_key_new)
    add_key_commands(commands, key)
    add_ledger_commands(commands)
    add_workspace_commands(commands)
    schema = commands.add_parser("schema", help="print the JSON Schema of a spec or dictionary")
    schema.add_argument("document", choices=["spec", "dictionary", "local"])
    schema.set_defaults(handler=_schema)
    completion = commands.add_parser("completion", help="print a script that completes commands")
    completion.add_argument("shell", choices=("bash", "zsh"))
    completion.set_defaults(handler=functools.partial(_completion, parser))
    return parser


def _schema(arguments: argparse.Namespace) -> int:
    from dpiw.local.collector import local_schema
    from dpiw.plan.json_schema import SCHEMAS

    schema = {**SCHEMAS, "local": local_schema}[arguments.document]()
    write_lines(arguments, [json.dumps(schema, indent=2, sort_keys=True)])
    return 0


def _completion(parser: Parser, arguments: argparse.Namespace) -> int:
    import shtab

    for action in parser.every_action():
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
    script = shtab.complete(parser, shell=arguments.shell).rstrip()
    (getattr(arguments, "stream", None) or sys.stdout).write(f"{script}\n")
    return 0


def _stands_in_a_file(error: DPIWError, parsed: argparse.Namespace) -> bool:
    named = getattr(parsed, "spec", None)
    is_yaml = named is None or (named.is_file() and named.suffix in (".yaml", ".yml"))
    return isinstance(error, SchemaError) or bool(error.at and is_yaml)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; dpiw's errors become one clear line."""
    parser = _parser()
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help(sys.stderr)
        return 2
    parsed = parser.parse_args(arguments)
    parsed.words = words[1:]  # behind the command: a flow's module parses them once more
    handler: Callable[[argparse.Namespace], int] = parsed.handler
    try:
        code = handler(parsed)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # who reads, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        sys.stderr.write(f"output: {error.strerror}; `dpiw ledger show` prints what was spent\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more is said
        return os.EX_IOERR
    except DPIWError as error:
        commands: dict[Command, str] = getattr(parsed, "commands", {})
        if place := getattr(parsed, "ledger", None):
            commands.setdefault(Command.SHOW, f"dpiw ledger show --ledger {shlex.quote(place)}")
        sys.stderr.write(f"{type(error).__name__}: {shown(error.told(commands), lines=True)}\n")
        typed = "".join(words).isprintable()  # no bytes of a header in another encoding
        if typed and _stands_in_a_file(error, parsed) and parsed.command != "init":
            sys.stderr.write(f"correct it, then run: dpiw {shlex.join(words)}\n")
        return error.exit_code
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error.name} is not installed: {install('pipeline')}\n")
        return 3
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
