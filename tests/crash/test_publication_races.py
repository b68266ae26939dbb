"""32 publishers at once, and every way a bit of a real release can flip."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from dpiw.analysis.release import load_release
from dpiw.errors import ReleaseError
from dpiw.release.verification import verify
from tests.crash.harness import LineServer, Place

# What the weights of so small a table are worth is a matter of chance, and of no interest here.
pytestmark = pytest.mark.filterwarnings("ignore::dpiw.analysis.release.UnreliableWeightsWarning")

PUBLISHERS = 32


@pytest.fixture(scope="module")
def place(servers, new_place):
    """A place with two releases of two periods, built and published."""
    prepared = new_place()
    for period in ("once", "again"):
        assert servers.run(prepared, period=period) == 0
    return prepared


def builds(place: Place) -> list[Path]:
    return sorted((place.root / "state" / "workspace" / "town").glob("*/built"))


def race(racer: LineServer, place: Place, folder: Path, sources: list[Path]) -> None:
    """All publish to one name: one wins, its likes find it done, the others are refused."""
    folder.mkdir()
    destination = folder / "release"
    ends = racer.ask(
        do="publish", count=PUBLISHERS, destination=str(destination), log=str(folder / "log"),
        built=[str(source) for source in sources],
        key=str(place.root / "state" / "keys" / "test.pub"),
    )["ends"]  # fmt: skip
    assert ends == [0] * PUBLISHERS
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    did = Counter(word for line in lines for word in line["did"])
    share = PUBLISHERS // len(sources)
    assert did["published"] == 1
    assert did["there already"] == share - 1
    assert did["refused"] == PUBLISHERS - share
    whole = {p.name: p.read_bytes() for p in destination.iterdir()}
    assert whole in [{p.name: p.read_bytes() for p in s.iterdir()} for s in sources]
    verify(destination)
    assert sorted(p.name for p in folder.iterdir()) == ["log", "release"]  # no staging is left


@pytest.mark.parametrize("releases", [1, 2])
def test_racing_publishers(racer, place, tmp_path, releases):
    race(racer, place, tmp_path / "race", builds(place)[:releases])


@pytest.mark.crash
def test_many_rounds_of_racing_publishers(racer, place, tmp_path, figures):
    for number in range(16):
        race(racer, place, tmp_path / str(number), builds(place)[: 1 + number % 2])
    figures("racing publishers", publishers=PUBLISHERS, rounds=16, second_winners=0)


def flip(place: Place, folder: Path, flips: int) -> int:
    """Flip one random bit of the release at a time; how many of the flips were accepted."""
    (release, *_) = sorted(place.releases.iterdir())
    copy = folder / "copy"
    shutil.copytree(release, copy)
    public_key = place.root / "state" / "keys" / "test.pub"
    load_release(copy, public_key=public_key)  # whole before the first flip
    files = sorted(copy.iterdir())
    rng = random.Random(20270101)
    accepted = 0
    for number in range(flips):
        path = files[number % len(files)]
        data = path.read_bytes()
        damaged = bytearray(data)
        bit = rng.randrange(8 * len(data))
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            (verify if number % 2 else load_release)(copy, public_key=public_key)
            accepted += 1
        except ReleaseError:
            pass
        path.write_bytes(data)
    load_release(copy, public_key=public_key)
    return accepted


def test_flipped_bits_are_refused(place, tmp_path):
    assert flip(place, tmp_path, 60) == 0


@pytest.mark.crash
def test_flipped_bits_of_every_file(place, tmp_path, figures):
    assert flip(place, tmp_path, 600) == 0
    figures("bit flips in a release", flips=600, accepted=0)
