"""The ledger on a PostgreSQL server: what is refused, what survives, who may do what.

The suites of the ledger itself (test_ledger, test_races_of_processes, test_tamper) run on both
stores; here is what only a server has. Every server is a real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from dpiw.audit import audit
from dpiw.errors import BudgetExceededError, LedgerError, LedgerTamperedError
from dpiw.ledger import Ledger, Population
from dpiw.ledger.stores import postgresql as store_postgresql
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost
from tests.support.patience import SECONDS

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE


def digest(number: int) -> str:
    return f"{number:064x}"


def adult(epsilon: str = "1", name: str = "adult") -> Population:
    return Population(
        name=name, relation=ADD, max_rows=1, epsilon=Decimal(epsilon), delta=Decimal("1e-6")
    )


def reserve(ledger: Ledger, number: int, epsilon: str = "0.01") -> Any:
    return ledger.reserve(
        population="adult", run_key=digest(number), attempt=1, stages={"s": [{"count": 1}]},
        cost=PrivacyCost.of(Decimal(epsilon), Decimal(0), ADD), plan_digest=digest(1),
        period="p", max_attempts=1,
    )  # fmt: skip


@pytest.fixture
def url(new_ledger_url: Callable[[str], str]) -> str:
    return new_ledger_url("postgresql")


@pytest.fixture
def ledger(url: str) -> Ledger:
    made = Ledger.create(url)
    made.register(adult())
    return made


@pytest.fixture
def mortal_ledger(mortal_postgresql_server: Any) -> Ledger:
    """On a server this test may kill."""
    made = Ledger.create(mortal_postgresql_server.new_url())
    made.register(adult())
    return made


def database(ledger: Ledger) -> str:
    return ledger.location.split("?")[0].rsplit("/", 1)[1]


# --- opening and creating -------------------------------------------------------------------------


def test_create_again_is_the_same_ledger(url: str) -> None:
    first = Ledger.create(url)
    first.register(adult())
    assert Ledger.create(url).head() == Ledger.open(first.location).head() == first.head()
    with pytest.raises(LedgerError, match="it is not a file"):
        _ = first.path


def test_open_never_creates(url: str, query_raw: Callable[..., Any]) -> None:
    with pytest.raises(LedgerError, match="never created by opening it"):
        Ledger.open(url)
    assert query_raw(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'dpiw'") == []


def test_a_schema_made_beforehand_is_used(url: str, run_raw: Callable[..., None]) -> None:
    run_raw(url, "CREATE SCHEMA dpiw")
    with pytest.raises(LedgerError, match="never created by opening it"):
        Ledger.open(url)
    assert Ledger.create(url).verify().ok


def test_create_is_all_or_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, query_raw: Callable[..., Any]
) -> None:
    monkeypatch.setattr(store_postgresql, "guard_statements", lambda: iter(["SELECT 1 / 0"]))
    with pytest.raises(LedgerError, match="refused the entry"):
        Ledger.create(url)
    assert query_raw(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'dpiw'") == []


@pytest.mark.parametrize(
    "address",
    ["/nowhere?host=/tmp/no-such-folder", "127.0.0.1:1/ledger", "?host={folder}", "{other}"],
)
def test_no_server_no_database_no_ledger(postgresql_server: Any, address: str) -> None:
    """Closed, whatever is missing; and nothing is made."""
    where = {"?host={folder}": "/no_such_database?host={folder}", "{other}": "/x?host=/"}
    text = where.get(address, address).format(folder=postgresql_server.folder)
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerError, match="no answer"):
            act(f"postgresql+psycopg://custodian@{text}")


def test_without_the_driver_the_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"dpiw\[postgresql\]"):
        Ledger.open(url)


def test_the_environment_does_not_choose_the_server(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PGHOST": "/nowhere", "PGHOSTADDR": "127.0.0.1", "PGPORT": "1", "PGDATABASE": "other",
        "PGUSER": "nobody", "PGOPTIONS": "-c synchronous_commit=off", "PGPASSWORD": "canary",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert Ledger.open(ledger.location).head() == ledger.head()


# --- passwords ------------------------------------------------------------------------------------


def test_the_password_comes_from_its_file_and_is_never_told(
    postgresql_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgresql_server.new_database()
    postgresql_server.execute(f"GRANT CREATE ON DATABASE {name} TO guarded")
    url = postgresql_server.url(name, user="guarded")
    file = tmp_path / "passwords"
    file.write_text("*:*:*:guarded:canary\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    ledger = Ledger.create(url)
    ledger.register(adult())
    assert "canary" not in f"{ledger.location} {ledger._store!r} {ledger.export()}"
    file.write_text("*:*:*:guarded:canary-wrong\n")
    with pytest.raises(LedgerError, match="no answer") as caught:
        reserve(ledger, 1)
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    file.unlink()
    with pytest.raises(LedgerError, match="no answer"):
        reserve(ledger, 1)


# --- what the server must promise -----------------------------------------------------------------


@pytest.mark.parametrize("value", ["off", "local", "remote_write"])
def test_a_weaker_commit_is_refused(postgresql_server: Any, ledger: Ledger, value: str) -> None:
    """By every act, not only on opening: somebody may change it later."""
    name, head = database(ledger), ledger.head()
    postgresql_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = {value}")
    for act in (lambda: Ledger.open(ledger.location), lambda: reserve(ledger, 1), ledger.head):
        with pytest.raises(LedgerError, match=f"synchronous_commit={value} .* not safe to spend"):
            act()
    postgresql_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    assert ledger.head() == head
    postgresql_server.execute(f"ALTER DATABASE {name} RESET ALL")


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_pages_is_refused(
    mortal_postgresql_server: Any, mortal_ledger: Ledger, name: str
) -> None:
    mortal_postgresql_server.stop()
    mortal_postgresql_server.start(**{name: "off"})
    with pytest.raises(LedgerError, match=f"{name}=off on this server"):
        reserve(mortal_ledger, 1)
    mortal_postgresql_server.stop()
    mortal_postgresql_server.start()
    reserve(mortal_ledger, 1)


def test_every_transaction_is_pinned_and_isolated(ledger: Ledger) -> None:
    question = (
        "SELECT current_setting('transaction_isolation'),"
        " current_setting('transaction_read_only'), current_setting('search_path'),"
        " current_setting('lock_timeout'), current_setting('statement_timeout'),"
        " (SELECT source FROM pg_settings WHERE name = 'synchronous_commit'),"
        " (SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND relation IS NOT NULL)"
    )
    found = {}
    for write in (True, False):
        with ledger._store.transaction(write=write) as connection:
            found[write] = tuple(connection.exec_driver_sql(question).one())
    assert found == {
        True: ("read committed", "off", "pg_catalog", "30s", "0", "session", 1),
        False: ("repeatable read", "on", "pg_catalog", "30s", "0", "session", 0),
    }


def test_an_isolation_level_that_did_not_take_is_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store_postgresql._SETTINGS.replace(
        "pg_catalog.current_setting('transaction_isolation')", "'read uncommitted'"
    )
    monkeypatch.setattr(store_postgresql, "_SETTINGS", other)
    with pytest.raises(LedgerError, match="refused the isolation level"):
        reserve(ledger, 1)


def test_an_old_server_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_postgresql, "_OLDEST_SERVER", 990_000)
    with pytest.raises(LedgerError, match="PostgreSQL 14 or newer"):
        reserve(ledger, 1)


def test_a_standby_is_refused_and_a_late_one_lacks_the_published_head(
    mortal_postgresql_server: Any, mortal_ledger: Ledger
) -> None:
    """A failover to a standby that lagged is a restore from an old copy, and shows as one."""
    primary = mortal_postgresql_server
    reserve(mortal_ledger, 1)
    folder = primary.folder / "standby"
    folder.mkdir()
    os.chown(folder, primary.folder.stat().st_uid, primary.folder.stat().st_gid)
    standby = type(primary)(folder=folder, binaries=primary.binaries)
    primary.run(
        "pg_basebackup", "--pgdata", str(standby.data), "--write-recovery-conf",
        "--checkpoint=fast", "--host", str(primary.folder), "--username", "custodian",
    )  # fmt: skip
    late = reserve(mortal_ledger, 2).head
    primary.stop()
    try:
        standby.start()
        copy = standby.url(database(mortal_ledger))
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


# --- locks and broken connections -----------------------------------------------------------------


def test_a_held_lock_ends_in_an_error_not_in_a_wait(
    ledger: Ledger, connect_owner: Callable[[str], psycopg.Connection]
) -> None:
    patient = Ledger.open(ledger.location, busy_timeout_seconds=0.2)
    with connect_owner(ledger.location) as other, other.transaction():
        other.execute("LOCK TABLE entries IN ROW EXCLUSIVE MODE")  # as any writer's INSERT does
        with pytest.raises(LedgerError, match="locked by another process"):
            reserve(patient, 1)
        assert patient.spent("adult").epsilon_units == 0  # readers do not wait
    reserve(patient, 1)


# A writer that stops while it holds the lock, as on a suspended host; argv: URL, longest silence.
STOPPING = """
import os, signal, sys
from decimal import Decimal
from dpiw.errors import DPIWError
from dpiw.ledger import Ledger, Population
from dpiw.ledger.stores import postgresql as store_postgresql, store
from dpiw.privacy.units import NeighbouringRelation

