"""Folders of releases."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dpiw.errors import ReleaseError, SpecError, nearest, shown
from dpiw.release.manifest import MANIFEST, SIGNATURE


def release_folders(root: Path) -> list[Path]:
    """Return the folders in `root` that could be releases; raises ReleaseError if unreadable."""
    try:
        folders = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
        return sorted(folder for folder in folders if not _is_report(folder))
    except OSError as reason:
        near = nearest(root.name, _beside(root)) if isinstance(reason, FileNotFoundError) else ""
        raise ReleaseError(f"releases {root.name}: {reason.strerror}{near}") from reason


def _is_report(folder: Path) -> bool:
    """Whether it holds only an audit's report, which `--out` may put beside releases."""
    with suppress(OSError):
        return {path.name for path in folder.iterdir()} == {"audit.json", "audit.html"}
    return False


def _beside(root: Path) -> list[str]:
    """Names of folders with releases beside a missing one; never of confidential folders."""
    if any((parent / "workspace").exists() for parent in root.resolve().parents):
        return []
    with suppress(OSError):
        return [path.name for path in root.parent.iterdir() if any(path.glob(f"*/{MANIFEST}"))]
    return []


def refuse_release(path: Path, *, field: str) -> None:
    """Raise SpecError for a path in a published folder, links followed: extra files break it."""
    for folder in (path.resolve(), *path.resolve().parents):
        if any(os.path.lexists(folder / name) for name in (MANIFEST, SIGNATURE)):
            raise SpecError(
                f"{field}: is or lies in a published release, {folder.name}, which one file more"
                f" breaks; expected a folder of its own, such as --{field} audit"
            )


def publish_anew(folder: Path) -> str:
    """Advise the publisher of a damaged published folder."""
    return (
        f"; {os.path.relpath(folder)} is not as it was published: move it out of"
        f" {os.path.relpath(folder.parent)}, and start the same command again, which publishes the"
        " same bytes at no cost"
    )


def no_release(folder: Path) -> str:
    """Describe what is there instead of a release, and which one may be meant."""
    name = shown(folder.name)
    text = f"{MANIFEST}: not in {name or 'this folder'}; expected the folder of one release"
    if folder.is_file():
        return f"{name}: a file; expected the folder of one release, in which it lies"
    if not folder.is_dir():
        return f"{name}: no such folder; expected the folder of one release"
    inside = sorted(manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST}"))
    return f"{text}, such as {name}/{shown(inside[0])}" if inside else text
