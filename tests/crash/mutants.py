"""Broken pipelines, for the controls: each must be caught by the check it is made for."""

import hashlib
import importlib
import importlib.util
import os
import stat
import sys
from pathlib import Path
from typing import Any

from dpiw.data import files
from dpiw.data.tables import PrivateSource
from dpiw.ledger import Ledger, StageState
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.resumption import UNWATCHED
from dpiw.release import publication
from dpiw.run import draw as confidential


def draw_before_arming(watch, task):
    """Noise is drawn, and then the ledger is told."""
    arm = Ledger.arm

    def late(ledger, run_key, attempt, stage, **named):
        watch.armed = (stage, attempt)
        SecureNoise().discrete_gaussian(scale=1.0, size=1)
        return arm(ledger, run_key, attempt, stage, **named)

    Ledger.arm = late  # type: ignore[method-assign]


def read_before_the_record(watch, task):
    """The table is read, and then the ledger is told."""
    record, read_source = Ledger.read, confidential.read_source
    pending: list[tuple[Any, ...]] = []

    def late(*args, **options):
        snapshot = read_source(*args, **options)
        record(*pending.pop())
        return snapshot

    Ledger.read = lambda *args: pending.append(args)  # type: ignore[assignment, method-assign]
    confidential.read_source = late


def draw_again_for_free(watch, task):
    """A draw that died is drawn again under its old arm: what a plain retry does."""
    draw_once = confidential._draw_once

    class Anything:
        def confirm(self, grant: object) -> None:
            pass

    def again(run, name, measure, **options):
        ledger = run.open_ledger()
        stage = ledger.run(run.key).stages[name]
        if stage.state is not StageState.ARMED:
            return draw_once(run, name, measure, **options)
        watch.armed = (name, stage.attempt)
        source = PrivateSource(snapshot=run.snapshot, schema=run.plan.schema)
        data = measure(source.open(None, Anything()), UNWATCHED).to_bytes()
        confidential.write_durably(run.measurement(name), data)
        ledger.commit_found(run.key, stage.attempt, name, hashlib.sha256(data).hexdigest())
        return None

    sys.modules["dpiw.run.reserve"]._settle = lambda *_: None  # type: ignore[attr-defined]
    confidential._draw_once = again


# --- wrong order: for the ordering test -----------------------------------------------------------


def _without_fsync(unwanted: Any) -> None:
    real = os.fsync

    def fsync(descriptor):
        if not unwanted(os.fstat(descriptor).st_mode):
            real(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def no_fsync_of_files(watch, task):
    _without_fsync(stat.S_ISREG)


def no_fsync_of_folders(watch, task):
    _without_fsync(stat.S_ISDIR)


def no_fsync_of_the_releases_folder(watch, task):
    real = publication.sync_directory
    publication.sync_directory = lambda f: None if f.name == "releases" else real(f)


def fsync_after_the_rename(watch, task):
    def write(path, data):
        temporary = path.with_name(f".{path.name}.early")
        temporary.write_bytes(data)
        os.rename(temporary, path)
        files.sync_directory(path.parent)
        with path.open("rb") as file:
            os.fsync(file.fileno())

    confidential.write_durably = write


def commit_before_writing(watch, task):
    late: list[tuple[Path, bytes]] = []
    write, commit = confidential.write_durably, Ledger.commit

    def early(ledger, grant, digest):
        commit(ledger, grant, digest)
        for path, data in late:
            write(path, data)
        late.clear()

    confidential.write_durably = lambda path, data: late.append((path, data))
    Ledger.commit = early  # type: ignore[method-assign]


def visible_before_the_ledger_knows(watch, task):
    def install(folder, destination, manifest, key, commit):
        publication.move_exclusively(folder, destination)
        publication.sync_directory(destination.parent)
        commit(manifest.digest)
        return True

    publication._install = install


def ledger_that_does_not_wait_for_the_disk(watch, task):
    """SQLite with `synchronous = OFF`: a power cut forgets what was committed."""
    module = importlib.import_module(
        "dpiw.ledger.stores.sqlite"
        if importlib.util.find_spec("dpiw.ledger.stores.sqlite")
        else "dpiw.ledger.stores.store"
    )
    module._SETTINGS["synchronous"] = ("OFF", 0)
