"""The keyring of a population: who may sign its reservations, and who must approve them first.

* A population without keys has no rule of keys. Its first key is a curator's, and needs no
  signature, like its registration. The first approver's key is signed by a curator.
* Further keys of a role are signed by a valid key of that role: a curator cannot make the second
  key, nor an approver the first. A key is added once, with one role, and is valid from then on.
* Any valid key revokes any key, itself too, from a moment on: a later one, or back to an earlier
  one. One key of each role always has no end, so a successor is added first. If all keys of a role
  are lost, nothing more is reserved from the population, for ever: a way around would be a way
  around the second key. Runs that were reserved go on.
* With keys, a reservation, a withdrawal or a recovery (which makes releases count as published) is
  signed by a valid curator's key. With an approver's key, a reserved run was approved: same plan,
  period, release, `max_attempts`, and no lower cost.
* An approval stays valid if its key is revoked later, but not if it is revoked back to the
  approval or before.
* Moments are the entries' labels, never earlier than a label that this ring saw before, so that
  nobody dates an entry back.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dpiw.errors import Command, LedgerConflictError, Next, NotApprovedError, SpecError
from dpiw.ledger.entries import Entry, EntryKind, check_count, check_digest, check_label
from dpiw.release.manifest import MOMENT
from dpiw.release.signing import PublicKey
from dpiw.release.statements import KeyStatement, StatedKey

OF_KEYS = frozenset({EntryKind.KEY, EntryKind.REVOKE, EntryKind.APPROVE})
"""Kinds of entries that change a keyring alone."""

SIGNED = OF_KEYS | {
    EntryKind.RESERVE, EntryKind.WITHDRAW, EntryKind.PUBLISH, EntryKind.RECOVER,
}  # fmt: skip
"""Kinds of entries that a keyring takes into account."""

_SAME = ("plan_digest", "period", "release", "max_attempts")
_MOST = ("epsilon_units", "delta_units")
_LIST = Next("the keys and their validity", Command.LIST_KEYS)


class Role(enum.Enum):
    """What a key may sign: a curator's signs reservations and releases, an approver's approves."""

    CURATOR = "curator"
    APPROVER = "approver"


@dataclass(frozen=True, kw_only=True)
class RingKey:
    """A key of a ring, valid from `since` until `ends` (None: it has no end).

    `public_key`, `added_by`: 64 hexadecimal digits; None: nobody signed the first key.
    """

    public_key: str
    role: Role
    since: str
    added_by: str | None
    ends: str | None = None

    @property
    def key_id(self) -> str:
        """Its id, as certificates state it."""
        return PublicKey.from_hex(self.public_key).key_id

    def valid(self, moment: str) -> bool:
        """Whether its signature counts at a moment since it was added, by what is known now."""
        return self.ends is None or moment < self.ends


class Use(NamedTuple):
    """An approval or a publication that a valid key signed, at this moment of the ring.

    Also a publication before the first key: the key may be added later.
    """

    entry: Entry
    by: str
    moment: str


@dataclass(frozen=True, kw_only=True)
class Keyring:
    """Keys of a population by their digits, and their uses; `moment`: the latest label it saw."""

    population: str
    keys: Mapping[str, RingKey] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    moment: str = ""

    @property
    def needs_approval(self) -> bool:
        """Whether an approver's key was ever added."""
        return any(key.role is Role.APPROVER for key in self.keys.values())

    def at(self, label: str) -> "Keyring":
        """The ring at the moment of an entry with this label; SpecError if it is no moment."""
        return replace(self, moment=max(_moment("at", label), self.moment))

    def after(self, entry: Entry) -> "Keyring":
        """The ring after an entry of its population, of a kind in `SIGNED`.

        Raises NotApprovedError if its keys do not allow the entry, LedgerConflictError or SpecError
        if it is not legal.
        """
        by = None if entry.by is None else entry.by.public_key
        if not self.keys and entry.kind not in OF_KEYS:
            if by is None or entry.kind is not EntryKind.PUBLISH:
                return self
            return replace(self, uses=(*self.uses, Use(entry, by, entry.at)))  # of a key to come
        ring = self.at(entry.at)
        match entry.kind:
            case EntryKind.KEY:
                return ring._added(by, **entry.payload)
            case EntryKind.REVOKE:
                return ring._revoked(by, **entry.payload)
            case EntryKind.APPROVE:
                _check_terms(entry)
                ring.check_signer(by, Role.APPROVER)
            case EntryKind.RESERVE:
                ring.check_reservation(by, entry.run_key, entry.payload)
                return ring
            case EntryKind.WITHDRAW | EntryKind.RECOVER:
                ring.check_signer(by, Role.CURATOR)
                return ring
        key = ring.keys.get(by or "")
        if key is None or not key.valid(ring.moment):  # it publishes what was reserved before
            return ring
        return replace(ring, uses=(*ring.uses, Use(entry, key.public_key, ring.moment)))

    def check_signer(self, by: str | None, *roles: Role) -> None:
        """Raise NotApprovedError unless this key has one of these roles, and is valid now."""
        key = self.keys.get(by or "")
        if key is None or key.role not in roles or not key.valid(self.moment):
            who = " or ".join(role.value for role in roles)
            raise NotApprovedError(
                f"signed by key id {PublicKey.from_hex(by).key_id}" if by else "unsigned",
                field=f"population {self.population}",
                allowed=f"the signature of a key of this population with the role {who}, valid at"
                f" {self.moment}",
                next=[_LIST],
            )

    def _added(self, by: str | None, *, public_key: str, role: str) -> "Keyring":
        check_digest("public_key", public_key)
        if public_key in self.keys:
            raise _conflict(public_key, "was added before; a key is added once, for one role")
        new, known = Role(role), {key.role for key in self.keys.values()}
        if known:
            self.check_signer(by, new if new in known else Role.CURATOR)
        elif new is not Role.CURATOR:
            raise _conflict(public_key, "is an approver's; the first key is a curator's")
        added_by = by if known else None
        key = RingKey(public_key=public_key, role=new, since=self.moment, added_by=added_by)
        return self._with(key)

    def _revoked(self, by: str | None, *, public_key: str, ends: str) -> "Keyring":
        _moment("ends", ends)
        key = self.keys.get(public_key)
        if key is None:
            raise LedgerConflictError("no such key", field=self.population, next=[_LIST])
        self.check_signer(by, *Role)
        if key.ends is not None and key.ends <= ends:
            raise _conflict(public_key, f"was revoked before, from {key.ends} on")
        others = [other for other in self.keys.values() if other is not key]
        if not any(other.role is key.role and other.ends is None for other in others):
            raise _conflict(
                public_key,
                f"is the last {key.role.value}'s key: add its successor first, as nothing could be"
                " reserved from this population again",
            )
        return self._with(replace(key, ends=ends))

    def _with(self, key: RingKey) -> "Keyring":
        return replace(self, keys={**self.keys, key.public_key: key})

    def approval(self, run_key: str | None, payload: Mapping[str, Any]) -> Entry | None:
        """The first approval of a reservation whose key had not ended by then, or None."""
        for entry, by, moment in self.uses:
            terms = entry.payload
            if (
                (entry.kind, entry.run_key) == (EntryKind.APPROVE, run_key)
                and self.keys[by].valid(moment)
                and all(payload.get(name) == terms[name] for name in _SAME)
                and all(payload[name] <= terms[name] for name in _MOST)
            ):
                return entry
        return None

    def check_reservation(
        self, by: str | None, run_key: str | None, payload: Mapping[str, Any]
    ) -> None:
        """Raise NotApprovedError unless this key may reserve this run now.

        `payload`: what the `reserve` entry states. Legal for all where no key was ever added.
        """
        if self.keys:
            self.check_signer(by, Role.CURATOR)
            self.check_approval(run_key, payload)

    def check_approval(self, run_key: str | None, payload: Mapping[str, Any]) -> None:
        """Raise NotApprovedError if an approver's key exists and none approved the reservation."""
        if self.needs_approval and self.approval(run_key, payload) is None:
            raise NotApprovedError(
                "no second key approved this run on these terms, or its key was revoked; nothing"
                " was reserved",
                field=f"run {str(run_key)[:8]}, period {payload['period']}",
                next=[Next("the second key's holder types", Command.APPROVE)],
            )

    def statement(self, key: PublicKey) -> KeyStatement:
        """What a curator's key, valid now, states of the curators' keys for readers of releases.

        Of each key: when it ended, and which manifests were published with it before.
        """
        self.check_signer(key.raw.hex(), Role.CURATOR)
        keys = tuple(
            StatedKey(
                public_key=one.public_key,
                ended=None if one.valid(self.moment) else one.ends,
                signed=self._published_with(one),
            )
            for one in self.keys.values()
            if one.role is Role.CURATOR
        )
        return KeyStatement(population=self.population, at=self.moment, keys=keys)

    def _published_with(self, key: RingKey) -> tuple[str, ...]:
        return tuple(
            entry.payload["manifest_digest"]
            for entry, by, moment in self.uses
            if entry.kind is EntryKind.PUBLISH and by == key.public_key and key.valid(moment)
        )


def _moment(field: str, value: object) -> str:
    if not isinstance(value, str) or not MOMENT.fullmatch(value):
        raise SpecError(field=field, allowed="a moment in UTC, such as 2027-01-31T06:00:00Z")
    return value


def _check_terms(entry: Entry) -> None:
    """Raise SpecError unless an approval states a run's terms, as its reservation will."""
    terms = entry.payload
    if set(terms) != {*_SAME, *_MOST} or any(
        type(terms[name]) is not int or terms[name] < 0 for name in _MOST
    ):
        raise SpecError(field="approve", allowed=f"{', '.join((*_SAME, *_MOST))}, in whole units")
    check_digest("run_key", entry.run_key or "")
    check_digest("plan_digest", terms["plan_digest"])
    check_label("period", terms["period"])
    check_label("release", terms["release"])
    check_count("max_attempts", terms["max_attempts"])


def _conflict(public_key: str, found: str) -> LedgerConflictError:
    key_id = PublicKey.from_hex(public_key).key_id
    return LedgerConflictError(found, field=f"key id {key_id}", next=[_LIST])
