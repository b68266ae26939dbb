"""The keyring of a population: who may sign its reservations, and who must approve them first.

* A population without keys has no rule of keys. Its first key is a curator's, and needs no
  signature, like its registration. The first approver's key is signed by a curator.
* Further keys of a role are signed by a valid key of that role: a curator cannot make the second
  key, nor an approver the first. A key is added once, with one role.
* Any valid key revokes any key, itself too: from a moment in the future, or back to one in the
  past. Never the last key of a role, whose successor is added first. If all keys of a role are lost
  or expire, nothing more is reserved from the population, for ever: a way around would be a way
  around the second key. Runs that were reserved go on.
* With keys, a reservation or a withdrawal is signed by a valid curator's key. With an approver's
  key ever added, a reserved run was approved: same plan, period, release, `max_attempts`, and no
  lower cost.
* An approval stays valid if its key expires or is revoked later, but not if it is revoked back to
  the approval or before.
* Moments are the entries' labels, never earlier than a label that this ring saw before, so that
  nobody dates an entry back.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpiw.errors import Command, LedgerConflictError, Next, NotApprovedError, SpecError
from dpiw.ledger.entries import (
    Entry,
    EntryKind,
    LedgerHead,
    check_count,
    check_digest,
    check_label,
    check_name,
)
from dpiw.release.signing import PublicKey

OF_KEYS = frozenset({EntryKind.KEY, EntryKind.REVOKE, EntryKind.APPROVE})
"""Kinds of entries that change a keyring alone."""

DATED = OF_KEYS | {EntryKind.RESERVE, EntryKind.WITHDRAW}
"""Kinds of entries whose labels move a ring's moment."""

_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_LIST = Next("the keys and their validity", Command.LIST_KEYS)
_APPROVE = Next("the second key's holder types", Command.APPROVE)


class Role(enum.Enum):
    """What a key may sign: a curator's signs reservations and releases, an approver's approves."""

    CURATOR = "curator"
    APPROVER = "approver"


def check_moment(field: str, value: object) -> str:
    """Return `value` if it is a moment as entries state it; else raise SpecError."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise SpecError(field=field, allowed="a moment in UTC, such as 2027-01-31T06:00:00Z")
    return value


@dataclass(frozen=True, kw_only=True)
class RingKey:
    """A key of a ring; `since` <= moment < `ends`. `head`: the entry that added it."""

    public_key: str
    role: Role
    since: str
    until: str | None
    head: LedgerHead
    added_by: str | None = None
    revoked: str | None = None

    @property
    def key_id(self) -> str:
        """Its id, as certificates state it."""
        return PublicKey.from_hex(self.public_key).key_id

    @property
    def ends(self) -> str | None:
        """The first moment at which it is no longer valid; None: it has no end."""
        return min(filter(None, (self.until, self.revoked)), default=None)

    def outlasts(self, moment: str) -> bool:
        """Whether it has not ended by a moment."""
        return self.ends is None or moment < self.ends

    def will_be_valid(self, moment: str) -> bool:
        """Whether it is valid at some moment from this one on."""
        return self.outlasts(max(moment, self.since))

    def valid(self, moment: str) -> bool:
        """Whether its signature counts at a moment, by what the ledger knows now."""
        return self.since <= moment and self.outlasts(moment)


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What a second key agreed to: one run, its terms, and the most that an attempt may cost."""

    run_key: str
    terms: Mapping[str, Any]
    public_key: str
    moment: str
    head: LedgerHead

    @property
    def key_id(self) -> str:
        """The id of the key that approved."""
        return PublicKey.from_hex(self.public_key).key_id

    def covers(self, payload: Mapping[str, Any]) -> bool:
        """Whether it approves this reservation."""
        same = ("plan_digest", "period", "release", "max_attempts")
        most = ("epsilon_units", "delta_units")
        return all(payload.get(name) == self.terms[name] for name in same) and all(
            payload[name] <= self.terms[name] for name in most
        )


def approval_payload(
    *,
    plan_digest: str,
    period: str,
    release: str,
    max_attempts: int,
    epsilon_units: int,
    delta_units: int,
) -> dict[str, Any]:
    """What an `approve` entry states. Raises SpecError if something is malformed."""
    for name, units in (("epsilon_units", epsilon_units), ("delta_units", delta_units)):
        if type(units) is not int or units < 0:
            raise SpecError(field=name, allowed="a whole number >= 0")
    return {
        "plan_digest": check_digest("plan_digest", plan_digest),
        "period": check_label("period", period),
        "release": check_name("release", release),
        "max_attempts": check_count("max_attempts", max_attempts),
        "epsilon_units": epsilon_units,
        "delta_units": delta_units,
    }


