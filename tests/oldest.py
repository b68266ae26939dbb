"""Constraints that pin each direct dependency to the oldest version that pyproject.toml admits.

    python -m tests.oldest > constraints.txt

What ours depend on in turn is left to the resolver.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = ("neural", "bayes", "bench")
"""Extras that the fast suite does without."""


def oldest() -> Iterator[str]:
    """A line for each dependency with a lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k not in LEFT_OUT}
    for asked in [*project["dependencies"], *(one for own in extras.values() for one in own)]:
        found = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+).*", asked)
        if found:
            yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(sorted(set(oldest()))) + "\n")
