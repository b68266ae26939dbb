"""What is spent with no folder, who signed the entries, and which head is worth keeping."""

import html
import json
import re
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from dpiw.audit import AuditReport, Severity, found, report_json, write_report
from dpiw.audit.auditing import findings_of_runs
from dpiw.audit.report import build_page
from dpiw.audit.statements import in_folders, next_steps, unreleased
from dpiw.audit.tally import tally
from dpiw.errors import LedgerConflictError, SignatureError
from dpiw.ledger import Ledger, StageState
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.certificate import Certificate
from dpiw.release.signing import create_key_pair, load_public_key
from dpiw.release.verification import verify
from dpiw.run import steps
from tests.dpiw.audit.conftest import Site, publish
from tests.support.ledger import cli
from tests.support.whole_runs import finish, fitted


def cut(site, after: int) -> None:
    """The ledger as it was after an entry, and no folder of what came later."""
    site.sql(f"DELETE FROM entries WHERE seq > {after}")
    (folder,) = [path for path in site.folders if "2026-12" in path.name]
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("after", "why", "codes"),
    [(9, "reserved, nothing drawn", []),
     (11, "armed, not all drawn", ["stage_armed"]),
     (13, "drawn, not published", ["not_published"])],
)  # fmt: skip
def test_budget_without_a_folder_is_told_three_times(site, after, why, codes):
    cut(site, after)
    report = site.audit()
    warned = [f.code for f in report.findings if f.severity is Severity.WARNING]
    assert warned == codes
    (row,) = unreleased(report, "town")
    assert (row.why, row.amount.epsilon) == (why, 2 * 10**12)
    assert f"spent with no folder: population town, epsilon=2, delta=1E-6 ({why})" in found(report)
    page = build_page(report)
    assert "spent with no folder</td>" in page
    assert why in page
    (gap,) = json.loads(report_json(report))["populations"][0]["spent_with_no_folder"]
    assert gap["why"] == why


def kinds(site):
    return [(entry["seq"], "signature" in entry["payload"]["by"])
            for entry in Ledger.open(site.ledger).snapshot().export()]  # fmt: skip


def test_entries_are_held_against_the_given_key(site, tmp_path):
    signed = [seq for seq, is_signed in kinds(site) if is_signed]
    statement = f"{len(signed)} signed by the given key, 0 by others, {14 - len(signed)} unsigned"
    report = site.audit()
    assert report.signers.statement == statement
    assert statement in build_page(report)
    (signer,) = report.signers.signed
    _, foreign_key = create_key_pair(tmp_path, "other")
    report = site.audit(public_keys=[foreign_key])
    assert report.signers.statement.startswith(f"0 signed by the given key, {len(signed)} by other")
    (finding,) = [f for f in report.findings if f.code == "entry_other_key"]
    assert finding.subject.startswith(f"entries {signed[0]}, {signed[1]}")
    assert signer in finding.text


def verified(site, *keys):
    words = [word for key in keys for word in ("--key", str(key))]
    return cli("verify", "--ledger", str(site.ledger), *words)


def test_verify_refuses_entries_of_a_key_that_was_not_given(site, tmp_path):
    signed = [seq for seq, is_signed in kinds(site) if is_signed]
    (signer,) = site.audit().signers.signed
    _, foreign_key = create_key_pair(tmp_path, "other")
    for keys in ((site.key,), (site.key, site.key), (foreign_key, site.key)):
        code, output = verified(site, *keys)
        assert code == 0
        assert output.startswith("ok: 14 entries, head ")
        assert output.count(f"key id {signer}: signed {len(signed)}\n") == 1
    code, output = verified(site, foreign_key)
    assert code == SignatureError.exit_code == 53
    assert output.startswith("SIGNED BY OTHERS, though the chain holds: 14 entries")
    assert signer in output
    assert "signed by" not in verified(site)[1]  # nobody asked


def test_verify_does_not_take_a_history_without_signatures_for_a_signed_one(site):
    """Who has no key hashes the chain anew: a verification without a key finds nothing wrong."""
    site.rewrite(1, lambda entry: None)
    assert verified(site)[0] == 0
    code, output = verified(site, site.key)
    assert code == SignatureError.exit_code
    assert output.startswith("SIGNED BY NOBODY, though the chain holds")


