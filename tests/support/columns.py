"""A column of every kind, with and without missing cells, and uneven laws of their codes."""

import numpy as np

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.discretisation import Domain

_KINDS = {
    "continuous": {"lower": -1.0, "upper": 3.0},
    "rounded": {"kind": "continuous", "lower": 0.0, "upper": 2.0, "decimals": 1},
    "integer": {"lower": 0, "upper": 5},
    "wide": {"kind": "integer", "lower": 0, "upper": 100_000, "cuts": [1, 5000]},
    "date": {"lower": "2020-01-01", "upper": "2020-01-31"},
    "datetime": {"lower": "2020-01-01T00:00:00", "upper": "2021-01-01T00:00:00"},
    "boolean": {},
    "categorical": {"levels": ("low", "middle", "high")},
    "ordinal": {"levels": ("low", "middle", "high", "top")},
    "constant": {"kind": "ordinal", "levels": ("only",)},
}
COLUMNS = tuple(
    Column(
        name=f"{name}_{int(nullable)}",
        nullable=nullable,
        **{"kind": ColumnKind(facts.get("kind", name))}
        | {key: value for key, value in facts.items() if key != "kind"},
    )
    for name, facts in _KINDS.items()
    for nullable in (False, True)
)


def uneven_laws(domain: Domain, seed: int) -> list[np.ndarray]:
    """Of the codes of each released column; of three codes or more the first is empty."""
    rng = np.random.default_rng(seed)
    laws = [rng.exponential(size=size) ** 2 + 0.05 for size in domain.sizes]
    for law in laws:
        law[0] = 0.0 if len(law) > 2 else law[0]
    return laws
