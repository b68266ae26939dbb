"""The SQLite database of a run's own Prefect server, made before the server asks for it.

Prefect makes it by a hundred migrations, over a driver that answers from another thread: half of
the time and more goes by between the two. The same migrations, in memory and over the plain driver,
take the rest.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.data.files import rename_exclusively, sync_directory, write_durably

if TYPE_CHECKING:
    from sqlalchemy import Connection


_ENDS = ("", "-wal", "-shm", "-journal")
"""Of the names of a database and of what SQLite keeps beside it."""


def make_database() -> None:
    """Make the database of Prefect's settings, unless it is there, or is no file of SQLite's.

    It is there as a whole, or not at all. Where it cannot be made, because Prefect is another one
    than we know or the disk is full, what went wrong is printed, and Prefect's server tries itself.
    So it does beside a journal of a database that is gone: SQLite would write that into ours.
    """
    try:
        path = _file()
        if path is not None and not _is_there(path):
            _keep(_migrated(), path)
    except Exception:  # of another Prefect, by any name
        traceback.print_exc()


def _file() -> Path | None:
    from prefect.settings import (
        PREFECT_API_DATABASE_CONNECTION_URL,
        PREFECT_API_DATABASE_MIGRATE_ON_START,
    )
    from sqlalchemy.engine import make_url

    if not PREFECT_API_DATABASE_MIGRATE_ON_START.value():
        return None
    url = make_url(PREFECT_API_DATABASE_CONNECTION_URL.value())
    name = url.database or ":memory:"
    if url.get_backend_name() != "sqlite" or url.query or name.startswith((":memory:", "file:")):
        return None
    return Path(name)


def _is_there(path: Path) -> bool:
    return any(os.path.lexists(f"{path}{end}") for end in _ENDS)


def _keep(database: bytes, path: Path) -> None:
    """Durably, and never in the place of one that another run has made since.

    Who is killed meanwhile may leave the file that is to become it, by a name of its own.
    """
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_durably(made, database)
    try:
        with contextlib.suppress(FileExistsError):
            if not _is_there(path) and not rename_exclusively(made, path):
                os.link(made, path)
    finally:
        made.unlink(missing_ok=True)
    sync_directory(path.parent)


def _migrated() -> bytes:
    """What Prefect's migrations make of nothing: its `_migrations/env.py`, but for the driver."""
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory
    from prefect.server.database import provide_database_interface
    from prefect.server.database.alembic_commands import alembic_config

    interface, config = provide_database_interface(), alembic_config()
    script = ScriptDirectory.from_config(config)
    script.version_locations = [str(interface.orm.versions_dir)]

    def upgrade(revision: Any, _: object) -> Any:
        return script._upgrade_revs("heads", revision)  # as Alembic's own command does

    with (
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database,
        _connected(database) as connection,
        EnvironmentContext(config, script, fn=upgrade, destination_rev="heads") as environment,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Skipped unsupported reflection of expression-based")
        environment.configure(
            connection=connection,
            target_metadata=interface.Base.metadata,
            render_as_batch=True,
            transaction_per_migration=True,
            template_args={"dialect": "sqlite"},
        )
        with environment.begin_transaction():
            environment.run_migrations()
        return database.serialize()


@contextlib.contextmanager
def _connected(database: sqlite3.Connection) -> Iterator[Connection]:
    """SQLAlchemy's, whose transactions hold changes of tables, too."""
    import sqlalchemy

    database.execute("PRAGMA foreign_keys = OFF")  # as Prefect's, whatever SQLite was built with
    database.execute("PRAGMA legacy_alter_table = OFF")
    engine = sqlalchemy.create_engine("sqlite://", creator=lambda: database)

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        yield connection