def test_a_signature_that_ceases_is_missed(site):
    """Who has no key writes the same history from there on, in a chain that holds."""
    signed = [seq for seq, is_signed in kinds(site) if is_signed]
    site.rewrite(9, lambda entry: None)
    code, output = verified(site, site.key)
    assert code == 0  # legal: a custodian may register without `--sign-with`
    assert "note: entries 9, " in output
    (finding,) = [f for f in site.audit().findings if f.code == "entry_unsigned"]
    lost = [seq for seq in signed if seq >= 9]
    assert lost
    assert finding.subject == "entries " + ", ".join(map(str, lost))
    assert finding.severity is Severity.WARNING


@pytest.mark.slow
def test_a_signature_that_does_not_hold_is_nobody_s(site):
    """It is told as what it is, and not among entries that nobody signed."""
    before = site.audit().signers
    site.sql("UPDATE entries SET at = '2020-01-01T00:00:00Z' WHERE seq = 3")
    report = site.audit()
    assert 3 not in next(iter(report.signers.signed.values()))
    assert report.signers.unsigned == before.unsigned
    assert report.signers.forged == (3,)
    assert ", 1 with a signature that does not hold" in report.signers.statement
    (finding,) = [f for f in report.findings if f.code == "entry_forged"]
    assert (finding.subject, finding.follows) == ("entry 3", True)  # the broken chain is told first


@pytest.mark.slow
def test_a_rewritten_history_is_an_error_without_its_folders(site, tmp_path):
    """Who has no key writes all of it anew, with smaller charges, and withholds the releases."""
    assert "entries_not_signed" not in site.codes()
    site.rewrite(1, lambda entry: None)
    assert Ledger.open(site.ledger).verify().ok
    report = site.audit(releases=[])
    (finding,) = [f for f in report.findings if f.code == "entries_not_signed"]
    assert finding.severity is Severity.ERROR
    assert any(step.startswith("Do not keep the ledger head") for step in next_steps(report))
    assert "entries_not_signed" not in site.codes(public_keys=[])  # nobody asked
    fresh = tmp_path / "fresh.sqlite"
    Ledger.create(fresh)  # signed by nobody, and nothing was published
    assert site.audit(ledger_url=str(fresh), releases=[]).ok


def test_a_draw_that_no_release_shows_for_is_a_warning_from_the_first_stage_on(site):
    """A run of two stages of which one is drawn: nothing is armed, and nothing is lost."""
    counted = tally(Ledger.open(site.ledger).snapshot().export())
    run = next(iter(counted.runs.values()))
    run.manifest_digest = None
    stage = run.attempts[0].stages["fit_generator"]
    run.attempts[0].stages["fit_weights"] = replace(stage, state="reserved")
    assert [f.code for f in findings_of_runs(counted)].count("not_published") == 1
    stage.state = "reserved"
    assert not [f for f in findings_of_runs(counted) if f.code == "not_published"]


@pytest.mark.slow
def test_the_report_of_an_audit_is_no_release(site):
    folders = site.folders
    write_report(site.audit(), site.releases / "audit")
    assert site.folders == folders
    assert site.audit().ok
    (site.releases / "audit" / "notes.txt").write_text("")  # then it may be one that was harmed
    assert len(site.folders) == 1 + len(folders)


@pytest.mark.slow
def test_only_the_head_of_a_sound_ledger_is_to_be_kept(site):
    assert any(step.startswith("Keep the ledger head") for step in next_steps(site.audit()))
    site.sql("DELETE FROM entries WHERE seq > 8")  # an old copy: a folder is newer
    steps = next_steps(site.audit())
    assert not any(step.startswith("Keep") for step in steps)
    assert any(step.startswith("Do not keep the ledger head") for step in steps)
    site.sql("UPDATE entries SET at = '2020-01-01T00:00:00Z' WHERE seq = 3")
    assert not any(step.startswith("Keep") for step in next_steps(site.audit()))
    (site.folders[0] / "report.html").write_text("changed")


@pytest.fixture(scope="module")
def state(make_workplace):
    """A release, and another curator's, whose `fit_weights` was killed once after it was armed."""
    place = make_workplace(epsilon="9", max_attempts=2)
    publish(place, "2026-11")
    create_key_pair(place.root / "state" / "keys", "second")
    place.rewrite("test.key", "second.key")
    run = fitted(place, period="2026-12")
    steps.draw_synthetic(run)
    run.open_ledger().arm(run.key, 1, "fit_weights")  # kill -9 of its process leaves no more
    steps.reserve(run)
    steps.fit_weights(run, noise=SecureNoise())
    finish(run)
    return place.root / "state"


@pytest.fixture
def shared(state, tmp_path):
    shutil.copytree(state, tmp_path / "site", ignore=shutil.ignore_patterns("workspace"))
    return Site(tmp_path / "site")


