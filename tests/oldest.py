"""Constraints that pin each direct dependency to the oldest version that pyproject.toml admits.

    python -m tests.oldest > constraints.txt              of a curator: every extra
    python -m tests.oldest formula plot > constraints.txt   of an analyst with these extras

Where two lists bound the same one, the higher bound holds. What ours depend on in turn is left to
the resolver.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = ("bayes", "bench")
"""Extras that the fast suite does without."""


def oldest(chosen: list[str]) -> Iterator[str]:
    """A line for each dependency with a lower bound, of some extras or of nearly all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = chosen or [name for name in extras if name not in LEFT_OUT]
    bounds: dict[str, Version] = {}
    for requirement in [
        *project["dependencies"],
        *(dependency for name in wanted for dependency in extras[name]),
    ]:
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+).*", requirement)
        if match:
            bound = Version(match[2])
            bounds[match[1]] = max(bound, bounds.get(match[1], bound))
    return (f"{name}=={bound}" for name, bound in sorted(bounds.items()))


if __name__ == "__main__":
    sys.stdout.write("\n".join(oldest(sys.argv[1:])) + "\n")
