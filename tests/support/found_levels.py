"""A workplace whose table has a column that nobody has a list of levels for."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DICTIONARY = """
name: town
columns:
  - {name: age, kind: integer, lower: 0, upper: 100}
  - {name: trade, kind: categorical, unseen: true, other: rest}
"""


def without_list(place: Any, *, rare: Sequence[str] = ("xylographer",)) -> Any:
    """The workplace with such a table, with rare trades, and a spec that finds the levels."""
    (place.root / "schema.yaml").write_text(DICTIONARY)
    trades = ["smith", "Baker, Jr."] * 190 + [*rare]
    text = io.StringIO()
    rows = [[20 + number % 60, trade] for number, trade in enumerate(trades)]
    csv.writer(text, lineterminator="\n").writerows([["age", "trade"], *rows])
    place.source.write_text(text.getvalue())
    _find(place.spec)
    return place


def _find(spec: Path) -> None:
    """Ask for levels instead of rows of a histogram."""
    text = spec.read_text().replace("{method: histogram, settings: {bins: 4}}", "{method: levels}")
    weights = "weights: {method: beta_debiased, when_infeasible: keep}"
    spec.write_text(text.replace(weights, "weights: {method: none}"))
