"""A release folder built and published at once, for tests of either half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dpiw.release import publication
from dpiw.release.manifest import ManifestFacts
from dpiw.release.signing import PrivateKey


def publish_folder(
    files: Mapping[str, publication.FileSource],
    *,
    destination: Path,
    facts: ManifestFacts,
    key: PrivateKey,
    commit: Callable[[str], None],
) -> publication.Publication:
    """As `build_folder` and `publish_built`, without the folder between the two."""
    with publication._staging(destination.parent) as folder:
        manifest = publication._build(folder, files, facts, key)
        return publication._install(folder, destination, manifest, key.public, commit)
