"""Two keys by hand: what is added, approved, listed and revoked, and what readers then refuse."""

import datetime
import json
import time

import pytest

from dpiw.audit import audit
from dpiw.cli.main import main
from dpiw.errors import (
    LedgerConflictError,
    ManifestError,
    NotApprovedError,
    ReleaseError,
    SignatureError,
    SpecError,
    WithdrawnError,
)
from dpiw.ledger import Ledger
from dpiw.release.signing import create_key_pair, load_private_key, load_public_key
from dpiw.release.verification import NOBODY, verify
from dpiw.run import steps
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun, ledger_url
from tests.support.ledger import terms, withdrawal
from tests.support.whole_runs import asked, prepared, publish_run


@pytest.fixture
def desk(place, monkeypatch):
    """A workplace whose curator has a second person's key beside their own."""
    monkeypatch.chdir(place.root)
    (place.root / "keys").mkdir()
    for name in ("second", "third", "new"):
        create_key_pair(place.root / "keys", name)
    return place


def signing(desk):
    return str(desk.key.with_suffix(".key"))


def add(says, desk, public, role, *words, by="", code=0):
    signed = ("--sign-with", by) if by else ()
    return says(
        "key", "add", "--ledger", "release.yaml", "--public", public, "--role", role, *signed,
        *words, code=code,
    )  # fmt: skip


@pytest.mark.slow
def test_a_release_of_two_keys_and_what_readers_do_with_them(desk, says):
    """The whole way: refused, approved, published, rotated, revoked, and checked offline."""
    own, refusal = signing(desk), NotApprovedError.exit_code
    desk.rewrite("cadence: once", "cadence: once\nmode: production")
    with pytest.raises(NotApprovedError, match="no approver's key"):
        check_ahead(asked(desk.spec))
    assert "no approver's key was added" in says("plan", "release.yaml")
    assert "add a second curator's key" in add(says, desk, desk.key, "curator")
    add(says, desk, "keys/second.pub", "approver", code=refusal)
    add(says, desk, "keys/second.pub", "approver", by=own)
    add(says, desk, "keys/third.pub", "approver", by=own, code=refusal)
    add(says, desk, "keys/third.pub", "approver", by="keys/second.key")
    run = prepared(desk)
    for act in (lambda: check_ahead(asked(desk.spec)), lambda: steps.reserve(run)):
        with pytest.raises(NotApprovedError, match="dpiw approve"):
            act()
    assert "no second key approved" in says("plan", "release.yaml")
    says("approve", "release.yaml", "--key", own, code=refusal)
    told = says("approve", "release.yaml", "--key", "keys/second.key")
    for fact in (run.key[:12], run.plan.digest, str(run.spec.cost), "period once", "left "):
        assert fact in told
    check_ahead(asked(desk.spec))
    folder = publish_run(desk.spec)[1]

    statement = desk.root / "keys.json"
    listing = ("key", "list", "--ledger", "release.yaml")
    assert says(*listing).count("valid") == 3
    says(*listing, "--json", code=SpecError.exit_code)
    says(*listing, "--json", "--sign-with", "keys/second.key", code=refusal)
    statement.write_text(says(*listing, "--json", "--sign-with", own))
    says("verify", folder, "--keys", statement, "--key", desk.key)

    add(says, desk, "keys/new.pub", "curator", by=own)
    time.sleep(1)  # labels are whole seconds: a key revoked in the same one has signed nothing
    revoke = ("key", "revoke", "--ledger", "release.yaml", "--sign-with", "keys/new.key")
    told = says(*revoke, "--public", desk.key)
    assert load_public_key(desk.root / "keys" / "new.pub").key_id in told  # it added this one
    says(*revoke, "--public", "keys/new.pub", code=LedgerConflictError.exit_code)
    says(*listing, "--json", "--sign-with", own, code=refusal)
    statement.write_text(says(*listing, "--json", "--sign-with", "keys/new.key"))
    says("verify", folder, "--keys", statement)  # it was published before
    says("verify", folder, "--keys", statement, "--key", desk.key, code=SignatureError.exit_code)
    report = audit(str(desk.ledger), [folder], [desk.key])
    assert {f.code for f in report.findings} & {"not_approved", "key_not_valid"} == set()

    says(*revoke, "--public", desk.key, "--from", "2026-01-01T00:00:00Z")
    statement.write_text(says(*listing, "--json", "--sign-with", "keys/new.key"))
    told = says("verify", folder, "--keys", statement, code=SignatureError.exit_code)
    assert "ended at 2026-01-01T00:00:00Z" in told
    says("verify", folder, "--key", desk.key)  # without a statement nobody knows
    codes = {f.code for f in audit(str(desk.ledger), [folder], [desk.key]).findings}
    assert "key_revoked_since" in codes
    assert main(["ledger", "verify", "--ledger", "release.yaml"]) == 0


