"""Warm servers, and places to run in on each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.crash.harness", "tests.crash.points")

from tests.crash.harness import Place, Servers, make_place  # noqa: E402
from tests.flows.conftest import prefect_server  # noqa: E402, F401


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    made = Servers(2)
    yield made
    made.close()


@pytest.fixture(scope="session", params=["sqlite"])
def new_url(request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """The URL of a ledger that does not exist yet, for a folder of its own."""
    return lambda folder: f"sqlite:///{folder / 'ledger.sqlite'}"


@pytest.fixture(scope="session")
def new_place(
    new_url: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Place]:
    def make(**settings: object) -> Place:
        root = tmp_path_factory.mktemp("place")
        return make_place(root, url=new_url(root), **settings)  # type: ignore[arg-type]

    return make
