"""The error text that a failed confidential stage leaves in its run's folder."""

from __future__ import annotations

from pathlib import Path

from dpiw.data.files import write_durably

_PLACE = "\nfor the custodian alone: "
"""Precedes the row or line of a `SourceError`; no screen shows what follows."""


def failure_file(directory: Path, stage: str) -> Path:
    """Path of a stage's error text."""
    return directory / "log" / f"{stage}.error"


def leave_failure(directory: Path, stage: str, text: str, *, place: str) -> None:
    """Write a stage's error text: names and ranges only, for a person's screen.

    `place`: the row or line, for the custodian only; may be empty.
    """
    whole = f"{text}{place and _PLACE + place}\n"
    write_durably(failure_file(directory, stage), whole.encode())


def failure_text(directory: Path, stage: str) -> str | None:
    """Return the text for a person's screen; None if the stage left none."""
    file = failure_file(directory, stage)
    return file.read_text(encoding="utf-8").partition(_PLACE)[0].strip() if file.exists() else None
