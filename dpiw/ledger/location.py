"""Where a ledger lies: a path or a URL, checked before anything opens, stores or repeats it.

Locations reach run records, reports, a scheduler's database and errors: never repeat text that
fails here, which may hold a mistyped password. Needs no database library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from dpiw.errors import Command, DPIWError, LedgerError, LedgerTamperedError, Next

EXPECTED = "expected a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"

CHARGED_THERE = (
    "a new ledger knows nothing of earlier spending: if these people have a ledger, name that one"
    " (state: or ledger: of the spec, such as state: ../gardens/state)"
)
"""Warning for a user who begins a ledger."""


def unusable(ledger: object, found: str, *, allowed: str = "") -> LedgerError:
    """The error about the ledger at this path or URL."""
    return LedgerError(found, field=f"ledger {ledger}", allowed=allowed)


def tampered(ledger: object, found: object, *, next: Iterable[Next] = ()) -> LedgerTamperedError:
    """The error about the content of the ledger at this path or URL."""
    return LedgerTamperedError(found, field=f"ledger {ledger}", next=next)


BEGIN = Next("to begin one", Command.REGISTER, " --create")


def no_ledger(found: str, *, begin: bool = True) -> LedgerError:
    """The error for a ledger that does not exist; its `absent` is `found`.

    `begin`: also say how to begin one.
    """
    error = LedgerError(f"{found}\n{CHARGED_THERE}", next=[BEGIN]) if begin else LedgerError(found)
    error.absent = found
    return error


POSTGRESQL_OPTIONS = frozenset(
    {
        "host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding",
        "gssencmode", "krbsrvname", "connect_timeout", "passfile", "target_session_attrs",
    }
)  # fmt: skip
"""Admissible options: where to connect and how; none sets session behaviour or a password."""

_SCHEMES = {"sqlite": frozenset({"local_file_system"}), "postgresql+psycopg": POSTGRESQL_OPTIONS}

_PASSWORD = re.compile(r":.*@|pass(word|wd|phrase)?\s*=|\bpwd\s*=", re.IGNORECASE | re.DOTALL)
"""`user:secret@` in any form, or a setting that holds a password."""

_SETTINGS = re.compile(r"\b(host|hostaddr|port|dbname|user)\s*=", re.IGNORECASE)
"""libpq's key=value form of a database name, which is not accepted."""


def check_location(text: str, *, error: type[DPIWError]) -> None:
    """Raise `error`, without the text, if it may hold a password or cannot name a ledger."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme not in _SCHEMES:
        match = re.fullmatch(r"[a-z]+(\+[a-z0-9]+)?", scheme)
        raise error(f"{(scheme if match else 'this')} is not supported; {EXPECTED}", field="ledger")
    inner = rest if separator else text
    if any(_PASSWORD.search(reading) for reading in (inner, unquote(inner))):
        raise error(
            "holds a password, or what looks like one; a URL must hold no password: put"
            " it where PGPASSFILE says",
            field="ledger",
        )
    if not separator:
        if _SETTINGS.search(text) or ":" in text.split("/")[0] or not text.strip():
            raise error(EXPECTED, field="ledger")
        return
    options = {name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
    if not options <= _SCHEMES[scheme]:
        raise error(
            "its URL has an option that is not admissible",
            field="ledger",
            allowed=f"none but {', '.join(sorted(_SCHEMES[scheme]))}",
        )


def absolute_location(text: str, base: Path) -> str:
    """The location with a relative file path resolved from the folder `base`."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return str(base / Path(text).expanduser())
    if scheme != "sqlite":
        return text
    path, mark, options = rest.removeprefix("/").partition("?")
    return f"sqlite:///{base / Path(path).expanduser()}{mark}{options}"
