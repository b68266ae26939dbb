import dataclasses
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from dpiw.data import files
from dpiw.errors import ChecksumError, ManifestError, ReleaseError, SignatureError
from dpiw.release import publication
from dpiw.release.manifest import Manifest
from dpiw.release.publication import build_folder, clean_staging, publish_built
from dpiw.release.verification import manifest_digest
from tests.dpiw.release.publishing import build, names, publish
from tests.dpiw.release.release_example import example_facts, example_key
from tests.support.around import around
from tests.support.patience import SECONDS

ROOT = Path(__file__).resolve().parents[3]


def test_a_folder_appears_whole_signed_and_readable_by_all(tmp_path, key):
    previous = os.umask(0o077)
    try:
        done = publish(tmp_path / "r", key)
    finally:
        os.umask(previous)
    assert not done.already_published
    assert names(tmp_path) == ["r"]
    assert names(done.folder) == ["a.txt", "b.txt", "manifest.json", "manifest.sig"]
    assert stat.S_IMODE(done.folder.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in done.folder.iterdir()} == {0o644}
    manifest = Manifest.from_bytes((done.folder / "manifest.json").read_bytes())
    assert manifest.digest == done.manifest_digest
    assert (done.folder / "b.txt").read_bytes() == b"called"
    assert {name: entry.size for name, entry in manifest.files.items()} == {"a.txt": 4, "b.txt": 6}


def test_commit_comes_after_signing_and_before_anything_is_visible(tmp_path, key):
    """Whole and signed, in a public folder, while the ledger does not know it: closed."""
    seen = []

    def commit(digest):
        clean_staging(tmp_path)  # nothing that somebody works on
        assert not (tmp_path / "r").exists()
        (staging,) = (path for path in tmp_path.iterdir() if path.is_dir())
        assert staging.name.startswith(".staging-")
        assert stat.S_IMODE(staging.stat().st_mode) == 0o700
        data = (staging / "manifest.json").read_bytes()
        key.public.check(data, (staging / "manifest.sig").read_bytes())
        assert Manifest.from_bytes(data).digest == digest
        seen.append(digest)

    done = publish(tmp_path / "r", key, commit=commit)
    assert seen == [done.manifest_digest]


def test_a_link_to_the_very_release_is_not_it(tmp_path, key):
    done = publish(tmp_path / "r", key)
    done.folder.rename(tmp_path / "elsewhere")
    done.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReleaseError):
        publish(tmp_path / "r", key)
    assert done.folder.is_symlink()


def _beside(make):
    def folder(path):
        path.mkdir()
        make(path / "manifest.json")

    return folder


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere"), _beside(os.mkfifo),
        _beside(Path.mkdir), _beside(lambda path: path.symlink_to("/dev/zero")),
        _beside(lambda path: path.touch() or os.truncate(path, 2**34)),
    ],
)  # fmt: skip
def test_an_occupied_name_is_refused_whatever_its_manifest_is(tmp_path, key, make):
    make(tmp_path / "r")
    with pytest.raises(ReleaseError, match="never replaced"):
        publish(tmp_path / "r", key)
    assert names(tmp_path) == ["r"]


def test_a_release_is_never_replaced(tmp_path, key):
    first = publish(tmp_path / "r", key)
    with pytest.raises(ReleaseError, match="never replaced"):
        publish(tmp_path / "r", key, files={"a.txt": b"other"})
    assert (first.folder / "a.txt").read_bytes() == b"text"
    assert names(tmp_path) == ["r"]


def test_a_damaged_release_is_not_reported_as_published(tmp_path, key):
    done = publish(tmp_path / "r", key)
    (done.folder / "a.txt").write_bytes(b"tex_")
    with pytest.raises(ChecksumError, match=r"a\.txt"):
        publish(tmp_path / "r", key)


