"""The ledger on a real PostgreSQL server: opening it, what it must promise, who may do what."""

import contextlib
import itertools
import traceback
from decimal import Decimal

import psycopg
import pytest
from sqlalchemy.engine import make_url

from dpiw.audit import audit
from dpiw.errors import BudgetExceededError, LedgerError
from dpiw.ledger import Ledger, RunState
from dpiw.ledger.stores import postgresql as store_postgresql
from dpiw.release.verification import verify
from tests.support.ledger import adult, spend, terms
from tests.support.stores import database_of
from tests.support.whole_runs import publish_run


@pytest.fixture
def url(new_ledger_url):
    return new_ledger_url("postgresql")


@pytest.fixture
def ledger(postgresql_ledger):
    return postgresql_ledger


def test_create_again_is_the_same_ledger(url):
    first = Ledger.create(url)
    first.register(adult())
    assert Ledger.create(url).head() == Ledger.open(first.location).head() == first.head()


def test_open_never_creates(url, query_raw, run_raw):
    with pytest.raises(LedgerError, match="to begin one"):
        Ledger.open(url)
    assert query_raw(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'dpiw'") == []
    run_raw(url, "CREATE SCHEMA dpiw")  # one that was made beforehand is used
    with pytest.raises(LedgerError, match="to begin one"):
        Ledger.open(url)
    assert Ledger.create(url).verify().ok


def test_create_is_all_or_nothing(url, monkeypatch, query_raw):
    monkeypatch.setattr(store_postgresql, "guard_statements", lambda: iter(["SELECT 1 / 0"]))
    with pytest.raises(LedgerError, match="refused the entry"):
        Ledger.create(url)
    assert query_raw(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'dpiw'") == []


@pytest.mark.parametrize(
    "address",
    ["/nowhere?host=/tmp/no-such-folder", "127.0.0.1:1/ledger", "?host={folder}", "{other}"],
)
def test_no_server_no_database_no_ledger(postgresql_server, address):
    """Closed, whatever is missing; and nothing is made."""
    where = {"?host={folder}": "/no_such_database?host={folder}", "{other}": "/x?host=/"}
    text = where.get(address, address).format(folder=postgresql_server.folder)
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerError, match="no answer"):
            act(f"postgresql+psycopg://custodian@{text}")


def test_the_environment_does_not_choose_the_server(ledger, monkeypatch):
    for name, value in {
        "PGHOST": "/nowhere", "PGHOSTADDR": "127.0.0.1", "PGPORT": "1", "PGDATABASE": "other",
        "PGUSER": "nobody", "PGOPTIONS": "-c synchronous_commit=off", "PGPASSWORD": "canary",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert Ledger.open(ledger.location).head() == ledger.head()
    monkeypatch.undo()  # before the database is cleared


def test_the_password_comes_from_its_file_and_is_never_told(
    postgresql_server, tmp_path, monkeypatch
):
    name = postgresql_server.new_database()
    postgresql_server.execute(f"GRANT CREATE ON DATABASE {name} TO guarded")
    url = postgresql_server.url(name, user="guarded")
    file = tmp_path / "passwords"
    file.write_text("*:*:*:guarded:canary\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    ledger = Ledger.create(url)
    ledger.register(adult())
    assert "canary" not in f"{ledger.location} {ledger._store!r} {ledger.snapshot().export()}"
    file.write_text("*:*:*:guarded:canary-wrong\n")
    with pytest.raises(LedgerError, match="no answer") as caught:
        spend(ledger, 1)
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    file.unlink()
    with pytest.raises(LedgerError, match="no answer"):
        spend(ledger, 1)


def test_a_weaker_commit_is_refused(postgresql_server, ledger):
    """By every act, not only on opening: somebody may change it later."""
    name, head = database_of(ledger.location), ledger.head()
    for value in ("off", "local", "remote_write"):
        postgresql_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = {value}")
        for act in (lambda: Ledger.open(ledger.location), lambda: spend(ledger, 1), ledger.head):
            with pytest.raises(LedgerError, match=f"synchronous_commit={value} "):
                act()
    postgresql_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    assert ledger.head() == head
    postgresql_server.execute(f"ALTER DATABASE {name} RESET ALL")


def test_every_transaction_is_pinned_and_isolated(ledger):
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
            found[write] = tuple(connection.execute(question).fetchone())
    assert found == {
        True: ("read committed", "off", "pg_catalog", "30s", "0", "session", 1),
        False: ("repeatable read", "on", "pg_catalog", "30s", "0", "session", 0),
    }


def test_an_isolation_level_that_did_not_take_is_refused(ledger, monkeypatch):
    other = store_postgresql._SETTINGS.replace(
        "pg_catalog.current_setting('transaction_isolation')", "'read uncommitted'"
    )
    monkeypatch.setattr(store_postgresql, "_SETTINGS", other)
    with pytest.raises(LedgerError, match="refused the isolation level"):
        spend(ledger, 1)


def test_a_connection_that_ended_before_the_commit_is_no_commit(ledger):
    """Nothing was kept: a caller that hides the error and goes on would draw unpaid."""
    end = "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"
    opened = ledger._store.transaction(write=True)
    with pytest.raises(LedgerError), opened as connection, contextlib.suppress(psycopg.Error):
        connection.execute(end)


def test_an_old_server_is_refused(ledger, monkeypatch):
    monkeypatch.setattr(store_postgresql, "_OLDEST_SERVER", 990_000)
    with pytest.raises(LedgerError, match="PostgreSQL 14 or newer"):
        spend(ledger, 1)


SOUND = [
    "u@/d?host=/run/postgresql", "u@/d?host=@abstract", "u@localhost/d", "u@127.0.0.1:5433/d",
    "u@[::1]/d", "u@db.example/d?sslmode=verify-full", "u@db.example/d?gssencmode=require",
    "u@/d?host=db.example&sslmode=verify-full&sslrootcert=/ca.crt",
]  # fmt: skip
UNKNOWN = [
    "u@db.example/d", "u@10.0.0.7/d?sslmode=require", "u@db.example/d?sslmode=verify-ca",
    "u@db.example/d?sslmode=prefer&gssencmode=prefer", "u@127.0.0.1.example/d",
    "u@/d?host=10.0.0.1&sslmode=require", "u@localhost.example/d",
]  # fmt: skip


def test_over_a_network_the_server_must_show_who_it_is():
    for address in SOUND:
        store_postgresql._check_url(make_url(f"postgresql+psycopg://{address}"))
    for address in UNKNOWN:
        with pytest.raises(LedgerError, match="sslmode=verify-full"):
            Ledger.open(f"postgresql+psycopg://{address}")


@pytest.mark.parametrize("option", ["options=-csession_replication_role%3Dreplica", "service=x",
                                    "hostaddr=10.0.0.9"])  # fmt: skip
def test_no_option_hides_behind_a_question_mark_in_the_user_s_name(option):
    """SQLAlchemy allows one there, and reads options behind the next."""
    with pytest.raises(LedgerError, match="remove from the URL"):
        store_postgresql._check_url(
            make_url(f"postgresql+psycopg://u?host=x@h/db?{option}&sslmode=verify-full")
        )


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


def test_the_database_itself_refuses_change(ledger, connect_owner):
    """Also to a session that calls itself a replica, which ordinary triggers let pass."""
    head = ledger.head()
    with connect_owner(ledger.location) as raw:
        for payload in ("not json", "{}", '{"epsilon_units":1}', "[]"):  # without a whole cost
            with pytest.raises(psycopg.DatabaseError):
                raw.execute(
                    "INSERT INTO entries SELECT seq + 1, hash, hash, 'reserve', population, NULL,"
                    f" NULL, NULL, '{payload}', at FROM entries WHERE seq = {head.seq}"
                )
        for role, statement in itertools.product(("origin", "replica"), CHANGES):
            raw.execute(f"SET session_replication_role = {role}")
            with pytest.raises(psycopg.errors.CheckViolation, match=r"append-only|the chain"):
                raw.execute(statement)
    assert ledger.head() == head
    assert ledger.verify().ok


def test_the_pipelines_role_can_spend_and_nothing_else(postgresql_server, ledger, run_raw):
    name = database_of(ledger.location)
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
        spend(pipeline, 1)
    run_raw(ledger.location, "GRANT UPDATE ON entries TO pipeline")  # what the lock asks for
    spend(pipeline, 1)
    assert Ledger.create(ours).head() == pipeline.head() == ledger.head()
    with pytest.raises(BudgetExceededError):
        spend(pipeline, 2, "1")
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


def test_an_auditors_role_reads_and_writes_nothing(postgresql_server, ledger, run_raw):
    spend(ledger, 1)
    run_raw(
        ledger.location,
        "GRANT USAGE ON SCHEMA dpiw TO pipeline",
        "GRANT SELECT ON entries TO pipeline",
    )
    seen = Ledger.open(postgresql_server.url(database_of(ledger.location), user="pipeline"))
    found = audit(seen.location, [], [])
    assert found.head == ledger.head()
    assert {one.code for one in found.findings} <= {"events_unreadable"}  # made up by this suite
    with pytest.raises(LedgerError, match="lacks a privilege"):
        spend(seen, 2)


@pytest.mark.crash
def test_a_release_is_made_with_a_ledger_on_postgresql(workplace, ledger):
    """Stages in their own processes on a server: tests/crash/test_kill_matrix.py."""
    workplace.spec.write_text(f"{workplace.spec.read_text()}ledger: {ledger.location}\n")
    ledger.register(terms(epsilon=Decimal(5), delta=Decimal("1e-6")))
    workplace.ledger.unlink()
    run, folder = publish_run(workplace.spec)
    assert ledger.run(run.key).state is RunState.PUBLISHED
    assert ledger.spent("town").epsilon_units == 2 * 10**12
    assert ledger.verify().ok
    assert not workplace.ledger.exists()
    verify(folder)
    released = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert b"postgresql" not in released  # where the ledger lies is nobody's business
