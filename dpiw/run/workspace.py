"""The confidential workspace: what is in it, and removing what is no longer needed.

A purge removes `private/`, `log/`, `*.checkpoint` and names that begin with a dot; the rest is
public or paid for, and enough to repeat and publish a committed run.
"""

import contextlib
import datetime
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.data.cells.statement import STATEMENT
from dpiw.data.files import check_private, sync_directory
from dpiw.errors import LedgerError, SpecError
from dpiw.ledger import Ledger, RunState
from dpiw.run.locks import idle

_CONFIDENTIAL = ("private", "log")
_UNKNOWN = "unknown to its ledger"
_UNREADABLE = "run.json unreadable"
_UNREACHABLE = "its ledger cannot be opened"
_UNSAFE = "a link, open to others, or another user's"
_DONE = (RunState.PUBLISHED.value, RunState.WITHDRAWN.value, RunState.VOIDED.value)

CONSEQUENCES = {
    "reserved": "a rerun reads the source again, as it is by then",
    "armed": "an armed stage whose output is not on disk can only become LOST: its charge stands."
    " If another stage is committed, the run cannot be finished",
    "lost": "the lost stage can be drawn again only if no other stage is committed",
    "committed": "nothing: all draws are on disk, and a rerun publishes them",
    _UNKNOWN: "if an old copy of the ledger was restored, nothing but this folder shows what the"
    " run drew: first type `dpiw ledger recover`. If the run never began, a rerun reads the source"
    " again, as it is by then",
}
"""What purging an unfinished run means for a rerun."""


@dataclass(frozen=True, kw_only=True)
class WorkspaceRun:
    """One run's folder.

    Attributes:
        key, population, period, ledger: from its `run.json`; empty if unreadable.
        state: in its ledger, or why there is none. Only a run with a ledger state is ever purged.
        last_at: ISO 8601 time of its last ledger entry; empty: none.
        confidential_bytes: reveals the number of rows, so for the custodian only.
    """

    directory: Path
    population: str
    state: str
    key: str = ""
    period: str = ""
    ledger: str = ""
    last_at: str = ""
    confidential_bytes: int = 0
    kept_bytes: int = 0

    @property
    def cells(self) -> Path | None:
        """The custodian's statement of how the source's cells were read, if it exists."""
        path = self.directory / "private" / STATEMENT
        return path if self.key and path.is_file() and not path.is_symlink() else None

    @property
    def finished(self) -> bool:
        """Whether no step will read its confidential files again."""
        return self.state in _DONE

    @property
    def unjudged(self) -> bool:
        """Whether it cannot be known here if the run is finished."""
        return self.state in (_UNREADABLE, _UNREACHABLE, _UNSAFE)

    def idle_days(self, now: datetime.datetime) -> float:
        """Return days since its last ledger entry; 0 without one."""
        if not self.last_at:
            return 0.0
        return (now - datetime.datetime.fromisoformat(self.last_at)).total_seconds() / 86400


def survey(state: Path) -> list[WorkspaceRun]:
    """Return every run in the workspace of a state folder, unusable ones too; raises SpecError."""
    root = state.resolve() / "workspace"
    if not root.is_dir():
        raise SpecError(
            f"{state} holds no workspace",
            field="state",
            allowed="the folder that the spec names as `state`",
        )
    opened = functools.cache(_opened)
    return [_look(folder, state.resolve(), opened) for folder in sorted(root.glob("*/*/"))]


def select(
    runs: Sequence[WorkspaceRun],
    *,
    key: str | None,
    all_published: bool,
    older_than: float | None,
    now: datetime.datetime,
) -> list[WorkspaceRun]:
    """Return the runs that options name: by key, or finished ones, by age; raises SpecError."""
    if key is None and not all_published and older_than is None:
        raise SpecError("name runs by --run, --all-published or --older-than", field="purge")
    if older_than is not None and older_than < 0:
        raise SpecError(f"found {older_than:g}", field="older-than", allowed="days >= 0")
    chosen = [run for run in runs if run.finished] if key is None else [named(runs, key)]
    if older_than is not None:
        chosen = [run for run in chosen if run.idle_days(now) >= older_than]
    return chosen


