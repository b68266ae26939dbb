"""Keys that are the same in every run, and chains whose entries they sign."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpiw.ledger import EntryKind
from dpiw.ledger.entries import FORMAT, Author, Entry, LedgerHead, canonical, chained
from dpiw.release.signing import PrivateKey
from tests.support.ledger import BOTH, PLAN, RUN, adult, cost

KEYS = [PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes([n + 1] * 32))) for n in range(5)]
"""Nobody's: their private parts are in this file."""

CURATOR, APPROVER, SECOND, THIRD, STRANGER = KEYS


def public(key: PrivateKey) -> str:
    """A key as entries state it."""
    return key.public.raw.hex()


def day(number: int) -> str:
    """A moment: midnight of a day of January 2027; 0 is New Year."""
    return f"2027-01-{number + 1:02d}T00:00:00Z"


def charged(epsilon: str = "0.5") -> dict[str, int]:
    one = cost(epsilon)
    return {"epsilon_units": one.epsilon_units, "delta_units": one.delta_units}


TERMS: dict[str, Any] = {
    "plan_digest": PLAN, "period": "2027-q1", "release": "town", "max_attempts": 3, **charged(),
}  # fmt: skip
"""What an approval states of `reservation()`."""


def reservation(**changes: Any) -> dict[str, Any]:
    """What a `reserve` entry states."""
    stages = canonical(BOTH, field="stages")
    return {**TERMS, "relation": "add_or_remove_one", "stages": stages} | changes


class Chain:
    """A chain in memory; every entry by an actor, signed where a key is given."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.add(EntryKind.GENESIS, {"format": FORMAT, "nonce": "0" * 64}, population=None)
        self.add(EntryKind.REGISTER, adult().to_payload())

    @property
    def head(self) -> LedgerHead | None:
        return self.entries[-1].head if self.entries else None

    def made(
        self, kind: EntryKind, payload: dict[str, Any], *, by: PrivateKey | None = None,
        on: int = 0, population: str | None = "adult", **fields: Any,
    ) -> Entry:  # fmt: skip
        """The entry that would come next."""
        entry = chained(
            self.head, kind=kind, population=population, payload=payload, at=day(on),
            by=Author(actor="ci@host"), **fields,
        )  # fmt: skip
        return entry if by is None else entry.signed(by)

    def add(self, kind: EntryKind, payload: dict[str, Any], **given: Any) -> Entry:
        self.entries.append(self.made(kind, payload, **given))
        return self.entries[-1]

    def key(self, key: PrivateKey, role: str, **given: Any) -> Entry:
        return self.made(EntryKind.KEY, {"public_key": public(key), "role": role}, **given)

    def revoke(self, key: PrivateKey, since: int, **given: Any) -> Entry:
        return self.made(EntryKind.REVOKE, {"public_key": public(key), "ends": day(since)}, **given)

    def approve(self, run: str = RUN, terms: dict[str, Any] = TERMS, **given: Any) -> Entry:
        return self.made(EntryKind.APPROVE, terms, run_key=run, **given)

    def reserve(self, run: str = RUN, **given: Any) -> Entry:
        stated = reservation(**given.pop("stated", {}))
        return self.made(EntryKind.RESERVE, stated, run_key=run, attempt=1, **given)
