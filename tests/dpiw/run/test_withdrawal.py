"""`dpiw withdraw`, and revisions: what readers, ledger and audit say after it."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpiw import errors
from dpiw.analysis.release import load_release
from dpiw.audit import Severity, audit
from dpiw.audit.auditing import AuditReport
from dpiw.audit.statements import unreleased
from dpiw.ledger import EntryKind, Ledger, RunState
from dpiw.ledger.from_releases import missing_releases, verified_releases
from dpiw.release.manifest import CERTIFICATE, MANIFEST, SIGNATURE, release_folders
from dpiw.release.signing import create_key_pair, load_private_key
from dpiw.release.statements import KeyStatement, read_signed_statement
from dpiw.release.verification import manifest_digest, verify
from dpiw.release.withdrawal import KEPT, WITHDRAWN, Withdrawal
from dpiw.release.withdrawn import WithdrawnRelease, verify_withdrawn
from dpiw.run import publish, steps
from dpiw.run.advice import advice
from dpiw.run.more_rows import more_rows
from dpiw.run.withdrawal import further_rows, withdraw
from tests.support.deaths import died
from tests.support.ledger import recover, restore
from tests.support.whole_runs import asked, prepared, publish_run, spent, statuses

FIRST, SECOND, THIRD = "2026-10", "2026-11", "2026-12"


def monthly(make_workplace: Any) -> Any:
    made = make_workplace(weights="none", epsilon="9")
    made.rewrite("cadence: once", "cadence: monthly")
    return made


@pytest.fixture(scope="module")
def published(make_workplace):
    """A workplace with two releases: of two periods."""
    made = monthly(make_workplace)
    publish_run(made.spec, period=FIRST)
    publish_run(made.spec, period=SECOND)
    return made


@pytest.fixture
def place(published, tmp_path):
    """A copy that a test may change."""
    return copied(published, tmp_path / "place")


def copied(place: Any, root: Path) -> Any:
    shutil.copytree(place.root, root)
    state = root / "state"
    moved = replace(
        place, root=root, spec=root / "release.yaml", ledger=state / "ledger.sqlite",
        releases=state / "releases",
    )  # fmt: skip
    for period in (FIRST, SECOND):
        prepared(moved, period=period)  # their places are these, now
    return moved


def folder_of(place: Any, period: str) -> Path:
    return place.releases / prepared(place, period=period).release_id


def key_of(place: Any) -> Path:
    return place.key.with_suffix(".key")


def take_back(place: Any, period: str = FIRST, **words: Any) -> WithdrawnRelease:
    key, words = load_private_key(key_of(place)), {"reason": "error"} | words
    return withdraw(folder_of(place, period), Ledger.open(place.ledger, key=key), key, **words)


def audited(place: Any, **changes: Any) -> AuditReport:
    given = {"releases": release_folders(place.releases), "public_keys": [place.key]} | changes
    return audit(f"sqlite:///{place.ledger}", **given)


def codes(place: Any, **changes: Any) -> set[str]:
    return {finding.code for finding in audited(place, **changes).findings}


def withdrawals(place: Any) -> int:
    return sum(entry.kind is EntryKind.WITHDRAW for entry in Ledger.open(place.ledger).entries())


def test_a_tombstone_takes_the_place_of_a_release_and_the_charge_stays(place, says):
    folder, whole = folder_of(place, FIRST), spent(place)
    before = verify(folder, public_key=place.key)
    words = ("withdraw", folder, "--ledger", place.spec, "--reason", "disclosure")
    printed = says(*words)
    assert "WITHDRAWN" in printed
    assert {path.name for path in folder.iterdir()} == KEPT
    assert spent(place) == whole
    ledger = Ledger.open(place.ledger)
    record = ledger.run(prepared(place, period=FIRST).key)
    assert (record.state, record.withdrawn) == (RunState.WITHDRAWN, "disclosure")
    assert record.manifest_digest == before.manifest.digest == manifest_digest(folder)
    assert ledger.verify().ok
    withdrawn = verify_withdrawn(folder, public_key=place.key)
    assert withdrawn.release.certificate == before.certificate
    assert withdrawn.tombstone.statement.manifest == before.manifest.digest
    for key in (None, place.key):
        for load in (verify, load_release):
            with pytest.raises(errors.WithdrawnError) as caught:
                load(folder, public_key=key)
            assert (caught.value.reason, caught.value.replaced_by) == ("disclosure", None)
    refusal = says("verify", folder, "--key", place.key, code=errors.WithdrawnError.exit_code)
    assert "disclosure" in refusal
    assert f"epsilon={before.certificate.epsilon}" in says("describe", folder, "--key", place.key)
    data = says("describe", folder, "--json").encode()[:-1]
    assert read_signed_statement(data, Withdrawal, what="", expected=None) == withdrawn.tombstone
    says("describe", folder, "--catalogue", "dcat", code=errors.WithdrawnError.exit_code)
    report = audited(place)
    assert report.ok
    assert {finding.code for finding in report.findings} == {"withdrawn"}
    assert unreleased(report, "town") == []
    again = says(*words)  # nothing is left to do, and the same is said
    assert again == printed
    assert withdrawals(place) == 1


def test_a_withdrawn_run_never_publishes_again(place, says):
    run, folder = prepared(place, period=FIRST), folder_of(place, FIRST)
    take_back(place)
    head = Ledger.open(place.ledger).head()
    shutil.move(folder, place.root / "elsewhere")  # or a reader's copy was withdrawn
    with pytest.raises(errors.WithdrawnError):
        publish.published(run)
    for again in (
        lambda: steps.reserve(run), lambda: steps.publish(run),
        lambda: more_rows(asked(place.spec, period=FIRST), rows=7),
    ):  # fmt: skip
        with pytest.raises(errors.WithdrawnError):
            again()
    assert not folder.exists()
    assert Ledger.open(place.ledger).head() == head
    assert "withdrawn" in "\n".join(advice(run.plan, place.spec, FIRST, asked=True))
    says("release", place.spec, "--period", SECOND, "--rows", 0, code=errors.SpecError.exit_code)


def test_a_ledger_that_lost_the_withdrawal_still_publishes_nothing(place):
    """The folder itself refuses; typing the command again puts the withdrawal back on record."""
    run, request = prepared(place, period=FIRST), asked(place.spec, period=FIRST)
    before, stated = place.ledger.read_bytes(), take_back(place).tombstone.statement
    restore(place, before)
    assert codes(place) == {"tombstone_unknown"}
    for act in (publish.published, steps.publish, lambda _: more_rows(request, rows=7)):
        with pytest.raises(errors.WithdrawnError):
            act(run)
    assert statuses(place, FIRST, SECOND) == ["withdrawn", "published"]
    create_key_pair(place.root, "other")
    other = load_private_key(place.root / "other.key")
    with pytest.raises(errors.SignatureError):  # who has another key records nothing
        withdraw(folder_of(place, FIRST), Ledger.open(place.ledger), other, reason="error")
    with pytest.raises(errors.LedgerConflictError):  # nor do other words
        take_back(place, reason="request")
    restore(place, before)
    assert take_back(place).tombstone.statement == stated
    assert codes(place) == {"withdrawn"}


def test_withdrawn_is_not_unspent_after_a_loss_of_entries(make_workplace):
    """From the tombstones alone, a ledger that lost both runs charges all that it held."""
    place = monthly(make_workplace)
    before = place.ledger.read_bytes()
    publish_run(place.spec, period=FIRST)
    more_rows(asked(place.spec, period=FIRST), rows=7)
    publish_run(place.spec, period=SECOND)
    whole = spent(place)
    for period in (FIRST, SECOND):
        take_back(place, period)
    assert whole.epsilon == 4
    rows = next(place.releases.glob("*rows7*"))
    key = load_private_key(key_of(place))
    withdraw(rows, Ledger.open(place.ledger, key=key), key, reason="error")
    restore(place, before)
    with pytest.raises(errors.LedgerTamperedError):  # a tombstone's head is missed, too
        steps.reserve(prepared(place, period=THIRD))
    recover(place)
    assert spent(place) == whole
    lost, gone = {"recovered", "tombstone_unknown"}, ["withdrawn"] * 2
    assert (codes(place), statuses(place, FIRST, SECOND)) == (lost, gone)
    with pytest.raises(errors.GrantSpentError):
        steps.reserve(prepared(place, period=FIRST))
    for folder in release_folders(place.releases):  # no run is left, and each is on record again
        withdraw(folder, Ledger.open(place.ledger, key=key), key, reason="error")
    assert (codes(place), statuses(place, FIRST, SECOND)) == ({"recovered", "withdrawn"}, gone)
    assert Ledger.open(place.ledger).verify().ok
    assert spent(place) == whole


def test_recovery_from_a_tombstone_is_recovery_from_its_release(place):
    """Whole, half buried or buried: the ledger is asked for the very same."""
    empty = Ledger.create(place.root / "empty.sqlite")
    whole = missing_releases(empty, verified_releases([place.releases], [place.key]))
    take_back(place)
    (folder_of(place, FIRST) / "report.html").write_text("left by a crash")
    buried = missing_releases(empty, verified_releases([place.releases], [place.key]))
    assert [
        (item.digest, item.previous, item.after, item.release.certificate)
        for item in buried["town"]
    ] == [(i.digest, i.previous, i.after, i.release.certificate) for i in whole["town"]]
    assert len(buried["town"]) == 2


def test_further_rows_are_named_refused_and_withdrawn_by_themselves(place):
    rows = more_rows(asked(place.spec, period=FIRST), rows=7)
    assert further_rows(take_back(place).release.folder, Ledger.open(place.ledger)) == [rows]
    assert verify(rows, public_key=place.key)
    assert codes(place) == {"withdrawn", "rows_not_withdrawn"}
    with pytest.raises(errors.WithdrawnError):
        more_rows(asked(place.spec, period=FIRST), rows=7)
    key = load_private_key(key_of(place))
    withdraw(rows, ledger := Ledger.open(place.ledger, key=key), key, reason="error")
    assert codes(place) == {"withdrawn"}
    other = more_rows(asked(place.spec, period=SECOND), rows=7)
    withdraw(other, ledger, key, reason="request")  # its release stays
    assert ledger.run(prepared(place, period=SECOND).key).state is RunState.PUBLISHED
    assert verify(folder_of(place, SECOND))
    with pytest.raises(errors.WithdrawnError):
        more_rows(asked(place.spec, period=SECOND), rows=7)
    assert more_rows(asked(place.spec, period=SECOND), rows=8).exists()
    assert audited(place).ok


def test_a_revision_names_what_it_replaces(place, says):
    old = prepared(place, period=FIRST).release_id
    place.rewrite("source: {path: data.csv, format: csv}",
                  "source: {path: data.csv, format: csv, snapshot: corrected}")  # fmt: skip
    key = prepared(place, period=FIRST).key
    text = place.spec.read_text()
    place.spec.write_text(f"{text}revises: town-2026-10-00000000\n")
    before = Ledger.open(place.ledger).head()
    with pytest.raises(errors.SpecError, match=old):  # told before anything is paid
        steps.reserve(prepared(place, period=FIRST), pay_again=True)
    assert Ledger.open(place.ledger).head() == before
    place.spec.write_text(f"{text}revises: {old}\n")
    run = prepared(place, period=FIRST)
    assert run.key == key  # what it revises is no part of its promise
    steps.reserve(run, pay_again=True)
    _, folder = publish_run(place.spec, period=FIRST)
    revises = verify(folder, public_key=place.key).certificate.revises
    assert revises == {"release_id": old, "manifest": manifest_digest(place.releases / old)}
    for shown in (says("verify", folder), says("describe", folder)):
        assert f"revises {old}" in shown
    assert old in (folder / "report.html").read_text()
    assert verify(place.releases / old)  # need not be withdrawn
    assert codes(place) == {"period_twice"}
    words = ("withdraw", place.releases / old, "--ledger", place.spec, "--reason", "superseded")
    says(*words, code=errors.SpecError.exit_code)
    says(*words, "--replaced-by", "town-2026-10-ffffffff", code=errors.SpecError.exit_code)
    assert withdrawals(place) == 0
    assert folder.name in says(*words, "--replaced-by", folder.name)
    with pytest.raises(errors.WithdrawnError) as caught:
        load_release(place.releases / old, place.key)
    assert caught.value.replaced_by == folder.name
    says("withdraw", folder, *words[2:], "--replaced-by", old, code=errors.SpecError.exit_code)
    assert (withdrawals(place), audited(place).ok) == (1, True)


def test_a_release_does_not_revise_itself(place):
    run = prepared(place, period=THIRD)
    with place.spec.open("a") as spec:
        spec.write(f"revises: {run.release_id}\n")
    with pytest.raises(errors.SpecError):
        steps.reserve(prepared(place, period=THIRD))


def test_only_what_the_ledger_published_is_withdrawn(place):
    folder, key = folder_of(place, FIRST), load_private_key(key_of(place))
    other = Ledger.create(place.root / "other.sqlite", key=key)
    other.register(Ledger.open(place.ledger).population("town"))
    with pytest.raises(errors.LedgerConflictError):
        withdraw(folder, other, key, reason="error")
    (folder / SIGNATURE).write_bytes(bytes(64))
    with pytest.raises(errors.SignatureError):
        take_back(place)
    (link := place.root / "link").symlink_to(folder_of(place, SECOND))
    with pytest.raises(errors.ReleaseError):
        withdraw(link, Ledger.open(place.ledger, key=key), key, reason="error")
    assert verify(folder_of(place, SECOND))
    assert withdrawals(place) == 0


def test_a_damaged_release_is_withdrawn_too(place):
    """Its rows may be the reason; only manifest and certificate are read."""
    folder = folder_of(place, FIRST)
    (folder / "synthetic.parquet").write_bytes(b"damaged")
    (folder / "schema.json").unlink()
    take_back(place)
    assert codes(place) == {"withdrawn"}
    (folder_of(place, SECOND) / CERTIFICATE).write_bytes(b"{}")
    with pytest.raises(errors.ChecksumError):
        take_back(place, SECOND)


def test_a_conflict_is_told_and_changes_nothing(place):
    take_back(place, reason="error")
    folder = folder_of(place, FIRST)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for words in ({"reason": "request"}, {"replaced_by": folder_of(place, SECOND).name}):
        with pytest.raises(errors.LedgerConflictError):
            take_back(place, **words)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert withdrawals(place) == 1


def put(place: Any, signed: Any) -> str:
    (folder_of(place, FIRST) / WITHDRAWN).write_bytes(signed.to_json())
    return FIRST


def copied_in(place: Any) -> str:
    """Another release's tombstone, put into a whole folder."""
    take_back(place)
    shutil.copy(folder_of(place, FIRST) / WITHDRAWN, folder_of(place, SECOND))
    return SECOND


