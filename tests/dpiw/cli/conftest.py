"""A release is published once for all tests of a file, and without figures."""

import pytest

from tests.support.undrawn import undrawn  # noqa: F401


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "state"