@dataclass(frozen=True, kw_only=True)
class Keyring:
    """All keys and approvals of a population; `moment`: the latest label of its entries."""

    population: str
    keys: tuple[RingKey, ...] = ()
    approvals: tuple[Approval, ...] = ()
    moment: str = ""

    @property
    def needs_approval(self) -> bool:
        """Whether an approver's key was ever added."""
        return any(key.role is Role.APPROVER for key in self.keys)

    def key(self, public_key: str | None) -> RingKey | None:
        """The key of these 64 hexadecimal digits, or None."""
        return next((key for key in self.keys if key.public_key == public_key), None)

    def now(self, at: str) -> str:
        """The moment of an entry with this label; SpecError if it is no moment."""
        return max(check_moment("at", at), self.moment)

    def signer(self, public_key: str | None, moment: str) -> RingKey | None:
        """The key, if it is valid at a moment."""
        key = self.key(public_key)
        return key if key is not None and key.valid(moment) else None

    def after(self, entry: Entry) -> "Keyring":
        """The ring after an entry that adds or revokes a key, approves, or changes no key.

        Raises NotApprovedError if no valid key signed it, LedgerConflictError or SpecError.
        """
        ring = replace(self, moment=self.now(entry.at))
        match entry.kind:
            case EntryKind.KEY:
                return ring._added(entry)
            case EntryKind.REVOKE:
                return ring._revoked(entry)
            case EntryKind.APPROVE:
                return ring._approved(entry)
            case _:
                return ring

    def _signed(self, entry: Entry, *roles: Role) -> RingKey:
        author = None if entry.by is None else entry.by.public_key
        signer = self.signer(author, self.moment)
        if signer is None or signer.role not in roles:
            raise self._refused(f"a {' or '.join(role.value for role in roles)}", author)
        return signer

    def _refused(self, who: str, author: str | None) -> NotApprovedError:
        by = "unsigned"
        if author is not None:
            by = f"signed by key id {PublicKey.from_hex(author).key_id}"
        return NotApprovedError(
            by,
            field=f"population {self.population}",
            allowed=f"the signature of {who}'s key of this population, valid at {self.moment}",
            next=[_LIST],
        )

    def _added(self, entry: Entry) -> "Keyring":
        payload, until = entry.payload, entry.payload["until"]
        key = RingKey(
            public_key=check_digest("public_key", payload["public_key"]),
            role=Role(payload["role"]),
            since=check_moment("from", payload["from"]),
            until=None if until is None else check_moment("until", until),
            head=entry.head,
            added_by=None if entry.by is None else entry.by.key_id,
        )
        if self.key(key.public_key) is not None:
            raise self._conflict(key, "was added before; a key is added once, for one role")
        if until is not None and until <= max(key.since, self.moment):
            raise SpecError(field="until", allowed=f"later than {max(key.since, self.moment)}")
        if any(other.role is key.role for other in self.keys):
            self._signed(entry, key.role)
        elif self.keys:
            self._signed(entry, Role.CURATOR)
        elif key.role is not Role.CURATOR:
            raise self._conflict(key, "is an approver's; the first key is a curator's")
        return replace(self, keys=(*self.keys, key))

    def _revoked(self, entry: Entry) -> "Keyring":
        key = self.key(entry.payload["public_key"])
        moment = check_moment("from", entry.payload["from"])
        if key is None:
            raise LedgerConflictError("no such key", field=self.population, next=[_LIST])
        self._signed(entry, *Role)
        if key.revoked is not None and moment >= key.revoked:
            raise self._conflict(key, f"was revoked before, from {key.revoked} on")
        end = max(moment, self.moment)
        remain = [k for k in self.keys if k.role is key.role and k.will_be_valid(end)]
        if remain == [key]:
            raise self._conflict(
                key,
                f"is the last {key.role.value}'s key: add its successor first, as nothing could be"
                " reserved from this population again",
            )
        keys = (replace(k, revoked=moment) if k is key else k for k in self.keys)
        return replace(self, keys=tuple(keys))

    def _approved(self, entry: Entry) -> "Keyring":
        signer = self._signed(entry, Role.APPROVER)
        approval = Approval(
            run_key=check_digest("run_key", entry.run_key or ""),
            terms=approval_payload(**entry.payload),
            public_key=signer.public_key,
            moment=self.moment,
            head=entry.head,
        )
        return replace(self, approvals=(*self.approvals, approval))

    def _conflict(self, key: RingKey, found: str) -> LedgerConflictError:
        return LedgerConflictError(found, field=f"key id {key.key_id}", next=[_LIST])

    def approval(self, run_key: str | None, payload: Mapping[str, Any]) -> Approval | None:
        """The first approval of a reservation whose key had not ended by then, or None."""
        for approval in self.approvals:
            key = self.key(approval.public_key)
            counts = key is not None and key.outlasts(approval.moment)
            if approval.run_key == run_key and counts and approval.covers(payload):
                return approval
        return None

    def check_reservation(
        self, run_key: str | None, payload: Mapping[str, Any], *, public_key: str | None, at: str
    ) -> None:
        """Raise NotApprovedError unless this key may reserve this run now.

        `payload`: what the `reserve` entry states. Legal for all where no key was ever added.
        """
        self.check_curator(public_key, at=at)
        self.check_approval(run_key, payload)

    def check_curator(self, public_key: str | None, *, at: str) -> None:
        """Raise NotApprovedError unless a curator's valid key signs, where there are keys."""
        if not self.keys:
            return
        ring = replace(self, moment=self.now(at))
        signer = ring.signer(public_key, ring.moment)
        if signer is None or signer.role is not Role.CURATOR:
            raise ring._refused("a curator", public_key)

    def check_approval(self, run_key: str | None, payload: Mapping[str, Any]) -> None:
        """Raise NotApprovedError if an approver's key exists and none approved the reservation."""
        if self.needs_approval and self.approval(run_key, payload) is None:
            of_run = [a for a in self.approvals if a.run_key == run_key]
            found = "no second key approved this run" + (
                ": an approval states other terms, or its key was revoked" if of_run else ""
            )
            raise NotApprovedError(
                f"{found}; nothing was reserved",
                field=f"run {str(run_key)[:8]}, period {payload['period']}",
                next=[_APPROVE],
            )