def of_the_manifests_context(place: Any) -> str:
    """Signed by the curator, as manifests are."""
    done, key = take_back(place), load_private_key(key_of(place))
    signature = key.sign(done.tombstone.statement.to_json())
    return put(place, replace(done.tombstone, signature=signature))


def of_another_key(place: Any) -> str:
    key, _ = create_key_pair(place.root, "other")
    return put(place, take_back(place).tombstone.statement.signed(load_private_key(key)))


def other_words(place: Any) -> str:
    done = take_back(place).tombstone
    return put(place, replace(done, statement=replace(done.statement, reason="request")))


def a_statement_of_keys(place: Any) -> str:
    stated = KeyStatement(population="town", at="2027-01-31T06:00:00Z", keys=())
    return put(place, stated.signed(load_private_key(key_of(place))))


def half_a_file(place: Any) -> str:
    data = take_back(place).tombstone.to_json()[:-9]
    return put(place, SimpleNamespace(to_json=lambda: data))


def a_link(place: Any) -> str:
    take_back(place)
    path = folder_of(place, FIRST) / WITHDRAWN
    path.rename(place.root / WITHDRAWN)
    path.symlink_to(place.root / WITHDRAWN)
    return FIRST


def a_dangling_link(place: Any) -> str:
    (folder_of(place, FIRST) / WITHDRAWN).symlink_to(place.root / "nothing")
    return FIRST


