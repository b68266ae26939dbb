"""What `dpiw ledger show` tells of every charge: as JSON values, and as CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text

if TYPE_CHECKING:
    from dpiw.ledger import RunRecord
    from dpiw.ledger.history import Spending

CSV_FIELDS = (
    "population", "release", "period", "run_key", "attempt", "seq", "kind", "at", "actor", "key_id",
    "epsilon", "delta", "spent_epsilon", "spent_delta", "budget", "state", "relation", "max_rows",
    "id_column", "composition", "mechanisms",
)  # fmt: skip
"""Columns of `--csv`: `epsilon` and `delta` are what the entry changed, `spent_*` the sum."""

_TERMS = ("budget", "relation", "max_rows", "id_column", "composition")


def charge_facts(one: Spending, run: RunRecord | None) -> dict[str, Any]:
    """One charge as JSON values.

    Args:
        one: the charge.
        run: its run as it stands now, with its attempts' states and stages; None: a recovery.
    """
    from dpiw.privacy.event_records import events_text

    entry, by = one.entry, one.entry.by
    attempts = () if run is None else run.attempts
    charged = [attempt for attempt in attempts if attempt.attempt == entry.attempt]
    stages = {name: stage for attempt in charged for name, stage in attempt.stages.items()}
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind.value,
        "release": None if one.run is None else one.run.release,
        "period": None if one.run is None else one.run.period,
        "run_key": entry.run_key,
        "attempt": entry.attempt,
        "state": None if run is None or not charged else run.attempt_state(charged[0]).value,
        "epsilon": one.epsilon,
        "delta": one.delta,
        "mechanisms": "; ".join(f"{name}: {events_text(s.events)}" for name, s in stages.items()),
        "spent": str(one.spent),
        "spent_epsilon": decimal_text(one.spent.epsilon_units, EPSILON_UNIT),
        "spent_delta": decimal_text(one.spent.delta_units, DELTA_UNIT),
        "actor": None if by is None else by.actor,
        "key_id": None if by is None else by.key_id,
    }


def charge_lines(facts: dict[str, Any]) -> list[str]:
    """Every charge as a line of CSV, with its population's terms, below a line of names."""
    written = io.StringIO()
    table = csv.DictWriter(written, CSV_FIELDS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for population in facts["populations"]:
        terms = {"population": population["name"]} | {name: population[name] for name in _TERMS}
        table.writerows(terms | charge for charge in population["spending"])
    return written.getvalue().splitlines()
