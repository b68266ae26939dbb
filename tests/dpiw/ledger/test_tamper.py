"""Somebody edits the ledger: what `verify` finds, and what only published heads can show."""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import LedgerTamperedError
from dpiw.ledger import Fault, FaultKind, Ledger, PublishedHead
from dpiw.ledger.entries import entry_hash, entry_json
from dpiw.ledger.stores.postgresql import guards_hold
from tests.support.ledger import chain, cost, digest, insert, sql, terms, update
from tests.support.stores import both_stores

pytestmark = pytest.mark.usefixtures("in_memory")

COLUMNS = [
    "seq", "previous", "hash", "kind", "population", "run_key", "attempt", "stage", "payload", "at"
]  # fmt: skip
LAST = 10


def make(url: str) -> Ledger:
    """Entries: 1 genesis, 2-3 register, 4 reserve, 5 arm, 6 commit, 7 publish, 8-9, 10 void."""
    made = Ledger.create(url)
    for name in ("adult", "beta"):
        made.register(terms(name=name, epsilon=Decimal(1), delta=Decimal("1e-6")))
    for number in (1, 2, 3):
        made.reserve(
            population="adult", run_key=digest(number), attempt=1, cost=cost("0.3", "1e-9"),
            stages={"s": [{"noise_multiplier": 2.5}]}, plan_digest=digest(8), period="2027-q1",
            max_attempts=2,
        )  # fmt: skip
        if number == 1:
            made.commit(made.arm(digest(1), 1, "s"), digest(5))
            made.publish(digest(1), digest(6))
    made.void(digest(3), 1)
    assert made.verify().ok
    assert made.head().seq == LAST
    return made


@pytest.fixture(scope="module")
def originals():
    """On each store: the location of the ledger, and the statements that put its rows back."""
    return {}


@pytest.fixture
def ledger(request, store_kind, in_memory, originals, intrude, tmp_path_factory):
    """The same ledger in every test: a copy of one file, or one database with its rows put back."""
    if store_kind not in originals:
        url = str(tmp_path_factory.mktemp("original") / "ledger.sqlite")
        if store_kind == "postgresql":
            url = request.getfixturevalue("postgresql_server").new_url()
        written = make(url).snapshot().export()
        originals[store_kind] = url, ["DELETE FROM entries", *map(insert, written)]
    location, rows = originals[store_kind]
    if store_kind == "postgresql":
        intrude(location, *rows)
    else:
        folder = Path(tempfile.mkdtemp(dir=in_memory or tmp_path_factory.mktemp("copy")))
        location = shutil.copy(location, folder)
    opened = Ledger.open(location)
    assert opened.populations()  # it has seen every entry
    return opened


