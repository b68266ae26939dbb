"""Where a ledger lies: a path or a URL, looked at before anything opens, stores or repeats it.

A ledger's location is written into run records, audit reports and a scheduler's database, and is
named in errors. It must hold no password, however it was mistyped: nothing that fails here is ever
repeated. Needs no database library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote

EXPECTED = "expected a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"

_TERMS = "--epsilon E --delta D --relation RELATION"

REGISTER = f"dpiw ledger register {{name}} --ledger {{ledger}} {_TERMS}"
"""What a custodian types to register a population: a format of its name and the location."""

AS_IN_THE_SPEC = " (RELATION, --id-column and --max-rows as in the spec)"
"""What goes with it where no spec is known."""

BEGIN = f"{REGISTER.format(name='NAME', ledger='PATH')} --create"

CHARGED_THERE = (
    "a new ledger knows nothing of what was spent before: people who have one already are charged"
    " there, so set state: (or ledger:) of the spec to it, such as state: ../gardens/state"
)
"""What whoever is about to begin a ledger, or has just done it, is told."""

HOW_TO_BEGIN = (
    "a ledger is never created by opening it; to read or audit one, name its curator's file;"
    f" {CHARGED_THERE}; to begin one: {BEGIN}"
)

SQLITE_OPTIONS = frozenset({"local_file_system"})

POSTGRESQL_OPTIONS = frozenset(
    {
        "host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding",
        "gssencmode", "krbsrvname", "connect_timeout", "passfile", "target_session_attrs",
    }
)  # fmt: skip
"""Where to connect and how; nothing that sets what the session does. `password` is not one."""

_SCHEMES = {"sqlite": SQLITE_OPTIONS, "postgresql+psycopg": POSTGRESQL_OPTIONS}

_PASSWORD = re.compile(r":.*@|pass(word|wd|phrase)?\s*=|\bpwd\s*=", re.IGNORECASE | re.DOTALL)
"""`user:secret@` in any disguise, or a setting that holds one."""

_SETTINGS = re.compile(r"\b(host|hostaddr|port|dbname|user)\s*=", re.IGNORECASE)
"""libpq's own way to name a database, which is not ours."""


def check_location(text: str, *, error: Callable[[str], Exception]) -> None:
    """Raise `error` unless `text` may name a ledger, without repeating any of it.

    Raises:
        error: it holds a password, or what looks like one; it is neither a path nor a URL of a
            store that is supported; or its URL has an option that is not admissible.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme not in _SCHEMES:
        match = re.fullmatch(r"[a-z]+(\+[a-z0-9]+)?", scheme)
        raise error(f"ledger: {scheme if match else 'this'} is not supported; {EXPECTED}")
    inner = rest if separator else text
    if any(_PASSWORD.search(reading) for reading in (inner, unquote(inner))):
        raise error(
            "ledger: holds a password, or what looks like one; a URL must hold no password: put it"
            " where PGPASSFILE says"
        )
    if not separator:
        if _SETTINGS.search(text) or ":" in text.split("/")[0] or not text.strip():
            raise error(f"ledger: {EXPECTED}")
        return
    options = {name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
    if not options <= _SCHEMES[scheme]:
        raise error(
            "ledger: its URL has an option that is not admissible; expected none but "
            f"{', '.join(sorted(_SCHEMES[scheme]))}"
        )


def absolute_location(text: str, base: Path) -> str:
    """The location with a relative path of a file taken from the folder `base`."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return str(base / Path(text).expanduser())
    if scheme != "sqlite":
        return text
    path, mark, options = rest.removeprefix("/").partition("?")
    return f"sqlite:///{base / Path(path).expanduser()}{mark}{options}"
