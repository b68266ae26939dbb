"""Temporary files lie in memory only where there is room, and where they may be run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.memory_disk import memory_disk

GIB = 1 << 30


@pytest.mark.parametrize(
    ("flags", "free", "memory", "chosen"),
    [
        (0, 4, 8, True), (os.ST_NOSUID, 64, 64, True),
        (os.ST_NOEXEC, 64, 64, False), (0, 3, 64, False), (0, 64, 7, False),
    ],
)  # fmt: skip
def test_it_is_chosen_where_nothing_can_go_wrong(
    flags: int, free: int, memory: int, chosen: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    status = SimpleNamespace(f_flag=flags, f_bavail=free * GIB // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=memory * GIB))
    assert memory_disk(tmp_path) == (tmp_path if chosen else None)


def test_a_machine_without_one_has_none(tmp_path: Path) -> None:
    assert memory_disk(tmp_path / "none") is None