store_postgresql._LONGEST_SILENCE = sys.argv[2]
append = store.Store.append
def stop(self, connection, entry):
    append(self, connection, entry)
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
store.Store.append = stop
try:
    Ledger.open(sys.argv[1]).register(Population(
        name="stopped", relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1,
        epsilon=Decimal(1), delta=Decimal(0)))
    print("written", flush=True)
except DPIWError as error:
    print(type(error).__name__, error, flush=True)
"""


def test_a_writer_that_stops_does_not_lock_the_others_out(ledger: Ledger) -> None:
    """The server ends its transaction; when it goes on, it learns that nothing was written."""
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPING, ledger.location, "2s"],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    try:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "stops\n"
        with pytest.raises(LedgerError, match="locked by another process"):
            reserve(Ledger.open(ledger.location, busy_timeout_seconds=0.2), 1)
        reserve(Ledger.open(ledger.location, busy_timeout_seconds=20), 1)
        stopped.send_signal(signal.SIGCONT)
        told = stopped.stdout.readline()
    finally:
        stopped.kill()
        stopped.communicate()
    assert told.startswith("LedgerError")
    assert "silent for too long" in told
    assert [one.name for one in ledger.populations()] == ["adult"]
    assert ledger.verify().ok


@pytest.mark.parametrize("write", [True, False])
def test_how_long_a_transaction_may_be_silent(
    postgresql_server: Any, ledger: Ledger, write: bool
) -> None:
    """Whatever the database says for its other users."""
    name = database(ledger)
    for value in ("0", "1h"):
        postgresql_server.execute(
            f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '{value}'"
        )
        query = "SELECT current_setting('idle_in_transaction_session_timeout')"
        with ledger._store.transaction(write=write) as connection:
            assert connection.exec_driver_sql(query).scalar_one() == "1min"
    postgresql_server.execute(f"ALTER DATABASE {name} RESET ALL")


@pytest.mark.parametrize(
    ("address", "sound"),
    [
        ("u@/d?host=/run/postgresql", True),
        ("u@/d?host=@abstract", True),
        ("u@localhost/d", True),
        ("u@127.0.0.1:5433/d", True),
        ("u@[::1]/d", True),
        ("u@db.example/d?sslmode=verify-full", True),
        ("u@/d?host=db.example&sslmode=verify-full&sslrootcert=/ca.crt", True),
        ("u@db.example/d?gssencmode=require", True),
        ("u@db.example/d", False),
        ("u@10.0.0.7/d?sslmode=require", False),
        ("u@db.example/d?sslmode=verify-ca", False),
        ("u@db.example/d?sslmode=prefer&gssencmode=prefer", False),
        ("u@127.0.0.1.example/d", False),
    ],
)
def test_over_a_network_the_server_must_show_who_it_is(address: str, sound: bool) -> None:
    url = make_url(f"postgresql+psycopg://{address}")
    if sound:
        store_postgresql._check_url(url)
        return
    with pytest.raises(LedgerError, match="sslmode=verify-full"):
        store_postgresql._check_url(url)


def test_a_connection_cut_in_the_middle_leaves_nothing(
    ledger: Ledger, run_raw: Callable[..., None]
) -> None:
    append = ledger._store.append

    def cut(connection: Any, entry: Any) -> None:
        append(connection, entry)
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        run_raw(ledger.location, f"SELECT pg_terminate_backend({pid}, 5000)")

    head = ledger.head()
    ledger._store.append = cut
    with pytest.raises(LedgerError, match="the connection broke"):
        reserve(ledger, 1)
    ledger._store.append = append
    assert ledger.head() == head
    reserve(ledger, 1)


def test_an_entry_the_database_dropped_is_no_success(
    ledger: Ledger, run_raw: Callable[..., None]
) -> None:
    run_raw(ledger.location, "CREATE RULE gone AS ON INSERT TO entries DO INSTEAD NOTHING")
    with pytest.raises(LedgerError, match="did not keep the entry"):
        reserve(ledger, 1)


def test_a_backend_killed_before_the_commit_leaves_nothing(
    mortal_postgresql_server: Any, mortal_ledger: Ledger
) -> None:
    append, head = mortal_ledger._store.append, mortal_ledger.head()

    def killed(connection: Any, entry: Any) -> None:
        append(connection, entry)
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        os.kill(pid, signal.SIGKILL)

    mortal_ledger._store.append = killed
    with mortal_postgresql_server.connect() as bystander:
        with pytest.raises(LedgerError):
            reserve(mortal_ledger, 1)
        with pytest.raises(psycopg.OperationalError):
            bystander.execute("SELECT pg_sleep(600)")  # the postmaster ends all others, recovers
    mortal_ledger._store.append = append
    mortal_postgresql_server.wait()
    assert mortal_ledger.head() == head
    reserve(mortal_ledger, 1)
    assert mortal_ledger.verify().ok


def test_a_commit_the_standby_did_not_confirm_is_no_success(
    mortal_postgresql_server: Any, mortal_ledger: Ledger
) -> None:
    """The server keeps such an entry and only warns; what is kept decides, and nobody spends."""
    server = mortal_postgresql_server
    server.execute(
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"
    )
    told: list[BaseException] = []

    def spend() -> None:
        try:
            reserve(mortal_ledger, 1)
        except LedgerError as error:
            told.append(error)

    try:
        spending = threading.Thread(target=spend)
        spending.start()
        waiting: list[Any] = []
        while spending.is_alive() and not waiting:
            waiting = server.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
        spending.join(timeout=SECONDS)
        assert waiting
        assert "warned at the commit" in str(told[0])
    finally:
        server.execute("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
    assert mortal_ledger.find_run(digest(1)) is not None
    assert reserve(mortal_ledger, 1).head == mortal_ledger.head()  # the same one, once


# --- a server that dies under its writers ---------------------------------------------------------


def die_under_writers(server: Any, ledger: Ledger, writers: int, rounds: int) -> tuple[int, int]:
    """Kill the whole server while writers spend; returns entries acknowledged and kept."""
    acknowledged: set[str] = set()
    for number in range(rounds):
        enough = threading.Event()

        def spend(first: int, enough: threading.Event = enough) -> None:
            try:
                mine = Ledger.open(ledger.location)  # a late writer may find the server dead
                for key in range(first, first + 10_000):
                    reserve(mine, key, "1e-9")
                    acknowledged.add(digest(key))  # only once `reserve` returned
                    if key > first:
                        enough.set()
            except LedgerError:
                return

        threads = [
            threading.Thread(target=spend, args=(10**8 * (number + 1) + 10**5 * writer,))
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


def test_what_was_acknowledged_survives_the_server(
    mortal_postgresql_server: Any, mortal_ledger: Ledger
) -> None:
    acknowledged, _ = die_under_writers(mortal_postgresql_server, mortal_ledger, 3, rounds=2)
    assert acknowledged >= 4


@pytest.mark.crash
def test_what_was_acknowledged_survives_many_deaths_of_the_server(
    mortal_postgresql_server: Any, mortal_ledger: Ledger, figures: Callable[..., None]
) -> None:
    rounds, writers = 25, 4
    acknowledged, kept = die_under_writers(
        mortal_postgresql_server, mortal_ledger, writers, rounds=rounds
    )
    figures(
        "postgresql_server_deaths", deaths=rounds, writers=writers, acknowledged=acknowledged,
        kept=kept, lost=0,
    )  # fmt: skip


# --- who may do what ------------------------------------------------------------------------------

CHANGES = [
    "UPDATE dpiw.entries SET at = 'x'",
    "UPDATE dpiw.entries SET at = 'x' WHERE false",
    "DELETE FROM dpiw.entries WHERE seq = 2",
    "TRUNCATE dpiw.entries",
    "INSERT INTO dpiw.entries SELECT * FROM dpiw.entries WHERE seq = 2"
    " ON CONFLICT (seq) DO UPDATE SET at = 'x'",
    "INSERT INTO dpiw.entries SELECT 9, previous, hash, kind, population, run_key, attempt,"
    " stage, payload, at FROM dpiw.entries WHERE seq = 2",
    "MERGE INTO dpiw.entries AS e USING (VALUES (2)) AS v (seq) ON e.seq = v.seq"
    " WHEN MATCHED THEN DELETE",
]


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("statement", CHANGES)
def test_the_database_itself_refuses_change(
    ledger: Ledger,
    connect_owner: Callable[[str], psycopg.Connection],
    role: str,
    statement: str,
) -> None:
    """Also to a session that calls itself a replica, which ordinary triggers let pass."""
    with connect_owner(ledger.location) as raw:
        raw.execute(f"SET session_replication_role = {role}")
        with pytest.raises(psycopg.errors.CheckViolation, match=r"append-only|continue the chain"):
            raw.execute(statement)
    assert ledger.verify().ok


@pytest.mark.parametrize("payload", ["not json", "{}", '{"epsilon_units":1}', "[]"])
def test_a_reservation_without_a_cost_is_refused(
    ledger: Ledger, connect_owner: Callable[[str], psycopg.Connection], payload: str
) -> None:
    head = ledger.head()
    with connect_owner(ledger.location) as raw, pytest.raises(psycopg.DatabaseError):
        raw.execute(
            "INSERT INTO entries SELECT seq + 1, hash, hash, 'reserve', population, NULL, NULL,"
            f" NULL, '{payload}', at FROM entries WHERE seq = {head.seq}"
        )
    assert ledger.head() == head


def test_the_pipelines_role_can_spend_and_nothing_else(
    postgresql_server: Any, ledger: Ledger, run_raw: Callable[..., None]
) -> None:
    name = database(ledger)
    ours = postgresql_server.url(name, user="pipeline")
    with pytest.raises(LedgerError, match="lacks a privilege"):
        Ledger.open(ours).verify()
    run_raw(
        ledger.location,
        "GRANT USAGE ON SCHEMA dpiw TO pipeline",
        "GRANT SELECT, INSERT ON entries TO pipeline",
    )
    pipeline = Ledger.open(ours)
    with pytest.raises(LedgerError, match="lacks a privilege"):
        reserve(pipeline, 1)
    run_raw(ledger.location, "GRANT UPDATE ON entries TO pipeline")  # what the lock asks for
    reserve(pipeline, 1)
    assert Ledger.create(ours).head() == pipeline.head() == ledger.head()
    with pytest.raises(BudgetExceededError):
        reserve(pipeline, 2, "1")
    with postgresql_server.connect(name, user="pipeline") as raw:
        for statement in (
            *CHANGES,
            "DROP TABLE dpiw.entries",
            "ALTER TABLE dpiw.entries DISABLE TRIGGER ALL",
            "DROP FUNCTION dpiw.entries_chain() CASCADE",
            "SET session_replication_role = replica",
            "CREATE TRIGGER more BEFORE INSERT ON dpiw.entries EXECUTE FUNCTION entries_chain()",
        ):
            with pytest.raises(
                (psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)
            ):
                raw.execute(statement)
    assert Ledger.open(ledger.location).verify().ok


# --- backups --------------------------------------------------------------------------------------


def test_an_auditors_role_reads_and_writes_nothing(
    postgresql_server: Any, ledger: Ledger, run_raw: Callable[..., None]
) -> None:
    reserve(ledger, 1)
    run_raw(
        ledger.location,
        "GRANT USAGE ON SCHEMA dpiw TO pipeline",
        "GRANT SELECT ON entries TO pipeline",
    )
    seen = Ledger.open(postgresql_server.url(database(ledger), user="pipeline"))
    found = audit(seen.location, [], None)
    assert found.head == ledger.head()
    assert {one.code for one in found.findings} <= {"events_unreadable"}  # made up by this suite
    with pytest.raises(LedgerError, match="lacks a privilege"):
        reserve(seen, 2)


def test_a_restored_dump_is_a_ledger_and_lacks_what_came_later(
    postgresql_server: Any, ledger: Ledger
) -> None:
    """pg_dump keeps the guards as they are; what it cannot keep, published heads show."""
    reserve(ledger, 1)
    dump = postgresql_server.folder / "dump.sql"
    host = ["--host", str(postgresql_server.folder), "--username", "custodian"]
    postgresql_server.run("pg_dump", *host, "--file", str(dump), database(ledger))
    late = reserve(ledger, 2).head
    name = postgresql_server.new_database()
    stop = "--set=ON_ERROR_STOP=1"
    postgresql_server.run("psql", *host, "--quiet", stop, "--file", str(dump), name)
    restored = Ledger.open(postgresql_server.url(name))
    assert restored.verify().ok
    assert restored.head().seq == late.seq - 1
    with pytest.raises(LedgerTamperedError, match="restored from an old copy"):
        restored.check_heads([late])


# --- a whole release ------------------------------------------------------------------------------


@pytest.fixture
def place(workplace: Any, ledger: Ledger) -> Iterator[Any]:
    """The workplace of the other suites, with its population in a PostgreSQL ledger."""
    workplace.spec.write_text(f"{workplace.spec.read_text()}ledger: {ledger.location}\n")
    ledger.register(adult("5", name="town"))
    workplace.ledger.unlink()
    return workplace


def test_a_release_is_made_with_a_ledger_on_postgresql(place: Any, ledger: Ledger) -> None:
    """Stages in their own processes, as in a flow; the steps between them in this one."""
    from dpiw.ledger import RunState
    from dpiw.release.verification import verify
    from dpiw.run import steps
    from dpiw.run.process import launch_stage
    from dpiw.run.run import ReleaseRun

    run = ReleaseRun.prepare(place.spec, period=None)
    steps.reserve(run)
    for stage in ("ingest", "fit_generator"):
        launch_stage(stage, run.directory)
    steps.draw_synthetic(run)
    launch_stage("fit_weights", run.directory)
    steps.debias(run)
    steps.diagnose(run)
    folder = steps.publish(run)
    assert ledger.run(run.key).state is RunState.PUBLISHED
    assert ledger.spent("town").epsilon_units == 2 * 10**12
    assert ledger.verify().ok
    assert not place.ledger.exists()
    verify(folder)
    released = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert b"postgresql" not in released  # where the ledger lies is nobody's business
    shown = subprocess.run(
        [sys.executable, "-m", "dpiw.cli.main", "ledger", "verify", "--ledger", ledger.location],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert shown.startswith("ok: ")
