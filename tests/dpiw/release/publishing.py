"""Publishing a small folder, for the tests of publication."""

import tempfile
from pathlib import Path

from dpiw.release.publication import build_folder, publish_built
from tests.dpiw.release.release_example import example_facts


def build(folder, key, **changes):
    arguments = {
        "files": {"a.txt": b"text", "b.txt": lambda path: path.write_bytes(b"called")},
        "facts": example_facts(),
    }
    build_folder(folder, key=key, **arguments | changes)
    return folder


def publish(destination, key, *, built=None, commit=lambda digest: None, **changes):
    """Publish what is built, or what is built now."""
    with tempfile.TemporaryDirectory() as workspace:
        built = built or build(Path(workspace) / "built", key, **changes)
        return publish_built(built, destination=destination, key=key.public, commit=commit)


def names(root):
    return sorted(path.name for path in root.iterdir())
