"""What was charged when, by whom, for which release; and how many more such releases fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpiw.ledger.accounts import MOST_ADMITTED, Account
from dpiw.ledger.book import Book
from dpiw.ledger.entries import Entry
from dpiw.ledger.values import RunRecord
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, PrivacyCost, decimal_text


@dataclass(frozen=True, kw_only=True)
class Spending:
    """One entry that changed what a population holds; `run` None: a recovery.

    `epsilon` and `delta` are the change of the plain sum as exact decimals, negative for a void.
    `spent` is what the population had spent after it, by its own rule of composition.
    """

    entry: Entry
    run: RunRecord | None
    epsilon: str
    delta: str
    spent: PrivacyCost


def spending(entries: Iterable[Entry]) -> tuple[Spending, ...]:
    """Every entry that charged or refunded, in order, from all entries of a sound ledger."""
    book, changes = Book(), []
    for entry in entries:
        name = entry.population
        before = book.account(name).held.cost if name in book.populations else None
        book.apply(entry)
        if name is None or before is None:
            continue
        account = book.account(name)
        after = account.held.cost
        if after != before:
            change = Spending(
                entry=entry,
                run=book.runs.get(entry.run_key or ""),
                epsilon=decimal_text(after.epsilon_units - before.epsilon_units, EPSILON_UNIT),
                delta=decimal_text(after.delta_units - before.delta_units, DELTA_UNIT),
                spent=account.spent,
            )
            changes.append(change)
    return tuple(changes)


def more_such(account: Account, run: RunRecord) -> str:
    """How many releases at the cost of this run's first attempt the budget still allows."""
    return count_text(account.admits(run.attempts[0].charge))


def count_text(count: int) -> str:
    """`no more such release fits`, `1 more such release fits`, `7 more such releases fit`."""
    least = "at least " if count >= MOST_ADMITTED else ""
    return f"{least}{count or 'no'} more such {'releases fit' if count > 1 else 'release fits'}"
