"""Which tests there are: `python -m tests.assurance.listing OUT MARKER`, in the checkout's root.

A process of its own, since collecting imports every test file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


class Listing:
    """Keeps the ids of what is collected."""

    def __init__(self) -> None:
        self.nodes: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.nodes = [item.nodeid for item in session.items]


def main(out: Path, marker: str) -> int:
    """List the tests; returns pytest's exit status: 0, or 5 if there are none."""
    listing = Listing()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", marker]
    status = pytest.main(arguments, plugins=[listing])
    out.write_text(json.dumps(listing.nodes))
    return int(status)


if __name__ == "__main__":
    sys.path[0] = ""  # the checkout's root, as in `python -m pytest`
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
