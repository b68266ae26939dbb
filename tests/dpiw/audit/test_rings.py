"""What the audit finds about keys and approvals, entry by entry."""

from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.data.documents import plain
from dpiw.errors import NotApprovedError
from dpiw.ledger import EntryKind, FaultKind
from dpiw.ledger.book import Book
from dpiw.ledger.reading import replay
from tests.support.ledger import MANIFEST, RUN, digest, stored, withdrawal
from tests.support.rings import APPROVER, CURATOR, SECOND, STRANGER, TERMS, THIRD, Chain, public


def found(chain: Chain) -> list[tuple[str, str]]:
    findings = tally([entry.to_json() for entry in chain.entries]).findings
    return [(finding.code, finding.subject) for finding in findings]


def ringed() -> Chain:
    """3 and 4 add keys, 5 approves, 6 reserves."""
    chain = Chain()
    for name, words in (
        ("key", {"key": CURATOR, "role": "curator"}),
        ("key", {"key": APPROVER, "role": "approver", "by": CURATOR}),
        ("approve", {"by": APPROVER, "on": 1}),
        ("reserve", {"by": CURATOR, "on": 2}),
    ):  # fmt: skip
        chain.entries.append(getattr(chain, name)(**words))
    return chain


def test_an_honest_chain_has_nothing_to_find():
    assert found(ringed()) == []


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "a key by nobody": ("key", {"key": SECOND, "role": "approver"}),
    "a key by a stranger": ("key", {"key": SECOND, "role": "curator", "by": STRANGER}),
    "an approver by the curator": ("key", {"key": SECOND, "role": "approver", "by": CURATOR}),
    "a curator by the approver": ("key", {"key": SECOND, "role": "curator", "by": APPROVER}),
    "a key twice": ("key", {"key": CURATOR, "role": "curator", "by": CURATOR}),
    "a key of no role": ("key", {"key": SECOND, "role": "owner", "by": CURATOR}),
    "a key in capitals": ("made", {
        "kind": EntryKind.KEY, "payload": {"public_key": "A" * 64, "role": "curator"},
        "by": CURATOR,
    }),
    "a revocation from no moment": ("made", {
        "kind": EntryKind.REVOKE, "payload": {"public_key": public(CURATOR), "ends": "2027"},
        "by": CURATOR,
    }),
    "a revocation by a stranger": ("revoke", {"key": CURATOR, "since": 5, "by": STRANGER}),
    "a revocation of nobody": ("revoke", {"key": SECOND, "since": 5, "by": CURATOR}),
    "the last curator's": ("revoke", {"key": CURATOR, "since": 5, "by": CURATOR}),
    "the last approver's": ("revoke", {"key": APPROVER, "since": 5, "by": CURATOR}),
    "an approval by the curator": ("approve", {"run": digest(9), "by": CURATOR}),
    "an approval of no terms": ("approve", {"terms": {"period": "p"}, "by": APPROVER}),
    "an approval of fractions": ("approve", {"terms": TERMS | {"max_attempts": "1"},
                                             "by": APPROVER}),
    "an approval of less than nothing": ("approve", {"terms": TERMS | {"epsilon_units": -1},
                                                     "by": APPROVER}),
    "an approval of no period": ("approve", {"terms": TERMS | {"period": None}, "by": APPROVER}),
    "an approval of any release": ("approve", {"terms": TERMS | {"release": None},
                                               "by": APPROVER}),
    "an approval of no run": ("approve", {"run": "x", "by": APPROVER}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_every_entry_of_keys_needs_its_signature(name):
    """By the audit and by the book, each with rules of its own."""
    chain, (kind, words) = ringed(), REFUSED[name]
    chain.entries.append(getattr(chain, kind)(**words, on=3))
    assert found(chain) == [("key_not_valid", "entry 7")]
    _, fault = replay(stored([e.to_json() for e in chain.entries]), book=Book(), head=None)
    assert (fault.kind, fault.seq) == (FaultKind.ILLEGAL_TRANSITION, 7)


@pytest.mark.parametrize("changed", ["period", "plan_digest", "release", "epsilon_units"])
def test_what_was_not_approved_is_named_and_still_charged(changed):
    chain = ringed()
    value = 1 + TERMS[changed] if changed == "epsilon_units" else digest(8)
    chain.entries[-1:] = []
    chain.entries.append(chain.reserve(by=CURATOR, on=2, stated={changed: value}))
    assert found(chain) == [("not_approved", "entry 6")]
    counted = tally([entry.to_json() for entry in chain.entries])
    assert counted.populations["adult"].spent.epsilon >= TERMS["epsilon_units"]


def test_signatures_since_a_theft_are_named_once_it_is_known():
    chain = ringed()
    chain.entries.append(chain.key(SECOND, "curator", by=CURATOR, on=3))
    assert found(chain) == []
    chain.entries.append(chain.revoke(CURATOR, 2, by=SECOND, on=4))
    assert found(chain) == [("key_revoked_since", "entry 6"), ("key_revoked_since", "entry 7")]


def certified() -> Chain:
    """7 to 10 draw what was reserved, 11 certifies it."""
    chain = ringed()
    for name in ("generator", "weights"):
        place = {"run_key": RUN, "attempt": 1, "stage": name}
        chain.add(EntryKind.ARM, {"token_digest": digest(5)}, **place)
        chain.add(EntryKind.COMMIT, {"output_digest": digest(6)}, **place)
    chain.add(EntryKind.CERTIFY, {"nonce": digest(7)}, run_key=RUN)
    return chain


def test_a_publication_by_no_valid_key_is_named():
    chain = certified()
    published = {"manifest_digest": MANIFEST}
    for key, codes in ((CURATOR, []), (APPROVER, ["key_not_valid"]), (None, ["key_not_valid"])):
        entry = chain.made(EntryKind.PUBLISH, published, by=key, run_key=RUN, on=5)
        own = Chain()
        own.entries = [*chain.entries, entry]
        assert [code for code, _ in found(own) if code != "clock_backwards"] == codes


def test_a_publication_by_nobody_dates_no_later_entry_back():
    """Every label moves the clock, even of an unsigned entry: an ended key then adds no key."""
    chain, book = certified(), Book()
    chain.entries.append(chain.key(SECOND, "curator", by=CURATOR, on=3))
    chain.entries.append(chain.revoke(SECOND, 10, by=CURATOR, on=3))
    chain.add(EntryKind.PUBLISH, {"manifest_digest": MANIFEST}, run_key=RUN, on=12)
    for entry in chain.entries:
        book.apply(entry)
    chain.entries.append(chain.key(THIRD, "curator", by=SECOND, on=5))
    assert ("key_not_valid", f"entry {chain.entries[-1].seq}") in found(chain)
    with pytest.raises(NotApprovedError):
        book.apply(chain.entries[-1])


@pytest.mark.parametrize(
    ("key", "legal"), [(CURATOR, True), (APPROVER, False), (STRANGER, False), (None, False)]
)
def test_a_withdrawal_needs_a_curator_s_key(key, legal):
    """By the book and by the audit; else anybody could withdraw an institution's releases."""
    chain, book = certified(), Book()
    chain.add(EntryKind.PUBLISH, {"manifest_digest": MANIFEST}, by=CURATOR, run_key=RUN, on=5)
    for entry in chain.entries:
        book.apply(entry)
    entry = chain.add(EntryKind.WITHDRAW, plain(withdrawal()), by=key, on=6)
    assert [c for c, _ in found(chain) if c != "clock_backwards"] == ["key_not_valid"] * (not legal)
    if legal:
        book.apply(entry)
        assert book.withdrawals[MANIFEST].reason == "error"
        assert book.keyring("adult").moment == entry.at
        return
    with pytest.raises(NotApprovedError):
        book.apply(entry)
    assert book.withdrawals == {}
