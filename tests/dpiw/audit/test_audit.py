"""The audit of real releases: nothing when all is well, each kind of finding where it must be."""

import copy
import dataclasses
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpiw.audit import KINDS, Severity, report_json, write_report
from dpiw.audit import auditing as replay
from dpiw.audit.findings import Finding
from dpiw.audit.records import Units
from dpiw.audit.report import _forecast, build_page
from dpiw.audit.statements import checked, not_checked
from dpiw.audit.tally import tally
from dpiw.data.documents import document_json
from dpiw.errors import LedgerError, ReleaseError
from dpiw.ledger import Ledger
from dpiw.ledger.accounts import Account
from dpiw.ledger.book import Book
from dpiw.ledger.stores.store import Store
from dpiw.release.manifest import MANIFEST, release_folders
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import verify
from tests.dpiw.audit.conftest import Site
from tests.support.browser import CORNERS, VIEWS

ROOT = Path(__file__).resolve().parents[3]


def finding(report, code):
    (match,) = [f for f in report.findings if f.code == code]
    return match


@pytest.mark.slow
def test_two_sound_releases_have_nothing_to_find(site):
    report = site.audit()
    assert report.findings == ()
    assert report.ok
    assert report.entries == 14
    assert report.head == Ledger.open(site.ledger).head()
    assert len(report.costs) == 2
    assert all(cost.bounds.pld <= 2 < cost.bounds.rdp for cost in report.costs.values())
    assert [folder.release is not None for folder in report.folders] == [True, True]
    without = site.audit(releases=[])  # what was not checked is not listed
    assert "folders" not in " ".join(checked(without))
    assert any("no folder was given" in line for line in not_checked(without))


def test_the_report_says_the_same_for_programs_and_people(site, tmp_path):
    report = site.audit()
    page_path, data_path = tmp_path / "out" / "audit.html", tmp_path / "out" / "audit.json"
    assert write_report(report, tmp_path / "out") == (data_path, page_path)
    facts = json.loads(data_path.read_bytes())
    assert document_json(facts) == data_path.read_bytes() == report_json(report)
    assert facts["ok"] is True
    assert facts["made_at"] == "2027-01-01T12:00:00Z"
    (population,) = facts["populations"]
    assert population["spent"] == {"epsilon": "4", "delta": "2E-6"}
    assert population["budget"] == {"epsilon": "5", "delta": "0.0001"}
    assert [run["state"] for run in population["runs"]] == ["published", "published"]
    (attempt,) = population["runs"][0]["attempts"]
    noise = attempt["stages"]["fit_generator"]
    assert re.fullmatch(r"4 × gaussian \(noise multiplier \d.*\)", noise["mechanisms"])
    assert f"multiplier {noise['events'][0]['noise_multiplier']})" in noise["mechanisms"]  # in full
    recomputed = attempt["recomputed"]
    certified = report.folders[0].release.certificate
    assert recomputed["pld_of_certificate"] == certified.accountants["pld"]
    page = page_path.read_text()
    assert page == build_page(report)
    assert noise["mechanisms"] in page
    for words in ("2026-11", "2026-12", facts["head"]["hash"], "in these folders: 4", "1 of 5"):
        assert words in page
    assert not re.search(r"<script|https?://|src=|@import", page)
    assert str(site.releases) not in page + data_path.read_text()
    write_report(report, tmp_path / "out")  # again: nothing is written over
    suffixes = sorted(path.suffix for path in (tmp_path / "out").iterdir())
    assert suffixes == [".html", ".html", ".json", ".json"]


@pytest.mark.parametrize("reads", [0, 20])
def test_the_forecast_counts_like_the_ledger(site, reads):
    """Of a budget of 5, with nothing spent: two at 2 each; none where no read is left."""
    counted = site.audit().counted
    population = counted.populations["town"]
    population.recovered_reads = reads
    population.history.append((99, Units()))
    assert _forecast(population, counted).startswith("no" if reads else "2 more such releases fit")


def test_every_text_of_the_page_is_escaped(site):
    hostile = "<script>alert('x')</script>\" onload=\"y"
    report = site.audit()
    counted = copy.deepcopy(report.counted)
    counted.populations["town"].id_column = counted.populations["town"].at = hostile
    for run in counted.runs.values():
        run.period = hostile
    folders = [dataclasses.replace(folder, name=hostile) for folder in report.folders]
    findings = [Finding(code=code, subject=hostile, text=hostile) for code in KINDS]
    changes = {"folders": folders, "counted": counted, "findings": findings}
    page = build_page(dataclasses.replace(report, ledger=hostile, **changes))
    assert page.count("&lt;script&gt;") == 2 * len(KINDS) + 8
    assert "<script" not in page
    assert '" onload' not in page


