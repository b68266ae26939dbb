"""Records what a run does to the disk, the ledger and the noise source, in order, and judges it."""

import hashlib
import json
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

from dpiw.ledger import Ledger, StageState
from tests.crash.child import SAMPLERS, SecureNoise, path_of
from tests.support.around import around

Event = dict[str, Any]


def state_of(path: Path) -> str:
    """What an fsync would make durable now: a file's bytes, or a folder's names."""
    if path.is_dir():
        return " ".join(sorted(os.listdir(path)))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(path: Path) -> dict[str, str]:
    """The states of a file, or of a folder and of everything in it."""
    inside = sorted(path.rglob("*")) if path.is_dir() else []
    return {str(entry): state_of(entry) for entry in (path, *inside)}


class Recorder:
    """Writes one line per event to `events.jsonl`; files outside the place are not looked at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = os.open(root / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, do: str, **facts: Any) -> None:
        os.write(self._log, (json.dumps({"do": do, **facts}) + "\n").encode())

    def install(self) -> None:
        self._disk()
        self._ledger()
        for name in SAMPLERS:
            around(SecureNoise, name, before=lambda *_, **__: self.tell("noise"))

    def _disk(self) -> None:
        def synced(_, descriptor):
            path = path_of(descriptor)
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            if folder or path.is_relative_to(self.root):
                self.tell("fsync", path=str(path), state=state_of(path))

        def renamed(source, target, **_):
            self.tell("rename", target=str(target), contents=contents(Path(source)))

        around(os, "fsync", after=synced)
        for name in ("rename", "replace"):
            around(os, name, before=renamed)

    def _ledger(self) -> None:
        def armed(_, ledger, run_key, attempt, stage, **__):
            durable = self._is_armed(run_key, stage) and _waits_for_the_disk(ledger)
            self.tell("armed", stage=stage, durable=durable)

        def committed(_, ledger, grant, digest):
            self.tell("committed", stage=grant.stage, digest=digest)

        def committed_found(_, ledger, run_key, attempt, stage, digest):
            self.tell("committed", stage=stage, digest=digest)

        def published(_, ledger, run_key, digest):
            self.tell("published", digest=digest)

        around(Ledger, "arm", after=armed)
        around(Ledger, "commit", after=committed)
        around(Ledger, "commit_found", after=committed_found)
        around(Ledger, "publish", after=published)

    def _is_armed(self, run_key: str, stage: str) -> bool:
        """By a connection of its own: what another process would see after a crash of this one."""
        url = (self.root / "ledger.url").read_text()
        return Ledger.open(url).run(run_key).stages[stage].state is StageState.ARMED


def _waits_for_the_disk(ledger: Ledger) -> bool:
    """Whether a commit of this ledger returns only after its fsync."""
    with ledger._store.transaction(write=True) as connection:
        if isinstance(connection, sqlite3.Connection):
            return bool(connection.execute("PRAGMA synchronous").fetchone() == (2,))
        return all(
            connection.execute(f"SHOW {name}").fetchone()[0] not in ("off", "local")
            for name in ("synchronous_commit", "fsync")
        )


def record(watch, task):
    Recorder(Path(task["root"])).install()


# --- the judgement --------------------------------------------------------------------------------


class Judge:
    """Goes through the events and collects what came in the wrong order."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._synced: dict[str, str] = {}
        self._owed: dict[str, str] = {}  # folder -> the name in it that is not durable yet
        self._drawing = False
        self._kept: set[str] = set()
        self._told: set[str] = set()

    def judge(self, events: list[Event]) -> list[str]:
        for event in events:
            getattr(self, f"_{event['do']}")(event)
        self._settled("the end")
        return self.violations

    def _armed(self, event: Event) -> None:
        self._settled("arm")
        self._drawing = True
        if not event["durable"]:
            self.violations.append("the arm is not durable when it returns")

    def _noise(self, event: Event) -> None:
        if not self._drawing:
            self.violations.append("noise before the durable arm")

    def _committed(self, event: Event) -> None:
        self._drawing = False
        self._settled("commit")
        if event["digest"] not in self._kept:
            self.violations.append("an output is committed before it is durable")

    def _published(self, event: Event) -> None:
        self._settled("publish")
        self._told.add(event["digest"])
        if event["digest"] not in self._synced.values():
            self.violations.append("a manifest is recorded before it is durable")

    def _fsync(self, event: Event) -> None:
        self._synced[event["path"]] = event["state"]
        self._owed.pop(event["path"], None)

    def _rename(self, event: Event) -> None:
        target = Path(event["target"])
        for path, state in event["contents"].items():
            if self._synced.get(path) != state:
                self.violations.append(
                    f"{target.name} is renamed before the fsync of {Path(path).name}"
                )
        self._kept.update(event["contents"].values())
        self._owed[str(target.parent)] = target.name
        if target.parent.name == "releases":
            manifests = {s for p, s in event["contents"].items() if p.endswith("/manifest.json")}
            if not manifests <= self._told:
                self.violations.append("a release is visible before the ledger knows it")

    def _settled(self, before: str) -> None:
        for folder, name in self._owed.items():
            self.violations.append(f"{name}: no fsync of {Path(folder).name} before {before}")
        self._owed.clear()
