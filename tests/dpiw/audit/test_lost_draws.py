"""A release one of whose draws was lost and paid again: text, page and audit.json add up.

Its total has every attempt of its run in it, so no charge of it is spent with no folder.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import AuditReport, audit, found, release_folders, report_json
from dpiw.audit.report import build_page
from dpiw.audit.statements import in_folders, unreleased
from dpiw.errors import LedgerConflictError
from dpiw.ledger import Ledger, StageState
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.certificate import Certificate
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.conftest import make_workplace
from tests.support.whole_runs import finish, publish_run


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Any:
    """A release as usual, and one whose `fit_weights` was killed once after it was armed."""
    place = make_workplace.__wrapped__(tmp_path_factory)(epsilon="9", max_attempts=2)
    place.spec.write_text(place.spec.read_text().replace("cadence: once", "cadence: monthly"))
    publish_run(place.spec, period="2026-11")
    run = ReleaseRun.prepare(place.spec, period="2026-12")
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    run.open_ledger().arm(run.key, 1, "fit_weights")  # kill -9 of its process leaves no more
    steps.reserve(run)
    steps.fit_weights(run, noise=SecureNoise())
    finish(run)
    return place


def audited(place: Any, releases: Path | None = None, ledger: Path | None = None) -> AuditReport:
    folders = release_folders(releases or place.releases)
    return audit(str(ledger or place.ledger), folders, [place.root / "state/keys/test.pub"])


def certified(place: Any) -> Certificate:
    (folder,) = [path for path in release_folders(place.releases) if "2026-12" in path.name]
    return verify(folder).certificate


def words(report: AuditReport) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", build_page(report))).split())


def parts(report: AuditReport) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    """Epsilon by audit.json: spent, in folders, with no folder, by recoveries."""
    (facts,) = json.loads(report_json(report))["populations"]
    beside = sum(Decimal(charge["epsilon"]) for charge in facts["spent_with_no_folder"])
    spent, inside, recovered = (
        Decimal(facts[name]["epsilon"])
        for name in ("spent", "spent_in_folders", "spent_by_recoveries")
    )
    return spent, inside, Decimal(beside), recovered


def test_a_lost_draw_is_in_its_releases_total_and_told_once(place):
    report, certificate = audited(place), certified(place)
    assert report.ok
    total = Decimal(certificate.epsilon)
    first, second = (Decimal(attempt["epsilon"]) for attempt in certificate.attempts)
    assert (first, first + second) == (2, total)
    assert unreleased(report, "town") == []
    assert len([line for line in found(report) if "(draw_lost)" in line]) == 1
    page = words(report)
    assert "with no folder: 0" in page
    assert f"in these folders: {float(2 + total):.4g}" in page
    (run,) = [run for run in report.counted.runs.values() if run.period == "2026-12"]
    charged = ", ".join(str(attempt.seq) for attempt in run.attempts)
    assert "," in charged  # the lost draw's charge, and the one that was paid again
    assert f" {charged} {run.published} " in page  # a folder's charges stand beside its entry
    assert parts(report) == (2 + total, 2 + total, 0, 0)


def test_without_its_folder_all_of_it_is_told_and_still_adds_up(place, tmp_path):
    releases = tmp_path / "releases"
    shutil.copytree(place.releases, releases)
    (folder,) = [path for path in release_folders(releases) if "2026-12" in path.name]
    shutil.rmtree(folder)
    report, total = audited(place, releases), Decimal(certified(place).epsilon)
    whys = [path.why for path in unreleased(report, "town")]
    assert whys == ["lost: armed, and left no output", "published, no such folder"]
    assert parts(report) == (2 + total, 2, total, 0)
    assert f"with no folder: {float(total):.4g}" in words(report)
    statement = f"spent with no folder: population town, epsilon={total}, delta=2E-6"
    assert f"{statement} (lost" in "\n".join(found(report))
    report.counted.populations["town"].composition = "renyi"  # where no sum is what is spent
    assert f"{statement}, each charge alone" in "\n".join(found(report))


def test_a_folder_that_was_changed_is_taken_for_what_the_ledger_published(place, tmp_path):
    releases = tmp_path / "releases"
    shutil.copytree(place.releases, releases)
    for folder in release_folders(releases):
        (folder / "report.html").write_text("changed")
    report, total = audited(place, releases), Decimal(certified(place).epsilon)
    assert not report.ok
    assert parts(report) == (2 + total, 2 + total, 0, 0)


def test_a_charge_after_the_certificate_is_in_no_total(place, tmp_path):
    """A second output that turns up later: it is charged, and no published page counts it."""
    ledger = tmp_path / "ledger.sqlite"
    shutil.copy(place.ledger, ledger)
    book = Ledger.open(ledger)
    run = next(candidate for candidate in book.runs("town") if candidate.period == "2026-12")
    assert run.stages["fit_weights"].state is StageState.COMMITTED
    with pytest.raises(LedgerConflictError):
        book.commit_found(run.run_key, 2, "fit_weights", "f" * 64)
    report, certificate = audited(place, ledger=ledger), certified(place)
    (row,) = unreleased(report, "town")
    again = Decimal(certificate.attempts[1]["epsilon"])
    assert (row.why, row.amount.epsilon) == ("further output, charged again", again * 10**12)
    total = 2 + Decimal(certificate.epsilon)
    assert parts(report) == (total + again, total, again, 0)
    assert in_folders(report, "town").epsilon == total * 10**12
