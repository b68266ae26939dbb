"""A release folder tells nothing of the place where it was made: host, user, paths, zone, locale.

The example is published in two processes, at places that share no such name, and what they publish
must agree in every byte.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpiw.release.signing import create_key_pair

ROOT = Path(__file__).resolve().parents[3]

PUBLISH = """
import ctypes, getpass, os, platform, socket, sys, time
from pathlib import Path
host, root, key, umask = sys.argv[1:]
if ctypes.CDLL(None).unshare(0x04000000) == 0:  # CLONE_NEWUTS; a matter of rights
    socket.sethostname(host)
for module, name in ((socket, "gethostname"), (socket, "getfqdn"), (platform, "node")):
    setattr(module, name, lambda *_: host)
os.umask(int(umask, 8))
os.chdir(root)
from tests.dpiw.release import release_example as example
from dpiw.release.publication import build_folder
from dpiw.release.signing import load_private_key
from tests.support.undrawn import draw_no_figures
names = example.CatalogueEntry(licence=f"{socket.gethostname()} {time.tzname[0]}",
                               url=Path.cwd().as_uri(), creator=getpass.getuser())
for built, changes in (("built", {}), ("told", {"catalogue": names})):
    workspace = Path(f"workspace-{host}-{built}")
    workspace.mkdir()
    files, facts = example.example_contents(workspace.resolve(), **changes)
    build_folder(Path(built), files=files, facts=facts,
                 key=load_private_key(Path(key)))
    draw_no_figures(setattr)  # of what is told words are looked for
"""
"""Publish the example at a place, and once more with the place's names in the catalogue."""

PLACES = (
    {"host": "hostqqx1", "user": "userqqx1", "root": "pathqqx1", "TZ": "Asia/Kathmandu",
     "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1", "umask": "000"},
    {"host": "hostqqx2", "user": "userqqx2", "root": "pathqqx2", "TZ": "Pacific/Kiritimati",
     "LC_ALL": "C", "PYTHONHASHSEED": "2", "umask": "077"},
)  # fmt: skip


def publish(at, place, key):
    """The files of the two folders that a process at this place publishes."""
    root = at / place["root"]
    root.mkdir()
    names = dict.fromkeys(("USER", "LOGNAME", "LNAME", "USERNAME"), place["user"])
    environment = os.environ | names | {
        "HOME": str(root), "TMPDIR": str(root), "HOSTNAME": place["host"], "PYTHONPATH": str(ROOT),
        **{name: place[name] for name in ("TZ", "LC_ALL", "PYTHONHASHSEED")},
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", PUBLISH, place["host"], root, key, place["umask"]],
        env=environment, check=True,
    )  # fmt: skip
    return tuple(
        {path.name: path.read_bytes() for path in (root / name).iterdir()}
        for name in ("built", "told")
    )


@pytest.mark.slow
def test_two_places_publish_the_same_bytes(tmp_path_factory):
    """The control: the catalogue's entry tells host, zone, path and user, and then differs."""
    key = create_key_pair(tmp_path_factory.mktemp("key"), "test")[0]
    (one, told), (two, told_there) = (
        publish(tmp_path_factory.mktemp("at"), place, key) for place in PLACES
    )
    assert one == two
    assert len(one) == 7
    assert told["croissant.json"] != told_there["croissant.json"]
    for name in ("host", "user", "root"):
        assert PLACES[0][name].encode() in told["croissant.json"]
