"""Read, validate, bound and scale the confidential table, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from dpiw.run.launch import launch_stage
from tasks.step import step


@step(
    "ingest",
    done="the table was copied, checked and scaled, in a process of its own; nothing left it",
)
def ingest(directory: Path) -> Path:
    """Leave the scaled snapshot in the confidential workspace."""
    launch_stage("ingest", directory)
    return directory
