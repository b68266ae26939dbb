"""What a mistake is: what somebody did, what they typed, and what they must be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Slip = Callable[[Path], None]
"""Makes the mistake, in a folder where everything was right."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One line of the table.

    Attributes:
        slip: what went wrong before the command.
        command: what is typed after `dpiw`, in the curator's folder.
        code: its exit status.
        words: what the message holds, whatever else it says.
    """

    slip: Slip
    command: str
    code: int
    words: tuple[str, ...]


def nothing(folder: Path) -> None:
    """The files are right; what is typed is not."""


def in_file(name: str, old: str, new: str) -> Slip:
    """A slip of the pen in a file, whose text `old` must be there."""

    def slip(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text, f"{name} does not hold {old!r}"
        (folder / name).write_text(text.replace(old, new, 1))

    return slip


def in_spec(old: str, new: str, *words: str, code: int = 10) -> Mistake:
    """A slip in the release spec, seen by `dpiw plan`."""
    slip = in_file("release.yaml", old, new)
    return Mistake(slip=slip, command="plan release.yaml", code=code, words=words)


def in_dictionary(old: str, new: str, *words: str) -> Mistake:
    """A slip in the data dictionary, seen by `dpiw plan`."""
    slip = in_file("schema.yaml", old, new)
    return Mistake(slip=slip, command="plan release.yaml", code=11, words=words)


def typed(command: str, code: int, *words: str, slip: Slip = nothing) -> Mistake:
    """A slip on the command line."""
    return Mistake(slip=slip, command=command, code=code, words=words)
