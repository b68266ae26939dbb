"""Words that we do not use, and the plain word for each; `make check` runs this.

    python tests/words.py               search product, documents and the latest commit's subject
    python tests/words.py --message F   check a commit's message (a commit-msg hook)

Exit code 1: a word or a subject is not as it should be. The list is short; reading is what counts.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLAIN = {
    "anew": "again",
    "bettered": "improved",
    "for nothing": "for free, or at no cost",
    "goes by": "follows",
    "in the place of": "instead of",
    "index-url": "nothing: name no index of packages",
    "is told": "is shown, or who prints it",
    "likewise": "also, or say it again",
    "mend": "repair, or correct",
    "mended": "repaired, or corrected",
    "mends": "repairs, or corrects",
    "tells of": "reports",
    "whoever": "everyone who",
}
"""What we do not write, and what to write."""

SEARCHED = ("dpiw", "flows", "tasks", "deployments", "docs", "README.md", "CONTRIBUTING.md")
KINDS = {".py", ".md", ".j2", ".yaml", ".sh"}
SUBJECT = 72
"""Most characters of a commit's subject."""

_WORDS = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)


def files() -> Iterator[Path]:
    """Files whose words are checked."""
    for name in SEARCHED:
        path = ROOT / name
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in inside if file.suffix in KINDS)


def faults() -> Iterator[str]:
    """Yield a line for each word that has a plain one."""
    for file in files():
        text = file.read_text()
        for found in _WORDS.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            plain = PLAIN[found[1].lower()]
            yield f"{file.relative_to(ROOT)}:{line}: {found[1]!r}; write {plain}"


def subject_faults(message: str) -> Iterator[str]:
    """Yield what is wrong with a commit's subject."""
    subject = message.partition("\n")[0]
    if len(subject) > SUBJECT and not subject.startswith("Merge "):
        yield f"commit: {len(subject)} characters in the subject, at most {SUBJECT}: {subject}"
    if found := _WORDS.search(subject):
        yield f"commit: {found[1]!r} in the subject; write {PLAIN[found[1].lower()]}"


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--message"]:
        found = list(subject_faults(Path(arguments[1]).read_text()))
    else:
        latest = subprocess.run(
            ["git", "log", "-1", "--format=%s"], cwd=ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        found = [*faults(), *subject_faults(latest.stdout)]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
