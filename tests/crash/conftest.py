"""Warm servers, and places to run in on each kind of store."""

import os

import pytest

pytest.register_assert_rewrite("tests.crash.harness", "tests.crash.points")

from tests.crash.harness import LineServer, Servers  # noqa: E402
from tests.crash.stores import Ledgers, Places  # noqa: E402
from tests.flows.conftest import prefect_server  # noqa: E402, F401


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ledgers" in metafunc.fixturenames:
        kinds = getattr(metafunc.function, "stores", ("sqlite",))
        metafunc.parametrize("ledgers", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def servers():
    pool = Servers(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def racer():
    server = LineServer("tests.crash.racer")
    server.wait_until_warm()
    yield server
    server.close()


@pytest.fixture(scope="session")
def ledgers(request):
    kind = request.param
    assert kind in ("sqlite", "postgresql")
    server = None if kind == "sqlite" else request.getfixturevalue("postgresql_server")
    return Ledgers(kind, server)


@pytest.fixture(scope="session")
def new_place(ledgers, tmp_path_factory):
    return Places(ledgers, tmp_path_factory)
