"""The ledger in a PostgreSQL database, for many hosts: one per database, in its schema `dpiw`.

Isolation. A writer takes `LOCK TABLE entries IN EXCLUSIVE MODE` before it reads anything, at READ
COMMITTED, so it reads after the last writer's commit. (At REPEATABLE READ the snapshot could be
older than the lock.) An advisory lock binds only those who know its number. Without the lock, the
chain guard and the primary key still let at most one of two writers through (test_isolation.py). A
reader sees one snapshot, REPEATABLE READ and READ ONLY.

Durability. Every transaction first refuses a standby, whose data may be stale; fsync=off;
full_page_writes=off; and synchronous_commit other than `on` or `remote_apply`: with `off` an
acknowledged entry can be lost, with `local` or `remote_write` it can be missing on the standby that
takes over. The setting is pinned for the transaction, so a reload cannot weaken it. A failover to a
standby that is not synchronous is a restore: published heads show it.

Guards. Triggers refuse changes, entries off the chain and charges over budget. They are enabled
ALWAYS, also for a session that calls itself a replica. The table's owner can drop them, so the
pipeline's role should not be the owner (docs/operations.md); opening the ledger detects changes.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy.engine import URL

from dpiw.errors import LedgerError
from dpiw.ledger.entries import NO_ENTRY, Entry
from dpiw.ledger.location import EXPECTED, POSTGRESQL_OPTIONS, Faults, no_ledger, tampered, unusable
from dpiw.ledger.stores.store import (
    BUSY_TIMEOUT_SECONDS,
    KIND_CHECK,
    NEW_TABLE,
    Store,
    with_kinds,
)

_OLDEST_SERVER = 140_000

_CREATE_LOCK = 0x6470_6977_6C65_6467  # "dpiwledg": creators queue on it while there is no table

_SETTINGS = """
    SELECT pg_catalog.current_setting('server_version_num')::int AS version,
      pg_catalog.pg_is_in_recovery() AS standby,
      pg_catalog.current_setting('fsync') AS fsync,
      pg_catalog.current_setting('full_page_writes') AS full_page_writes,
      pg_catalog.current_setting('synchronous_commit') AS synchronous_commit,
      pg_catalog.current_setting('transaction_isolation') AS isolation"""
_REQUIRED = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply"),
}

# A reader sees one snapshot; a writer, alone, sees whatever is committed at each statement.
_ISOLATION = {"read": "REPEATABLE READ", "write": "READ COMMITTED"}

SCHEMA = "dpiw"
TABLE = "dpiw.entries"

_OBJECTS = """
    SELECT pg_catalog.to_regclass('dpiw.entries') IS NOT NULL AS entries, EXISTS (
      SELECT 1 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = 'dpiw') AS remains, EXISTS (
      SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = 'dpiw') AS schema"""

_LONGEST_SILENCE = "60s"
"""Longest pause between two statements; then the server ends the transaction and its lock."""

# SQLSTATE, or its class -> what the caller sees
_REASONS = {
    "25P03": "this process was silent for too long, so the server ended the transaction",
    "55P03": Faults.LOCKED,
    "42P01": Faults.TABLE_GONE,
    "3F000": Faults.TABLE_GONE,
    "42501": "this role lacks a privilege on it (docs/operations.md: a ledger in PostgreSQL)",
    "25006": "the server is read-only: name the primary",
    "08": "the connection broke: start the run again",
    "57P": "the connection broke: start the run again",
    "22": Faults.REFUSED,
    "23": Faults.REFUSED,
}
_UNREACHABLE = (
    "no answer: check that the server runs, that the URL's host, port and database are right, and"
    " that the server lets this user in (the password is in the file that PGPASSFILE names)"
)


class PostgreSQLStore(Store):
    """Connections to one ledger database (`?host=FOLDER`: a socket), each checked before use.

    The URL must name user, host and database (environments of a run's processes may differ); else
    LedgerError. It may hold no password, and no option but `POSTGRESQL_OPTIONS`.
    """

    table = TABLE
    mark = "%s"

    def __init__(self, url: URL) -> None:
        _check_url(url)
        super().__init__(url.render_as_string(hide_password=True))
        self._lock_timeout = f"{max(1, round(BUSY_TIMEOUT_SECONDS * 1000))}ms"
        self._arguments = _arguments(url)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[psycopg.Connection]:
        """One transaction: a writer is alone before it reads anything, a reader sees a snapshot."""
        with self._checked(write=write) as connection:
            if write:
                self._lock(connection)
            yield connection

    def _lock(self, connection: psycopg.Connection) -> None:
        connection.execute(f"LOCK TABLE {TABLE} IN EXCLUSIVE MODE")

    def check_structure(self) -> None:
        """Refuse a database that holds no ledger, or whose guards were changed."""
        with self._checked(write=False) as connection:
            [(table, remains, _)] = connection.execute(_OBJECTS)
            if not table and not remains:
                raise no_ledger(f"ledger {self.location}: no ledger there")
            if not table:
                raise tampered(self.location, Faults.TABLE_GONE)
            if not guards_hold(connection):
                raise tampered(self.location, Faults.GUARDS_CHANGED)

    def create(self, *entries: Entry) -> bool:
        """Make schema, table, guards and the first entries in one transaction."""
        with self._checked(write=True) as connection:
            connection.execute(f"SELECT pg_catalog.pg_advisory_xact_lock({_CREATE_LOCK})")
            [(table, remains, schema)] = connection.execute(_OBJECTS)
            if table:
                return False
            if remains:
                raise tampered(self.location, Faults.TABLE_GONE)
            if not schema:
                connection.execute(f"CREATE SCHEMA {SCHEMA}")
            connection.execute(f"CREATE TABLE {TABLE} {NEW_TABLE}")
            for statement in guard_statements():
                connection.execute(statement)
            for entry in entries:
                self.append(connection, entry)
        return True

    @contextmanager
    def _checked(self, *, write: bool) -> Iterator[psycopg.Connection]:
        warnings: list[str | None] = []
        isolation = _ISOLATION["write" if write else "read"]

        def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                warnings.append(diagnostic.sqlstate)

        # One connection each: none crosses a fork, and every one is checked.
        with self._as_ledger_error(), psycopg.connect(**self._arguments) as connection:
            connection.isolation_level = psycopg.IsolationLevel[isolation.replace(" ", "_")]
            connection.read_only = not write
            self._check_settings(connection, isolation)
            connection.add_notice_handler(keep)
            yield connection
            connection.commit()  # `with` alone skips a closed connection without an error
        if warnings:
            # Less was kept than asked: such as, the wait for the synchronous standby was cancelled
            # after the local commit.
            raise unusable(
                self.location, "the server warned at the commit: see its log, and dpiw ledger show"
            )

    def _check_settings(self, connection: psycopg.Connection, isolation: str) -> None:
        server: Any = connection.cursor(row_factory=dict_row).execute(_SETTINGS).fetchone()
        if server["version"] < _OLDEST_SERVER:
            raise unusable(self.location, "PostgreSQL 14 or newer is needed")
        if server["standby"]:
            raise unusable(self.location, "this server is a standby; use the primary")
        for name, admissible in _REQUIRED.items():
            if server[name] not in admissible:
                raise unusable(
                    self.location,
                    f"{name}={server[name]} on this server, with which it could lose a charge",
                    allowed=f"{name}={' or '.join(admissible)}",
                )
        if server["isolation"] != isolation.lower():
            raise unusable(self.location, f"the server refused the isolation level {isolation}")
        pinned = {
            "synchronous_commit": server["synchronous_commit"],
            "lock_timeout": self._lock_timeout,
            "statement_timeout": "0",  # it could end the wait for a standby half-way
            "search_path": "pg_catalog",
            # A client that hangs, or whose host is gone, must not hold the lock for ever.
            "idle_in_transaction_session_timeout": _LONGEST_SILENCE,
            # Seconds until the server notices that a client's host is gone; not for sockets.
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "3",
        }
        settings = (f"pg_catalog.set_config('{n}', '{v}', true)" for n, v in pinned.items())
        connection.execute(f"SELECT {', '.join(settings)}")

    @contextmanager
    def _as_ledger_error(self) -> Iterator[None]:
        """Turn database errors into LedgerError without their text, which may hold statements.

        After an error at the commit only the database knows whether the entry is kept.
        """
        try:
            yield
        except psycopg.Error as error:
            raise unusable(self.location, _reason(error)) from error


def _reason(error: psycopg.Error) -> str:
    state = error.sqlstate or ""
    if error.diag.constraint_name == KIND_CHECK:
        return Faults.OLDER
    for prefix, reason in _REASONS.items():
        if state.startswith(prefix):
            return reason
    if not state and isinstance(error, psycopg.OperationalError):
        return _UNREACHABLE
    return f"cannot be used ({type(error).__name__})"


def _check_url(url: URL) -> None:
    hosts = [host for host in (url.host, url.query.get("host")) if host]
    one_host = len(hosts) == 1 and isinstance(hosts[0], str) and "," not in hosts[0]
    if not (one_host and url.username and url.database):
        raise LedgerError(f"{EXPECTED}, with a user, one host and a database", field="ledger")
    # As SQLAlchemy reads the URL: a `?` in the user's name begins no options for it.
    unknown = sorted(set(url.query) - POSTGRESQL_OPTIONS)
    if unknown or url.password is not None:
        found = ", ".join(unknown) or "a password: put it into the file that PGPASSFILE names"
        raise LedgerError(f"remove from the URL {found}", field="ledger")
    _check_encryption(url, str(hosts[0]))


_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")


def _check_encryption(url: URL, host: str) -> None:
    """Require an authenticated server over a network: another could grant anything."""
    if host.startswith(("/", "@")) or _LOOPBACK.fullmatch(host):
        return
    if url.query.get("sslmode") == "verify-full" or url.query.get("gssencmode") == "require":
        return
    raise LedgerError(
        "the URL reaches a server over a network without checking which server answers",
        field="ledger",
        allowed="in the URL sslmode=verify-full with sslrootcert=FILE (or system), or else"
        " gssencmode=require",
    )


def _arguments(url: URL) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "application_name": "dpiw",
        "client_encoding": "utf8",
        "connect_timeout": max(2, math.ceil(BUSY_TIMEOUT_SECONDS)),
        "tcp_user_timeout": 30_000,  # a host that vanished is an error, not a wait
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "prepare_threshold": None,
        # Stated, so that PGHOSTADDR, PGPORT and PGOPTIONS do not choose another server or session.
        "hostaddr": "",
        "port": url.port or 5432,
        "options": "",
    }
    return {
        **arguments,
        **url.translate_connect_args(username="user", database="dbname"),
        **url.query,
    }


_SAFE_PATH = "pg_catalog, pg_temp"  # a function must not find somebody else's operators

# A trigger's kind as pg_trigger keeps it.
_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = 1, 2, 4, 8, 16, 32

_APPEND_ONLY = """
BEGIN
  RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'check_violation';
END"""

# VOLATILE, so under READ COMMITTED it sees all that was committed when the lock was granted.
_CHAIN = """
DECLARE
  last record;
BEGIN
  SELECT seq, hash INTO last FROM dpiw.entries ORDER BY seq DESC LIMIT 1;
  IF NEW.seq IS DISTINCT FROM coalesce(last.seq, 0) + 1
     OR NEW.previous IS DISTINCT FROM coalesce(last.hash, '<first>') THEN
    RAISE EXCEPTION 'an entry must continue the chain' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END""".replace("<first>", NO_ENTRY)

# A population without terms has no budget. Under `basic` both sums must fit; under any other rule
# a vector of 16 must fit at one place at least.
_BUDGET = with_kinds("""
DECLARE
  unit text;
  held numeric;
  budget numeric;
  fits boolean := true;
BEGIN
  IF NEW.kind NOT IN <asking> THEN
    RETURN NEW;
  END IF;
  IF EXISTS (
      SELECT 1 FROM dpiw.entries WHERE population = NEW.population AND kind = 'register'
        AND payload::json ->> 'composition' IS DISTINCT FROM 'basic') THEN
    fits := (NEW.kind IN <drawing>
        OR json_array_length(NEW.payload::json #> '{renyi,units}') = 16) AND EXISTS (
      SELECT 1 FROM (
        SELECT part.place,
          sum(CASE paid.kind WHEN 'void' THEN -1 ELSE 1 END * part.value::numeric) AS total
        FROM (SELECT kind, payload FROM dpiw.entries
              WHERE population = NEW.population AND kind IN <charging>
              UNION ALL SELECT NEW.kind, NEW.payload) AS paid
        CROSS JOIN LATERAL json_array_elements_text(paid.payload::json #> '{renyi,units}')
          WITH ORDINALITY AS part (value, place)
        GROUP BY part.place) AS held
      JOIN (
        SELECT most.place, most.value::numeric AS total FROM dpiw.entries AS terms
        CROSS JOIN LATERAL json_array_elements_text(terms.payload::json #> '{renyi,budget_units}')
          WITH ORDINALITY AS most (value, place)
        WHERE terms.population = NEW.population AND terms.kind = 'register') AS budget
      ON held.place = budget.place AND held.total <= budget.total);
  ELSE
    FOREACH unit IN ARRAY ARRAY['epsilon_units', 'delta_units'] LOOP
      SELECT coalesce(
          sum(CASE kind WHEN 'void' THEN -1 ELSE 1 END * (payload::json ->> unit)::numeric), 0)
        INTO held FROM dpiw.entries
        WHERE population = NEW.population AND kind IN <charging>;
      SELECT max((payload::json ->> unit)::numeric) INTO budget FROM dpiw.entries
        WHERE population = NEW.population AND kind = 'register';
      fits := fits AND held + CASE WHEN NEW.kind IN <drawing> THEN 0
        ELSE (NEW.payload::json ->> unit)::numeric END <= budget;
    END LOOP;
  END IF;
  IF fits IS NOT TRUE THEN
    RAISE EXCEPTION 'over the lifetime budget' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END""")

# name -> when it fires, what it does; the function has the trigger's name
GUARDS: dict[str, tuple[str, int, str]] = {
    "entries_append_only": (
        "BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT",
        _BEFORE | _UPDATE | _DELETE | _TRUNCATE,
        _APPEND_ONLY,
    ),
    "entries_budget": (
        "BEFORE INSERT ON {table} FOR EACH ROW", _ROW | _BEFORE | _INSERT, _BUDGET,
    ),
    "entries_chain": (
        "BEFORE INSERT ON {table} FOR EACH ROW", _ROW | _BEFORE | _INSERT, _CHAIN,
    ),
}  # fmt: skip


def guard_statements() -> Iterator[str]:
    """The statements that put the guards on a new table."""
    for name, (when, _, body) in GUARDS.items():
        yield (
            f"CREATE FUNCTION {SCHEMA}.{name}() RETURNS trigger LANGUAGE plpgsql"
            f" SET search_path = {_SAFE_PATH} AS $body${body}$body$"
        )
        yield (
            f"CREATE TRIGGER {name} {when.format(table=TABLE)} EXECUTE FUNCTION {SCHEMA}.{name}()"
        )
        yield f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {name}"


# Function text and every property that could switch it off: conditions, columns, volatility,
# another owner's rights.
_FOUND_GUARDS = """
    SELECT t.tgname, t.tgtype, t.tgenabled::text, n.nspname, p.proname, p.prosrc, l.lanname,
      CASE WHEN t.tgqual IS NULL AND t.tgnargs = 0 AND t.tgattr = ''::int2vector
        AND p.provolatile = 'v' AND NOT p.prosecdef THEN p.proconfig::text END
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang
    WHERE t.tgrelid = 'dpiw.entries'::pg_catalog.regclass AND NOT t.tgisinternal"""

# An ordinary table, written to the log, whose rows nothing hides, adds or redirects, and where a
# number stands once.
_SOUND_TABLE = """
    SELECT c.relkind = 'r' AND c.relpersistence = 'p'
      AND NOT c.relrowsecurity AND NOT c.relispartition
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i
                      WHERE c.oid IN (i.inhparent, i.inhrelid))
      AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
          ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = 'seq'
        WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indisunique
          AND i.indnatts = 1)
    FROM pg_catalog.pg_class c WHERE c.oid = 'dpiw.entries'::pg_catalog.regclass"""


def guards_hold(connection: psycopg.Connection) -> bool:
    """Whether the table and its guards are as they were made."""
    guards = {tuple(row) for row in connection.execute(_FOUND_GUARDS)}
    expected = {
        (name, kind, "A", SCHEMA, name, body, "plpgsql", f'{{"search_path={_SAFE_PATH}"}}')
        for name, (_, kind, body) in GUARDS.items()
    }
    [(is_sound,)] = connection.execute(_SOUND_TABLE)
    return guards == expected and is_sound is True
