"""One small release, published once, for the tests that need a folder's certificate."""

import functools
import io
import shutil
import subprocess
import types

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.schema import PublicSchema
from tests.support.undrawn import undrawn  # noqa: F401
from tests.support.whole_runs import loaded, publish_run


def publish(place):
    """A published run of a workplace, and its release."""
    run, folder = publish_run(place.spec)
    return run, loaded(folder)


def release_of(table, *columns, weights=None):
    """What `export` takes of a release: a table of these columns."""
    weights = np.ones(len(table)) if weights is None else weights
    return types.SimpleNamespace(
        table=table, weights=weights, replicate_weights=None, columns=columns,
        schema=PublicSchema(name="own", columns=columns).to_mapping(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def publishing(make_workplace):
    """Publish a release with some settings, once for all tests."""
    return functools.cache(lambda **settings: publish(make_workplace(**settings)))


@pytest.fixture
def published(publishing):
    return publishing()


@pytest.fixture
def released(published):
    return published[1]


@pytest.fixture(scope="session")
def survey():
    """Run a script that needs R and its package survey; without them a test is skipped."""
    asked = ["Rscript", "-e", "quit(status = !requireNamespace('survey', quietly = TRUE))"]
    if shutil.which("Rscript") is None or subprocess.run(asked, capture_output=True).returncode:
        pytest.skip("needs R with its package survey")

    def run(script, *words):
        command = ["Rscript", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return pd.read_csv(io.StringIO(done.stdout), index_col="name")

    return run
