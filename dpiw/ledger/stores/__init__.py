"""The database of the append-only table; only a store's own module names it."""

import os
from pathlib import Path

from dpiw.errors import LedgerError
from dpiw.ledger.location import EXPECTED, check_location
from dpiw.ledger.stores.sqlite import SQLiteStore, sqlite_store
from dpiw.ledger.stores.store import Store


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store that a path or URL names, nothing read yet; else LedgerError, without the URL."""
    text = os.fspath(url)
    check_location(text, error=LedgerError)
    if "://" not in text:
        return SQLiteStore(Path(text).absolute())
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from dpiw.ledger.stores.postgresql import PostgreSQLStore

    try:
        parsed = make_url(text)
    except (ArgumentError, ValueError):
        raise LedgerError(EXPECTED, field="ledger") from None
    if parsed.get_backend_name() == "sqlite":
        return sqlite_store(parsed)
    return PostgreSQLStore(parsed)
