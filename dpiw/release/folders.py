"""The folder in which releases are published, and those in it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dpiw.errors import ReleaseError, SpecError, nearest, shown
from dpiw.release.manifest import MANIFEST, SIGNATURE


def release_folders(root: Path) -> list[Path]:
    """Every folder in `root` that could be a release.

    All but those whose name starts with a dot, and what holds an audit's report and nothing else.

    Raises:
        ReleaseError: `root` cannot be read.
    """
    try:
        folders = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
        return sorted(folder for folder in folders if not _is_report(folder))
    except OSError as reason:
        near = nearest(root.name, _beside(root)) if isinstance(reason, FileNotFoundError) else ""
        raise ReleaseError(f"releases {root.name}: {reason.strerror}{near}") from reason


def _is_report(folder: Path) -> bool:
    """Whether it holds an audit's report alone, which `--out` may put beside releases."""
    with suppress(OSError):
        return {path.name for path in folder.iterdir()} == {"audit.json", "audit.html"}
    return False


def _beside(root: Path) -> list[str]:
    """Names of folders with releases, beside one that is not there; of no confidential folder."""
    if any((parent / "workspace").exists() for parent in root.resolve().parents):
        return []
    with suppress(OSError):
        return [path.name for path in root.parent.iterdir() if any(path.glob(f"*/{MANIFEST}"))]
    return []


def refuse_release(path: Path, *, field: str) -> None:
    """Refuse to write into a published folder, which one file more breaks.

    Raises:
        SpecError: the path is a release's folder, or lies in one; links are followed.
    """
    for folder in (path.resolve(), *path.resolve().parents):
        if any(os.path.lexists(folder / name) for name in (MANIFEST, SIGNATURE)):
            raise SpecError(
                f"{field}: is or lies in a published release, {folder.name}, which one file more"
                f" breaks; expected a folder of its own, such as --{field} audit"
            )


def publish_anew(folder: Path) -> str:
    """What its publisher does about a published folder that was damaged."""
    return (
        f"; {os.path.relpath(folder)} is not as it was published: move it out of"
        f" {os.path.relpath(folder.parent)}, and start the same command again, which publishes the"
        " same bytes at no cost"
    )


def no_release(folder: Path) -> str:
    """What is there instead of a release, in words; which one was meant, if that can be seen."""
    name = shown(folder.name)
    text = f"{MANIFEST}: not in {name or 'this folder'}; expected the folder of one release"
    if folder.is_file():
        return f"{name}: a file; expected the folder of one release, in which it lies"
    if not folder.is_dir():
        return f"{name}: no such folder; expected the folder of one release"
    inside = sorted(manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST}"))
    return f"{text}, such as {name}/{shown(inside[0])}" if inside else text
