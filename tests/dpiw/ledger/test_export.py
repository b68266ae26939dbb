"""Exports, and views of a part: an outsider checks the chain with a few lines of their own."""

import hashlib
import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from dpiw.errors import LedgerConflictError, SpecError
from dpiw.ledger import Ledger
from tests.support.ledger import ask, digest, key, terms, told

STAGES = {"s": [{"type": "gaussian", "noise_multiplier": 3.0, "count": 1}]}


@pytest.fixture
def ledger(tmp_path):
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


def cli(ledger: Ledger, command: str, *words: str) -> str:
    return told(command, "--ledger", str(ledger.path), *words)


def lines(ledger: Ledger, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli(ledger, "export", *words).splitlines()]


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


def test_an_outsider_checks_the_chain_and_sees_every_edit(ledger):
    text = cli(ledger, "export")
    assert len(text.splitlines()) == 8
    assert broken(text) == []
    assert json.loads(text.splitlines()[0])["previous"] == "0" * 64
    head = ledger.head()
    assert json.loads(text.splitlines()[-1])["hash"] == head.hash
    for number, line in enumerate(text.splitlines()):
        fields = json.loads(line)
        fields["at"] = "2026-01-01T00:00:00Z"
        edited = [*text.splitlines()]
        edited[number] = json.dumps(fields)
        assert broken("\n".join(edited)) == [number + 1]
    without = text.splitlines()[:3] + text.splitlines()[4:]
    assert broken("\n".join(without)) == [5]
    assert broken(cli(ledger, "export", "--since", "4")) == []


def test_parts_of_the_chain(ledger):
    for words, part in (
        ("--since 6", [6, 7, 8]),
        ("--since 2027-01-07", [6, 7, 8]),
        ("--since 2027-01-07T00:00:01Z", [7, 8]),
        ("--since 2028-01-01", []),
        ("--since 99", []),
        ("--population village", [3, 8]),
        ("--population town --since 5", [5, 6, 7]),
    ):
        assert [e["seq"] for e in lines(ledger, *words.split())] == part, words
    for text in ("yesterday", "2027-1-1", "-3", "2027-01-01T00:00", ""):
        with pytest.raises(SpecError, match="since"):
            cli(ledger, "export", f"--since={text}")


def test_a_clock_that_went_back_hides_nothing_after_the_first_match(tmp_path):
    days = (datetime(2027, 1, day, tzinfo=UTC) for day in (1, 9, 3))
    ledger = Ledger.create(tmp_path / "ledger", clock=lambda: next(days))
    for name in ("town", "village"):
        ledger.register(terms(name=name, epsilon=Decimal(5)))
    assert [e["seq"] for e in lines(ledger, "--since", "2027-01-05")] == [2, 3]


def test_one_run_and_what_happened_since(ledger):
    text = cli(ledger, "show", "--run", "0000aa01")
    assert "s=committed+conflict" in text
    assert "entries of this run" in text
    for kind in ("reserve", "arm", "commit", "conflict"):
        assert f"  {kind} " in text
    assert "village" not in text
    facts = json.loads(cli(ledger, "show", "--run", key(0xAA01), "--json"))
    assert [e["seq"] for e in facts["entries"]] == [4, 5, 6, 7]
    with pytest.raises(SpecError, match="several keys"):
        cli(ledger, "show", "--run", "0000aa0")
    with pytest.raises(LedgerConflictError):
        cli(ledger, "show", "--run", "ffff")
    recent = json.loads(cli(ledger, "show", "--since", "8", "--json"))["populations"]
    assert [len(population["runs"]) for population in recent] == [0, 1]
    everyone = json.loads(cli(ledger, "show", "--json"))["populations"]
    assert [len(population["runs"]) for population in everyone] == [1, 1]
    assert recent[0]["spent"] == everyone[0]["spent"]  # totals are never those of a part


def test_verify_tells_of_conflicts_and_overdrawn_budgets(ledger):
    text = cli(ledger, "verify")
    assert text.startswith("ok: 8 entries")
    assert "note: run 0000aa010000, stage s, attempt 1: 1 conflicting output(s)" in text
    assert "more than its budget" not in text
    for number in range(10, 20):
        with pytest.raises(LedgerConflictError):
            ledger.commit_found(key(0xAA01), 1, "s", digest(number))
    assert "note: population town has spent more than its budget" in cli(ledger, "verify")