def test_a_statement_that_was_changed_or_is_another_s_is_refused(desk, says, tmp_path):
    own, statement = signing(desk), tmp_path / "keys.json"
    add(says, desk, desk.key, "curator")
    folder = publish_run(desk.spec)[1]
    words = ("key", "list", "--ledger", "release.yaml", "--json", "--sign-with", own)
    good = says(*words)
    signed = json.loads(good)
    signed["statement"]["population"] = "village"
    text = json.dumps(signed, sort_keys=True, indent=2) + "\n"
    ended = good.replace('"ended": null', '"ended": "2"')
    for bad, error in ((text, SignatureError), (ended, SignatureError), ("{}", ManifestError),
                       (good + "\n", ManifestError)):  # fmt: skip
        statement.write_text(bad)
        with pytest.raises(error):
            verify(folder, keys=statement)
    with pytest.raises(ReleaseError):
        verify(folder, keys=tmp_path / "none.json")
    statement.write_text(good)
    assert verify(folder, keys=statement).pinned
    key = load_private_key(desk.key.with_suffix(".key"))
    statement.write_bytes(withdrawal().signed(key).to_json())  # of another kind
    with pytest.raises(ManifestError):
        verify(folder, keys=statement)
    stranger = load_private_key(desk.root / "keys" / "new.key")
    stated = Ledger.open(desk.ledger).keyring("town").statement(key.public)
    statement.write_bytes(stated.signed(stranger).to_json())  # a key that it does not state
    with pytest.raises(SignatureError):
        verify(folder, keys=statement)


@pytest.mark.slow
def test_a_tombstone_is_vouched_for_by_a_statement_of_keys(desk, says, tmp_path):
    own, statement = signing(desk), tmp_path / "keys.json"
    add(says, desk, desk.key, "curator")
    folder = publish_run(desk.spec)[1]
    says("withdraw", folder, "--ledger", "release.yaml", "--reason", "error")
    statement.write_text(
        says("key", "list", "--ledger", "release.yaml", "--json", "--sign-with", own)
    )
    unpinned, pinned = says("describe", folder), says("describe", folder, "--keys", statement)
    assert (NOBODY in unpinned, NOBODY in pinned) == (True, False)
    assert unpinned.removeprefix(f"{NOBODY}\n") == pinned
    refused = says("verify", folder, "--keys", statement, code=WithdrawnError.exit_code)
    assert "not checked" not in refused


def test_rehearse_spends_nothing(desk, says):
    """Neither by hand, nor in a worker's step; a plan says what to type instead."""
    desk.rewrite("cadence: once", "cadence: once\nmode: rehearse")
    ledger, run = Ledger.open(desk.ledger), prepared(desk)
    head = ledger.head()
    for act in (lambda: check_ahead(asked(desk.spec)), lambda: steps.reserve(run)):
        with pytest.raises(SpecError, match="dpiw rehearse"):
            act()
    assert "dpiw rehearse release.yaml" in says("plan", "release.yaml")
    says("approve", "release.yaml", "--key", signing(desk), code=SpecError.exit_code)
    assert ledger.head() == head
    assert run.key == prepared_without_mode(desk).key


def prepared_without_mode(desk):
    desk.rewrite("\nmode: rehearse", "")
    return prepared(desk)


@pytest.mark.slow
def test_an_expired_key_signs_a_folder_that_the_audit_names(desk, says):
    """A run reserved in time and published after its key's end: book and folder are whole."""
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    until = soon.strftime("%Y-%m-%dT%H:%M:%SZ")
    add(says, desk, desk.key, "curator")
    add(says, desk, "keys/new.pub", "curator", by=signing(desk))
    says("key", "revoke", "--ledger", "release.yaml", "--public", desk.key, "--from", until,
         "--sign-with", signing(desk))  # fmt: skip
    folder = publish_run(desk.spec)[1]
    assert "key_not_valid" not in codes_of(desk, folder)
    late = Ledger.open(
        desk.ledger, key=load_private_key(desk.key.with_suffix(".key")), clock=lambda: soon
    )
    late.publish_rows(late.runs("town")[0].run_key, "5" * 64)
    assert "key_not_valid" in codes_of(desk, folder)


@pytest.mark.slow
def test_a_folder_and_its_entry_are_of_one_key(desk, says, monkeypatch):
    """Two curators' keys, both valid: who published is who signed."""
    add(says, desk, desk.key, "curator")
    add(says, desk, "keys/new.pub", "curator", by=signing(desk))
    other = load_private_key(desk.root / "keys" / "new.key")
    monkeypatch.setattr(
        ReleaseRun, "open_ledger", lambda run, **_: Ledger.open(ledger_url(run.spec), key=other)
    )
    folder = publish_run(desk.spec)[1]
    found = audit(str(desk.ledger), [folder], [desk.key]).findings
    told = [(f.subject, f.text) for f in found if f.code == "key_not_valid"]
    own, new = load_private_key(desk.key.with_suffix(".key")).public.key_id, other.public.key_id
    text = f"signed by key id {own}, and on record by {new}"
    assert told == [(f"release {folder.name}", text)]


def test_whose_keys_are_meant_is_asked_where_it_is_not_clear(desk, says):
    words = ("key", "list", "--ledger", desk.ledger)
    assert "population town: no keys" in says(*words)
    Ledger.open(desk.ledger).register(terms(name="village"))
    assert "one of town, village" in says(*words, code=SpecError.exit_code)
    assert "village: no keys" in says(*words, "--population", "village")


def codes_of(desk, folder):
    return {f.code for f in audit(str(desk.ledger), [folder], [desk.key]).findings}
