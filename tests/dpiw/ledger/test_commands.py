"""`dpiw ledger`: what it does, refuses and shows, and how many more releases fit."""

import argparse
import csv
import hashlib
import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.cli.ledger import add_ledger_commands
from dpiw.errors import (
    LedgerConflictError,
    LedgerError,
    LedgerTamperedError,
    SpecError,
)
from dpiw.ledger import CompositionRule, Ledger, RunState
from dpiw.ledger.accounts import MOST_ADMITTED, Account, column_label, told_column
from dpiw.ledger.history import more_such, spending
from dpiw.ledger.values import Charge
from dpiw.privacy.accounting import renyi_vector
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.units import PrivacyUnit
from tests.support.ledger import (
    ADD,
    BOTH,
    MANIFEST,
    RUN,
    adult,
    ask,
    cli,
    cost,
    digest,
    filled,
    finish,
    key,
    spend,
    terms,
    told,
)


def test_the_command_line_tells_and_does(store_url, capsys, tmp_path):
    path = store_url
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one"]
    register = ["register", "adult", *terms, "--max-rows", "1", "--ledger", path]
    with pytest.raises(LedgerError, match="to begin one"):
        cli(*register)
    assert cli(*register, "--create")[0] == 0
    assert "registered before, with the same terms; nothing was changed" in told(*register)
    assert "no runs" in cli("show", "--ledger", path)[1]
    ledger = Ledger.open(path)
    ledger.reserve(**ask())
    held = "delta=1E-6 (runs that hold their part, and drew nothing: 1)\n"
    assert held in cli("show", "--ledger", path)[1]
    (tmp_path / "workspace" / "adult" / RUN[:32]).mkdir(parents=True)
    void = ("void", RUN[:12], "--attempt", "1", "--ledger", path, "--state", str(tmp_path))
    assert told(*void).startswith("voided; population adult has epsilon=2, delta=1E-5 left")
    head = ledger.head()
    assert "was voided before; nothing was changed" in told(*void)
    assert ledger.head() == head
    ledger.reserve(**ask(attempt=2))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    text = cli("show", "--ledger", path)[1]
    stages = ("generator=committed weights=committed", "generator=voided weights=voided")
    for part in ("spent      epsilon=0.5, delta=1E-6\n", "2027-q1", "published", *stages):
        assert part in text
    facts = json.loads(cli("show", "--json", "--run", RUN, "--ledger", path)[1])
    run = facts["populations"][0]["runs"][0]
    assert run["manifest_digest"] == MANIFEST
    held = [one["held"] for one in run["attempts"]]
    assert held == ["epsilon=0, delta=0", "epsilon=0.5, delta=1E-6"]
    head = ledger.head()
    good, bad = head.hash, digest(5)
    assert cli("verify", "--ledger", path, "--head", good)[0] == 0
    with pytest.raises(LedgerTamperedError):
        cli("verify", "--ledger", path, "--head", bad)
    for typed in (f"{bad}:", f"7:{bad}", f"{bad}:a", bad.upper() + "A"):
        with pytest.raises(SpecError):
            cli("verify", "--ledger", path, "--head", typed)
    parser = argparse.ArgumentParser()
    add_ledger_commands(parser.add_subparsers())
    arguments = parser.parse_args(["ledger", "verify", "--ledger", path])
    assert arguments.handler(arguments) == 0
    assert capsys.readouterr().out.startswith(f"ok: {head.seq} entries, head {good}")


def test_a_unit_is_told_by_the_name_that_was_typed(tmp_path):
    """A ledger holds no free text: a name with a space stands there as its digest."""
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one", "--create"]
    words = ["register", "adult", *terms, "--ledger", str(tmp_path / "ledger")]
    for _ in range(2):  # typed again, too
        text = told(*words, "--id-column", "Patient ID")
        assert "a person is a value of Patient ID (in the ledger: sha256:61e3897b" in text
    shown = cli("show", "--ledger", str(tmp_path / "ledger"))[1]
    assert re.search(r"id_column=sha256:61e3897b\w{56} \(SHA-256 of the column's name: ", shown)
    known = Ledger.open(tmp_path / "ledger").population("adult")
    assert known.protects(PrivacyUnit(relation=ADD, id_column="Patient ID"))
    assert not known.protects(PrivacyUnit(relation=ADD, id_column="Patient"))
    for plain in (column_label("person"), "None", "sha256:61e3"):  # no digest
        assert told_column(plain) == plain


STAGES = {"s": [{"type": "gaussian", "noise_multiplier": 3.0, "count": 1}]}


