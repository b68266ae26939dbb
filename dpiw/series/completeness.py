"""Which periods of a spec's calendar are published, pending, missing or withdrawn, and why.

From the ledger and the published folders alone: no confidential file is opened.
"""

import enum
from dataclasses import dataclass


class Status(enum.Enum):
    """Status of one period.

    PENDING: not over yet, or a draw is under way. MISSING: over, and not published.
    """

    PUBLISHED = "published"
    PENDING = "pending"
    MISSING = "missing"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, kw_only=True)
class PeriodState:
    """One period of a calendar; public facts only.

    Attributes:
        label: such as `2026-03`.
        why: a plain sentence, or empty.
        release: name of the published folder, or None.
        schema_digest: SHA-256 of a published period's data dictionary, 64 hexadecimal digits.
        schema_changed: whether it differs from that of the last published period before.
    """

    label: str
    status: Status
    why: str = ""
    release: str | None = None
    schema_digest: str | None = None
    schema_changed: bool = False


@dataclass(frozen=True, kw_only=True)
class Series:
    """The calendar of one spec.

    Attributes:
        periods: from the first to the last one, or to the current one if the calendar is open.
        carries: how many further periods the budget carries.
        ends: the first period that it cannot carry; None: it carries all of the calendar.
    """

    name: str
    population: str
    cadence: str
    periods: tuple[PeriodState, ...]
    carries: int
    ends: str | None
