"""Who signed the entries of a ledger, compared with the given keys."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpiw.audit.findings import Finding
from dpiw.ledger.entries import Author
from dpiw.release.signing import PublicKey, not_by

_MOST_TOLD = 6

Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class EntrySigners:
    """Signatures of the entries, by entry numbers and ids of keys.

    `missing`: unsigned entries after a signed one of their kind.
    """

    given: tuple[str, ...]
    signed: dict[str, tuple[int, ...]]
    unsigned: tuple[int, ...]
    forged: tuple[int, ...]
    missing: tuple[int, ...]
    published: bool

    @property
    def statement(self) -> str:
        """Counts of entries signed by the given keys, by others, and unsigned."""
        rest = f"{len(self.unsigned)} unsigned"
        if self.forged:
            rest += f", {len(self.forged)} with a signature that does not hold"
        if not self.given:
            texts = [f"{n} signed by key id {key}" for key, n in self.counts(self.signed).items()]
            return ", ".join([*(texts or ["0 signed"]), rest])
        counts = self.counts(self.given)
        others = sum(self.counts(self.unlike(self.given)).values())
        return f"{sum(counts.values())} signed by {given_keys(counts)}, {others} by others, {rest}"

    def counts(self, keys: Iterable[str]) -> dict[str, int]:
        """How many entries each of these keys signed, by its id."""
        return {key: len(self.signed.get(key, ())) for key in keys}

    def unlike(self, known: Collection[str]) -> dict[str, tuple[int, ...]]:
        """The entries signed by unknown keys, by their ids."""
        return {key: entries for key, entries in self.signed.items() if key not in known}

    def findings(self) -> list[Finding]:
        """Findings on other keys, missing or invalid signatures, and an unsigned history."""
        others = self.unlike(self.given) if self.given else {}
        rest = f"{not_by(self.given)} {', '.join(self.given)}"
        findings = [
            Finding("entry_other_key", listed_entries(entries), f"signed by key id {key}, {rest}")
            for key, entries in others.items()
        ]
        if self.forged:
            text = "the signature does not match the entry's content"
            findings.append(Finding("entry_forged", listed_entries(self.forged), text))
        if self.published and self.given and not self.signed.keys() & set(self.given):
            keys = "the given key" if len(self.given) == 1 else "a given key"
            text = f"none is signed by {keys}, so nothing shows who wrote this ledger"
            findings.append(Finding("entries_not_signed", "entries", text))
        if self.missing:
            text = "no signature, though an earlier entry of the same kind has one"
            findings.append(Finding("entry_unsigned", listed_entries(self.missing), text))
        return findings


def given_keys(counts: Mapping[str, int], what: str = "key") -> str:
    """`the given key`; if there are several, also how many items each signed, by its id."""
    if len(counts) == 1:
        return f"the given {what}"
    text = ", ".join(f"key id {key}: {count}" for key, count in counts.items())
    return f"one of the given {what}s ({text})"


def entry_signers(exported: Sequence[Fields], keys: Sequence[PublicKey]) -> EntrySigners:
    """Sort exported entries by signer; an invalid signature has none.

    Confidential stages sign nothing, so only kinds that were signed before can be missing.
    """
    signed: dict[str, list[int]] = {}
    unsigned, forged, missing, kinds = [], [], [], set()
    for entry in exported:
        signer = signed_by(entry)
        if signer is not None and signer.key_id is not None:
            signed.setdefault(signer.key_id, []).append(entry["seq"])
            kinds.add(entry["kind"])
            continue
        by = entry["payload"].get("by")
        if isinstance(by, Mapping) and by.get("signature") is not None:
            forged.append(entry["seq"])
            continue
        unsigned.append(entry["seq"])
        if entry["kind"] in kinds:
            missing.append(entry["seq"])
    return EntrySigners(
        given=tuple(dict.fromkeys(key.key_id for key in keys)),
        signed={key_id: tuple(entries) for key_id, entries in signed.items()},
        unsigned=tuple(unsigned),
        forged=tuple(forged),
        missing=tuple(missing),
        published=any(entry["kind"] == "publish" for entry in exported),
    )


def signed_by(entry: Fields) -> Author | None:
    """The author of an exported entry if the signature is valid; else None."""
    by = entry["payload"].get("by")
    author = None if by is None else Author.from_json(by)
    if author is None or author.public_key is None:
        return None
    fields = {name: value for name, value in entry.items() if name != "hash"}
    unsigned_by = {name: value for name, value in by.items() if name != "signature"}
    fields["payload"] = {**entry["payload"], "by": unsigned_by}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return author if author.holds_for(text.encode("ascii")) else None


def listed_entries(numbers: Sequence[int]) -> str:
    """`entry 4`, or `entries 4, 5 and 7 more`."""
    first_numbers = ", ".join(map(str, numbers[:_MOST_TOLD]))
    rest = f" and {len(numbers) - _MOST_TOLD} more" if len(numbers) > _MOST_TOLD else ""
    return f"{'entries' if len(numbers) > 1 else 'entry'} {first_numbers}{rest}"
