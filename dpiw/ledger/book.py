"""The book: what all entries so far amount to, and whether an entry may come next.

There is one set of rules. `Ledger` asks it before it writes; `verify` replays every stored entry
through it. Those about runs are in `dpiw.ledger.transitions`.
"""

from __future__ import annotations

from bisect import bisect_right

from dpiw.errors import LedgerConflictError, UnknownPopulationError, nearest
from dpiw.ledger.accounts import Account
from dpiw.ledger.charges import Charge
from dpiw.ledger.entries import (
    Entry,
    EntryKind,
    PublishedHead,
    check_fields,
    check_genesis,
    check_name,
)
from dpiw.ledger.location import AS_IN_THE_SPEC, REGISTER
from dpiw.ledger.populations import Population
from dpiw.ledger.recovery import Recovery, recovered, recovery_of
from dpiw.ledger.transitions import RULES
from dpiw.ledger.values import RunRecord


class Book:
    """Populations, runs and held costs after a prefix of the chain. Changed only by `apply`."""

    def __init__(self) -> None:
        self.populations: dict[str, Population] = {}
        self.runs: dict[str, RunRecord] = {}
        self.recoveries: list[Recovery] = []
        self._accounts: dict[str, Account] = {}
        self._drawn: dict[str, list[tuple[int, Charge]]] = {}
        self._places: dict[str, int] = {}

    def account(self, name: str) -> Account:
        """What a population holds against its budget, or UnknownPopulationError."""
        if name not in self._accounts:
            command = REGISTER.format(name=name, ledger="PATH")
            near = nearest(name, self._accounts)
            register = (
                " If these are other people, to register them" if near else "; to register it"
            )
            raise UnknownPopulationError(
                f"no population {name!r} is registered in this ledger{near}{register}, once for"
                f" {'their' if near else 'its'} life: {command}{AS_IN_THE_SPEC}"
            )
        return self._accounts[name]

    def drawn_by(self, name: str, hash: str) -> Charge:
        """What a population's account held after an entry that could never be given back since."""
        history = self._drawn[name]
        before = bisect_right(history, self._places[hash], key=lambda pair: pair[0])
        if before == 0:
            return Account.opened(self.account(name).population).drawn
        return history[before - 1][1]

    def in_chain(self, hash: str) -> bool:
        """Whether the chain has an entry of this hash."""
        return hash in self._places

    def knows(self, head: PublishedHead) -> bool:
        """Whether the chain has this head, or a recovery put this release of it on record."""
        return self.in_chain(head.hash) or any(
            (release.hash, release.manifest_digest) == (head.hash, head.manifest_digest)
            for release in recovered(self.recoveries)
        )

    def recovered_by(self, run_key: str, plan_digest: str, period: str) -> Recovery | None:
        """The recovery that lists this run's release, or None."""
        for recovery in self.recoveries:
            if any(release.is_of(run_key, plan_digest, period) for release in recovery.releases):
                return recovery
        return None

    def runs_of(self, name: str) -> tuple[RunRecord, ...]:
        """All runs of a population, in the order of their first reservation."""
        self.account(name)
        return tuple(run for run in self.runs.values() if run.population == name)

    def check(self, entry: Entry) -> None:
        """Raise unless `entry` may come next; changes nothing.

        Raises:
            BudgetExceededError: the population's budget does not cover it.
            GrantSpentError, LedgerConflictError, UnknownPopulationError, UnsupportedRelationError,
            SpecError: it is not a legal transition.
        """
        _check_entry(entry)
        if entry.kind is EntryKind.GENESIS:
            check_genesis(entry)
        elif entry.kind is EntryKind.REGISTER:
            self._registered(entry)
        elif entry.kind is EntryKind.RECOVER:
            recovery_of(self, entry)
        else:
            RULES[entry.kind](self, entry)

    def apply(self, entry: Entry) -> None:
        """Check `entry` and take it into account."""
        _check_entry(entry)
        if entry.kind is EntryKind.GENESIS:
            check_genesis(entry)
        elif entry.kind is EntryKind.REGISTER:
            population = self._registered(entry)
            self.populations[population.name] = population
            self._accounts[population.name] = Account.opened(population)
            self._drawn[population.name] = []
        elif entry.kind is EntryKind.RECOVER:
            recovery = recovery_of(self, entry)
            self.recoveries.append(recovery)
            account = self.account(recovery.population)
            account = account.plus(recovery.charged, reads=recovery.reads)
            self._keep(account, entry)
        else:
            run = RULES[entry.kind](self, entry)
            account = self.account(run.population).run_changed(self.runs.get(run.run_key), run)
            self.runs[run.run_key] = run
            self._keep(account, entry)
        self._places[entry.hash] = entry.seq

    def _registered(self, entry: Entry) -> Population:
        name = check_name("population.name", entry.population or "")
        if name in self.populations:
            raise LedgerConflictError(f"population {name}: already registered")
        return Population.from_payload(name, entry.payload)

    def _keep(self, account: Account, entry: Entry) -> None:
        name = account.population.name
        if account.drawn != self._accounts[name].drawn:
            self._drawn[name].append((entry.seq, account.drawn))
        self._accounts[name] = account


def _check_entry(entry: Entry) -> None:
    check_fields(entry)
    if not entry.authored():
        raise LedgerConflictError("by: its signature is not one over this entry")
