"""What a record keeps of its origin: the command, the commit, and a digest of the study's code.

The digest is that of `tests.support.dependencies`; `tests/stale.py` names the pages whose code has
changed since.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from dpiw import __version__
from tests.support.dependencies import ROOT, code, files_of, present

AGAIN = "again"
"""Entry of a record: lines that later code made again, with its commit and digest."""

RESULTS = ROOT / "benchmarks" / "results"


def stamp(command: str) -> dict[str, str]:
    """The head of a record. Take it before the work: later the files may be others than ran."""
    own = code(files_of(script_of(command), present()))
    return {"command": command, "dpiw": __version__, "commit": commit(), "code": own}


def script_of(command: str) -> str:
    """The script that `python benchmarks/SCRIPT.py` or `make SCRIPT` runs."""
    return re.sub(r".*?(?:benchmarks/|make )(\w+).*", r"\1", command)


def commit() -> str:
    """The tree's commit; `DPIW_COMMIT` names it where the tree is a copy without its history."""
    if named := os.environ.get("DPIW_COMMIT"):
        return named
    words = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def stamps(record: Any) -> Iterator[tuple[str, str]]:
    """Every commit in a record and the digest beside it, empty where none was kept."""
    if isinstance(record, dict):
        if "commit" in record:
            yield record["commit"], record.get("code", "")
        for key, value in record.items():
            if key != AGAIN:
                yield from stamps(value)


def foot(record: Any) -> str:
    """The last lines of a page."""
    every = dict.fromkeys(stamps(record))
    told = ", ".join(f"{at} ({f'code {own}' if own else 'no digest'})" for at, own in every)
    if own := record.get(AGAIN):
        told += (
            f"; the code of {own['commit']} ({own['code']}) made {own['lines']} of the"
            f" {len(record['cells'])} lines again, equal to every digit"
        )
    return f"\nMeasured at commit {told}; `make check` names the code that changed since.\n"
