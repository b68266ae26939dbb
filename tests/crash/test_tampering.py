"""200 random edits of a ledger that holds real runs: every one is found."""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dpiw.errors import LedgerError, LedgerTamperedError
from dpiw.ledger import Ledger, PublishedHead
from dpiw.ledger.entries import entry_json
from dpiw.release.verification import verify
from tests.crash.harness import Place, Servers
from tests.crash.stores import on_stores
from tests.support.ledger import chain, sql, stored

Row = dict[str, Any]
Intrude = Callable[..., list[tuple[Any, ...]]]


def store(location: str, intrude: Intrude, rows: list[Row]) -> None:
    """Replace the ledger's rows, guards taken off and put back."""
    lines = [
        f"INSERT INTO entries ({', '.join(row)}) VALUES ({', '.join(map(sql, row.values()))})"
        for row in rows
    ]
    intrude(location, "DELETE FROM entries", *lines)


# What an intruder does; each changes at least one row
def edit_field(rows: list[Row], rng: random.Random) -> None:
    row, name = rng.choice(rows), rng.choice(sorted(rows[0].keys() - {"seq"}))
    value = row[name]
    if isinstance(value, int):
        row[name] = value + rng.choice((-1, 1, 1000))
    elif value is None:
        row[name] = 1 if name == "attempt" else "x"
    else:
        at = rng.randrange(len(value))
        row[name] = (
            value[:at] + chr((ord(value[at]) - 32 + rng.randint(1, 94)) % 95 + 32) + value[at + 1 :]
        )


def edit_amount(rows: list[Row], rng: random.Random) -> None:
    """A smaller cost or a larger budget."""
    row = rng.choice([row for row in rows if "epsilon_units" in row["payload"]])
    payload = json.loads(row["payload"])
    payload[rng.choice(("epsilon_units", "delta_units"))] += rng.choice((-1, 1, 10**12))
    row["payload"] = entry_json(payload)


def swap(rows: list[Row], rng: random.Random) -> None:
    first, second = rng.sample(range(len(rows)), 2)
    rows[first]["seq"], rows[second]["seq"] = rows[second]["seq"], rows[first]["seq"]


def delete(rows: list[Row], rng: random.Random) -> None:
    del rows[rng.randrange(len(rows) - 1)]


def delete_and_renumber(rows: list[Row], rng: random.Random) -> None:
    delete(rows, rng)
    for number, row in enumerate(rows, 1):
        row["seq"] = number


def duplicate(rows: list[Row], rng: random.Random) -> None:
    rows.append({**rng.choice(rows), "seq": len(rows) + 1})


def truncate(rows: list[Row], rng: random.Random) -> None:
    del rows[rng.randrange(len(rows)) :]


def rewrite(rows: list[Row], rng: random.Random) -> None:
    """Change one entry's time and hash it and all after it anew: a perfect chain, another one."""
    entries = [{**row, "payload": json.loads(row["payload"])} for row in rows]
    rng.choice(entries)["at"] = "2001-01-01T00:00:00Z"
    rows[:] = stored(chain(entries))


KINDS = (edit_field, edit_amount, swap, delete, delete_and_renumber, duplicate, truncate, rewrite)


# Who notices
def noticed_by(url: str, heads: list[PublishedHead]) -> str:
    """What finds the change: the ledger alone, or the heads that were seen outside it."""
    try:
        ledger = Ledger.open(url)
        if not ledger.verify().ok:
            return "verify"
        ledger.check_heads(heads)
    except LedgerTamperedError as error:
        return "heads" if "head" in str(error) else "verify"
    except LedgerError:
        return "open"
    return "nobody"


@pytest.fixture
def place(servers, new_place):
    """Two runs, one of them with a lost draw."""
    prepared = new_place()
    servers.run(prepared, point="after_draw:fit_weights")
    for period in ("once", "again"):
        assert servers.run(prepared, period=period) == 0
    return prepared


def heads_seen(place: Place) -> list[PublishedHead]:
    """Of all published manifests, and the one an auditor wrote down last."""
    certificates = [verify(folder).certificate for folder in place.releases.iterdir()]
    hashes = [*(each.ledger_head for each in certificates), place.ledger().head().hash]
    return [PublishedHead(hash=head) for head in hashes]


def tamper(place: Place, intrude: Intrude, edits: int) -> Counter[str]:
    location, heads = str(place.ledger().location), heads_seen(place)
    sound = stored(place.ledger().snapshot().export())
    assert noticed_by(place.url, heads) == "nobody"
    rng, counts = random.Random(20270101), Counter[str]()
    for number in range(edits):
        rows = copy.deepcopy(sound)
        KINDS[number % len(KINDS)](rows, rng)
        assert rows != sound
        store(location, intrude, rows)
        by = noticed_by(place.url, heads)
        assert by != "nobody", (KINDS[number % len(KINDS)].__name__, number)
        counts[by] += 1
        store(location, intrude, sound)
    assert noticed_by(place.url, heads) == "nobody"  # and the last one was put back
    return counts


def restore(place: Place, servers: Servers, intrude: Intrude) -> int:
    """Put back every old state of the ledger that a backup could have: no run may spend on it."""
    location, refused = str(place.ledger().location), 0
    sound = stored(place.ledger().snapshot().export())
    numbers = {entry.hash: entry.seq for entry in place.ledger().entries()}
    last = max(numbers[head.hash] for head in heads_seen(place)[:-1])
    for length in range(3, last):
        store(location, intrude, sound[:length])
        before = place.ledger().head()
        assert servers.run(place, period="third") == LedgerTamperedError.exit_code
        assert place.ledger().head() == before  # nothing was written
        refused += 1
    store(location, intrude, sound)
    assert servers.run(place, period="third") == 0
    return refused


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
def test_two_hundred_edits_and_every_restored_backup(place, servers, intrude, new_place, figures):
    counts = tamper(place, intrude, 200)
    backups = restore(place, servers, intrude)
    figures(f"tampering, {new_place.kind}", edits=200, **counts, restored_backups=backups)
