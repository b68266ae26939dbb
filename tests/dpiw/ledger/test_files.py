"""Where a ledger lies: one file for all on a local disk, or a URL that holds no password."""

import copy
import os
import signal
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.errors import DPIWError, LedgerError, SpecError
from dpiw.ledger import Ledger
from dpiw.ledger.location import absolute_location, check_location
from dpiw.ledger.stores import files
from dpiw.plan.spec import load_spec, parse_spec
from tests.crash import full_disk
from tests.support.ledger import adult
from tests.support.locations import MISTYPED, SECRET
from tests.support.specs import GOOD

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 65534

# Spends the whole budget by one name while, inside its transaction, another process tries it by
# the other name; that one was forked before any file was opened. Prints what each of them got.
SPENDER = """
import os, subprocess, sys, threading
from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.ledger.stores import store
from tests.support.ledger import digest, opened, spend as reserve

def spend(path, key):
    ledger = opened(path, wait=1)
    reserve(ledger, int(key), "1")
    ledger.arm(digest(int(key)), 1, "s")
    return "armed"

def tried(path, key):
    try:
        return spend(path, key)
    except DPIWError as error:
        return f"{type(error).__name__}: {error}"

mine, other, event = sys.argv[1:]
wait, begin = os.pipe()
second = os.fork()
if not second:
    os.close(begin)
    if os.read(wait, 1):
        print(tried(other, "2"), flush=True)
    os._exit(0)

append = store.Store.append
def meanwhile(self, connection, entry):
    store.Store.append = append
    if event == "link":
        os.link(mine, other)
    if event == "open":
        thread = threading.Thread(target=Ledger.open, args=(mine,))
        thread.start()
        thread.join()
        reader = "import sys; from dpiw.ledger import Ledger; Ledger.open(sys.argv[1]).head()"
        subprocess.run([sys.executable, "-c", reader, mine], check=True)
    os.write(begin, b"x")
    os.waitpid(second, 0)
    append(self, connection, entry)

store.Store.append = meanwhile
print(tried(mine, "1"), flush=True)
"""


@pytest.fixture
def ledger(tmp_path):
    """A ledger of one population with epsilon 1, in a folder of its own."""
    for name in ("home", "other"):
        (tmp_path / name).mkdir(mode=0o700)
    made = Ledger.create(tmp_path / "home" / "ledger.sqlite")
    made.register(adult(epsilon=Decimal(1), delta=Decimal(0)))
    return made


def race(one: Path, other: Path, *before: str, meanwhile: str = "") -> list[str]:
    """What two processes got that spend the last of the budget by two names at once."""
    words = [*before, sys.executable, "-c", SPENDER, str(one), str(other), meanwhile]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_two_names_of_one_file_do_not_spend_a_budget_twice(ledger, tmp_path):
    """Each name has a log and locks of its own: two processes would not see one another."""
    hard = tmp_path / "other" / "ledger.sqlite"
    os.link(ledger.location, hard)
    for one, other in ((ledger.location, hard), (hard, ledger.location)):
        (found,) = race(one, other)
        assert found.startswith("LedgerError")
        assert "2 names" in found
    assert ledger.spent("adult").epsilon == 0


@pytest.mark.slow
def test_a_name_that_is_made_in_the_middle_of_a_write_is_refused(ledger, tmp_path):
    inner, outer = race(ledger.location, tmp_path / "other" / "ledger.sqlite", meanwhile="link")
    assert inner.startswith("LedgerError")
    assert "2 names" in inner
    assert outer == "armed"


@pytest.mark.slow
def test_a_thread_that_opens_the_ledger_by_a_link_takes_no_lock_from_another(ledger, tmp_path):
    """POSIX drops all locks of a process on a file with any descriptor of it that it closes."""
    (tmp_path / "link").symlink_to(ledger.location)
    inner, outer = race(ledger.location, tmp_path / "link", meanwhile="open")
    assert "locked by another process" in inner
    assert outer == "armed"
    assert ledger.verify().entries == 4
    assert Ledger.open(tmp_path / "link").spent("adult").epsilon == 1


