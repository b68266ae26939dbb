"""Keys, revocations and approvals of a population, by the audit's own rules and sums.

It shares no code with `dpiw.ledger.keyring`, on purpose. Texts of faults become findings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dpiw.audit.entry_signatures import Fields, signed_by
from dpiw.release.signing import PublicKey

_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{64}")
_AGREED = {
    "plan_digest", "period", "release", "max_attempts", "epsilon_units", "delta_units",
}  # fmt: skip


@dataclass(kw_only=True)
class Validity:
    """The role of a key, and when it ends: as stated (`until`), and by revocation (`cut`)."""

    role: str
    since: str
    until: str | None
    cut: str | None = None

    def ended(self, moment: str) -> bool:
        """Whether it had ended by a moment."""
        return any(end is not None and end <= moment for end in (self.until, self.cut))


@dataclass(frozen=True, kw_only=True)
class Use:
    """A signature that counted: which entry, by which key, when."""

    seq: int
    kind: str
    by: str
    moment: str


@dataclass(kw_only=True)
class Ring:
    """What a population's entries amount to; `clock`: the latest label of its entries with keys."""

    keys: dict[str, Validity] = field(default_factory=dict)
    agreed: list[tuple[Use, str, Fields]] = field(default_factory=list)
    published: dict[str, str | None] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    clock: str = ""

    def take(self, entry: Fields) -> str:
        """Count an entry of keys, or one that publishes or withdraws; return its fault, or none."""
        if entry["kind"] == "publish":
            return self._publish(entry)
        if entry["kind"] == "withdraw":
            return (self._tick(entry) or self._lacks(entry, "curator")) if self.keys else ""
        rule = {"key": self._key, "revoke": self._revoke, "approve": self._approve}
        return self._tick(entry) or rule[entry["kind"]](entry)

    def reserve(self, entry: Fields) -> tuple[str, str]:
        """The code and text of what is wrong with a reservation; the code is empty if nothing is.

        It is counted in any case: it charges.
        """
        if not self.keys:
            return "", ""
        if fault := self._tick(entry) or self._lacks(entry, "curator"):
            return "key_not_valid", fault
        if any(key.role == "approver" for key in self.keys.values()):
            asked = entry["payload"]
            if not any(self._allows(*one, entry["run_key"], asked) for one in self.agreed):
                return "not_approved", "no second key, valid then, approved this run and its terms"
        return "", ""

    def _allows(self, use: Use, run: str, terms: Fields, key: str, asked: Fields) -> bool:
        if run != key or self.keys[use.by].ended(use.moment):
            return False
        for name, value in terms.items():
            mine = asked.get(name)
            if mine > value if name.endswith("_units") else mine != value:
                return False
        return True

    def _tick(self, entry: Fields) -> str:
        if not _AT.fullmatch(entry["at"]):
            return "its time is no moment in UTC, so nothing shows whether its key was valid"
        self.clock = max(self.clock, entry["at"])
        return ""

    def _lacks(self, entry: Fields, *roles: str) -> str:
        """Note who signed; the fault, if it was no key of these roles that was valid then."""
        author = signed_by(entry)
        by = "" if author is None or author.public_key is None else author.public_key
        key, moment = self.keys.get(by), max(self.clock, entry["at"])
        if key is None or key.role not in roles or key.since > moment or key.ended(moment):
            who = f"key id {PublicKey.from_hex(by).key_id}" if by else "nobody"
            return f"{entry['kind']}: signed by {who}, no {' or '.join(roles)} valid then"
        self.uses.append(Use(seq=entry["seq"], kind=entry["kind"], by=by, moment=moment))
        return ""

    def _key(self, entry: Fields) -> str:
        stated = entry["payload"]
        name, role = stated["public_key"], stated["role"]
        since, until = stated["from"], stated["until"]
        texts = [since] if until is None else [since, until]
        if not (_KEY.fullmatch(name) and all(_AT.fullmatch(text) for text in texts)):
            return "its key or its moments are none that dpiw writes"
        if role not in ("curator", "approver") or name in self.keys:
            return "its role is unknown, or its key was added before"
        if until is not None and not max(since, self.clock) < until:
            return "it adds a key whose validity has ended"
        roles = {key.role for key in self.keys.values()}
        if not roles and role != "curator":
            return "the first key is no curator's"
        fault = self._lacks(entry, role if role in roles else "curator") if roles else ""
        if not fault:
            self.keys[name] = Validity(role=role, since=since, until=until)
        return fault

    def _revoke(self, entry: Fields) -> str:
        name, start = entry["payload"]["public_key"], entry["payload"]["from"]
        key = self.keys.get(name)
        if key is None or not _AT.fullmatch(start):
            return "it revokes no key of this population, or from no moment"
        if fault := self._lacks(entry, "curator", "approver"):
            return fault
        end = start if start > self.clock else self.clock
        peers = [k for n, k in self.keys.items() if n != name and k.role == key.role]
        alone = all(peer.ended(max(end, peer.since)) for peer in peers)
        if alone and not key.ended(max(end, key.since)):
            self.uses.pop()
            return f"it revokes the last {key.role}'s key"
        if key.cut is not None and key.cut <= start:
            self.uses.pop()
            return "it revokes a key that was revoked from an earlier moment"
        key.cut = start
        return ""

    def _approve(self, entry: Fields) -> str:
        terms, run = entry["payload"], entry["run_key"]
        agreed = {name: value for name, value in terms.items() if name != "by"}
        texts = [agreed.get(name) for name in ("plan_digest", "period", "release")]
        if set(agreed) != _AGREED or not all(isinstance(text, str) for text in texts):
            return "it does not state the terms of a run"
        numbers = [agreed[name] for name in ("max_attempts", "epsilon_units", "delta_units")]
        if any(type(number) is not int or number < 0 for number in numbers) or numbers[0] < 1:
            return "its terms are in no whole numbers"
        if not (_KEY.fullmatch(run) and _KEY.fullmatch(agreed["plan_digest"])):
            return "it names no run, or no plan"
        if fault := self._lacks(entry, "approver"):
            return fault
        self.agreed.append((self.uses[-1], run, agreed))
        return ""

    def _publish(self, entry: Fields) -> str:
        author = signed_by(entry)
        self.published[entry["payload"]["manifest_digest"]] = (
            None if author is None else author.key_id
        )
        return self._lacks(entry, "curator") if self.keys else ""

    def suspects(self) -> Iterator[tuple[str, str]]:
        """Entries signed at or after a moment to which their key was revoked later."""
        for use in self.uses:
            cut = self.keys[use.by].cut
            if cut is not None and cut <= use.moment:
                name = PublicKey.from_hex(use.by).key_id
                text = f"{use.kind}: by key id {name} at {use.moment}; it is revoked from {cut} on"
                yield f"entry {use.seq}", text
