"""On which stores a test runs, and where a place's ledger lies."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from tests.crash.harness import Place, make_place


def on_stores(*kinds: str) -> Callable[[Any], Any]:
    """Run a test on these stores; without this, on SQLite."""

    def mark(test):
        test.stores = kinds
        return test

    return mark


class Ledgers:
    """URLs of ledgers that do not exist yet, of one kind of store."""

    def __init__(self, kind: str, server: Any | None) -> None:
        self.kind = kind
        self._server = server
        self._spare: list[str] = []
        self._lock = threading.Lock()

    def new(self, folder: Path) -> str:
        """Where a new ledger may be made; `folder` is the place's own."""
        if self._server is None:
            return f"sqlite:///{folder / 'ledger.sqlite'}"
        with self._lock:
            return self._spare.pop() if self._spare else str(self._server.new_url())

    def done(self, url: str) -> None:
        """A test is finished with this one: a database is emptied and used again."""
        if self._server is not None:
            name = make_url(url).database
            self._server.execute("DROP SCHEMA IF EXISTS dpiw CASCADE", database=name)
            with self._lock:
                self._spare.append(url)


class Places:
    """Makes workplaces; `done` removes one that is not needed for anybody's inspection."""

    def __init__(self, ledgers: Ledgers, factory: pytest.TempPathFactory) -> None:
        self._ledgers, self._factory = ledgers, factory
        factory.getbasetemp()  # pytest makes it on first use, which two threads may race for
        self.kind = ledgers.kind

    def __call__(self, **settings: Any) -> Place:
        root: Path = self._factory.mktemp("place")
        return make_place(root, url=self._ledgers.new(root), **settings)

    def done(self, place: Place) -> None:
        self._ledgers.done(place.url)
        shutil.rmtree(place.root)
