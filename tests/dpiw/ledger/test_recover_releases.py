"""Taking a restored ledger up again from real releases: the command, certificates, keys, terms."""

import dataclasses
import shutil
from decimal import Decimal
from fractions import Fraction

import pytest

from dpiw import errors
from dpiw.audit.tally import tally
from dpiw.ledger import CompositionRule, EntryKind, Ledger, RunState
from dpiw.ledger import from_releases as recovery
from dpiw.ledger.from_releases import MissingRelease, certificate_vector, recovered_release
from dpiw.ledger.recovery import MOST_READS
from dpiw.ledger.values import Charge
from dpiw.privacy.renyi import RenyiVector
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.ledger import NONE, cli, cost, recover, restore, terms
from tests.support.whole_runs import draw, finish, ingested, prepared, publish_run, reserved


def losing(epsilon: str = "0", delta: str = "0", reads: str = "0") -> list[str]:
    return [f"--loss-epsilon={epsilon}", f"--loss-delta={delta}", f"--loss-reads={reads}"]


@pytest.mark.slow
def test_a_restored_ledger_is_recovered_and_goes_on(make_workplace):
    place = make_workplace(epsilon="9")
    before = place.ledger.read_bytes()
    first, _ = publish_run(place.spec, period="2026-11")
    reserved(place, period="2026-12")
    restore(place, before)
    later = ReleaseRun.prepare(place.spec, period="2027-01")
    with pytest.raises(errors.LedgerTamperedError):
        steps.reserve(later)

    assert first.release_id in recover(place, loss=("0.5", "1e-7"))
    assert Ledger.open(place.ledger).spent("town").epsilon == 2.5
    assert "recovered by entry 3: 1 release(s)" in cli("verify", "--ledger", str(place.ledger))[1]
    assert "recovered  by entry 3" in cli("show", "--ledger", str(place.ledger))[1]

    with pytest.raises(errors.GrantSpentError):
        steps.reserve(first)
    steps.reserve(later)  # the population spends again
    with pytest.raises(errors.LedgerConflictError):
        recover(place)
    with pytest.raises(errors.LedgerConflictError):
        recover(place, "--population", "town", loss=("1", "0"))
    recover(place, "--population", "town", "--loss-only", loss=("1", "0"))
    assert Ledger.open(place.ledger).spent("town").epsilon == 5.5


@pytest.mark.slow
def test_a_ledger_restored_to_before_publication_publishes_the_same_bytes(workplace):
    run = draw(prepared(workplace))
    before = workplace.ledger.read_bytes()
    ledger = Ledger.open(workplace.ledger)
    ledger.register(terms(name="village"))  # so that the certificate names a later head
    folder = finish(run)
    manifest = (folder / "manifest.json").read_bytes()
    restore(workplace, before)
    recover(workplace)
    # both draws are in the copy: they might be others than the published ones, so both are paid
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 4
    steps.reserve(run)
    assert steps.publish(run) == folder
    assert (folder / "manifest.json").read_bytes() == manifest
    assert Ledger.open(workplace.ledger).run(run.key).state is RunState.PUBLISHED


@pytest.mark.slow
def test_a_renyi_release_is_recomputed_from_its_certificate(make_workplace):
    place = make_workplace(max_attempts=2)
    ledger = Ledger.open(place.ledger)
    ledger.register(terms(name="village", epsilon=Decimal(9), composition=CompositionRule.RENYI))
    before = place.ledger.read_bytes()
    place.write_spec(population="village", max_attempts=2)
    run = ingested(place, period="2026-11")
    Ledger.open(place.ledger).arm(run.key, 1, "fit_generator")  # and dies: LOST, drawn again
    _, folder = publish_run(place.spec, period="2026-11")
    spent_before = Ledger.open(place.ledger).account("village").held.renyi
    certificate = verify(folder).certificate
    assert len(certificate.attempts) == 2
    assert certificate_vector(certificate) == spent_before
    restore(place, before)
    recover(place)
    assert Ledger.open(place.ledger).account("village").held.renyi == spent_before

    twice = dict(certificate.attempts[0])
    twice["epsilon"] = str(2 * Decimal(twice["epsilon"]))
    twice["delta"] = str(2 * Decimal(twice["delta"]))
    one, double = (
        certificate_vector(dataclasses.replace(certificate, attempts=(attempt,)))
        for attempt in (certificate.attempts[0], twice)
    )
    assert double == one.plus(one)  # a conflicting output is found again
    other = {"epsilon": "1", "delta": "1e-6", "stages": {"other": "committed"}}
    stages = [dataclasses.replace(s, events=({"type": "selected"},)) for s in certificate.stages]
    for change in (
        {"attempts": (other,)}, {"attempts": ({"epsilon": "1"},)}, {"attempts": ()},
        {"stages": tuple(stages)},
    ):  # fmt: skip
        with pytest.raises(errors.LedgerConflictError):
            certificate_vector(dataclasses.replace(certificate, **change))


@pytest.mark.parametrize(("epsilon", "delta"), [("1.1", "1e-6"), ("0.7", "1e-5")])
def test_how_often_a_charge_was_made_is_counted_from_floats_above(epsilon, delta, monkeypatch):
    """A need at a larger delta is smaller: an attempt is never counted too few times."""
    asked = []

    def need(events, *, delta):
        asked.append(delta)
        return 0.5

    monkeypatch.setattr(recovery.accounting, "epsilon", need)
    recovery._times([], Decimal(epsilon), Decimal(delta))
    assert Fraction(asked[0]) >= Fraction(delta)


