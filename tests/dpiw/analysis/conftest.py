"""One small release, published once, for the tests that need a folder's certificate."""

from __future__ import annotations

import warnings

import pytest

from dpiw.analysis.release import UnreliableWeightsWarning, load_release
from tests.support.undrawn import undrawn  # noqa: F401
from tests.support.whole_runs import publish_run


def publish(place):
    """A published run of a workplace, and its release."""
    run, folder = publish_run(place.spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        return run, load_release(folder)


@pytest.fixture(scope="session")
def kept():
    return {}


@pytest.fixture
def publishing(make_workplace, kept):
    """Publish a release with some settings, once for all tests."""

    def make(**settings):
        key = tuple(sorted(settings.items()))
        if key not in kept:
            kept[key] = publish(make_workplace(**settings))
        return kept[key]

    return make


@pytest.fixture
def published(publishing):
    return publishing()


@pytest.fixture
def released(published):
    return published[1]
