"""Publishing a small folder, for the tests of publication."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpiw.release import publication
from dpiw.release.publication import build_folder, publish_built
from dpiw.release.signing import PrivateKey
from tests.dpiw.release.release_example import example_facts


def build(folder: Path, key: PrivateKey, **changes: Any) -> Path:
    arguments: dict[str, Any] = {
        "files": {"a.txt": b"text", "b.txt": lambda path: path.write_bytes(b"called")},
        "facts": example_facts(),
    }
    build_folder(folder, key=key, **arguments | changes)
    return folder


def publish(
    destination: Path,
    key: PrivateKey,
    *,
    built: Path | None = None,
    commit: Callable[[str], None] = lambda digest: None,
    **changes: Any,
) -> publication.Publication:
    """Publish what is built, or what is built now."""
    with tempfile.TemporaryDirectory() as workspace:
        built = built or build(Path(workspace) / "built", key, **changes)
        return publish_built(built, destination=destination, key=key.public, commit=commit)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())
