"""PostgreSQL: why two writers cannot both spend the last of a budget, and what failures leave.

The schedule of two writers is always the same, and exact: another process makes a whole reservation
between one writer's reading and its writing. Where nothing stands in the way both are granted, so
the schedule is one that overspends. Then each layer is put back alone.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpiw.errors import BudgetExceededError, LedgerError, LedgerTamperedError
from dpiw.ledger import Ledger, LedgerHead
from dpiw.ledger.stores import postgresql as store_postgresql
from dpiw.ledger.stores.postgresql import GUARDS, PostgreSQLStore
from tests.support.around import around
from tests.support.ledger import adult, digest, opened, spend
from tests.support.patience import SECONDS
from tests.support.stores import database_of

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
    return Ledger.open(url), opened(url, wait=0.3)


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

    def queue(store, _):
        if store is late._store:
            reserve(early, 1)

    around(PostgreSQLStore, "_lock", before=queue, replace=monkeypatch.setattr)
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
        before = early._store.rows(connection)
        reserve(late, 2)
        assert early._store.rows(connection) == before
        with late._store.transaction(write=True):
            assert early._store.rows(connection) == before
    assert early.head().seq == len(before) + 1


@pytest.fixture
def ledger(postgresql_ledger):
    return postgresql_ledger


@pytest.mark.slow
def test_a_server_that_may_lose_pages_is_refused(mortal_postgresql_server, mortal_ledger):
    server = mortal_postgresql_server
    for name in ("fsync", "full_page_writes"):
        server.stop()
        server.start(**{name: "off"})
        with pytest.raises(LedgerError, match=f"{name}=off on this server"):
            spend(mortal_ledger, 1)
    server.stop()
    server.start()
    spend(mortal_ledger, 1)


@pytest.mark.crash
def test_a_standby_is_refused_and_a_late_one_lacks_the_published_head(
    mortal_postgresql_server, mortal_ledger
):
    """A failover to a standby that lagged is a restore from an old copy, and shows as one."""
    primary = mortal_postgresql_server
    spend(mortal_ledger, 1)
    folder = primary.folder / "standby"
    folder.mkdir()
    os.chown(folder, primary.folder.stat().st_uid, primary.folder.stat().st_gid)
    standby = type(primary)(folder=folder, binaries=primary.binaries)
    primary.run(
        "pg_basebackup", "--pgdata", str(standby.data), "--write-recovery-conf",
        "--checkpoint=fast", "--host", str(primary.folder), "--username", "custodian",
    )  # fmt: skip
    late = spend(mortal_ledger, 2)
    primary.stop()
    try:
        standby.start()
        copy = standby.url(database_of(mortal_ledger.location))
        with pytest.raises(LedgerError, match="standby; use the primary"):
            Ledger.open(copy)
        standby.execute("SELECT pg_promote()")
        promoted = Ledger.open(copy)
        assert promoted.verify().ok
        with pytest.raises(LedgerTamperedError, match="lacks the published head"):
            promoted.check_heads([late])
    finally:
        standby.stop(signal.SIGQUIT)
        primary.start()
    mortal_ledger.check_heads([late])


def test_a_held_lock_ends_in_an_error_not_in_a_wait(ledger, connect_owner):
    patient = opened(ledger.location, wait=0.2)
    with connect_owner(ledger.location) as holder, holder.transaction():
        holder.execute("LOCK TABLE entries IN ROW EXCLUSIVE MODE")  # as any writer's INSERT does
        with pytest.raises(LedgerError, match="locked by another process"):
            spend(patient, 1)
        assert patient.spent("adult").epsilon_units == 0  # readers do not wait
    spend(patient, 1)


# A writer that stops while it holds the lock, as on a suspended host; argv: URL, longest silence.
STOPPING = """
import os, signal, sys
from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.ledger.stores import postgresql as store_postgresql, store
from tests.support.ledger import terms

store_postgresql._LONGEST_SILENCE = sys.argv[2]
append = store.Store.append
def stop(self, connection, entry):
    append(self, connection, entry)
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
store.Store.append = stop
try:
    Ledger.open(sys.argv[1]).register(terms(name="stopped"))
    print("written", flush=True)
except DPIWError as error:
    print(type(error).__name__, error, flush=True)
