"""PostgreSQL: why two writers cannot both spend the last of a budget, one layer at a time.

The schedule is always the same, and exact: another process makes a whole reservation between one
writer's reading and its writing. Where nothing stands in the way both are granted, so the
schedule is one that overspends. Then each layer is put back alone.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from dpiw.errors import BudgetExceededError, LedgerError
from dpiw.ledger import Ledger, LedgerHead
from dpiw.ledger.stores import postgresql as store_postgresql
from dpiw.ledger.stores.postgresql import GUARDS, PostgreSQLStore
from tests.support.ledger import adult, spend

TERMS = adult(epsilon=Decimal("0.2"), delta=Decimal(0))
BUDGET_UNITS = 2 * 10**11


def reserve(ledger: Ledger, number: int) -> LedgerHead:
    """0.15 of 0.2: one fits, two do not."""
    return spend(ledger, number, "0.15")


@pytest.fixture
def url(new_ledger_url):
    made = new_ledger_url("postgresql")
    Ledger.create(made).register(TERMS)
    return made


@pytest.fixture
def pair(url):
    """The late writer, and the one that overtakes it; both opened before any guard is removed."""
    return Ledger.open(url), Ledger.open(url, busy_timeout_seconds=0.3)


@pytest.fixture
def no_lock(monkeypatch):
    monkeypatch.setattr(PostgreSQLStore, "_lock", lambda *_: None)


@pytest.fixture
def no_guards(pair, run_raw):
    run_raw(
        pair[0].location,
        *(f"DROP TRIGGER {name} ON entries" for name in GUARDS),
        "ALTER TABLE entries DROP CONSTRAINT entries_pkey",
    )


def overtake(late: Ledger, act: Callable[[], Any]) -> list[Any]:
    """Let `act` happen after `late` has read and before it writes; what it gave or raised."""
    append, seen = late._store.append, []

    def overtaken(*arguments: Any) -> None:
        late._store.append = append
        try:
            seen.append(act())
        except LedgerError as error:
            seen.append(error)
        append(*arguments)

    late._store.append = overtaken
    return seen


def granted(url: str, query_raw: Callable[..., Any]) -> int:
    """Units granted, by the stored rows alone."""
    ((units,),) = query_raw(
        url,
        "SELECT coalesce(sum((payload::json ->> 'epsilon_units')::bigint), 0)"
        " FROM entries WHERE kind = 'reserve'",
    )
    return int(units)


@pytest.mark.usefixtures("no_lock", "no_guards")
def test_with_no_layer_the_schedule_overspends(url, pair, query_raw):
    """The control: without it, the tests below would show nothing."""
    late, early = pair
    seen = overtake(late, lambda: reserve(early, 1))
    reserve(late, 2)
    assert isinstance(seen[0], LedgerHead)
    assert granted(url, query_raw) == 3 * 10**11 > BUDGET_UNITS


@pytest.mark.usefixtures("no_guards")
def test_the_lock_alone_is_enough(url, pair, query_raw):
    late, early = pair
    seen = overtake(late, lambda: reserve(early, 1))
    reserve(late, 2)
    assert "locked by another process" in str(seen[0])
    with pytest.raises(BudgetExceededError):
        reserve(early, 1)
    assert granted(url, query_raw) <= BUDGET_UNITS


@pytest.mark.usefixtures("no_lock")
@pytest.mark.parametrize("guards", [True, False], ids=["guards", "primary key"])
def test_the_guards_or_the_primary_key_alone_are_enough(url, pair, guards, run_raw, query_raw):
    late, early = pair
    dropped = "DROP CONSTRAINT entries_pkey" if guards else "DISABLE TRIGGER USER"
    run_raw(url, f"ALTER TABLE entries {dropped}")
    seen = overtake(late, lambda: reserve(early, 1))
    with pytest.raises(LedgerError, match="refused the entry"):
        reserve(late, 2)
    assert isinstance(seen[0], LedgerHead)
    if guards:
        with pytest.raises(BudgetExceededError):
            reserve(late, 2)
    assert granted(url, query_raw) <= BUDGET_UNITS


@pytest.mark.usefixtures("no_guards")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_snapshot_older_than_the_lock_would_overspend(
    url, pair, isolation, monkeypatch, query_raw
):
    """Why writers run at READ COMMITTED: the lock alone would not do at REPEATABLE READ."""
    late, early = pair
    monkeypatch.setitem(store_postgresql._ISOLATION, "write", isolation)
    lock = PostgreSQLStore._lock

    def queue(store, connection):
        if store is late._store:
            reserve(early, 1)
        lock(store, connection)

    monkeypatch.setattr(PostgreSQLStore, "_lock", queue)
    if isolation == "READ COMMITTED":
        with pytest.raises(BudgetExceededError):
            reserve(late, 2)
    else:
        reserve(late, 2)
    overspent = granted(url, query_raw) > BUDGET_UNITS
    assert overspent == (isolation == "REPEATABLE READ")


def test_a_reader_sees_one_snapshot_and_does_not_wait(pair):
    late, early = pair
    with early._store.transaction(write=False) as connection:
        before = early._store.head(connection)
        reserve(late, 2)
        assert early._store.head(connection) == before
        with late._store.transaction(write=True):
            assert len(early._store.rows(connection)) == before.seq
    assert early.head().seq == before.seq + 1
