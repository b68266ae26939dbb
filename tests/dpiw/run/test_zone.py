"""The confidential zone is closed to others: folders, files, links, owners, umask."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpiw.data import files as durable
from dpiw.errors import SpecError
from dpiw.ledger import Ledger
from dpiw.run.launch import launch_stage
from dpiw.run.workspace import survey
from tests.support.whole_runs import draw, finish, prepared, reserved


def test_everything_is_closed_whatever_the_umask(open_umask, workplace):
    state = workplace.root / "state"
    state.chmod(0o755)
    run = draw(prepared(workplace))
    with Ledger.open(workplace.ledger)._store.transaction(write=False):
        paths = [*state.glob("workspace/**/*"), state / "workspace", *state.glob("ledger.sqlite*")]
        open_ones = [path.name for path in paths if path.stat().st_mode & 0o077]
    assert open_ones == []
    names = {path.name for path in paths}
    assert {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"} <= names
    assert {"ingest.lock", "fit_weights.lock", "postprocessing.lock", "run.json"} <= names
    finish(run)
    # the signed copy is public and readable, in a folder that is not
    assert stat.S_IMODE((run.directory / "built").stat().st_mode) == 0o755
    assert stat.S_IMODE(run.directory.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_stage_process_is_confined_and_what_it_leaves_is_closed(
    open_umask, make_workplace, monkeypatch, tmp_path
):
    """No core dumps, a private umask, and none of the operator's environment."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-in-the-environment")
    place = make_workplace(weights="none")
    (place.root / "state").chmod(0o755)
    run = reserved(place)
    probe = tmp_path / "sitecustomize.py"
    probe.write_text(
        "import json, os, resource, sys, tempfile\n"
        "if 'dpiw.run.process' in ' '.join(sys.orig_argv):\n"
        "    import dpiw.run.steps as s\n"
        "    def ingest(run):\n"
        "        tempfile.mkstemp(prefix='probe-')\n"
        "        open(tempfile.gettempdir() + '/plain', 'w').close()\n"
        "        print('said by a stage')\n"
        "        mask = os.umask(0o077)\n"
        "        seen = [resource.getrlimit(resource.RLIMIT_CORE), mask, dict(os.environ)]\n"
        f"        open({str(tmp_path / 'seen.json')!r}, 'w').write(json.dumps(seen))\n"
        "    s.ingest = ingest\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    launch_stage("ingest", run.directory)
    core, mask, environment = json.loads((tmp_path / "seen.json").read_text())
    assert (core, mask) == ([0, 0], 0o077)
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert environment["TMPDIR"] == str(run.private)
    assert [path.name[:6] for path in run.private.glob("probe-*")] == ["probe-"]
    assert (run.private / "plain").exists()
    assert "said by a stage" in (run.directory / "log" / "ingest.log").read_text()
    open_ones = [p.name for p in run.directory.rglob("*") if p.stat().st_mode & 0o077]
    assert open_ones == []


def zone(run) -> list[Path]:
    return [run.directory.parents[1], run.directory.parent, run.directory, run.private,
            run.directory / "log"]  # fmt: skip


def refused(place, folder: Path) -> None:
    with pytest.raises(SpecError) as caught:
        prepared(place)
    assert str(folder) in str(caught.value)


def linked(folder: Path) -> None:
    """What it leads to would be missed by a purge, and lies in somebody else's folder."""
    shutil.move(folder, folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def unlinked(folder: Path) -> None:
    folder.unlink()
    shutil.move(folder.with_name("moved"), folder)


HARM: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "open to a group": (lambda folder: folder.chmod(0o750), lambda folder: folder.chmod(0o700)),
    "open to all": (lambda folder: folder.chmod(0o701), lambda folder: folder.chmod(0o700)),
    "a link": (linked, unlinked),
    "another user's": (lambda folder: os.chown(folder, 65534, 65534),
                       lambda folder: os.chown(folder, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", HARM)
def test_a_folder_of_the_zone_that_others_reach_is_refused(place, name):
    """And what is another user's, whose mode 0700 closes it to everybody but them."""
    if name == "another user's" and os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    harm, mend = HARM[name]
    for folder in zone(prepared(place)):
        harm(folder)
        refused(place, folder)
        mend(folder)
        assert prepared(place)


def test_a_state_folder_others_may_write_to_is_refused(place):
    state = place.root / "state"
    for mode in (0o775, 0o757, 0o777):
        state.chmod(mode)
        refused(place, state)
        assert not (state / "workspace").exists()
    state.chmod(0o755)  # its names are no secret: releases may lie in it
    assert prepared(place)


def test_the_state_folder_itself_may_be_reached_by_a_link(place, tmp_path):
    shutil.move(place.root / "state", tmp_path / "disk")
    (place.root / "state").symlink_to(tmp_path / "disk")
    run = prepared(place)
    assert run.directory.is_relative_to(tmp_path / "disk")
    assert [each.key for each in survey(place.root / "state")] == [run.key]


def test_what_root_owns_is_trusted_by_a_container_s_user(place, monkeypatch):
    """Volumes are often root's; their mode still keeps others out."""
    prepared(place)
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    if real == 0:
        assert prepared(place)
    else:
        with pytest.raises(SpecError, match=f"belongs to user id {real}"):
            prepared(place)


def test_the_names_of_the_folders_are_durable_when_a_run_is_prepared(place, synced):
    """Also those that an earlier process made just before it died."""
    for _ in range(2):
        synced.clear()
        run = prepared(place)
        assert {folder.parent for folder in (place.root / "state", *zone(run))} <= set(synced)


def test_a_parent_that_is_not_ours_to_sync_is_no_obstacle(place, monkeypatch):
    """A read-only root, or a folder that may be passed and not read."""
    prepared(place)
    real = durable.sync_directory

    def sync(code):
        def refused(folder):
            if folder == place.root:
                raise OSError(code, os.strerror(code))
            real(folder)

        return refused

    for code in (errno.EROFS, errno.EACCES, errno.EINVAL):
        monkeypatch.setattr(durable, "sync_directory", sync(code))
        assert prepared(place)
    monkeypatch.setattr(durable, "sync_directory", sync(errno.EIO))
    with pytest.raises(SpecError, match="Input/output error"):
        prepared(place)


def test_a_flow_process_writes_for_its_owner_alone(tmp_path):
    code = (
        "import os, flows; mask = os.umask(0); print(oct(mask), os.environ['PREFECT_HOME'], "
        "oct(os.stat(os.environ['PREFECT_HOME']).st_mode & 0o777))"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
    root = str(Path(__file__).resolve().parents[3])
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=clean | {"PYTHONPATH": root}, umask=0,
    ).stdout.split()  # fmt: skip
    assert shown == ["0o77", str(tmp_path / ".dpiw" / "prefect"), "0o700"]