"""


@pytest.mark.slow
def test_a_writer_that_stops_does_not_lock_the_others_out(ledger):
    """The server ends its transaction; when it goes on, it learns that nothing was written."""
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPING, ledger.location, "2s"],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    try:
        assert stopped.stdout.readline() == "stops\n"
        with pytest.raises(LedgerError, match="locked by another process"):
            spend(opened(ledger.location, wait=0.2), 1)
        spend(opened(ledger.location, wait=20), 1)
        stopped.send_signal(signal.SIGCONT)
        line = stopped.stdout.readline()
    finally:
        stopped.kill()
        stopped.communicate()
    assert line.startswith("LedgerError")
    assert "silent for too long" in line
    assert [population.name for population in ledger.populations()] == ["adult"]
    assert ledger.verify().ok


def test_how_long_a_transaction_may_be_silent(postgresql_server, ledger):
    """Whatever the database says for its other users."""
    name = database_of(ledger.location)
    query = "SELECT current_setting('idle_in_transaction_session_timeout')"
    for value, write in (("0", True), ("1h", False), ("0", False), ("1h", True)):
        postgresql_server.execute(
            f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '{value}'"
        )
        with ledger._store.transaction(write=write) as connection:
            assert connection.execute(query).fetchone() == ("1min",)
    postgresql_server.execute(f"ALTER DATABASE {name} RESET ALL")


def test_an_entry_the_database_dropped_is_no_success(ledger, run_raw):
    run_raw(ledger.location, "CREATE RULE gone AS ON INSERT TO entries DO INSTEAD NOTHING")
    with pytest.raises(LedgerError, match="did not keep the entry"):
        spend(ledger, 1)


def test_a_backend_killed_before_the_commit_leaves_nothing(mortal_postgresql_server, mortal_ledger):
    append, head = mortal_ledger._store.append, mortal_ledger.head()

    def killed(connection, entry):
        append(connection, entry)
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        os.kill(pid, signal.SIGKILL)

    mortal_ledger._store.append = killed
    with mortal_postgresql_server.connect() as bystander:
        with pytest.raises(LedgerError):
            spend(mortal_ledger, 1)
        with pytest.raises(psycopg.OperationalError):
            bystander.execute("SELECT pg_sleep(600)")  # the postmaster ends all others, recovers
    mortal_ledger._store.append = append
    mortal_postgresql_server.wait()
    assert mortal_ledger.head() == head
    spend(mortal_ledger, 1)
    assert mortal_ledger.verify().ok


def test_a_commit_the_standby_did_not_confirm_is_no_success(
    mortal_postgresql_server, mortal_ledger
):
    """The server keeps such an entry and only warns; what is kept decides, and nobody spends."""
    server = mortal_postgresql_server
    server.execute(
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"
    )
    errors: list[BaseException] = []

    def write():
        try:
            spend(mortal_ledger, 1)
        except LedgerError as error:
            errors.append(error)

    try:
        spending = threading.Thread(target=write)
        spending.start()
        waiting: list[Any] = []
        while spending.is_alive() and not waiting:
            waiting = server.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
        spending.join(timeout=SECONDS)
        assert waiting
        assert "warned at the commit" in str(errors[0])
    finally:
        server.execute("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
    assert mortal_ledger.find_run(digest(1)) is not None
    assert spend(mortal_ledger, 1) == mortal_ledger.head()  # the same one, once


def die_under_writers(server: Any, ledger: Ledger, writers: int, rounds: int) -> tuple[int, int]:
    """Kill the whole server while writers spend; returns entries acknowledged and kept."""
    acknowledged: set[str] = set()
    for number in range(rounds):
        enough = threading.Event()

        def keep_on(first: int, enough: threading.Event = enough) -> None:
            try:
                mine = Ledger.open(ledger.location)  # a late writer may find the server dead
                for key in range(first, first + 10_000):
                    spend(mine, key, "1e-9")
                    acknowledged.add(digest(key))  # only once `reserve` returned
                    if key > first:
                        enough.set()
            except LedgerError:
                return

        threads = [
            threading.Thread(target=keep_on, args=(10**8 * (number + 1) + 10**5 * writer,))
            for writer in range(writers)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(timeout=SECONDS)
        time.sleep(0.01 * (number % 5))
        server.crash() if number % 2 == 0 else server.stop(signal.SIGQUIT)
        for thread in threads:
            thread.join(timeout=SECONDS)
        server.start()
        fresh = Ledger.open(ledger.location)
        assert fresh.verify().ok
        kept = {run.run_key for run in fresh.runs("adult")}
        assert acknowledged <= kept
        assert len(kept - acknowledged) <= writers * (number + 1)  # at most one each in flight
        assert fresh.spent("adult").epsilon_units == 1000 * len(kept)
    return len(acknowledged), len(kept)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.crash)])
@pytest.mark.slow
def test_what_was_acknowledged_survives_the_server(
    mortal_postgresql_server, mortal_ledger, rounds, figures
):
    """A death that loses an entry once in three is missed by ten with chance (2/3)^10 = 2%."""
    acknowledged, kept = die_under_writers(mortal_postgresql_server, mortal_ledger, 3, rounds)
    assert acknowledged >= 2 * rounds
    if rounds > 1:
        figures("postgresql_server_deaths", deaths=rounds, acknowledged=acknowledged, kept=kept)


def test_a_restored_dump_is_a_ledger_and_lacks_what_came_later(postgresql_server, ledger):
    """pg_dump keeps the guards as they are; what it cannot keep, published heads show."""
    spend(ledger, 1)
    dump = postgresql_server.folder / "dump.sql"
    host = ["--host", str(postgresql_server.folder), "--username", "custodian"]
    postgresql_server.run("pg_dump", *host, "--file", str(dump), database_of(ledger.location))
    late = spend(ledger, 2)
    name = postgresql_server.new_database()
    stop = "--set=ON_ERROR_STOP=1"
    postgresql_server.run("psql", *host, "--quiet", stop, "--file", str(dump), name)
    restored = Ledger.open(postgresql_server.url(name))
    assert restored.verify().ok
    assert restored.head().seq == late.seq - 1
    with pytest.raises(LedgerTamperedError, match="restored from an old copy"):
        restored.check_heads([late])
