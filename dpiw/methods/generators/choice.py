"""The generator that `method: auto` stands for: a rule on public facts alone.

The rule orders the methods, and a plan takes the first that it admits. The run's key, the ledger
and the certificate name that method, never `auto`: another rule changes no run that was begun.
A table's rows cannot change the choice, so it costs nothing.
"""

from collections.abc import Mapping

from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.generators.pgm.aim import AIM

AUTO = "auto"

METHODS = ("privbayes", "mst", "aim", "histogram")
"""What it may stand for, best first but for `aim` on levels: by the boards of benchmarks/results.

The last one asks least of a table, so its refusal is the one that a curator sees.
"""

MOST_NUMERIC = 0.5
"""Largest share of numeric columns for which `aim` may come first. Its pairs show less of a number
than `privbayes`' families of three columns do; of levels they show more."""

LONGEST_AIM = 120.0
"""Seconds that `aim` may be forecast to take, if it is to come first."""

EFFORT: Mapping[str, float] = {}
"""Weights' share of the effort beside a method, if a spec states no `shares`; others have their
weights' usual one."""


def aim_seconds(schema: PublicSchema, *, nominal_rows: int) -> float:
    """Return `aim`'s forecast, which needs no noise scale. Reads no data."""
    return AIM().running(schema=schema, nominal_rows=nominal_rows, published=1).seconds


def numeric_share(schema: PublicSchema) -> float:
    """Return the share of the released columns that are numeric, in [0, 1]."""
    released = schema.released
    return sum(column.is_numeric for column in released) / len(released)


def preferred(schema: PublicSchema, *, nominal_rows: int) -> tuple[str, ...]:
    """Return all of `METHODS`, best first, by public facts; equal for equal facts."""
    is_fast = aim_seconds(schema, nominal_rows=nominal_rows) <= LONGEST_AIM
    if numeric_share(schema) > MOST_NUMERIC or not is_fast:
        return METHODS
    return "aim", *(method for method in METHODS if method != "aim")


def facts_text(schema: PublicSchema, *, nominal_rows: int) -> str:
    """Return the facts that the rule looks at, for people."""
    seconds = aim_seconds(schema, nominal_rows=nominal_rows)
    return (
        f"{numeric_share(schema):.0%} of {len(schema.released)} columns numeric,"
        f" {nominal_rows} nominal rows, `aim` about {seconds:.0f} s"
    )
