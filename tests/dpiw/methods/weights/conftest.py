"""Shared schemas, rows and units, as fixtures."""

import pytest

from tests.support import worlds


@pytest.fixture
def unit():
    return worlds.UNIT


@pytest.fixture
def replace_unit():
    return worlds.unit_of(worlds.REPLACE)


@pytest.fixture
def numeric():
    return worlds.numbers


@pytest.fixture
def mixed():
    return worlds.mixed()


@pytest.fixture
def rows():
    return worlds.uniform_rows
