"""Publishing a small folder, for the tests of publication."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from dpiw.release.publication import build_folder, publish_built
from dpiw.release.verification import manifest_digest
from tests.dpiw.release.release_example import example_facts


def build(folder, key, **changes):
    arguments = {
        "files": {"a.txt": b"text", "b.txt": lambda path: path.write_bytes(b"called")},
        "facts": example_facts(),
    }
    build_folder(folder, key=key, **arguments | changes)
    return folder


class Published(NamedTuple):
    folder: Path
    manifest_digest: str | None
    already_published: bool


def publish(destination, key, *, built=None, commit=lambda digest: None, **changes):
    """Publish what is built, or what is built now."""
    with tempfile.TemporaryDirectory() as workspace:
        built = built or build(Path(workspace) / "built", key, **changes)
        is_new = publish_built(built, destination=destination, key=key.public, commit=commit)
    return Published(destination, manifest_digest(destination), not is_new)


def names(root):
    return sorted(path.name for path in root.iterdir())
