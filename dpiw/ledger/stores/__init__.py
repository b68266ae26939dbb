"""The database of the append-only table; only a store's own module names it."""

import os
import re
from pathlib import Path

from dpiw.errors import LedgerError, install
from dpiw.ledger.location import EXPECTED, check_location
from dpiw.ledger.stores.sqlite import SQLiteStore
from dpiw.ledger.stores.store import Store


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store that a path or URL names, nothing read yet; else LedgerError, without the URL."""
    text = os.fspath(url)
    check_location(text, error=LedgerError)
    if "://" not in text:
        return SQLiteStore(Path(text).absolute())
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(text)
    except (ArgumentError, ValueError):
        raise LedgerError(EXPECTED, field="ledger") from None
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_store(parsed.database, dict(parsed.query))
    try:
        from dpiw.ledger.stores.postgresql import PostgreSQLStore
    except ImportError as error:
        needed = f"PostgreSQL needs psycopg; {install('postgresql')}"
        raise LedgerError(needed, field="ledger") from error
    return PostgreSQLStore(parsed)


def _sqlite_store(name: str | None, options: dict[str, str | tuple[str, ...]]) -> SQLiteStore:
    kind = options.pop("local_file_system", None)
    if not name or name == ":memory:" or name.startswith("file:") or options:
        allowed = "sqlite:///PATH of a file, with no option but local_file_system"
        raise LedgerError(field="ledger", allowed=allowed)
    if kind is not None and not (isinstance(kind, str) and re.fullmatch(r"[\w.-]{1,64}", kind)):
        raise LedgerError(field="ledger", allowed="one type of file system as local_file_system")
    return SQLiteStore(Path(name).absolute(), local_file_system=kind)