@pytest.fixture
def dated(tmp_path):
    """1 genesis, 2-3 populations, 4-6 a run of town, 7 its conflict, 8 a run of village."""
    days = (datetime(2027, 1, day, tzinfo=UTC) for day in itertools.count(2))  # one for each entry
    created = Ledger.create(tmp_path / "ledger.sqlite", clock=lambda: next(days))
    for name in ("town", "village"):
        created.register(terms(name=name, epsilon=Decimal(5)))
    for run, name in ((0xAA01, "town"), (0xAA02, "village")):
        created.reserve(**ask(population=name, run_key=key(run), stages=STAGES))
        if name == "town":
            grant = created.arm(key(run), 1, "s")
            created.commit(grant, digest(7))
            with pytest.raises(LedgerConflictError):
                created.commit(grant, digest(8))
    return created


def about(ledger: Ledger, command: str, *words: str) -> str:
    return told(command, "--ledger", ledger.location, *words)


def broken(text: str) -> list[int]:
    """docs/operations.md, re-implemented: numbers of the entries whose hash or link is wrong."""
    faulty, previous = [], None
    for line in text.splitlines():
        fields = json.loads(line)
        stated = fields.pop("hash")
        body = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        message = b"dpiw.ledger.entry.v1\x00" + body.encode()
        linked = previous in (None, fields["previous"])
        if hashlib.sha256(message).hexdigest() != stated or not linked:
            faulty.append(fields["seq"])
        previous = stated
    return faulty


def test_an_outsider_checks_the_chain_and_sees_every_edit(dated, tmp_path):
    about(dated, "backup", str(tmp_path / "backup.jsonl"))
    text = (tmp_path / "backup.jsonl").read_text()
    assert len(text.splitlines()) == 8
    assert broken(text) == []
    assert json.loads(text.splitlines()[0])["previous"] == "0" * 64
    head = dated.head()
    assert json.loads(text.splitlines()[-1])["hash"] == head.hash
    for number, line in enumerate(text.splitlines()):
        fields = json.loads(line)
        fields["at"] = "2026-01-01T00:00:00Z"
        edited = [*text.splitlines()]
        edited[number] = json.dumps(fields)
        assert broken("\n".join(edited)) == [number + 1]
    without = text.splitlines()[:3] + text.splitlines()[4:]
    assert broken("\n".join(without)) == [5]


def test_one_run_and_its_entries(dated):
    text = about(dated, "show", "--run", "0000aa01")
    assert "s=committed+conflict" in text
    assert "entries of this run" in text
    for kind in ("reserve", "arm", "commit", "conflict"):
        assert f"  {kind} " in text
    assert "village" not in text
    facts = json.loads(about(dated, "show", "--run", key(0xAA01), "--json"))
    assert [e["seq"] for e in facts["entries"]] == [4, 5, 6, 7]
    with pytest.raises(SpecError, match="2 keys begin so"):
        about(dated, "show", "--run", "0000aa0")
    with pytest.raises(LedgerConflictError):
        about(dated, "show", "--run", "ffff")
    everyone = json.loads(about(dated, "show", "--json"))["populations"]
    assert [len(population["runs"]) for population in everyone] == [1, 1]


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(budget=st.integers(1, 300), asked=st.integers(1, 100), before=st.integers(0, 300))
def test_the_count_is_what_the_sum_grants(budget, asked, before):
    population = terms(epsilon=Decimal(budget) / 100, delta=Decimal("1e-5"))
    account = Account.opened(population)
    if before:
        account = account.plus(Charge(cost=cost(str(Decimal(before) / 100), "0")))
    charge = Charge(cost=cost(str(Decimal(asked) / 100), "1e-7"))
    expected = 0 if account.overdrawn else filled(account, charge)[1]
    assert account.admits(charge) == expected


@pytest.mark.parametrize("multiplier", [3.0, 8.0, 21.5])
def test_the_count_is_what_the_renyi_filter_grants(multiplier):
    population = terms(epsilon=Decimal(4), composition=CompositionRule.RENYI)
    vector = RenyiVector(units=renyi_vector([GaussianEvent(noise_multiplier=multiplier)]))
    charge = Charge(cost=cost("0.2", "1e-7"), renyi=vector)
    account = Account.opened(population).plus(charge)
    count = account.admits(charge)
    assert count == filled(account, charge)[1]
    assert count > 3.8 / 0.2 or multiplier < 20  # more than division would say


def test_nothing_more_fits_where_no_read_is_left_and_small_charges_have_an_end():
    account = Account.opened(terms(epsilon=Decimal(2)))
    small = Charge(cost=cost("1e-7", "0"))
    assert account.admits(small) == MOST_ADMITTED
    assert replace(account, unpaid_reads=20).admits(small) == 0


