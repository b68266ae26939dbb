"""The ledger against oracles: sums of exact fractions, and a model of random histories."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from dpiw.audit.auditing import _compare
from dpiw.audit.tally import tally
from dpiw.errors import BudgetExceededError, LedgerError, PrivacyError, WithdrawnError
from dpiw.ledger import Grant, Ledger, RunState
from dpiw.privacy.units import PrivacyCost
from tests.support.ledger import ADD, BOTH, FORGED, OUT, adult, ask, cost, digest, withdrawal

EPSILONS = st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=997)
DELTAS = st.fractions(min_value=0, max_value=Fraction(1, 10**5), max_denominator=10**9)


@settings(
    max_examples=12, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(asked=st.lists(st.tuples(EPSILONS, DELTAS), max_size=10))
@pytest.mark.slow
def test_grants_are_those_of_exact_fractions(ledger, asked):
    """Whatever is granted, the true costs (not their roundings) stay within the true budget."""
    name = f"p{len(ledger.populations())}"  # one ledger, a population for each example
    ledger.register(adult(name=name, epsilon=Decimal("1.1"), delta=Decimal("2e-5")))
    true, rounded = [Fraction(0)] * 2, [Fraction(0)] * 2
    caps = [Fraction(11, 10), Fraction(2, 10**5)]
    for number, pair in enumerate(asked, start=1000 * len(ledger.populations())):
        one = PrivacyCost.of(*[_up(part) for part in pair], relation=ADD)
        if one.epsilon_units == one.delta_units == 0:
            continue
        units = [Fraction(one.epsilon_units, 10**12), Fraction(one.delta_units, 10**18)]
        fits = all(r + u <= cap for r, u, cap in zip(rounded, units, caps, strict=True))
        try:
            ledger.reserve(**ask(population=name, run_key=digest(number), cost=one))
            granted = True
        except BudgetExceededError:
            granted = False
        assert granted == fits
        if granted:
            true = [t + p for t, p in zip(true, pair, strict=True)]
            rounded = [r + u for r, u in zip(rounded, units, strict=True)]
    assert all(t <= r <= cap for t, r, cap in zip(true, rounded, caps, strict=True))
    spent, left = ledger.spent(name), ledger.remaining(name)
    assert Fraction(spent.epsilon_units, 10**12) == rounded[0]
    assert Fraction(spent.delta_units, 10**18) == rounded[1]
    assert Fraction(left.epsilon_units, 10**12) == caps[0] - rounded[0]


def _up(value: Fraction) -> Decimal:
    """At least `value`, within 1e-25."""
    return Decimal(-((-value * 10**25) // 1)) / Decimal(10**25)


class LedgerMachine(RuleBasedStateMachine):
    """Random histories of two runs with two stages against a small, obviously right model."""

    new_url: Callable[[], str]

    @initialize()
    def start(self) -> None:
        self.ledger = Ledger.create(self.new_url())
        self.ledger.register(adult())
        self.budget, self.charged, self.conflicts = 20, {}, 0
        # (run, attempt) -> {stage: state}; voided attempts keep their stages as "voided"
        self.states: dict[tuple[int, int], dict[str, str]] = {}
        self.grants: dict[tuple[int, int, str], Grant] = {}
        self.published: set[int] = set()
        self.withdrawn: set[int] = set()
        self.reserve(run=0, skip=0, tenths=3, only=None)
        self.reserve(run=1, skip=0, tenths=2, only="weights")

    runs = st.integers(0, 1)
    # Mostly a place where the verb is legal, so that histories get somewhere; sometimes any place.
    picks = st.tuples(st.sampled_from([1, 1, 1, 1, 1, 0]), st.integers(0, 11))

    def _pick(self, pick: tuple[int, int], *wanted: str) -> tuple[int, int, str]:
        aim, number = pick
        places = [(run, n, name) for run in (0, 1) for n in (1, 2, 3) for name in sorted(BOTH)]
        fitting = [p for p in places if self.states.get(p[:2], {}).get(p[2]) in wanted]
        chosen = fitting if aim and fitting else places
        return chosen[number % len(chosen)]

    def _now(self, run: int, name: str) -> str | None:
        """State of a stage in its run: that of the latest attempt that was not voided."""
        found = [
            (state[name] != "voided", attempt, state[name])
            for (r, attempt), state in sorted(self.states.items())
            if r == run and name in state
        ]
        return max(found)[2] if found else None

    def _try(self, legal: bool, act: Callable[[], Any]) -> Any:
        if legal:
            return act()
        before = self.ledger.head()
        with pytest.raises((PrivacyError, LedgerError, WithdrawnError)):
            act()
        assert self.ledger.head() == before
        return None

    @rule(
        run=runs,
        skip=st.sampled_from([0, 0, 0, 0, 1]),
        tenths=st.integers(1, 6),
        only=st.sampled_from([None, None, None, *sorted(BOTH)]),
    )
    def reserve(self, run: int, skip: int, tenths: int, only: str | None) -> None:
        last = max((a for r, a in self.states if r == run), default=0)
        attempt = last + 1 + skip
        again = [n for n in sorted(BOTH) if self._now(run, n) in ("lost", "voided")]
        wanted = [only] if only else again or sorted(BOTH)
        first = {n for (r, a), s in self.states.items() if (r, a) == (run, 1) for n in s}
        live = sum(r == run and "voided" not in s.values() for (r, _), s in self.states.items())
        legal = (
            attempt == last + 1
            and live < 2
            and all(
                last == 0 or (n in first and self._now(run, n) in ("lost", "voided"))
                for n in wanted
            )
            and self._held() + tenths <= self.budget
        )
        terms = ask(
            run_key=digest(run), attempt=attempt, cost=cost(str(Decimal(tenths) / 10)),
            stages={n: BOTH[n] for n in wanted}, max_attempts=2,
        )  # fmt: skip
        self._try(legal, lambda: self.ledger.reserve(**terms))
        if legal:
            self.states[run, attempt] = dict.fromkeys(wanted, "reserved")
            self.charged[run, attempt] = tenths

    @rule(pick=picks)
    def arm(self, pick: tuple[int, int]) -> None:
        run, attempt, name = self._pick(pick, "reserved")
        state = self.states.get((run, attempt), {})
        legal = state.get(name) == "reserved"
        grant = self._try(legal, lambda: self.ledger.arm(digest(run), attempt, name))
        if legal:
            state[name] = "armed"
            self.grants[run, attempt, name] = grant

    @rule(pick=picks, found=st.booleans())
    def commit(self, pick: tuple[int, int], found: bool) -> None:
        run, attempt, name = self._pick(pick, "armed", "committed")
        state = self.states.get((run, attempt), {})
        grant = self.grants.get((run, attempt, name), FORGED)
        legal = state.get(name) in ("armed", "committed")
        place = digest(run), attempt, name
        commit_found = lambda: self.ledger.commit_found(*place, OUT)  # noqa: E731
        self._try(legal, commit_found if found else lambda: self.ledger.commit(grant, OUT))
        if legal:
            state[name] = "committed"

    @rule(pick=picks)
    def lose(self, pick: tuple[int, int]) -> None:
        run, attempt, name = self._pick(pick, "armed", "lost")
        state = self.states.get((run, attempt), {})
        legal = state.get(name) in ("armed", "lost")
        self._try(legal, lambda: self.ledger.lose(digest(run), attempt, name))
        if legal:
            state[name] = "lost"

    @rule(pick=picks)
    def void(self, pick: tuple[int, int]) -> None:
        run, attempt, _ = self._pick(pick, "reserved") if pick[1] == 7 else self._pick((0, pick[1]))
        state = self.states.get((run, attempt), {})
        legal = bool(state) and set(state.values()) <= {"reserved"} | {"voided"}
        self._try(legal, lambda: self.ledger.void(digest(run), attempt))
        if legal:
            state.update(dict.fromkeys(state, "voided"))
            self.charged[run, attempt] = 0

    @rule(picks=st.lists(picks, min_size=1, max_size=4), fate=st.sampled_from("cccl"), run=runs)
    def go_on(self, picks: list[tuple[int, int]], fate: str, run: int) -> None:
        """What a run does when left alone: arm, then commit or lose, then publish or retry."""
        for pick in picks:
            self.arm(pick)
            if fate == "c":
                self.commit(pick, found=pick[1] % 2 == 0)
            else:
                self.lose(pick)
                self.reserve(run=run, skip=0, tenths=1, only=None)
        self.publish(run)

    @rule(run=runs)
    def publish(self, run: int) -> None:
        names = {n for (r, a), s in self.states.items() if (r, a) == (run, 1) for n in s}
        legal = bool(names) and all(self._now(run, n) == "committed" for n in names)
        legal = legal and run not in self.withdrawn
        self._try(legal, lambda: self.ledger.publish(digest(run), digest(40 + run)))
        if legal:
            self.published.add(run)

    @rule(run=runs, by=runs)
    def withdraw(self, run: int, by: int) -> None:
        """Of a release on record; again it changes nothing, and what is held never changes."""
        rows_of = None if run == by else digest(40 + by)  # they are no rows of another one
        stated = withdrawal(manifest=digest(40 + run), rows_of=rows_of)
        legal = run in self.withdrawn or (run in self.published and run == by)
        self._try(legal, lambda: self.ledger.withdraw("adult", stated))
        if legal:
            self.withdrawn.add(run)

    @rule()
    def reopen(self) -> None:
        self.ledger = Ledger.open(self.ledger.location)

    def _held(self) -> int:
        return sum(self.charged.values())

    @invariant()
    def the_ledger_agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        book = self.ledger._read(lambda book: book)  # one transaction for all questions
        spent = book.account("adult").spent.epsilon_units
        assert spent == self._held() * 10**11
        assert 0 <= spent <= self.budget * 10**11
        for run in (0, 1):
            record = book.runs.get(digest(run))
            stages = {} if record is None else record.stages
            for name in BOTH:
                found = stages[name].state.value if name in stages else None
                assert found == self._now(run, name)
            state = None if record is None else record.state
            assert (state is RunState.WITHDRAWN) == (run in self.withdrawn)
            assert (state is RunState.PUBLISHED) == (run in self.published - self.withdrawn)

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert self.ledger.verify().ok
        counted = tally(self.ledger.snapshot().export())
        assert counted.findings == []
        assert _compare(self.ledger.snapshot().book, counted) == []
        states = {
            run.run_key: (run.state.value, *(run.attempt_state(n).value for n in run.attempts))
            for run in self.ledger.runs("adult")
        }
        assert states == {
            run.key: (run.state, *(run.attempt_state(n) for n in run.attempts))
            for run in counted.runs_of("adult")
        }


def try_histories(new_url: Callable[[], str], count: int) -> None:
    class Machine(LedgerMachine):
        pass

    Machine.new_url = staticmethod(new_url)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=count, stateful_step_count=30, derandomize=True, database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )  # fmt: skip


@pytest.mark.crash_cases("-40")
@pytest.mark.parametrize("histories", [8, 40])
@pytest.mark.slow
def test_random_histories_agree_with_a_model(store_kind, new_ledger_url, histories, figures):
    """A fault in one history of five is missed by 40 with chance 0.8^40 = 1e-4, by 8 with 0.17."""
    try_histories(lambda: new_ledger_url(store_kind), histories)
    if histories > 8:
        figures("ledger_random_histories", store=store_kind, histories=histories, violations=0)
