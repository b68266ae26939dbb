"""Which rows of a person stay: at most k, at random, and no other person bears on it."""

import numpy as np
import pandas as pd
import pytest

from dpiw.data.source import ingest as person_bound
from dpiw.data.source.ingest import rows_within_unit
from dpiw.errors import SourceError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.dpiw.data.schema_example import TOY, toy_schema
from tests.support.around import around


def kept_rows(ids, most, folder, *, batch=None, schema=TOY):
    """Indices of the rows kept, read in batches."""
    unit = PrivacyUnit(
        relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=most, id_column="id"
    )
    cells, size = pd.Series(ids), batch or max(1, len(ids))
    batches = [cells[start : start + size] for start in range(0, len(ids), size)]
    kept = rows_within_unit(batches, schema.column("id"), unit, directory=folder)
    assert kept.shape == (len(ids),)
    assert [*folder.iterdir()] == []
    return np.flatnonzero(kept)


@pytest.fixture(params=["one range", "ranges"])
def ranges(request, monkeypatch):
    """The same by many ranges of hashes, each read in several chunks."""
    if request.param == "ranges":
        monkeypatch.setattr(person_bound, "RANGE_ROWS", 60)
        monkeypatch.setattr(person_bound, "_CHUNK", 90)


@pytest.mark.usefixtures("ranges")
@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_at_most_k_rows_of_each_person(most, tmp_path):
    rng = np.random.default_rng(3)
    ids = np.concatenate([rng.integers(0, 40, 500), np.full(300, 7)])  # one with very many
    kept = kept_rows(ids, most, tmp_path, batch=110)
    counts = pd.Series(ids[kept]).value_counts()
    assert counts.to_dict() == pd.Series(ids).value_counts().clip(upper=most).to_dict()


def test_which_rows_of_a_person_stay_is_random_and_uniform(tmp_path):
    ids = np.repeat(np.arange(800), 4).astype(str)
    kept = kept_rows([*ids, "alone"], 1, tmp_path, batch=30)
    assert kept[-1] == ids.size  # another person's rows bear on nobody
    assert len(kept) == 801
    # Binomial(800, 1/4): sd 12.2. Five sd: false alarm about 2e-6 for the four together.
    assert np.all(np.abs(np.bincount(kept[:-1] % 4) - 200) < 62)


@pytest.mark.usefixtures("ranges")
def test_rows_without_id_are_persons_of_their_own(tmp_path):
    ids = ["a", None, " ", "a", ""] * 40
    kept = kept_rows(ids, 1, tmp_path, batch=7, schema=toy_schema(own_person=True))
    assert len(kept) == 3 * 40 + 1


def test_the_first_row_without_an_id_is_for_the_custodian(tmp_path):
    with pytest.raises(SourceError, match="an id is missing and") as caught:
        kept_rows(["a"] * 9 + [" ", None], 1, tmp_path, batch=4)
    assert caught.value.place.startswith("row 10 of the data ")


def test_persons_of_one_hash_count_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(
        person_bound, "_keyed", lambda texts, key: np.full(len(texts), 5, dtype=np.uint64)
    )
    assert len(kept_rows(["a", "b", "b", "c"], 2, tmp_path)) == 2


def test_hashes_are_keyed_afresh(tmp_path, monkeypatch):
    seen, keyed = [], lambda keys, *_: seen.append(tuple(keys))
    around(person_bound, "_keyed", after=keyed, replace=monkeypatch.setattr)
    for _ in range(2):
        kept_rows(["a", "b", "a"], 1, tmp_path, batch=2)
    halves = seen[:2], seen[4:6]  # of "a" and "b", by the two keys of each read
    assert [(one[0], two[0]) for one, two in [halves[0]]] == [(seen[2][0], seen[3][0])]
    assert len({number for pair in halves for half in pair for number in half}) == 8