def test_an_edited_entry(site):
    site.sql("UPDATE entries SET at = '2020-01-01T00:00:00Z' WHERE seq = 4")
    report = site.audit()
    assert not report.ok
    cause, *rest = report.findings
    assert (cause.code, cause.subject) == ("chain_broken", "entry 4")
    assert cause.severity is Severity.ERROR
    assert report.number(Severity.ERROR) == 1  # a changed entry is one error, whatever follows
    following = [f for f in rest if f.follows]
    assert {f.code for f in following} >= {"chain_broken"}
    assert f"{len(following)} more findings" in build_page(report)
    assert "Withdraw" not in build_page(report)


def test_a_forged_cost_in_a_perfect_chain(site):
    """The ledger's own replay is content; the events and the published heads are not."""
    site.rewrite(3, lambda entry: entry["payload"].update(epsilon_units=10**12))
    assert Ledger.open(site.ledger).verify().ok
    report = site.audit()
    assert "epsilon=1.99" in finding(report, "cost_above_charge").text
    assert sum(f.code == "head_missing" for f in report.findings) == 2


def rename_the_first(site: Site) -> None:
    site.folders[0].rename(site.folders[0].with_name("other"))


def rename_and_copy(site: Site) -> None:
    name = site.folders[0].name
    rename_the_first(site)
    shutil.copytree(site.releases / "other", site.releases / name)


def remove_a_guard(site: Site) -> None:
    raw = sqlite3.connect(site.ledger)
    raw.execute("DROP TRIGGER entries_no_update")
    raw.close()


HARM: dict[str, tuple[Callable[[Site], Any], set[str]]] = {
    "the ledger's tail cut": (
        lambda site: site.sql("DELETE FROM entries WHERE seq > 8"),
        {"folder_unknown", "head_missing"},
    ),
    "a publishing entry cut": (
        lambda site: site.sql("DELETE FROM entries WHERE seq = 14"),
        {"folder_unknown", "not_published"},
    ),
    "an entry that cannot be read": (
        lambda site: site.sql("UPDATE entries SET payload = '{broken' WHERE seq = 4"),
        {"chain_broken"},
    ),
    "a guard removed": (remove_a_guard, {"ledger_unreadable"}),
    "a folder missing": (lambda site: shutil.rmtree(site.folders[0]), {"folder_missing"}),
    "a file changed": (
        lambda site: (site.folders[0] / "report.html").write_text("other"), {"folder_unsound"},
    ),
    "a manifest gone": (
        lambda site: (site.folders[0] / MANIFEST).unlink(), {"folder_unsound", "folder_missing"},
    ),
    "a folder renamed": (rename_the_first, {"folder_renamed"}),
    "a folder renamed and copied": (rename_and_copy, {"folder_renamed", "folder_twice"}),
}  # fmt: skip
ONLY_WARNED = {"a folder missing", "a folder renamed", "a folder renamed and copied"}

NOT_COUNTED = {"an entry that cannot be read", "a guard removed"}


@pytest.mark.parametrize("name", HARM)
def test_what_was_harmed_is_found(site, name):
    harm, codes = HARM[name]
    harm(site)
    report = site.audit()
    assert {finding.code for finding in report.findings} == codes
    assert report.ok == (name in ONLY_WARNED)
    assert (report.counted is None) == (name in NOT_COUNTED)
    assert (b'"head": null' in report_json(report)) == (name in NOT_COUNTED)
    assert ("NOT SOUND" in build_page(report)) == ("folder_unsound" in codes)


def test_a_ledger_that_counts_otherwise_than_we_do(site, monkeypatch):
    original = Account.spent.fget
    understated = property(lambda self: dataclasses.replace(original(self), epsilon_units=1))
    monkeypatch.setattr(Account, "spent", understated)
    assert site.codes() == {"recount_differs"}


def test_a_population_that_only_one_of_the_two_counts_knows(site):
    counted = tally(Ledger.open(site.ledger).snapshot().export())
    book = Ledger.open(site.ledger).snapshot().book
    assert replay._compare(book, counted) == []
    for replayed, recounted in ((Book(), counted), (book, tally([]))):
        (difference,) = replay._compare(replayed, recounted)
        assert (difference.code, difference.subject) == ("recount_differs", "population town")


WRITER = """
import sys
from dpiw.ledger import Ledger
from tests.support.ledger import terms
Ledger.open(sys.argv[1]).register(terms(name="village"))
"""


@pytest.mark.slow
def test_a_ledger_that_is_written_while_it_is_audited(site, monkeypatch):
    """Another process writes after the entries were read: both counts are of the same moment."""
    original, reads = Store.rows, []

    def rows(self, connection, **options):
        records = original(self, connection, **options)
        reads.append(len(records))
        subprocess.run([sys.executable, "-c", WRITER, str(site.ledger)], check=True, cwd=ROOT)
        return records

    monkeypatch.setattr(Store, "rows", rows)
    report = site.audit()
    monkeypatch.undo()
    assert reads == [14]
    assert report.findings == ()
    assert report.entries == report.head.seq == 14
    assert set(report.counted.populations) == {"town"}
    assert Ledger.open(site.ledger).head().seq == 15
    assert site.audit().findings == ()