def an_empty_file(place: Any) -> str:
    return put(place, SimpleNamespace(to_json=bytes))


@pytest.mark.parametrize(
    "forge",
    [copied_in, of_the_manifests_context, of_another_key, other_words, a_statement_of_keys,
     half_a_file, a_link, a_dangling_link, an_empty_file],
)  # fmt: skip
def test_a_false_tombstone_is_no_withdrawal_and_its_folder_no_release(place, forge):
    folder = folder_of(place, forge(place))
    for load in (verify, load_release, verify_withdrawn):
        with pytest.raises(errors.ReleaseError) as caught:
            load(folder, public_key=place.key)
        assert not isinstance(caught.value, errors.WithdrawnError)
    found = codes(place)
    assert found & {"folder_unsound", "other_key"}
    assert not audited(place).ok


def test_a_tombstone_of_other_words_than_the_entry_s_is_found(place):
    statement = replace(take_back(place).tombstone.statement, reason="request")
    put(place, statement.signed(load_private_key(key_of(place))))
    assert codes(place) == {"tombstone_disagrees", "withdrawn"}
    assert not audited(place).ok


def test_a_tombstone_may_be_signed_by_a_later_key(place):
    """Rotation: the auditor names both keys, the reader the one of today."""
    create_key_pair(place.root, "later")
    later = load_private_key(place.root / "later.key")
    ledger = Ledger.open(place.ledger, key=later)
    folder, both = folder_of(place, FIRST), [place.key, place.root / "later.pub"]
    withdraw(folder, ledger, later, reason="error")
    with pytest.raises(errors.WithdrawnError):
        verify(folder, public_key=both[1])
    assert codes(place, public_keys=both) <= {"withdrawn", "several_keys"}
    assert "other_key" in codes(place)


