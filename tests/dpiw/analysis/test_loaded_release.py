"""What a loaded release answers when it is asked for a name that it has not."""

from __future__ import annotations

import copy
import re

import pandas as pd
import pytest


def test_a_property_that_fails_is_told_with_its_own_words(released, monkeypatch):
    def failing(self):
        raise AttributeError("what failed inside")

    monkeypatch.setattr(type(released), "sample", property(failing))
    with pytest.raises(AttributeError, match="what failed inside"):
        _ = released.sample


def test_a_release_says_where_that_lies_which_it_lacks(released):
    """And answers Python's own questions, such as those of `copy`, as before."""
    for name, hint in {
        "linear_regression": "from dpiw import analysis; analysis.linear_regression(release, ...)",
        "verdict": "it is in release.certificate.verdict",
        "epsilon": "it is in release.certificate.epsilon",
        "groupby": "release.table.groupby is of the rows alone, without their weights",
        "medan": "did you mean 'median'?",
        "tabel": "did you mean 'table'?",
    }.items():
        with pytest.raises(AttributeError, match=re.escape(f"release: no '{name}'; {hint}")):
            getattr(released, name)
    with pytest.raises(AttributeError) as caught:
        _ = released.medain
    assert (caught.value.name, caught.value.obj) == ("medain", released)  # Python's suggestion
    assert not hasattr(released, "__deepcopy__")
    pd.testing.assert_frame_equal(copy.copy(released).table, released.table)