def test_what_cannot_be_audited_is_refused(site, tmp_path):
    with pytest.raises(LedgerError, match="no such file"):
        site.audit(ledger_url=str(tmp_path / "none"))
    with pytest.raises(ReleaseError, match=r"none\.pub"):
        site.audit(public_keys=[tmp_path / "none.pub"])
    with pytest.raises(ReleaseError, match="none"):
        release_folders(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match="audit report"):
        write_report(site.audit(), tmp_path / "file")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**34)


def test_a_hostile_folder_tells_and_stops_nothing(site):
    """Whoever can write into a folder of releases could else have any file's digest published."""
    secret = site.root / "workspace.parquet"
    secret.write_bytes(b"confidential")
    make_hostile = {
        "link": lambda path: path.symlink_to(secret),
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
        "endless": lambda path: path.symlink_to("/dev/zero"),
        "huge": huge,
    }
    for name, make in make_hostile.items():
        (site.releases / name).mkdir()
        make(site.releases / name / MANIFEST)
    report = site.audit()
    told = {(f.code, f.subject) for f in report.findings}
    assert told == {("folder_unsound", f"release {name}") for name in make_hostile}
    hostile = [folder for folder in report.folders if folder.name in make_hostile]
    assert {folder.manifest_digest for folder in hostile} == {None}
    text = report_json(report) + build_page(report).encode()
    assert hashlib.sha256(b"confidential").hexdigest().encode() not in text


def test_a_link_to_a_folder_is_not_followed(site, tmp_path):
    """It could lead into a workspace: to a release that is built and not published."""
    shutil.move(site.folders[0], tmp_path / "built")
    (site.releases / "evil").symlink_to(tmp_path / "built")
    report = site.audit()
    assert {f.code for f in report.findings} == {"folder_unsound", "folder_missing"}
    assert "a link" in finding(report, "folder_unsound").text
    (facts,) = [folder for folder in report.folders if folder.name == "evil"]
    assert (facts.manifest_digest, facts.release) == (None, None)


def test_a_folder_that_cannot_be_listed(site, monkeypatch):
    refuse = mock.Mock(side_effect=PermissionError(13, "Permission denied", str(site.folders[0])))
    monkeypatch.setattr("dpiw.audit.folders.verify_charged", refuse)
    report = site.audit()
    assert {f.code for f in report.findings} == {"folder_unsound"}
    assert "cannot be read: Permission denied" in report.findings[0].text


def test_another_key(site, tmp_path):
    _, foreign_key = create_key_pair(tmp_path, "other")
    (signer,) = {verify(folder).key_id for folder in site.folders}
    (site.folders[0] / "report.html").write_text("changed")
    report = site.audit(public_keys=[foreign_key])
    told = {f.code: f for f in report.findings}
    unsigned = {"entry_other_key", "entries_not_signed"}
    assert told.keys() == {"folder_unsound", "other_key", *unsigned}
    assert told["folder_unsound"].subject == f"release {site.folders[0].name}"
    assert told["other_key"].subject == f"release {site.folders[1].name}"  # it is whole
    assert signer in told["other_key"].text
    assert f"SIGNED BY {signer}" in build_page(report)


def test_without_a_key_no_signature_is_called_checked(site):
    report = site.audit(public_keys=[])
    assert [f.code for f in report.findings] == ["key_not_pinned"]
    page = build_page(report)
    assert page.count("signature not checked against a key") == 3  # at its head, and in two rows
    assert "signed</" not in page


def test_every_kind_of_finding_is_tested_here_or_beside():
    others = ("ledger/test_forged_entries.py", "run/test_withdrawal.py")
    beside = [Path(__file__).parents[1] / name for name in others]
    paths = [*beside, *Path(__file__).parent.glob("test_*.py")]
    words = "".join(path.read_text() for path in paths)
    assert [code for code in KINDS if f'"{code}"' not in words] == []
    assert all(kind.action for kind in KINDS.values())


def test_it_writes_nothing_into_the_site(site):
    """It has no workspace, and needs none."""
    before = sorted(path for path in site.root.rglob("*") if "ledger.sqlite" not in path.name)
    assert not (site.root / "workspace").exists()
    site.audit()
    assert before == sorted(p for p in site.root.rglob("*") if "ledger.sqlite" not in p.name)


ONE_EACH = tuple({kind.severity: code for code, kind in KINDS.items()}.values())


@pytest.mark.nightly_cases("-all_views]")
@pytest.mark.parametrize(
    ("codes", "views"),
    [((), VIEWS), (ONE_EACH, CORNERS), (tuple(KINDS), VIEWS)],
    ids=["in_order-all_views", "each_severity-corners", "every_finding-all_views"],
)
@pytest.mark.slow
def test_nothing_is_cut_off_or_hard_to_read_at_any_width(site, look_at, codes, views):
    long = "of a long, long name_" + 20 * "without_a_blank_"
    findings = tuple(Finding(code=code, subject=long, text=long) for code in codes)
    report = dataclasses.replace(site.audit(), findings=findings)
    if findings:
        report = dataclasses.replace(report, ledger=long)
    assert look_at(build_page(report), views) == []