def test_an_account_that_contradicts_its_certificate_is_refused(place):
    _, folder = publish_run(place.spec, period="2026-11")
    whole = verify(folder)
    population = Ledger.open(place.ledger).population("town")
    account = whole.certificate.account

    def asked(**changes):
        certificate = dataclasses.replace(whole.certificate, account=account | changes)
        release = dataclasses.replace(whole, certificate=certificate)
        found = MissingRelease(release=release, digest=whole.manifest.digest, after=None)
        return recovered_release(found, population)

    assert asked().held == asked().drawn == Charge(cost=cost("2", "1e-6"))
    for change in (
        {"held": {"epsilon_units": 10**12, "delta_units": 10**12}},  # not worth what was spent
        {"held": {"epsilon_units": 2 * 10**12}},
        {"drawn": {"epsilon_units": 1.5, "delta_units": 0}},
        {"drawn": account["drawn"] | {"more": 1}},
        {"held": account["held"] | {"renyi": RenyiVector.nothing().to_payload()}},
        {"composition": "renyi"},
    ):
        with pytest.raises(errors.LedgerConflictError):
            asked(**change)


def test_reads_that_a_copy_forgot_are_stated(workplace):
    """Alone, without a release; they count for life, and the audit counts them by itself."""
    path = str(workplace.ledger)
    base = ("recover", "--ledger", path, "--population", "town", "--loss-only")
    with pytest.raises(errors.LedgerConflictError):
        cli(*base, *losing())
    for wrong in ("-1", str(MOST_READS + 1)):
        with pytest.raises(errors.SpecError, match=r"recover\.reads"):
            cli(*base, *losing(reads=wrong))
    for reads in ("3", "17"):
        assert f"{reads} reads without a draw" in cli(*base, *losing(reads=reads))[1]
    ledger = Ledger.open(path)
    assert ledger.verify().ok
    assert ledger.spent("town") == NONE
    assert ledger.account("town").unpaid_reads == 20
    assert tally(ledger.snapshot().export()).unpaid_reads("town") == 20
    run = ReleaseRun.prepare(workplace.spec, period="2026-11")
    with pytest.raises(errors.BudgetExceededError):
        steps.reserve(run)


@pytest.mark.slow
def test_only_whole_and_signed_releases_count(workplace, tmp_path):
    before = workplace.ledger.read_bytes()
    _, folder = publish_run(workplace.spec, period="2026-11")
    restore(workplace, before)
    ledger = Ledger.open(workplace.ledger)
    create_key_pair(tmp_path, "other")
    path, good = str(workplace.ledger), str(workplace.key)
    base = ("recover", "--ledger", path, *losing())
    with pytest.raises(errors.SignatureError):
        cli(*base, "--releases", str(folder), "--key", str(tmp_path / "other.pub"))
    with pytest.raises(errors.ReleaseError):
        cli(*base, "--releases", str(tmp_path), "--key", good)
    damaged = tmp_path / "releases" / folder.name
    shutil.copytree(folder, damaged)
    (damaged / "report.html").write_text("x")
    with pytest.raises(errors.ReleaseError):
        cli(*base, "--releases", str(damaged.parent), "--key", good)
    words = ("recover", "--ledger", path, "--releases", str(folder), "--key", good)
    for loss in ("x", "NaN", "-1", "Infinity"):
        with pytest.raises(errors.SpecError, match="loss-epsilon"):
            cli(*words, *losing(loss))
    with pytest.raises(SystemExit):  # the loss must be typed
        cli(*words)
    assert [e.kind for e in ledger.entries()] == [EntryKind.GENESIS, EntryKind.REGISTER]
    # the same folder twice, and a second key after the wrong one: once
    twice = ("--releases", str(folder.parent), "--key", str(tmp_path / "other.pub"))
    assert cli(*base, "--releases", str(folder), *twice, "--key", good)[0] == 0
    assert Ledger.open(path).spent("town").epsilon == 2


@pytest.mark.slow
def test_a_new_ledger_under_other_terms_does_not_take_a_release(workplace, tmp_path):
    _, folder = publish_run(workplace.spec, period="2026-11")
    for change in (
        {"epsilon": Decimal(50)}, {"delta": Decimal("2e-4")}, {"id_column": "person"},
        {"id_column": "person", "max_rows": 2}, {"composition": CompositionRule.RENYI},
    ):  # fmt: skip
        own = {"epsilon": Decimal(5), "delta": Decimal("1e-4")}
        verified = verify(folder)
        found = MissingRelease(release=verified, digest=verified.manifest.digest, after=None)
        with pytest.raises(errors.LedgerConflictError):
            recovered_release(found, terms(**{**own, **change}))
    fresh = Ledger.create(tmp_path / "fresh.sqlite")
    words = ("recover", "--ledger", fresh.location, "--releases", str(folder))
    words = (*words, "--key", str(workplace.key), *losing())
    with pytest.raises(errors.UnknownPopulationError):
        cli(*words)
    fresh.register(terms(epsilon=Decimal(5), delta=Decimal("1e-4")))
    assert cli(*words)[0] == 0
    assert fresh.spent("town").epsilon == 2
