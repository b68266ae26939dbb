"""What the documents tell a reader to type: every command and block, found by its place.

A **block** is fenced in a page. A **command** is one shell command: a line of a block of shell, an
inline `program with arguments`, or a line of a comment or docstring of the examples and deployments
that begins with a program's name. Names in capitals stand for something of the reader's.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))

SHELLS = ("sh", "bash", "console")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.S | re.M)
_PROGRAM = (
    r"(?:\w+=\S+ )*(?:(?:dpiw|make|python3?|prefect|pip|openssl|\.) (?=\S)|deployments/serve\.sh\b)"
)
_INLINE = re.compile(r"(?<!`)`(?!`)([^`]+)`(?!`)")
_COMMENT = re.compile(rf"^(?:#.*?|\s+)?(?<![\w`/.-])({_PROGRAM}.*)$")
_MENTION = re.compile(r"make [a-z-]+|dpiw ((ledger|key|workspace|local) )?[a-z]+( --[a-z-]+)*")
"""`make target`, `dpiw command`, `dpiw group command --option`: nothing with a value."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


class Command(NamedTuple):
    """One shell command, on one line, without its comment.

    `mention`: it names a command (`dpiw verify`, `make test`) or an option, and gives no value.
    """

    page: str
    text: str
    mention: bool = False


def blocks(page: str | Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page, of some languages or of all."""
    path = ROOT / page
    return [
        Block(path.relative_to(ROOT).as_posix(), fence["language"], textwrap.dedent(fence["text"]))
        for fence in _FENCE.finditer(path.read_text())
        if not languages or fence["language"] in languages
    ]


def all_blocks() -> list[Block]:
    """Of every page."""
    return [block for page in PAGES for block in blocks(page)]


def python_of(page: str, **names: object) -> list[str]:
    """The Python blocks of a page, in order, bound by `filled`."""
    return [filled(block.text, names) for block in blocks(page, "python")]


def lines_of(block: Block) -> list[str]:
    """The commands of a block of shell: comments gone, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.splitlines())
    return [re.sub(r"^\$ ", "", re.sub(r"\s+", " ", line)) for line in lines if line]


def commands() -> tuple[Command, ...]:
    """Every command of all pages, examples and deployments; what stands twice, once for a page."""
    return tuple(dict.fromkeys((*_of_pages(), *_of_comments())))


def _of_pages() -> Iterator[Command]:
    for page in PAGES:
        name, text = page.relative_to(ROOT).as_posix(), page.read_text()
        for block in blocks(page, *SHELLS):
            yield from (Command(name, line) for line in lines_of(block))
        for inline in _INLINE.findall(_FENCE.sub("", text)):
            line = " ".join(inline.split())
            if re.match(_PROGRAM, line):
                yield Command(name, line, mention=bool(_MENTION.fullmatch(line)))


def _of_comments() -> Iterator[Command]:
    for folder in ("examples", "deployments"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".yaml", ".sh", ".ipynb"):
                continue
            for line in _told_lines(path):
                if comment := _COMMENT.match(line):
                    text = re.split(r"  +|\s+#|\s+\(", comment[1])[0].rstrip(":,.")
                    for command in _alternatives(text):
                        yield Command(path.relative_to(ROOT).as_posix(), command)


def _told_lines(path: Path) -> list[str]:
    """Comments, and the docstring of a module."""
    text = path.read_text()
    docstring = re.match(r'"""(.*?)"""', text, re.S) if path.suffix == ".py" else None
    comments = [line for line in text.splitlines() if line.startswith("#")]
    return [*comments, *(docstring[1].splitlines() if docstring else [])]


def _alternatives(text: str) -> list[str]:
    """`program a | b | c` as three commands."""
    first, *others = text.split(" | ")
    return [first, *(first.rsplit(" ", 1)[0] + " " + alternative for alternative in others)]


def filled(text: str, names: Mapping[str, object]) -> str:
    """Text with what its names stand for."""
    for name, value in names.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", lambda _, v=value: str(v), text)
    return text
