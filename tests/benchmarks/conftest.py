"""Chance of the benchmarks' tests, and what several of them make up."""

import numpy as np
import pandas as pd
import pytest

from tests.benchmarks.scripts import load


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def banknote(tmp_path):
    """A data folder with made-up rows in place of Banknote."""
    rng, folder = np.random.default_rng(2), tmp_path / "data"
    folder.mkdir()
    names = ["variance", "skewness", "curtosis", "entropy"]
    frame = pd.DataFrame(rng.normal(size=(200, 4)) * 3, columns=names)
    frame["class"] = (frame["variance"] + rng.normal(size=200) > 0).astype(int)
    frame.to_csv(folder / "banknote.csv", index=False)
    return folder


@pytest.fixture
def one_digest(monkeypatch):
    """Records keep the same digest of their code; `test_provenance.py` makes real ones."""
    monkeypatch.setattr(load("provenance"), "files_of", lambda *_: {})


@pytest.fixture
def cells():
    """The script of cells, which keeps nothing of other tests' tables."""
    script = load("weights_cells")
    caches = (script.table, script.split, script.plan_for)
    for cached in caches:
        cached.cache_clear()
    yield script
    for cached in caches:
        cached.cache_clear()
