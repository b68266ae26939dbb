"""Plain values of the ledger: runs and their stages, grants."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from dpiw.errors import SpecError
from dpiw.ledger.entries import Author, LedgerHead, canonical
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.resumption import Resumption
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A cost, and its Renyi vector in a population registered with `renyi` (else None)."""

    cost: PrivacyCost
    renyi: RenyiVector | None = None

    @classmethod
    def nothing(cls, relation: NeighbouringRelation, *, renyi: bool) -> Charge:
        """Zero, with or without a vector."""
        return cls(
            cost=PrivacyCost(epsilon_units=0, delta_units=0, relation=relation),
            renyi=RenyiVector.nothing() if renyi else None,
        )

    def plus(self, other: Charge, *, times: int = 1) -> Charge:
        """This plus `times` the other (-1: less the other, which must be part of it)."""
        if (self.renyi is None) != (other.renyi is None):
            raise SpecError("vectors are summed with vectors only", field="renyi")
        return self._combined(other, lambda ours, theirs: ours + times * theirs)

    def beyond(self, other: Charge) -> Charge:
        """How much this exceeds the other, part by part; nowhere below zero."""
        return self._combined(other, lambda ours, theirs: max(0, ours - theirs))

    def _combined(self, other: Charge, how: Callable[[int, int], int]) -> Charge:
        cost = self.cost.combined(other.cost, how)
        if self.renyi is None or other.renyi is None:
            return Charge(cost=cost)
        return Charge(cost=cost, renyi=self.renyi.combined(other.renyi, how))

    @property
    def free(self) -> bool:
        """Whether it charges nothing."""
        vector = self.renyi.units if self.renyi is not None else ()
        return not any((self.cost.epsilon_units, self.cost.delta_units, *vector))

    def to_payload(self) -> dict[str, Any]:
        """Return the charge as an entry states it; a basic charge has no `renyi` field."""
        payload: dict[str, Any] = {
            "epsilon_units": self.cost.epsilon_units,
            "delta_units": self.cost.delta_units,
        }
        if self.renyi is not None:
            payload["renyi"] = self.renyi.to_payload()
        return payload

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], relation: NeighbouringRelation) -> Charge:
        """The inverse of `to_payload`. Raises SpecError if not in whole units."""
        epsilon, delta = payload["epsilon_units"], payload["delta_units"]
        if type(epsilon) is not int or type(delta) is not int:
            raise SpecError(field="cost", allowed="whole units")
        vector = payload.get("renyi")
        return cls(
            cost=PrivacyCost(epsilon_units=epsilon, delta_units=delta, relation=relation),
            renyi=None if vector is None else RenyiVector.from_payload(vector),
        )


class StageState(enum.Enum):
    """State of one stage of one attempt; `dpiw.ledger.book` has the transitions."""

    RESERVED = "reserved"
    ARMED = "armed"
    COMMITTED = "committed"
    LOST = "lost"
    VOIDED = "voided"


