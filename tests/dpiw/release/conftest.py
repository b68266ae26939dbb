"""A key, a folder that is built, and the example as it was published, whole and as a copy."""

import shutil
from pathlib import Path

import pytest

from tests.dpiw.release.publishing import build
from tests.dpiw.release.release_example import example_key, publish_example
from tests.support.undrawn import draw_no_figures


@pytest.fixture(scope="module", autouse=True)
def figures_of_reports_alone(request):
    """Drawing them is most of a release's work: the tests of the report see them."""
    with pytest.MonkeyPatch.context() as patch:
        if "report" not in request.path.name:
            draw_no_figures(patch.setattr)
        yield


@pytest.fixture
def key(tmp_path_factory):
    return example_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def built(tmp_path_factory, key):
    return build(tmp_path_factory.mktemp("workspace") / "built", key)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return publish_example(tmp_path_factory.mktemp("published"))


@pytest.fixture
def folder(published, tmp_path):
    """A copy to damage, its curator's keys beside it."""
    for name in ("curator.pub", "curator.key"):
        shutil.copy(published.parent / name, tmp_path)
    return Path(shutil.copytree(published, tmp_path / "release"))
