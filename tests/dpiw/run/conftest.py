"""The steps of a run, which publish often: without the figures of their reports."""

import os
from pathlib import Path

import pytest

from tests.support.around import around
from tests.support.undrawn import undrawn  # noqa: F401


@pytest.fixture
def synced(monkeypatch):
    """What is made durable from now on, in order."""
    paths = []

    def watched(descriptor):
        paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    around(os, "fsync", before=watched, replace=monkeypatch.setattr)
    return paths


@pytest.fixture
def open_umask():
    """Whatever is closed under this umask is closed by its own mode."""
    before = os.umask(0)
    yield
    os.umask(before)