class Intruder:
    """Raw access, guards taken off and put back, so that only the chain can tell."""

    def __init__(self, ledger: Ledger, intrude: Callable[..., Any]) -> None:
        self.ledger = ledger
        self.intrude = intrude

    def run(self, *statements: str, put_back: bool = True) -> None:
        self.intrude(self.ledger.location, *statements, put_back=put_back)

    def rewrite(self, seq: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Change entry `seq` and hash it and everything after it anew: a perfect chain."""
        entries = self.ledger.snapshot().export()
        change(entries[seq - 1])
        self.run(*map(update, chain(entries)[seq - 1 :]))


@pytest.fixture
def intruder(ledger, intrude):
    return Intruder(ledger, intrude)


def fault(ledger: Ledger) -> Fault:
    """The fault `verify` finds; and what reads or spends must fail closed, in old and new eyes."""
    fresh = Ledger.open(ledger.location)
    found = fresh.verify().fault
    assert ledger.verify().fault == found
    for act in (
        fresh.populations,
        lambda: fresh.spent("adult"),
        lambda: fresh.void(digest(2), 1),
        lambda: fresh.arm(digest(2), 1, "s"),
        lambda: fresh.run(digest(1)),
    ):
        with pytest.raises(LedgerTamperedError, match=f"entry {found.seq}: {found.kind.value}"):
            act()
    with pytest.raises(LedgerTamperedError):
        Ledger.create(ledger.location)
    return found


OTHER = {
    "previous": f"'{digest(9)}'", "hash": f"'{digest(9)}'", "kind": "'lose'",
    "population": "'beta'", "run_key": f"'{digest(2)}'", "attempt": "2", "stage": "'t'",
    "payload": """'{"x":1}'""", "at": "'2026-01-01T00:00:00Z'",
}  # fmt: skip


def once_on_a_server(name: str, cases: Iterable[Any], one: Any) -> pytest.MarkDecorator:
    """Rows are replayed alike from each store: all cases on a file, one of them on a server."""
    places = [("sqlite", case) for case in cases] + [("postgresql", one)]
    return pytest.mark.parametrize(("store_kind", name), places)


@pytest.mark.crash_cases("postgresql", "sqlite-2", "sqlite-6")
@once_on_a_server("seq", [1, 2, 4, 6, LAST], 4)
def test_every_column_of_an_entry_is_bound(ledger, intruder, seq):
    written = ledger.snapshot().export()[seq - 1]
    written["payload"] = entry_json(written["payload"])
    for column, value in OTHER.items():
        intruder.run(f"UPDATE entries SET {column} = {value} WHERE seq = {seq}")
        noticed = fault(ledger)
        assert (noticed.kind, noticed.seq, column) == (FaultKind.EDITED, seq, column)
        intruder.run(f"UPDATE entries SET {column} = {sql(written[column])} WHERE seq = {seq}")
    assert Ledger.open(ledger.location).verify().ok


@both_stores
def test_the_columns_are_all_there_are(ledger):
    with ledger._store.transaction(write=False) as connection:
        found = connection.execute(f"SELECT * FROM {ledger._store.table}")
        assert [column[0] for column in found.description] == COLUMNS
    assert {"seq", *OTHER} == set(COLUMNS)


# The last one parses to the same value: the stored text is another.
TEXTS = ["'not json'", "'[1]'", """'{"a": 1}'""", """'{"b":1,"a":2}'""", f"'{'[' * 100_000}'",
         "replace(payload, ':', ': ')"]  # fmt: skip


@once_on_a_server("payload", TEXTS, TEXTS[-1])
def test_a_payload_that_is_not_canonical_is_an_edit(ledger, intruder, payload):
    intruder.run(f"UPDATE entries SET payload = {payload} WHERE seq = 5")
    noticed = fault(ledger)
    assert (noticed.kind, noticed.seq) == (FaultKind.EDITED, 5)


def test_an_unreadable_entry_stops_an_export(ledger, intruder):
    intruder.run("UPDATE entries SET kind = 'gift' WHERE seq = 6")
    assert fault(ledger).kind is FaultKind.EDITED
    with pytest.raises(LedgerTamperedError, match="unreadable"):
        ledger.snapshot().export()


def missing(seq: int) -> list[str]:
    return [f"DELETE FROM entries WHERE seq = {seq}"]


def closed_up(seq: int) -> list[str]:
    later = range(seq + 1, LAST + 1)
    return [*missing(seq), *(f"UPDATE entries SET seq = {n - 1} WHERE seq = {n}" for n in later)]


def swapped(one: int, two: int) -> list[str]:
    moves = ((one, -1), (two, one), (-1, two))
    return [f"UPDATE entries SET seq = {new} WHERE seq = {old}" for old, new in moves]


MOVED = {
    **{f"missing {seq}": (FaultKind.MISSING, seq, missing(seq)) for seq in (1, 2, 5, LAST - 1)},
    **{f"closed up {seq}": (FaultKind.MISSING, seq, closed_up(seq)) for seq in (2, 5, LAST - 1)},
    **{
        f"swapped {one} and {two}": (FaultKind.OUT_OF_ORDER, one, swapped(one, two))
        for one, two in ((4, 5), (2, 3), (3, 9), (9, LAST))
    },
}


@once_on_a_server("name", MOVED, "swapped 4 and 5")
def test_entries_that_are_missing_or_moved(ledger, intruder, name):
    kind, seq, statements = MOVED[name]
    intruder.run(*statements)
    noticed = fault(ledger)
    assert (noticed.kind, noticed.seq) == (kind, seq)


@pytest.mark.parametrize(
    ("seq", "relinked", "kind"), [(4, 3, FaultKind.EDITED), (9, 7, FaultKind.OUT_OF_ORDER)]
)
def test_an_entry_hashed_anew_or_relinked_past_another(ledger, intruder, seq, relinked, kind):
    """Hashed anew it shows at its successor; entry 9 claims to continue entry 7."""
    entries = ledger.snapshot().export()
    fields = {**entries[seq - 1], "previous": entries[relinked - 1]["hash"]}
    if kind is FaultKind.EDITED:
        fields["payload"]["epsilon_units"] = 1
    del fields["hash"]
    intruder.run(
        f"UPDATE entries SET payload = {sql(entry_json(fields['payload']))},"
        f" previous = '{fields['previous']}', hash = '{entry_hash(fields)}' WHERE seq = {seq}"
    )
    noticed = fault(ledger)
    assert (noticed.kind, noticed.seq) == (kind, seq)


def test_everything_gone(ledger, intruder):
    intruder.run("DELETE FROM entries")
    found = ledger.verify().fault
    assert found.kind is FaultKind.MISSING
    fresh = Ledger.open(ledger.location)
    for act in (fresh.head, fresh.populations):
        with pytest.raises(LedgerTamperedError, match="no entries"):
            act()


@both_stores
def test_an_illegal_step_in_a_perfect_chain(ledger, intruder):
    """Every rule: `test_forged_entries.py`."""
    intruder.rewrite(LAST, lambda entry: entry["payload"].update(epsilon_units=1))
    noticed = fault(ledger)
    assert (noticed.kind, noticed.seq) == (FaultKind.ILLEGAL_TRANSITION, LAST)


@both_stores
def test_a_cut_tail_shows_only_against_published_heads(ledger, intruder):
    heads = [PublishedHead(hash=entry.hash) for entry in ledger.entries()]
    intruder.run(f"DELETE FROM entries WHERE seq > {LAST - 2}")
    fresh = Ledger.open(ledger.location)
    assert fresh.verify().ok
    fresh.check_heads(heads[: LAST - 2])
    with pytest.raises(LedgerTamperedError, match=heads[-2].hash[:12]):
        fresh.check_heads(heads)
    with pytest.raises(LedgerTamperedError, match="no longer what it was"):
        ledger.spent("adult")  # an object that saw the tail knows


def test_a_rewritten_history_shows_only_against_published_heads(ledger, intruder):
    heads = [PublishedHead(hash=entry.hash) for entry in ledger.entries()]
    intruder.rewrite(2, lambda e: e["payload"].update(epsilon_units=9 * 10**12))
    fresh = Ledger.open(ledger.location)
    assert fresh.verify().ok
    fresh.check_heads(heads[:1])
    with pytest.raises(LedgerTamperedError, match=heads[1].hash[:12]):
        fresh.check_heads(heads)


@both_stores
def test_an_old_copy_shows_only_against_published_heads(ledger, back_up):
    copy = back_up(ledger.location)
    ledger.arm(digest(2), 1, "s")
    old = Ledger.open(copy)
    assert old.verify().ok
    with pytest.raises(LedgerTamperedError, match="restored from an old copy"):
        old.check_heads([PublishedHead(hash=ledger.head().hash)])


WEAKER = {
    "sqlite": [
        "DROP TRIGGER entries_no_update",
        "CREATE TRIGGER extra AFTER INSERT ON entries BEGIN SELECT 1; END",
        "DROP TRIGGER entries_no_update;"
        "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT 1; END",
    ],
    "postgresql": [
        "ALTER TABLE entries ENABLE TRIGGER entries_chain",
        "ALTER TABLE entries DISABLE TRIGGER entries_budget",
        "DROP TRIGGER entries_append_only ON entries",
        "CREATE TRIGGER extra AFTER INSERT ON entries EXECUTE FUNCTION dpiw.entries_append_only()",
        "CREATE OR REPLACE FUNCTION dpiw.entries_append_only() RETURNS trigger LANGUAGE plpgsql"
        " SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'",
        "ALTER FUNCTION dpiw.entries_chain() RESET ALL",
        "ALTER FUNCTION dpiw.entries_chain() SECURITY DEFINER",
        "ALTER FUNCTION dpiw.entries_chain() STABLE",
        "DROP TRIGGER entries_chain ON entries; CREATE TRIGGER entries_chain BEFORE INSERT"
        " ON entries FOR EACH ROW WHEN (false) EXECUTE FUNCTION dpiw.entries_chain();"
        "ALTER TABLE entries ENABLE ALWAYS TRIGGER entries_chain",
        "CREATE RULE gone AS ON INSERT TO entries DO INSTEAD NOTHING",
        "ALTER TABLE entries ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE entries SET UNLOGGED",
        "ALTER TABLE entries DROP CONSTRAINT entries_pkey",
        "CREATE TABLE more () INHERITS (entries)",
    ],
}


@pytest.mark.parametrize("statement", WEAKER["sqlite"])
def test_weakened_and_added_guards_of_a_file_are_noticed_on_opening(
    new_ledger_url, run_raw, statement
):
    made = Ledger.create(new_ledger_url("sqlite"))
    run_raw(made.location, statement)
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerTamperedError, match="guards were changed"):
            act(made.location)


def test_weakened_and_added_guards_of_a_database_are_noticed_on_opening(
    new_ledger_url, run_raw, connect_owner
):
    """Each in a transaction that is rolled back; one of them by opening the ledger."""
    made = Ledger.create(new_ledger_url("postgresql"))
    with connect_owner(made.location) as connection:
        for statement in WEAKER["postgresql"]:
            with connection.transaction(force_rollback=True):
                connection.execute("SET LOCAL search_path = dpiw")
                assert guards_hold(connection), statement
                connection.execute(statement)
                assert not guards_hold(connection), statement
    run_raw(made.location, WEAKER["postgresql"][0])
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerTamperedError, match="guards were changed"):
            act(made.location)


@both_stores
def test_a_removed_table_is_noticed_on_opening(store_url, run_raw):
    made = Ledger.create(store_url)
    run_raw(made.location, "DROP TABLE entries")
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerTamperedError, match="table is gone"):
            act(made.location)
