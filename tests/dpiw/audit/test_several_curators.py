"""A ledger that two curators spend from, each with a key of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dpiw.audit import report_json
from dpiw.audit.report import build_page
from dpiw.release.signing import create_key_pair, load_public_key
from dpiw.release.verification import verify
from tests.dpiw.audit.conftest import Site, publish

SHARED = pytest.StashKey[Path]()
"""The state folder of two curators' workplace, made once."""


@pytest.fixture
def shared(make_workplace, tmp_path, request) -> Site:
    """Two releases of one population: the first signed by `test`, the second by `second`."""
    stash = request.config.stash
    if SHARED not in stash:
        place = make_workplace(weights="none")
        publish(place, "2026-11")
        create_key_pair(place.root / "state" / "keys", "second")
        place.spec.write_text(place.spec.read_text().replace("test.key", "second.key"))
        publish(place, "2026-12")
        stash[SHARED] = place.root / "state"
    shutil.copytree(stash[SHARED], tmp_path / "site", ignore=shutil.ignore_patterns("workspace"))
    return Site(tmp_path / "site")


def keys_of(site: Site) -> list[Path]:
    return [site.key, site.key.with_name("second.pub")]


def ids(keys: list[Path]) -> list[str]:
    return [load_public_key(key).key_id for key in keys]


def test_with_the_keys_of_both_nothing_is_found(shared):
    keys = keys_of(shared)
    first, second = ids(keys)
    report = shared.audit(public_keys=keys)
    assert (report.ok, report.findings, report.given) == (True, (), (first, second))
    assert report.signers is not None
    assert set(report.signers.signed) == {first, second}
    folders = f"one of the given public keys (key id {first}: 1, key id {second}: 1)"
    page = build_page(report)
    assert folders in page
    assert page.count("whole, signed<") == 2
    facts = json.loads(report_json(report))
    assert facts["given_keys"] == facts["entry_signatures"]["given"] == [first, second]
    assert [release["key_checked"] for release in facts["releases"]] == [True, True]


def test_the_order_of_the_keys_and_a_key_given_twice_change_nothing(shared):
    keys = keys_of(shared)
    assert shared.codes(public_keys=keys[::-1]) == set()
    twice = shared.audit(public_keys=[*keys, keys[0]])
    assert twice.given == tuple(ids(keys))


def test_with_the_key_of_one_the_other_s_are_told(shared):
    for given, other, folder in zip(keys_of(shared), keys_of(shared)[::-1], (1, 0), strict=True):
        report = shared.audit(public_keys=[given])
        assert not report.ok
        assert {f.code for f in report.findings} == {"other_key", "entry_other_key"}
        findings = {f.code: f for f in report.findings}
        assert findings["other_key"].subject == f"release {shared.folders[folder].name}"
        assert ids([other])[0] in findings["other_key"].text


def test_a_folder_that_none_of_the_keys_signed_is_an_error(shared, tmp_path):
    _, stranger = create_key_pair(tmp_path, "stranger")
    given = [shared.key, stranger]
    report = shared.audit(public_keys=given)
    assert {f.code for f in report.findings} == {"other_key", "entry_other_key"}
    (signer,) = ids(keys_of(shared)[1:])
    assert all(f"key id {signer}, by none of the given" in f.text for f in report.findings)


def test_without_a_key_both_are_named(shared):
    report = shared.audit(public_keys=[])
    findings = {f.code: f for f in report.findings}
    assert findings.keys() == {"key_not_pinned", "several_keys"}
    assert all(key in findings["several_keys"].text for key in ids(keys_of(shared)))
    signers = {verify(folder).key_id for folder in shared.folders}
    assert signers == set(ids(keys_of(shared)))