@pytest.fixture
def history(ledger):
    """Reserved, given back, reserved again and published, on each store in turn; then another."""
    ledger.reserve(**ask(release="my-release"))
    ledger.void(RUN, 1)
    ledger.reserve(**ask(attempt=2, release="my-release"))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    spend(ledger, 7, "0.25")
    return ledger


def test_spending_is_every_change_of_what_is_held(history):
    run = history.run(RUN)
    states = [run.attempt_state(number) for number in run.attempts]
    assert states == [RunState.VOIDED, RunState.PUBLISHED]  # each attempt's own, not the run's
    text = told("show", "--ledger", history.location, "--run", RUN)
    rows = [line.split() for line in text.splitlines() if RUN[:12] in line]
    assert [row[3] for row in rows] == ["voided", "published"]
    changes = spending(history.entries())
    assert [(change.entry.kind.value, change.epsilon, change.delta) for change in changes] == [
        ("reserve", "0.5", "1E-6"), ("void", "-0.5", "-1E-6"), ("reserve", "0.5", "1E-6"),
        ("reserve", "0.25", "0"),
    ]  # fmt: skip
    assert [str(change.spent) for change in changes] == [
        "epsilon=0.5, delta=1E-6", "epsilon=0, delta=0", "epsilon=0.5, delta=1E-6",
        "epsilon=0.75, delta=1E-6",
    ]  # fmt: skip
    assert changes[-1].spent == history.spent("adult")
    assert [change.run.release for change in changes if change.run] == ["my-release"] * 3 + [None]
    assert more_such(history.account("adult"), history.run(RUN)) == "2 more such releases fit"


def test_show_speaks_of_releases_and_says_what_still_fits(history):
    text = told("show", "--ledger", history.location)
    assert "my-release  2027-q1" in text
    assert "forecast   5 more such releases fit, such as (not named) p (epsilon=0.25" in text
    facts = json.loads(told("show", "--ledger", history.location, "--json"))
    (population,) = facts["populations"]
    assert [record["release"] for record in population["runs"]] == ["my-release", None]
    assert population["forecast"]["told"] == "5 more such releases fit"
    assert (population["unpaid_reads"], population["max_unpaid_reads"]) == (0, 20)


def test_a_lost_draw_s_charge_is_lost_in_every_form(sqlite_ledger):
    """The run is published by its second attempt; the first one's charge stays what it is."""
    ledger = sqlite_ledger
    ledger.reserve(**ask(release="my-release"))
    assert "drew nothing: 1" in told("show", "--ledger", ledger.location)
    ledger.arm(RUN, 1, "generator")
    ledger.lose(RUN, 1, "generator")
    ledger.reserve(**ask(attempt=2, stages={"generator": BOTH["generator"]}))
    assert ledger.run(RUN).state is RunState.RESERVED
    assert "drew nothing" not in told("show", "--ledger", ledger.location)  # a part is lost
    ledger.commit(ledger.arm(RUN, 1, "weights"), digest(10))
    ledger.commit(ledger.arm(RUN, 2, "generator"), digest(11))
    ledger.publish(RUN, MANIFEST)
    table = told("show", "--ledger", ledger.location, "--csv")
    of_csv = {row["attempt"]: row["state"] for row in csv.DictReader(table.splitlines())}
    facts = json.loads(told("show", "--ledger", ledger.location, "--json"))["populations"][0]
    of_json = {str(record["attempt"]): record["state"] for record in facts["spending"]}
    of_runs = {str(record["attempt"]): record["state"] for record in facts["runs"][0]["attempts"]}
    assert of_csv == of_json == of_runs == {"1": "lost", "2": "published"}


def test_show_exports_csv(tmp_path, monkeypatch):
    monkeypatch.setenv("DPIW_ACTOR", "alice@desk")
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(adult())
    ledger.reserve(**ask(release="my-release"))
    ledger.register(terms(name="beta"))
    text = told("show", "--ledger", ledger.location, "--csv")
    (row,) = csv.DictReader(text.splitlines())
    assert row["population"] == "adult"
    assert (row["release"], row["period"], row["actor"]) == ("my-release", "2027-q1", "alice@desk")
    assert (row["epsilon"], row["spent_epsilon"], row["spent_delta"]) == ("0.5", "0.5", "1E-6")
    assert row["budget"] == "epsilon=2, delta=1E-5"
    assert (row["run_key"], row["key_id"]) == (digest(1), "")
    terms_of = (row["state"], row["relation"], row["max_rows"])
    assert terms_of == ("reserved", "add_or_remove_one", "1")
    assert row["mechanisms"] == (
        "generator: 3 × gaussian (noise multiplier 1.5); weights: 1 × laplace (noise multiplier 4)"
    )
    other = told("show", "--ledger", ledger.location, "--csv", "--population", "beta")
    assert other.count("\n") == 1
