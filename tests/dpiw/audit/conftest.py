"""Two releases of one population, once per session, and ways to forge them."""

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import AuditReport, audit, release_folders
from dpiw.ledger import Ledger
from tests.support.ledger import chain, update
from tests.support.stores import intrude_sqlite
from tests.support.undrawn import draw_no_figures, undrawn  # noqa: F401
from tests.support.whole_runs import publish_run

NOON = datetime.datetime(2027, 1, 1, 12, tzinfo=datetime.UTC)


def publish(place, period: str) -> Path:
    return publish_run(place.spec, period=period)[1]


class Site:
    """A ledger and its releases, of which a test may change anything."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = root / "ledger.sqlite"
        self.releases = root / "releases"
        self.key = root / "keys" / "test.pub"

    @property
    def folders(self) -> list[Path]:
        return release_folders(self.releases)

    def audit(self, **changes: Any) -> AuditReport:
        arguments = {
            "ledger_url": str(self.ledger), "releases": self.folders, "public_keys": [self.key],
            "clock": lambda: NOON,
        } | changes  # fmt: skip
        return audit(**arguments)

    def codes(self, **changes: Any) -> set[str]:
        return {finding.code for finding in self.audit(**changes).findings}

    def sql(self, *statements: str) -> None:
        """Raw access, guards taken off and put back, so that only the chain can tell."""
        intrude_sqlite(str(self.ledger), statements)

    def rewrite(
        self, seq: int, change: Callable[[dict[str, Any]], None], *, signed: bool = False
    ) -> None:
        """Change entry `seq` and hash it and everything after it anew: a perfect chain.

        Who has no key leaves the signatures out from there on, unless they shall stay (`signed`).
        """
        entries = Ledger.open(self.ledger).snapshot().export()
        change(entries[seq - 1])
        for entry in () if signed else entries[seq - 1 :]:
            entry["payload"]["by"] = {"actor": entry["payload"]["by"]["actor"]}
        self.sql(*map(update, chain(entries)))


@pytest.fixture(scope="session")
def published(make_workplace):
    """The state folder of a workplace after two releases, 2026-11 and 2026-12; made once."""
    place = make_workplace(weights="none")
    with pytest.MonkeyPatch.context() as patch:
        draw_no_figures(patch.setattr)
        for period in ("2026-11", "2026-12"):
            publish(place, period)
    return place.root / "state"


@pytest.fixture
def site(published, tmp_path):
    shutil.copytree(published, tmp_path / "site", ignore=shutil.ignore_patterns("workspace"))
    return Site(tmp_path / "site")