BOUND = ("sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"')


@pytest.mark.skipif(not full_disk.available(), reason="no rights to mount anything")
@pytest.mark.slow
def test_a_file_that_is_mounted_alone_is_refused(ledger, tmp_path):
    """As a container does with one file of its host."""
    bound = tmp_path / "other" / "ledger.sqlite"
    bound.touch(mode=0o600)
    inner, outer = race(
        ledger.location, bound, *full_disk.NAMESPACE, *BOUND, ledger.location, str(bound)
    )
    assert "LedgerError" in inner
    assert "mounted alone" in inner
    assert outer == "armed"
    assert ledger.spent("adult").epsilon == 1


@pytest.mark.skipif(not full_disk.available(), reason="no rights to mount anything")
@pytest.mark.slow
def test_a_folder_that_is_mounted_twice_keeps_one_log(ledger, tmp_path):
    other = tmp_path / "other"
    inner, outer = race(
        ledger.location, other / "ledger.sqlite",
        *full_disk.NAMESPACE, *BOUND, str(Path(ledger.location).parent), str(other),
    )  # fmt: skip
    assert "locked by another process" in inner
    assert outer == "armed"
    assert ledger.verify().ok


@pytest.mark.parametrize("call", ["link", "unlink"])
def test_a_creation_killed_beside_its_link_goes_on_with_the_same_command(tmp_path, call):
    """Killed just before the ledger gets its name, or before the draft loses it."""
    path = tmp_path / "ledger"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from dpiw.ledger import Ledger\n"
        f"os.{call} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Ledger.create(Path(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.exists() is (call == "unlink")
    if call == "unlink":
        with pytest.raises(LedgerError, match=r"2 names.*remove \.ledger\."):
            Ledger.open(path)
    assert Ledger.create(path).verify().ok
    assert path.stat().st_nlink == 1


def test_a_creation_that_is_just_ending_is_waited_for(ledger, monkeypatch):
    draft = Path(ledger.location).with_name(".ledger.sqlite.abcd")
    os.link(ledger.location, draft)
    monkeypatch.setattr(files, "sleep", lambda seconds: draft.unlink(missing_ok=True))
    assert Ledger.open(ledger.location).head() == ledger.head()


LOCAL = "ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs overlay tmpfs apfs"
NETWORK = "nfs nfs4 cifs smb3 9p afs ceph glusterfs fuse.sshfs fuse.s3fs ocfs2 gfs2 lustre"
UNKNOWN = """virtiofs vboxsf prl_fs vmhgfs fuse.vmhgfs-fuse fuse.juicefs fuse.blobfuse2 fuse.goofys
    fuse.mount-s3 fuse.grpcfuse fuse.osxfs fuse.mfs fuse.seaweedfs wekafs panfs fhgfs acfs
    fuse.ceph-fuse fuse.davfs2 fuse.hdfs fuse.rclone fuse.gvfsd-fuse fuse.bindfs fuse.encfs fuse
    ecryptfs tomorrowfs"""


def on(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(files, "_mounts", lambda: f"d / {kind} rw 0 0\n")


def test_disks_are_local_by_name_and_whatever_is_not_known_as_such_is_refused(
    ledger, tmp_path, monkeypatch
):
    for kind in LOCAL.split():
        on(monkeypatch, kind)
        assert Ledger.open(ledger.location).head() == ledger.head(), kind
    for kind in [*NETWORK.split(), *UNKNOWN.split()]:
        on(monkeypatch, kind)
        for act, path in ((Ledger.open, ledger.location), (Ledger.create, tmp_path / "home/new")):
            with pytest.raises(LedgerError, match=rf"file system.*\({kind}\)"):
                act(path)


def test_the_deepest_and_latest_mount_counts(ledger, tmp_path, monkeypatch):
    """Of a new ledger's folder too: none is made on a disk that would be refused."""
    mounts = "d / ext4 rw\nd /a\\040b cifs rw\nd /x tmpfs rw\nd /x xfs rw\nd /x/y fuse.sshfs rw\n"
    for folder, kind in {
        "/a/b": "ext4", "/a b/c": "cifs", "/x": "xfs", "/xy": "ext4", "/x/y": "fuse.sshfs",
    }.items():  # fmt: skip
        assert files.filesystem_type(Path(folder), mounts) == kind
        assert files.filesystem_type(Path(folder), "") is None
    for path, mounted in {"/a b": True, "/a": False, "/x/y": True, "/xy": False}.items():
        assert files.is_mount_point(Path(path), mounts) is mounted
    mounts = f"/dev/sda / ext4 rw 0 0\nshort\nhost:/x {tmp_path} nfs4 rw 0 0\n"
    monkeypatch.setattr(files, "_mounts", lambda: mounts)
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerError, match=r"network file system \(nfs4\)"):
            act(ledger.location)
    with pytest.raises(LedgerError, match="network file system"):
        Ledger.create(tmp_path / "state" / "ledger.sqlite")
    assert not (tmp_path / "state").exists()


def test_a_custodian_may_vouch_for_a_file_system_by_name(ledger, monkeypatch):
    """In the ledger's own URL, so that every process is told; never for a known network one."""
    on(monkeypatch, "virtiofs")
    vouched = f"sqlite:///{ledger.location}?local_file_system=virtiofs"
    opened = Ledger.open(vouched)
    assert opened.head() == ledger.head()
    assert Ledger.open(opened.location).head() == ledger.head()
    with pytest.raises(LedgerError, match=r"\(virtiofs\)"):
        Ledger.open(f"sqlite:///{ledger.location}?local_file_system=fuse.bindfs")
    on(monkeypatch, "nfs4")
    with pytest.raises(LedgerError, match=r"network file system \(nfs4\)"):
        Ledger.open(f"sqlite:///{ledger.location}?local_file_system=nfs4")


def test_mounts_that_cannot_be_read_are_no_proof_on_linux(ledger, monkeypatch):
    monkeypatch.setattr(files, "_mounts", lambda: "")
    monkeypatch.setattr(files, "platform", "linux")
    with pytest.raises(LedgerError, match=r"file system.*\(unknown\)"):
        Ledger.open(ledger.location)
    monkeypatch.setattr(files, "platform", "darwin")  # which has no such list
    assert Ledger.open(ledger.location)


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_a_new_ledger_s_folder_is_made_for_its_owner_alone(tmp_path, umask):
    path = tmp_path / "state" / "ledger.sqlite"
    before = os.umask(umask)
    try:
        Ledger.create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Ledger.create(path).verify().ok  # the folder is there: nothing is made anew


def test_a_folder_in_which_others_may_write_is_refused(ledger, tmp_path):
    """They could plant a log, which SQLite would replay; a sticky folder is no better."""
    for mode in (0o777, 0o1777, 0o770, 0o703):
        Path(ledger.location).parent.chmod(mode)
        for act, path in ((Ledger.open, ledger.location), (Ledger.create, tmp_path / "home/new")):
            with pytest.raises(LedgerError, match=f"folder has mode 0?{mode:o}"):
                act(path)
        assert stat.S_IMODE(Path(ledger.location).parent.stat().st_mode) == mode  # told, not mended
    Path(ledger.location).parent.chmod(0o755)  # its names are no secret
    assert Ledger.open(ledger.location).head() == ledger.head()


def test_a_ledger_of_another_user_is_refused(ledger, monkeypatch):
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    if real == 0:  # root's files are trusted by everybody
        assert Ledger.open(ledger.location).head() == ledger.head()
        os.chown(ledger.location, NOBODY, NOBODY)
    with pytest.raises(LedgerError, match="belongs to user id"):
        Ledger.open(ledger.location)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("part", ["file", "folder"])
def test_root_does_not_trust_what_another_user_owns(ledger, part):
    path = Path(ledger.location)
    theirs = path if part == "file" else path.parent
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(LedgerError, match="belongs to user id 65534"):
        Ledger.open(ledger.location)
    os.chown(theirs, 0, 0)
    assert Ledger.open(ledger.location).head() == ledger.head()


SOUND = [
    "ledger.sqlite", "/a b/ledger=1.sqlite", "~/ledger.sqlite", "sqlite:///ledger.sqlite",
    "sqlite:////a/ledger.sqlite?local_file_system=virtiofs",
    "postgresql+psycopg://user@[::1]:5432/ledger",
    "postgresql+psycopg://user@db:5432/ledger?sslmode=verify-full&sslrootcert=/ca.crt",
    "postgresql+psycopg://user@/ledger?host=/run/postgresql&passfile=/home/user/.pgpass",
]  # fmt: skip


def spec_of(text: str) -> Any:
    return parse_spec(copy.deepcopy(GOOD) | {"ledger": text})


ACTS: dict[str, tuple[Callable[[str], object], type[DPIWError]]] = {
    "spec": (spec_of, SpecError),
    "open": (Ledger.open, LedgerError),
    "create": (Ledger.create, LedgerError),
    "audit": (lambda text: audit(text, [], []), SpecError),
}


@pytest.mark.parametrize("text", MISTYPED)
@pytest.mark.parametrize("act", list(ACTS))
def test_a_mistyped_location_is_refused_and_not_repeated(act, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    do, error = ACTS[act]
    with pytest.raises(error, match="ledger") as caught:
        do(text)
    told = "".join(traceback.format_exception(caught.value, limit=0))
    assert SECRET not in told
    assert "ter2" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://u@host/db", "postgresql+psycopg://u@host:secret/db", "://",
        "postgresql+psycopg://u@host", "postgresql+psycopg://host/db", "postgresql+psycopg://u@/db",
        "postgresql+psycopg://u@one/db?host=two", "postgresql+psycopg://u@/db?host=one,two",
        "postgresql+psycopg://u@/db?host=one&host=two", "sqlite:///x?mode=ro", "sqlite://",
        "sqlite:///:memory:", "sqlite:///file:x",
    ],
)  # fmt: skip
def test_an_unsupported_url_is_refused_without_repeating_it(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url)
    told = "".join(traceback.format_exception(caught.value))
    assert not any(words in told for words in ("secret", "no answer", "no such file"))