def named(runs: Sequence[WorkspaceRun], key: str) -> WorkspaceRun:
    """Return the run whose key begins so; SpecError if not exactly one does, or it is short."""
    matches = [run for run in runs if run.key.startswith(key) and run.key]
    if len(matches) != 1 or len(key) < 8:
        raise SpecError(
            f"{len(matches)} keys begin so", field="run", allowed="at least 8 digits of one key"
        )
    return matches[0]


def purge(run: WorkspaceRun, *, abandon: bool = False) -> int:
    """Remove a run's confidential files, and return how many bytes they held.

    Reads the run's state again, under its locks. Does not overwrite blocks, which achieves nothing
    on journalling, copying or flash storage: use disk encryption. `abandon`: see `CONSEQUENCES`.

    Raises SpecError if it is not finished, or others could have written to a folder;
    GrantSpentError if a process is working on it; LedgerError if its ledger cannot be opened.
    """
    _check_zone(run.directory)
    with idle(run.directory):
        state = _state(Ledger.open(run.ledger), run.key)[0] if run.key else _UNREADABLE
        if state == _UNREADABLE:
            raise SpecError(
                "its run.json cannot be read; get the file again from a backup",
                field=f"run {run.directory.name}",
            )
        if state == _UNREACHABLE:
            fault = "its ledger cannot be read; make the ledger reachable, and purge the run again"
            raise LedgerError(fault, field=f"run {run.key[:12]}")
        if state not in _DONE and not abandon:
            raise SpecError(
                f"run {run.key[:12]} is not finished ({state}). Purging it with --abandon means:"
                f" {CONSEQUENCES[state]}"
            )
        removed = sum(_size(path) for path in _confidential(run.directory))
        for path in list(_confidential(run.directory)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for folder in (*(run.directory / name for name in _CONFIDENTIAL), run.directory):
            if folder.is_dir():
                sync_directory(folder)
    return removed


def _check_zone(directory: Path) -> None:
    """Raise SpecError unless a run's folder, and those around and inside it, are private."""
    inside = [directory / name for name in _CONFIDENTIAL]
    for folder in (directory.parents[1], directory.parent, directory, *inside):
        if os.path.lexists(folder):
            check_private(folder, folder.lstat())


def _opened(url: str) -> Ledger | None:
    with contextlib.suppress(LedgerError):
        return Ledger.open(url)
    return None


def _look(folder: Path, state: Path, opened: Callable[[str], Ledger | None]) -> WorkspaceRun:
    try:
        _check_zone(folder)
    except SpecError:
        return WorkspaceRun(directory=folder, population=folder.parent.name, state=_UNSAFE)
    record = _record(folder)
    key = str(record.get("key", ""))
    spec = record.get("spec", {})
    # The state folder's present place; it may have moved since the run was prepared.
    url = str(spec.get("ledger") or f"sqlite:///{state / 'ledger.sqlite'}")
    run_state, last_at = _state(opened(url), key) if key else (_UNREADABLE, "")
    confidential = sum(_size(path) for path in _confidential(folder))
    return WorkspaceRun(
        directory=folder,
        key=key,
        population=str(spec.get("population", folder.parent.name)),
        period=str(record.get("period", "")),
        ledger=url,
        state=run_state,
        last_at=last_at,
        confidential_bytes=confidential,
        kept_bytes=_size(folder) - confidential,
    )


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / "run.json").read_bytes())
        right = record["key"].startswith(folder.name) and isinstance(record["spec"], dict)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return record if right else {}


def _state(ledger: Ledger | None, key: str) -> tuple[str, str]:
    with contextlib.suppress(LedgerError):
        if ledger is not None:
            run = ledger.find_run(key)
            if run is None:
                return _UNKNOWN, ""
            return run.state.value, ledger.entries(run_key=key)[-1].at
    return _UNREACHABLE, ""


def _confidential(folder: Path) -> Iterator[Path]:
    for name in _CONFIDENTIAL:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            yield from (folder / name).iterdir()
    # Left by killed steps: half-written draws, unfinished releases, checkpoints.
    yield from (
        path for path in folder.iterdir()
        if path.name.startswith(".") or path.suffix == ".checkpoint"
    )  # fmt: skip


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_size(child) for child in path.iterdir())
    return path.lstat().st_size
