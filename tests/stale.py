"""Pages of results whose code has changed since they were measured; `make check` runs this.

    python tests/stale.py [NAME ...]     NAME: all changed files of that page

A page is of the code as it is if its record keeps that code's digest: that of the measurement, or
that of later code which made some of its lines again, equal to every digit (a study's `--again`).
A record without a digest is compared by its commit; Git also names the files. A changed file makes
a page stale, not wrong, and hours of benchmarks cannot precede every commit. The exit code is 1
only where README quotes a page that names no commit: nobody could say what its figures were
measured with.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from provenance import AGAIN, RESULTS, script_of, stamps

from tests.support.dependencies import ROOT, Tree, changed, code, committed, files_of, present

NO_COMMIT = "names no commit"
SHOWN = 4
"""Most files named in the line of a page."""


def state(record: Path, tree: Tree, most: int | None = None) -> str:
    """Why a page is not of the code in `tree`, with names of that many files; empty if it is."""
    text = record.read_text() if record.exists() else "{}"
    facts = json.loads(text)
    own = dict.fromkeys(stamps(facts.get(AGAIN, facts)))
    if not own:
        return NO_COMMIT
    files = files_of(script_of(re.findall(r'"command": "(.*?)"', text)[0]), tree)
    since, others = list[str](), set[str]()
    for commit, kept in own:
        if kept == code(files):
            continue
        named = commit.removesuffix("-dirty").split()[0]  # also: `2415fd1 or before`
        try:
            found = changed(files, committed(named), tree)
        except subprocess.CalledProcessError:
            return f"Git does not have its commit {commit} here"
        if found or kept or named != commit:  # the last two: of code that was not committed
            since.append(commit)
            others |= found
    if not since:
        return ""
    shown = sorted(others)[:most]
    more = f" and {len(others) - len(shown)} more" * (len(shown) < len(others))
    told = f"{len(others)} of {len(files)} files changed since {', '.join(since)}"
    return f"{told}: {', '.join(shown)}{more}"


def main(names: list[str]) -> int:
    tree, readme = present(), (ROOT / "README.md").read_text()
    pages = names or sorted(page.stem for page in RESULTS.glob("*.md"))
    quoted = {name for name in pages if f"results/{name}.md" in readme}
    most = None if names else SHOWN
    states = {name: state(RESULTS / f"{name}.json", tree, most) for name in pages}
    for name, why in states.items():
        if why:
            print(f"{name}.md{', quoted by README' * (name in quoted)}: {why}")
    print(f"{[*states.values()].count('')} of {len(pages)} pages are of the code as it is")
    return int(any(states[name] == NO_COMMIT for name in quoted))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