class RunState(enum.Enum):
    """State of a run.

    RESERVED: nothing armed. ARMED: under way. LOST: a stage must be drawn again, at a new cost.
    COMMITTED: every stage has its output. PUBLISHED: released. WITHDRAWN: published before, and
    never again. VOIDED: given up before any arm.
    """

    RESERVED = "reserved"
    ARMED = "armed"
    LOST = "lost"
    COMMITTED = "committed"
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"
    VOIDED = "voided"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A durable checkpoint of an armed stage: its step, and SHA-256 of its bytes."""

    step: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """One stage of one attempt.

    Attributes:
        events: the privacy events it declares, as canonical JSON objects.
        token_digest, earlier_tokens: SHA-256 of the token that may draw, and of replaced ones.
        output_digest: SHA-256 of its durable output once committed.
        conflicts: digests of other outputs that claimed the same grant; each was charged.
    """

    stage: str
    attempt: int
    state: StageState
    events: tuple[Mapping[str, Any], ...]
    resumption: Resumption | None = None
    token_digest: str | None = None
    earlier_tokens: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    output_digest: str | None = None
    conflicts: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """SHA-256 of every token it was ever drawn under."""
        now = () if self.token_digest is None else (self.token_digest,)
        return (*self.earlier_tokens, *now)

    @property
    def resumes_left(self) -> int:
        """How often it may still be resumed."""
        allowed = 0 if self.resumption is None else self.resumption.resumes
        return allowed - len(self.earlier_tokens)

    @property
    def declared(self) -> tuple[str, ...]:
        """Costs declared, not computed, for rows made elsewhere; usually none."""
        words = [event for event in self.events if event.get("type") == "declared"]
        return tuple(f"epsilon={event['epsilon']}, delta={event['delta']}" for event in words)

    def declares(self, events: Sequence[Mapping[str, Any]]) -> bool:
        """Whether `events`, in the ledger's own form, are what this stage was reserved for."""
        return bool(canonical(list(events), field="events") == [dict(e) for e in self.events])


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """One reservation of a run (`head`), and its outcome; `by` None: by an earlier version."""

    attempt: int
    charge: Charge
    stages: Mapping[str, StageRecord]
    voided: bool
    head: LedgerHead
    at: str
    reads: int = 0
    by: Author | None = None

    @property
    def held(self) -> Charge:
        """What it holds against the budget: nothing if voided; once more for every conflict."""
        times = 0 if self.voided else 1 + sum(len(s.conflicts) for s in self.stages.values())
        return self.charge.plus(self.charge, times=times - 1)

    @property
    def armed(self) -> bool:
        """Whether a stage was ever armed, so that it can no longer be given back."""
        untouched = (StageState.RESERVED, StageState.VOIDED)
        return any(stage.state not in untouched for stage in self.stages.values())

    @property
    def committed(self) -> bool:
        """Whether a draw is committed, which pays for the read before it."""
        return any(stage.output_digest is not None for stage in self.stages.values())

    @property
    def pending_read(self) -> int:
        """1 if a draw may still pay for its last read, else 0."""
        return int(self.reads > 0 and not self.committed and not self.voided)

    @property
    def unpaid_reads(self) -> int:
        """Reads of the table without a later committed draw, and fits that were lost or resumed."""
        stages = self.stages.values()
        died = sum(stage.state is StageState.LOST for stage in stages)
        died += sum(len(stage.earlier_tokens) for stage in stages)
        return died + self.reads - int(self.reads > 0 and self.committed)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run: all its attempts, and the release they ended in.

    Attributes:
        run_key: the idempotency key, 64 hexadecimal digits.
        plan_digest, period, max_attempts: fixed by the first reservation.
        manifest_digest, further: SHA-256 of the published manifest; of those of more rows.
        release: its name; None if only earlier versions of dpiw reserved it.
        withdrawn: why its release was withdrawn (`dpiw.errors.REASONS`); None: it was
            not. The charge stays.
    """

    run_key: str
    population: str
    plan_digest: str
    period: str
    max_attempts: int
    attempts: tuple[AttemptRecord, ...]
    manifest_digest: str | None = None
    published: LedgerHead | None = None
    further: tuple[str, ...] = ()
    release: str | None = None
    withdrawn: str | None = None

    @property
    def release_id(self) -> str | None:
        """The name of the folder that it publishes; None if `release` is."""
        name = f"{self.release}-{self.period}-{self.run_key[:8]}"
        return None if self.release is None else name

    @property
    def stages(self) -> dict[str, StageRecord]:
        """Every stage's latest record; voided attempts count only if there is no other."""
        latest: dict[str, StageRecord] = {}
        for attempt in sorted(self.attempts, key=lambda a: (not a.voided, a.attempt)):
            latest.update(attempt.stages)
        return latest

    @property
    def state(self) -> RunState:
        """The state of the whole run; see `RunState`."""
        if self.withdrawn is not None:
            return RunState.WITHDRAWN
        return RunState.PUBLISHED if self.manifest_digest is not None else _stands(self.stages)

    def attempt_state(self, attempt: AttemptRecord) -> RunState:
        """The state of one attempt by itself; a voided one stays voided."""
        state = _stands(attempt.stages)
        published = state is RunState.COMMITTED and self.manifest_digest is not None
        return self.state if published else state

    @property
    def held(self) -> Charge:
        """What all attempts hold against the population's budget."""
        return reduce(Charge.plus, (attempt.held for attempt in self.attempts))

    def is_rival_of(self, other: RunRecord) -> bool:
        """Whether it is another run of this population, period and release (unnamed: of any)."""
        labels = [(run.population, run.period) for run in (self, other)]
        names = {self.release, other.release}
        same = labels[0] == labels[1] and (len(names) == 1 or None in names)
        return same and self.run_key != other.run_key

    @property
    def drawn(self) -> bool:
        """Whether any stage was ever armed."""
        return any(attempt.armed for attempt in self.attempts)

    @property
    def drawn_charge(self) -> Charge:
        """The irrevocable part: attempts with an armed stage."""
        zero = self.attempts[0].charge.beyond(self.attempts[0].charge)
        armed = (attempt.held for attempt in self.attempts if attempt.armed)
        return reduce(Charge.plus, armed, zero)

    @property
    def unpaid_reads(self) -> int:
        """Reads of the confidential table without a draw; see `dpiw.ledger.accounts`."""
        return sum(attempt.unpaid_reads for attempt in self.attempts)

    @property
    def counted_attempts(self) -> int:
        """Attempts that count against `max_attempts`: those not voided."""
        return sum(not attempt.voided for attempt in self.attempts)


def _stands(stages: Mapping[str, StageRecord]) -> RunState:
    states = {record.state for record in stages.values()}
    if StageState.LOST in states:
        return RunState.LOST
    return RunState(states.pop().value) if len(states) == 1 else RunState.ARMED


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The right, of the one process that armed it, to draw one stage's noise once.

    `token`: 64 random hexadecimal digits; the ledger keeps only their SHA-256.
    """

    population: str
    run_key: str
    attempt: int
    stage: str
    token: str = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the token: the ledger keeps it, a measurement names it (`under`)."""
        return hashlib.sha256(self.token.encode()).hexdigest()
