"""Ledgers with one population, `adult`; files that need another one make their own."""

from decimal import Decimal

import pytest

from dpiw.ledger import Ledger
from tests.support.ledger import adult
from tests.support.undrawn import undrawn  # noqa: F401

SMALL = adult(epsilon=Decimal(1), delta=Decimal("1e-6"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.crash)])
def store_kind(request):
    """The rules are the same code on each store: what a store's own SQL does asks `both_stores`."""
    return request.param


@pytest.fixture
def ledger(store_url):
    made = Ledger.create(store_url)
    made.register(adult())
    return made


@pytest.fixture
def sqlite_ledger(tmp_path):
    made = Ledger.create(tmp_path / "ledger.sqlite")
    made.register(adult())
    return made


@pytest.fixture
def postgresql_ledger(new_ledger_url):
    made = Ledger.create(new_ledger_url("postgresql"))
    made.register(SMALL)
    return made


@pytest.fixture
def mortal_ledger(mortal_postgresql_server):
    """On a PostgreSQL server this test may kill."""
    made = Ledger.create(mortal_postgresql_server.new_url())
    made.register(SMALL)
    return made
