"""Keys, revocations and approvals of a population, by the audit's own rules and sums.

It shares no code with `dpiw.ledger.keyring`, on purpose. Texts of faults become findings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dpiw.audit.entry_signatures import Fields, signed_by
from dpiw.release.signing import PublicKey

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{64}")
_TEXTS = ("plan_digest", "period", "release")
_NUMBERS = ("max_attempts", "epsilon_units", "delta_units")


@dataclass(frozen=True, kw_only=True)
class Use:
    """A signature that counted: the entry, the digits of its key, and the moment."""

    entry: Fields
    by: str
    moment: str


@dataclass(kw_only=True)
class Ring:
    """Roles of a population's keys, and the ends of revoked ones; `clock`: the latest label.

    `published`: by manifest digests, the id of the key that signed the entry.
    """

    roles: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    published: dict[str, str | None] = field(default_factory=dict)
    clock: str = ""

    def take(self, entry: Fields) -> str:
        """Count an entry that needs a signature; return what is wrong with it, or nothing."""
        kind, stated = entry["kind"], entry["payload"]
        author = signed_by(entry)
        if kind == "publish":
            self.published[stated["manifest_digest"]] = None if author is None else author.key_id
        if not self.roles and kind not in ("key", "revoke", "approve"):
            return ""
        if not MOMENT.fullmatch(entry["at"]):
            return "its time is no moment in UTC, so nothing shows whether its key was valid"
        self.clock = max(self.clock, entry["at"])
        by = "" if author is None or author.public_key is None else author.public_key
        if fault := self._content(entry) or self._signature(kind, by, self._signers(kind, stated)):
            return fault
        self.uses.append(Use(entry=entry, by=by, moment=self.clock))
        if kind == "key":
            self.roles[stated["public_key"]] = stated["role"]
        if kind == "revoke":
            self.ends[stated["public_key"]] = stated["ends"]
        return ""

    def _signers(self, kind: str, stated: Fields) -> set[str]:
        """Roles that may sign such an entry; none: nobody needs to."""
        known = set(self.roles.values())
        if kind == "key":
            return known & {stated["role"]} or known & {"curator"}
        return {"revoke": {"curator", "approver"}, "approve": {"approver"}}.get(kind, {"curator"})

    def _signature(self, kind: str, by: str, roles: set[str]) -> str:
        if not roles or (self.roles.get(by) in roles and self._valid(by, self.clock)):
            return ""
        who = f"key id {PublicKey.from_hex(by).key_id}" if by else "nobody"
        return f"{kind}: signed by {who}, no {' or '.join(sorted(roles))} valid then"

    def _valid(self, key: str, moment: str) -> bool:
        return key not in self.ends or moment < self.ends[key]

    def _content(self, entry: Fields) -> str:
        stated = {name: value for name, value in entry["payload"].items() if name != "by"}
        match entry["kind"]:
            case "key":
                return self._of_key(**stated)
            case "revoke":
                return self._of_revocation(**stated)
            case "approve":
                return _of_approval(entry["run_key"], stated)
        return ""

    def _of_key(self, public_key: str, role: str) -> str:
        if not _KEY.fullmatch(public_key) or role not in ("curator", "approver"):
            return "its key or its role is none that dpiw writes"
        if public_key in self.roles:
            return "its key was added before"
        return "" if self.roles or role == "curator" else "the first key is no curator's"

    def _of_revocation(self, public_key: str, ends: str) -> str:
        role = self.roles.get(public_key)
        if role is None or not MOMENT.fullmatch(ends):
            return "it revokes no key of this population, or from no moment"
        if not self._valid(public_key, ends):
            return "it revokes a key that was revoked from an earlier moment"
        lasting = [key for key, its in self.roles.items() if its == role and key not in self.ends]
        return f"it revokes the last {role}'s key" if set(lasting) <= {public_key} else ""

    def approved(self, entry: Fields) -> bool:
        """Whether a reservation needs no second key, or one, valid then, approved its terms."""
        if "approver" not in self.roles.values():
            return True
        return any(
            use.entry["kind"] == "approve"
            and use.entry["run_key"] == entry["run_key"]
            and self._valid(use.by, use.moment)
            and _within(entry["payload"], use.entry["payload"])
            for use in self.uses
        )

    def suspects(self) -> Iterator[tuple[str, str]]:
        """Entries signed at or after a moment to which their key was revoked later."""
        for use in self.uses:
            if use.by in self.roles and not self._valid(use.by, use.moment):
                name, cut = PublicKey.from_hex(use.by).key_id, self.ends[use.by]
                text = f"by key id {name} at {use.moment}; it is revoked from {cut} on"
                yield f"entry {use.entry['seq']}", f"{use.entry['kind']}: {text}"


def _of_approval(run: str, stated: Fields) -> str:
    if set(stated) != {*_TEXTS, *_NUMBERS} or not all(isinstance(stated[n], str) for n in _TEXTS):
        return "it does not state the terms of a run"
    if any(type(stated[n]) is not int or stated[n] < (n == "max_attempts") for n in _NUMBERS):
        return "its terms are in no whole numbers"
    named = _KEY.fullmatch(run) and _KEY.fullmatch(stated["plan_digest"])
    return "" if named else "it names no run, or no plan"


def _within(asked: Fields, agreed: Fields) -> bool:
    same = all(asked.get(name) == agreed[name] for name in (*_TEXTS, "max_attempts"))
    return same and all(asked[name] <= agreed[name] for name in ("epsilon_units", "delta_units"))
