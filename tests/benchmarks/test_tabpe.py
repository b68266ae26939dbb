"""Tab-PE's board: the forest's scores, and the page."""

import numpy as np
import pytest

from tests.benchmarks.scripts import load, rows, schema

tabpe = load("tabpe")


@pytest.mark.slow
def test_a_forest_learns_the_label_from_rows_and_not_from_others(rng):
    held = rows(rng, 300)
    one = tabpe.scores(schema(), rows(rng, 600), np.ones(600), held, 0)
    shuffled = rows(rng, 600)
    shuffled = type(shuffled)(
        columns={**shuffled.columns, "label": rng.permutation(shuffled.columns["label"])}, rows=600
    )
    none = tabpe.scores(schema(), shuffled, np.ones(600), held, 0)
    assert one["accuracy"] > 65 > none["accuracy"]
    assert one["f1"] > none["f1"]


def test_a_page_prints_the_bound_of_real_rows_and_what_was_published():
    cell = {"table": "breast", "runs": 3, "useful": 2, "accuracy": [91.23, 0.5], "f1": [90.0, 0.4]}
    cells = [
        cell | {"method": "real", "use": "confidential"},
        cell | {"method": "aim", "use": "measured, resampled", "accuracy": [85.0, 1.0]},
    ]
    text = "\n".join(tabpe.page({"command": "c", "dpiw": "1", "commit": "a", "cells": cells}))
    assert "| real | confidential | 91.23 ± 0.5 | 90 ± 0.4 | 3 |  |" in text
    assert "| aim | measured, resampled | 85 ± 1 | 90 ± 0.4 | 3 | 2 |" in text
    assert "AIM 89.3" in text
    assert "## adult" not in text
