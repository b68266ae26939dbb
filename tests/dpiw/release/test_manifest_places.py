"""A release folder tells nothing of the place where it was made: host, user, paths, zone, locale.

Whoever runs these tests may sit at a machine called `a` as a user called `data`. So the machine's
own names are not looked for: the example is published in processes at places with names that
nothing else bears. What they publish must agree in every byte, and hold no such name as a word.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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
    contents = example.example_contents(workspace.resolve(), **changes)
    build_folder(Path(built), files=contents.files, facts=contents.facts,
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
WORDS = {place[name] for place in PLACES for name in ("host", "user", "root")}


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


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    key = create_key_pair(tmp_path_factory.mktemp("key"), "test")[0]
    return [publish(tmp_path_factory.mktemp("at"), place, key) for place in PLACES]


def texts(name, data):
    """All the text of a published file, decoded; of a Parquet file the footer and the cells."""
    if name.endswith(".parquet"):
        file = pq.ParquetFile(io.BytesIO(data))
        table = file.read()
        yield file.metadata.created_by
        yield str(file.metadata.schema)
        yield str(table.schema.to_string(truncate_metadata=False))
        for one, value in (file.metadata.metadata or {}).items():
            yield one.decode()
            yield repr(base64.b64decode(value)) if one == b"ARROW:schema" else value.decode()
        for column in table.columns:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                yield from (cell for cell in column.unique().to_pylist() if cell is not None)
    elif name != "manifest.sig":  # 64 bytes of a signature
        text = data.decode()
        yield text
        if name.endswith(".json"):
            yield repr(json.loads(text))  # without escapes
        for picture in re.findall(r";base64,([A-Za-z0-9+/=]+)", text):
            yield repr(base64.b64decode(picture))


def named(folder, words):
    """Which of the words stand in which file, as whole words."""
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(words)))})\b")
    return {
        (name, word)
        for name, data in folder.items()
        for text in texts(name, data)
        for word in pattern.findall(text)
    }


def test_the_folder_names_no_host_user_path_or_seed(places):
    for folder, _ in places:
        assert named(folder, WORDS | {"workspace", "seed"}) == set()


def test_two_places_publish_the_same_bytes(places):
    (one, told), (two, told_there) = places
    assert one == two
    assert told["croissant.json"] != told_there["croissant.json"]


def test_a_place_that_is_told_is_found(places):
    """The control: the catalogue's entry tells host, zone, path and user; both ways see it."""
    words = {"hostqqx1", "0545", "pathqqx1", "userqqx1"}
    told = named(places[0][1], words)
    assert {word for name, word in told if name == "croissant.json"} == words


def test_words_are_found_in_cells_and_footers_and_in_no_other_bytes():
    """The control of the search in Parquet: its magic bytes and its pages are no text."""
    table = pa.table({"job": ["nurse", "baker"]}).replace_schema_metadata({"made": "by hostqqx1"})
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    data = out.getvalue()
    assert b"PAR1" in data
    assert named({"x.parquet": data}, {"nurse", "hostqqx1", "PAR1", "urs"}) == {
        ("x.parquet", "nurse"), ("x.parquet", "hostqqx1"),
    }  # fmt: skip
