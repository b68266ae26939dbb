"""A folder that was built, and its copy: what is published is what was signed."""

import dataclasses
import errno
import os

import pytest

from dpiw.errors import ChecksumError, ManifestError, ReleaseError, SignatureError
from dpiw.release import publication, verification
from dpiw.release.manifest import Manifest
from dpiw.release.publication import build_folder, publish_built
from tests.dpiw.release.publishing import build, names, publish
from tests.dpiw.release.release_example import example_facts, example_key


def test_a_built_folder_is_published_byte_for_byte(tmp_path, key):
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    built = tmp_path / "work" / "built"
    manifest = build_folder(built, files={"a.txt": b"text"}, facts=example_facts(), key=key)
    digests = []
    for expected in (False, True):
        done = publish_built(
            built, destination=tmp_path / "out" / "r", key=key.public, commit=digests.append
        )
        assert done.already_published is expected
    assert digests == [manifest.digest] == [done.manifest_digest]
    assert {p.name: p.read_bytes() for p in built.iterdir()} == {
        p.name: p.read_bytes() for p in done.folder.iterdir()
    }
    with pytest.raises(ReleaseError):
        build_folder(built, files={"a.txt": b"text"}, facts=example_facts(), key=key)


def test_a_built_folder_that_is_damaged_or_foreign_is_not_published(tmp_path, key):
    built = tmp_path / "built"
    build_folder(built, files={"a.txt": b"text"}, facts=example_facts(), key=key)
    other = example_key(tmp_path, "other")
    with pytest.raises(SignatureError):
        publish_built(built, destination=tmp_path / "r", key=other.public, commit=_never)
    (built / "a.txt").write_bytes(b"tex_")
    with pytest.raises(ChecksumError):
        publish_built(built, destination=tmp_path / "r", key=key.public, commit=_never)
    assert not (tmp_path / "r").exists()


def _never(digest):
    raise AssertionError("committed")


def test_a_copy_that_cannot_be_read_back_is_not_published(tmp_path, key, built, monkeypatch):
    digested = verification.file_digest

    def failing(path):
        if path.parent.name.startswith(".staging-"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return digested(path)

    monkeypatch.setattr(verification, "file_digest", failing)
    with pytest.raises(ReleaseError):
        publish(tmp_path / "release", key, built=built)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "a.txt"])
def test_a_copy_that_is_not_what_was_built_is_not_recorded(name, tmp_path, key, built, monkeypatch):
    copied = publication.copy_file

    def flipped(source, target):
        copied(source, target)
        if target.name == name:
            data = bytearray(target.read_bytes())
            data[len(data) // 2] ^= 1
            target.write_bytes(data)

    monkeypatch.setattr(publication, "copy_file", flipped)
    recorded = []
    with pytest.raises(ReleaseError):
        publish(tmp_path / "release", key, built=built, commit=recorded.append)
    assert recorded == [*tmp_path.iterdir()] == []


def test_facts_that_do_not_read_back_are_not_signed(tmp_path, key, monkeypatch):
    facts = example_facts()
    other = dataclasses.replace(facts, rows=facts.rows + 1)
    real = Manifest.from_bytes
    monkeypatch.setattr(
        Manifest, "from_bytes", lambda data: dataclasses.replace(real(data), facts=other)
    )
    with pytest.raises(ManifestError):
        build(tmp_path / "r", key, facts=facts)
    assert names(tmp_path) == []