def _full(path):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize(
    "source",
    [_full, lambda path: None, Path.mkdir, lambda path: path.symlink_to("a.txt"), os.mkfifo],
)
def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path, key, source):
    with pytest.raises(ReleaseError):
        build(tmp_path / "r", key, files={"a.txt": b"text", "b.txt": source})
    assert names(tmp_path) == []


def test_a_failed_commit_goes_through_and_leaves_nothing(tmp_path, key):
    def commit(digest):
        raise LookupError("refused")

    with pytest.raises(LookupError, match="refused"):
        publish(tmp_path / "r", key, commit=commit)
    assert names(tmp_path) == []


def test_inadmissible_names_and_places_are_refused(tmp_path, key):
    for name in ("../a", "manifest.json"):
        with pytest.raises(ManifestError):
            build(tmp_path / "r", key, files={name: b"x"})
    (tmp_path / "file").touch()
    for place in (".r", "absent/r", "file/r"):
        with pytest.raises(ReleaseError):
            publish(tmp_path / place, key)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("act", ["build", "publish"])
@pytest.mark.parametrize("call", ["os.fsync", "os.fchmod", "sync_directory", "mkdir", "rename"])
def test_a_failing_file_system_is_an_error_and_leaves_nothing(
    tmp_path, key, built, monkeypatch, call,
    act
):  # fmt: skip
    target = {
        "os.fsync": (os, "fsync"), "os.fchmod": (os, "fchmod"), "mkdir": (Path, "mkdir"),
        "sync_directory": (publication, "sync_directory"),
        "rename": (publication, "move_exclusively"),
    }[call]  # fmt: skip
    acts = {
        "build": lambda: build(tmp_path / "r", key),
        "publish": lambda: publish(tmp_path / "r", key, built=built),
    }
    monkeypatch.setattr(*target, mock.Mock(side_effect=OSError(errno.EIO, "failing")))
    with pytest.raises(ReleaseError):
        acts[act]()
    monkeypatch.undo()
    assert names(tmp_path) == []


def test_a_rename_that_is_not_durable_yet_is_finished_by_the_next_run(tmp_path, key, monkeypatch):
    synced = []

    def sync(folder):
        synced.append(folder)
        if synced.count(tmp_path) == 1 and folder == tmp_path:
            raise OSError(errno.EIO, "input/output error")

    around(publication, "sync_directory", before=sync, replace=monkeypatch.setattr)
    with pytest.raises(ReleaseError):
        publish(tmp_path / "r", key)
    assert publish(tmp_path / "r", key).already_published
    assert synced.count(tmp_path) == 2
    assert names(tmp_path) == ["r"]


def _run(script, root):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(root)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip


@pytest.mark.slow
def test_after_a_kill_nothing_is_visible_and_a_second_run_finishes(tmp_path):
    script = """
        import os, signal, sys
        from pathlib import Path
        from dpiw.release.publication import publish_built
        from dpiw.release.signing import load_private_key
        root = Path(sys.argv[1])
        publish_built(root / "built", destination=root / "out" / "r",
                      key=load_private_key(root / "curator.key").public,
                      commit=lambda digest: os.kill(os.getpid(), signal.SIGKILL))
    """
    out = tmp_path / "out"
    out.mkdir()
    key = example_key(tmp_path)
    built = build(tmp_path / "built", key)
    killed = _run(script, tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert all(name.startswith(".staging-") for name in names(out))
    assert len(names(out)) == 2  # the folder and its lock
    clean_staging(out)
    assert names(out) == []
    assert not publish(out / "r", key, built=built).already_published
    clean_staging(out)
    assert names(out) == ["r"]


def test_cleaning_removes_what_no_lock_holds(tmp_path):
    (tmp_path / ".staging-1").mkdir()
    (tmp_path / ".staging-1" / "a").touch()
    (tmp_path / ".staging-2.lock").touch()
    (tmp_path / "r").mkdir()
    clean_staging(tmp_path)
    assert names(tmp_path) == ["r"]


def test_a_lock_file_taken_by_a_cleaner_is_made_anew(tmp_path, key, built, monkeypatch):
    """A cleaner may remove the lock file between its creation and its locking."""
    calls = []

    def flock(_, operation):
        calls.append(operation)
        if len(calls) == 1:
            clean_staging(tmp_path)

    around(fcntl, "flock", before=flock, replace=monkeypatch.setattr)
    publish(tmp_path / "r", key, built=built)
    assert len(calls) >= 3
    assert names(tmp_path) == ["r"]


def _file(path):
    path.write_text("theirs")


def _full_folder(path):
    path.mkdir()
    _file(path / "theirs")


OBSTACLES: dict[str, Callable[[Path], None]] = {
    "file": _file,
    "folder": _full_folder,
    "empty folder": Path.mkdir,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to a folder": lambda path: path.symlink_to("."),
}
"""What another program may put where a file or a folder is to appear."""

LATE = ["file", "folder", "dangling link", "link to a folder"]
"""Those that the system's own rename of a folder does not replace."""


def _remains(path):
    inside = sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else None
    return path.lstat().st_ino, inside, path.is_symlink() and os.readlink(path)


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_nothing_is_replaced(tmp_path, obstacle):
    """Neither by a file nor by a folder, which stay where they are, whole."""
    _full_folder(tmp_path / "folder")
    _file(tmp_path / "file")
    target = tmp_path / "target"
    OBSTACLES[obstacle](target)
    before = _remains(target)
    for source, call in (("folder", files.move_exclusively), ("file", files.name_exclusively)):
        with pytest.raises(FileExistsError):
            call(tmp_path / source, target)
    assert _remains(target) == before
    assert (tmp_path / "folder/theirs").read_text() == (tmp_path / "file").read_text() == "theirs"


@pytest.mark.parametrize("obstacle", LATE)
def test_what_appears_just_before_the_rename_is_not_replaced(tmp_path, key, monkeypatch, obstacle):
    """Between the look and the rename: by another program, which knows no lock of ours."""
    target = tmp_path / "r"

    def late(_, destination):
        if Path(destination) == target and not os.path.lexists(target):
            OBSTACLES[obstacle](target)

    around(os, "rename", before=late, replace=monkeypatch.setattr)
    with pytest.raises(ReleaseError):
        publish(target, key)
    monkeypatch.undo()
    assert names(tmp_path) == ["r"]
    assert not (target / "manifest.json").exists()


def test_a_built_folder_is_published_byte_for_byte(tmp_path, key):
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    built = tmp_path / "work" / "built"
    manifest = build_folder(built, files={"a.txt": b"text"}, facts=example_facts(), key=key)
    digests = []
    folder = tmp_path / "out" / "r"
    for is_new in (True, False):
        done = publish_built(built, destination=folder, key=key.public, commit=digests.append)
        assert done is is_new
    assert digests == [manifest.digest] == [manifest_digest(folder)]
    assert {p.name: p.read_bytes() for p in built.iterdir()} == {
        p.name: p.read_bytes() for p in folder.iterdir()
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


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "a.txt"])
def test_a_copy_that_is_not_what_was_built_is_not_recorded(name, tmp_path, key, built, monkeypatch):
    def flipped(_, __, target):
        if target.name == name:
            data = bytearray(target.read_bytes())
            data[len(data) // 2] ^= 1
            target.write_bytes(data)

    around(publication, "copy_file", after=flipped, replace=monkeypatch.setattr)
    recorded = []
    with pytest.raises(ReleaseError):
        publish(tmp_path / "release", key, built=built, commit=recorded.append)
    assert recorded == [*tmp_path.iterdir()] == []


def test_facts_that_do_not_read_back_are_not_signed(tmp_path, key, monkeypatch):
    real, other = Manifest.from_bytes, dataclasses.replace(example_facts(), rows=2)
    monkeypatch.setattr(
        Manifest, "from_bytes", lambda data: dataclasses.replace(real(data), facts=other)
    )
    with pytest.raises(ManifestError):
        build(tmp_path / "r", key)
    assert names(tmp_path) == []