LOST = {"draw_lost", "unpaid_reads"}  # whatever the keys


def keys_of(site: Site) -> list[Path]:
    return [site.key, site.key.with_name("second.pub")]


def ids(keys: list[Path]) -> list[str]:
    return [load_public_key(key).key_id for key in keys]


def audited(site: Site) -> AuditReport:
    return site.audit(public_keys=keys_of(site))


def certified(site: Site) -> Certificate:
    return verify(site.folders[1]).certificate


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


@pytest.mark.slow
def test_a_lost_draw_is_in_its_releases_total_and_told_once(shared):
    report, certificate = audited(shared), certified(shared)
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


@pytest.mark.slow
def test_without_its_folder_all_of_it_is_told_and_still_adds_up(shared):
    total = Decimal(certified(shared).epsilon)
    shutil.rmtree(shared.folders[1])
    report = audited(shared)
    whys = [path.why for path in unreleased(report, "town")]
    assert whys == ["lost: armed, and left no output", "published, no such folder"]
    assert parts(report) == (2 + total, 2, total, 0)
    assert f"with no folder: {float(total):.4g}" in words(report)
    statement = f"spent with no folder: population town, epsilon={total}, delta=2E-6"
    assert f"{statement} (lost" in "\n".join(found(report))
    report.counted.populations["town"].composition = "renyi"  # where no sum is what is spent
    assert f"{statement}, each charge alone" in "\n".join(found(report))


def test_a_folder_that_was_changed_is_taken_for_what_the_ledger_published(shared):
    total = Decimal(certified(shared).epsilon)
    for folder in shared.folders:
        (folder / "report.html").write_text("changed")
    report = audited(shared)
    assert not report.ok
    assert parts(report) == (2 + total, 2 + total, 0, 0)


def test_a_charge_after_the_certificate_is_in_no_total(shared):
    """A second output that turns up later: it is charged, and no published page counts it."""
    book = Ledger.open(shared.ledger)
    run = next(candidate for candidate in book.runs("town") if candidate.period == "2026-12")
    assert run.stages["fit_weights"].state is StageState.COMMITTED
    with pytest.raises(LedgerConflictError):
        book.commit_found(run.run_key, 2, "fit_weights", "f" * 64)
    report, certificate = audited(shared), certified(shared)
    (row,) = unreleased(report, "town")
    again = Decimal(certificate.attempts[1]["epsilon"])
    assert (row.why, row.amount.epsilon) == ("further output, charged again", again * 10**12)
    total = 2 + Decimal(certificate.epsilon)
    assert parts(report) == (total + again, total, again, 0)
    assert in_folders(report, "town").epsilon == total * 10**12


@pytest.mark.slow
def test_with_the_keys_of_both_no_signature_is_told(shared):
    keys = keys_of(shared)
    first, second = ids(keys)
    report = shared.audit(public_keys=keys)
    assert (report.ok, report.given) == (True, (first, second))
    assert {finding.code for finding in report.findings} == LOST
    assert set(report.signers.signed) == {first, second}
    folders = f"one of the given public keys (key id {first}: 1, key id {second}: 1)"
    page = build_page(report)
    assert folders in page
    assert page.count("whole, signed<") == 2
    facts = json.loads(report_json(report))
    assert facts["given_keys"] == facts["entry_signatures"]["given"] == [first, second]
    assert [release["key_checked"] for release in facts["releases"]] == [True, True]
    again = shared.audit(public_keys=[*keys, keys[0]])
    assert again.given == (first, second)
    assert shared.codes(public_keys=keys[::-1]) == LOST


@pytest.mark.slow
def test_with_the_key_of_one_the_other_s_are_told(shared):
    for given, other, folder in zip(keys_of(shared), keys_of(shared)[::-1], (1, 0), strict=True):
        report = shared.audit(public_keys=[given])
        assert not report.ok
        assert {f.code for f in report.findings} == {"other_key", "entry_other_key"} | LOST
        findings = {f.code: f for f in report.findings}
        assert findings["other_key"].subject == f"release {shared.folders[folder].name}"
        assert ids([other])[0] in findings["other_key"].text


def test_without_a_key_both_are_named(shared):
    report = shared.audit(public_keys=[])
    findings = {f.code: f for f in report.findings}
    assert findings.keys() == {"key_not_pinned", "several_keys"} | LOST
    assert all(key in findings["several_keys"].text for key in ids(keys_of(shared)))
    signers = {verify(folder).key_id for folder in shared.folders}
    assert signers == set(ids(keys_of(shared)))
