"""`dpiw init FOLDER`: drafts a data dictionary and a spec from metadata.

Privacy: opens the metadata file and what it names beside it; never the table or the network.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpiw.cli.parser import Parser, counted, write_lines
from dpiw.errors import SpecError

_SOURCES = {
    "header": ("TEXT", "the names of the columns, as the table's first line has them"),
    "table-schema": ("FILE", "Frictionless Table Schema or data package (.json)"),
    "ddi": ("FILE", "DDI-Codebook (.xml)"),
    "sql": ("FILE", "CREATE TABLE statements (.sql); a dump with rows is refused"),
}


_ENCODINGS = ("utf-8", "latin-1", "cp1252")
_TEXTS = (".csv", ".tsv", ".txt")


def add_init_command(subparsers: Any) -> None:
    """Add `init` to what `ArgumentParser.add_subparsers` returned; sets `handler`."""
    parser: Parser = subparsers.add_parser(
        "init", help="draft a data dictionary and a spec from metadata"
    )
    parser.add_argument("folder", type=Path, help="where the drafts go; made if it is not there")
    sources = parser.add_mutually_exclusive_group(required=True)
    for name, (metavar, text) in _SOURCES.items():
        sources.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument("--name", help="name of both drafts (default: of the metadata or FOLDER)")
    parser.add_argument("--table", help="which table, if the metadata has several")
    parser.add_argument("--identifier", metavar="COLUMN", help="the column that names the person")
    parser.add_argument("--target", metavar="COLUMN", help="the column that analysts predict")
    parser.add_argument("--dialect", default="", help="dialect of --sql: postgres, mysql, ...")
    parser.add_argument("--delimiter", default=",", help="between names of a header (,)")
    parser.add_argument("--encoding", choices=_ENCODINGS, default=_ENCODINGS[0],
                        help=f"encoding of a header ({_ENCODINGS[0]})")  # fmt: skip
    parser.set_defaults(handler=run_init)
    parser.hint = init_hint


def init_hint(words: Sequence[str]) -> str:
    """What to type if `init` got no source in these words; empty if it got one. Opens no file."""
    options = {word.partition("=")[0] for word in words}
    if options & {f"--{name}" for name in _SOURCES}:
        return ""
    places = [word for word in words if not word.startswith("-")]
    table = next((place for place in places if Path(place).suffix.lower() in _TEXTS), "TABLE.csv")
    folder = next((place for place in places if place != table), Path(table).stem)
    quoted, line = shlex.quote(folder), table if table == "TABLE.csv" else shlex.quote(table)
    return (
        "dpiw init opens no table; from its first line, if that is the names of the columns:\n"
        f'  dpiw init {quoted} --header "$(head -n 1 {line})"\n'
    )


def run_init(arguments: argparse.Namespace) -> int:
    """Draft and write the files, and print the next step. Nothing is overwritten."""
    from dpiw.data.schema.columns import ColumnRole
    from dpiw.data.schema.dictionary import open_fields
    from dpiw.data.yaml import load_text
    from dpiw.plan.drafts.formats import draft_table
    from dpiw.plan.drafts.writer import (
        DICTIONARY,
        SPEC,
        dictionary_name,
        drafted_files,
        next_commands,
    )

    if len(arguments.delimiter) != 1:
        tab = "; a tab is $'\\t' in bash" if arguments.delimiter == "\\t" else ""
        raise SpecError(field="--delimiter", allowed=f"one character{tab}")
    chosen, place = next(
        (name, value)
        for name in _SOURCES
        if (value := getattr(arguments, name.replace("-", "_"))) is not None
    )
    draft = draft_table(
        chosen,
        place,
        table=arguments.table,
        dialect=arguments.dialect,
        delimiter=arguments.delimiter,
        encoding=arguments.encoding,
    )
    for column, role in (
        (arguments.identifier, ColumnRole.IDENTIFIER), (arguments.target, ColumnRole.TARGET),
    ):  # fmt: skip
        draft = draft if column is None else draft.with_role(column, role)
    folder: Path = arguments.folder
    name = dictionary_name(arguments.name or "", draft.name, folder.resolve().name, "table")
    files = drafted_files(
        draft,
        name=name,
        origin=f"from --{chosen}",
        delimiter=arguments.delimiter,
        encoding=arguments.encoding,
    )
    _write(folder, files)
    quoted = shlex.quote(str(folder))
    still = sum(
        len(open_fields(load_text(text, what=name, exact=True)))
        for name, text in files.items()
        if name in (DICTIONARY, SPEC)
    )
    sizes = f"{counted(len(draft.columns), 'column')}, {counted(still, 'open field')}"
    write_lines(
        arguments,
        [
            f"wrote {', '.join(sorted(files))} to {folder}: {sizes}; no data was read",
            "settle every TODO by public knowledge, then type",
            *(f"  {line}" for line in next_commands(quoted)),
        ],
    )
    return 0


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(name for name in files if (folder / name).exists())
        if there:
            raise SpecError(
                f"{folder} holds {', '.join(there)} already", field="init", allowed="a new folder"
            )
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as reason:
        fault = f"{folder} cannot be written: {reason.strerror}"
        raise SpecError(fault, field="init", allowed="a folder that you may write to") from None