def beside(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def without_certificate(folder: Path) -> None:
    (folder / CERTIFICATE).unlink()


def without_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def with_a_folder(folder: Path) -> None:
    (folder / "report.html").mkdir()


@pytest.mark.parametrize("harm", [beside, without_certificate, without_manifest, with_a_folder])
def test_a_damaged_tombstone_is_found(place, harm):
    take_back(place)
    folder = folder_of(place, FIRST)
    harm(folder)
    with pytest.raises(errors.ReleaseError):
        verify(folder, public_key=place.key)
    with pytest.raises(errors.ManifestError if harm is not without_certificate
                       else errors.ChecksumError):  # fmt: skip
        verify_withdrawn(folder, public_key=place.key)
    assert "folder_unsound" in codes(place)


def test_a_whole_folder_back_after_its_withdrawal_is_found(place):
    """From a backup, or because the withdrawal was killed behind its entry."""
    folder = folder_of(place, FIRST)
    shutil.copytree(folder, place.root / "backup")
    take_back(place)
    shutil.rmtree(folder)
    shutil.copytree(place.root / "backup", folder)
    report = audited(place)
    assert [finding.code for finding in report.findings] == ["withdrawal_unfinished"]
    assert report.findings[0].severity is Severity.WARNING
    take_back(place)
    assert codes(place) == {"withdrawn"}


# Death at any step, and the same words again.


def check_between(place: Any, whole: Any, names: set[str]) -> None:
    """Whole, or withdrawn: to every reader and to the audit; paid for in any case."""
    folder, on_record = folder_of(place, FIRST), withdrawals(place)
    there = {path.name for path in folder.iterdir()}
    if WITHDRAWN in there:
        assert on_record == 1
        with pytest.raises(errors.WithdrawnError):
            verify(folder, public_key=place.key)
        left = verify_withdrawn(folder, public_key=place.key).left
        assert set(left) == there - KEPT
        assert codes(place) == {"withdrawn", *["withdrawal_unfinished"] * bool(left)}
    else:
        assert there == names
        assert verify(folder, public_key=place.key)
        assert codes(place) == ({"withdrawal_unfinished"} if on_record else set())
    assert spent(place) == whole


def kill_at(place: Any, last: int) -> bool:
    """Let a withdrawal die, look at what it left, and type the same again; whether it died."""
    folder, whole = folder_of(place, FIRST), spent(place)
    names = {path.name for path in folder.iterdir()}
    if not died(lambda: take_back(place), last, place.releases):
        return False
    check_between(place, whole, names)
    take_back(place)
    assert {path.name for path in folder.iterdir()} == KEPT
    assert codes(place) == {"withdrawn"}
    assert withdrawals(place) == 1
    assert spent(place) == whole
    assert not list(place.releases.glob(".*"))
    return True


@pytest.mark.parametrize("last", [1, 4, 9])
def test_a_withdrawal_that_died_is_finished_by_the_same_words(place, last):
    assert kill_at(place, last)


@pytest.mark.crash
def test_death_before_every_change_of_a_file(published, tmp_path, figures):
    last, dies = -1, True
    while dies:
        last += 1
        dies = kill_at(copied(published, tmp_path / str(last)), last)
    assert last > 10
    figures("withdrawals that died", kills=last)
