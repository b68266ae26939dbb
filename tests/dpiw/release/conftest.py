"""A key, and a folder that is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpiw.release.signing import PrivateKey
from tests.dpiw.release.publishing import build
from tests.dpiw.release.release_example import example_key


@pytest.fixture
def key(tmp_path_factory: pytest.TempPathFactory) -> PrivateKey:
    return example_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def built(tmp_path_factory: pytest.TempPathFactory, key: PrivateKey) -> Path:
    return build(tmp_path_factory.mktemp("workspace") / "built", key)