def test_a_sound_location_passes():
    for text in SOUND:
        check_location(text, error=SpecError)
        assert spec_of(text).ledger == text


def test_a_command_line_does_not_repeat_it_either():
    done = subprocess.run(
        [sys.executable, "-m", "dpiw.cli.main", "ledger", "show", "--ledger", MISTYPED[0]],
        capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    assert done.returncode == LedgerError.exit_code
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ledger.sqlite", "{base}/ledger.sqlite"),
        ("../l/ledger.sqlite", "{base}/../l/ledger.sqlite"),
        ("/a/ledger.sqlite", "/a/ledger.sqlite"),
        ("sqlite:///ledger.sqlite", "sqlite:///{base}/ledger.sqlite"),
        ("sqlite:////a/ledger.sqlite", "sqlite:////a/ledger.sqlite"),
        ("sqlite:///l?local_file_system=x", "sqlite:///{base}/l?local_file_system=x"),
        ("postgresql+psycopg://u@localhost/d", "postgresql+psycopg://u@localhost/d"),
    ],
)
def test_a_relative_file_is_taken_from_a_folder(tmp_path, text, found):
    assert absolute_location(text, tmp_path) == found.format(base=tmp_path)


def test_a_spec_names_the_same_ledger_from_wherever_it_is_run(workplace, tmp_path, monkeypatch):
    text = workplace.spec.read_text()
    for written in ("state/ledger.sqlite", "sqlite:///state/ledger.sqlite"):
        workplace.spec.write_text(f"{text}ledger: {written}\n")
        monkeypatch.chdir(tmp_path)
        assert Ledger.open(load_spec(workplace.spec).ledger).location == str(workplace.ledger)
