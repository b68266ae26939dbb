"""Where a ledger lies: a path or a URL, checked before anything opens, stores or repeats it.

Locations reach run records, reports, a scheduler's database and errors: never repeat text that
fails here, which may hold a mistyped password. Needs no database library.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from dpiw.errors import KEEP_AND_AUDIT, Command, DPIWError, LedgerError, LedgerTamperedError, Next

EXPECTED = "expected a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"

CHARGED_THERE = (
    "a new ledger knows nothing of earlier spending: if these people have a ledger, name that one"
    " (state: or ledger: of the spec, such as state: ../gardens/state)"
)
"""Warning for a user who begins a ledger."""


def unusable(ledger: object, found: str, *, allowed: str = "") -> LedgerError:
    """The error about the ledger at this path or URL."""
    return LedgerError(found, field=f"ledger {ledger}", allowed=allowed)


def tampered(
    ledger: object, found: object, *, next: Iterable[Next] = (KEEP_AND_AUDIT,)
) -> LedgerTamperedError:
    """The error about the content of the ledger at this path or URL."""
    return LedgerTamperedError(found, field=f"ledger {ledger}", next=next)


class Faults:
    """What several stores find."""

    LOCKED = "locked by another process: wait until that process ends, then start the run again"
    DAMAGED = "not a database, or damaged: name the ledger's own file, or restore it from a backup"
    REFUSED = "the database refused the entry, because a guard of the ledger forbids it"
    OLDER = (
        "an earlier version of dpiw made it, without this kind of entry: while nothing runs, type"
        " `dpiw ledger backup`, move the ledger away, and type `dpiw ledger restore`"
    )
    TABLE_GONE = "its table is gone: somebody removed or renamed it"
    GUARDS_CHANGED = "its append-only guards were changed, so entries may have been changed, too"


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
            "holds a password, or what looks like one. Take it out of the URL, and put it into the"
            " file that the variable PGPASSFILE names",
            field="ledger",
        )
    if not separator:
        if _SETTINGS.search(text) or ":" in text.split("/")[0] or not text.strip():
            raise error(EXPECTED, field="ledger")
        return
    options = {name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
    if not options <= _SCHEMES[scheme]:
        raise error(
            "the URL has an option that dpiw does not allow",
            field="ledger",
            allowed=f"no other options than {', '.join(sorted(_SCHEMES[scheme]))}",
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
