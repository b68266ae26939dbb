"""Two releases of one population, made once for this room, and copies of them to change."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpiw.audit import AuditReport, audit, release_folders
from tests.support.undrawn import draw_no_figures
from tests.support.whole_runs import publish_run

ACTOR = "canary.person@canary.host"
"""Who wrote the ledger's entries."""


@pytest.fixture(scope="session")
def two_periods(make_workplace):
    """A workplace with releases of 2026-11 and 2026-12, and a calendar that begins before."""
    place = make_workplace(weights="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPIW_ACTOR", ACTOR)
        draw_no_figures(patch.setattr)
        for period in ("2026-11", "2026-12"):
            publish_run(place.spec, period=period)
    text = place.spec.read_text().replace(
        "cadence: once", "cadence: monthly\nseries: {first: 2026-10}"
    )
    (place.root / "calendar.yaml").write_text(text)
    return place.root


@pytest.fixture
def desk(two_periods, tmp_path, monkeypatch):
    """A copy of that workplace, which a test may change; it is the current folder."""
    root = tmp_path / "canary-desk"
    shutil.copytree(two_periods, root)
    monkeypatch.chdir(root)
    releases, key = root / "state" / "releases", root / "state" / "keys" / "test.pub"

    def report(**changes: object) -> AuditReport:
        given = {"ledger_url": str(root / "state" / "ledger.sqlite"), "public_keys": [key],
                 "releases": release_folders(releases)} | changes  # fmt: skip
        return audit(**given)

    return SimpleNamespace(
        root=root, spec=root / "release.yaml", releases=releases, key=key, report=report,
        ledger=root / "state" / "ledger.sqlite", out=Path("public"),
        folders=sorted(releases.iterdir()),
    )  # fmt: skip
