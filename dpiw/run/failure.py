"""What a confidential stage that failed leaves in its run's folder: for a screen, and beyond."""

from __future__ import annotations

from pathlib import Path

from dpiw.data.files import write_durably

_PLACE = "\nfor the custodian alone: "
"""Before the row or line of a `SourceError`, at the end of its file: no screen shows it."""


def failure_file(directory: Path, stage: str) -> Path:
    """Where a stage leaves the text of a speaking error, and its place for the custodian alone."""
    return directory / "log" / f"{stage}.error"


def leave_failure(directory: Path, stage: str, text: str, *, place: str) -> None:
    """Write it. OSError as of any file.

    Args:
        directory: the run's folder.
        stage: that failed.
        text: names and ranges alone, for a person's screen.
        place: the row or line, for the custodian alone; empty where there is none.
    """
    whole = f"{text}{place and _PLACE + place}\n"
    write_durably(failure_file(directory, stage), whole.encode())


def failure_text(directory: Path, stage: str) -> str | None:
    """What a stage left for a person's screen; None where it left nothing."""
    file = failure_file(directory, stage)
    return file.read_text(encoding="utf-8").partition(_PLACE)[0].strip() if file.exists() else None


__all__ = ["failure_file", "failure_text", "leave_failure"]
