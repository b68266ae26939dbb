"""32 publishers at once. A release whose bits flip: tests/dpiw/release/test_manifest.py."""

import json
from collections import Counter
from pathlib import Path

import pytest

from dpiw.release.verification import verify
from tests.crash.harness import LineServer, Place

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


@pytest.mark.parametrize("rounds", [2, pytest.param(16, marks=pytest.mark.crash)])
def test_racing_publishers(racer, place, tmp_path, rounds, figures):
    for number in range(rounds):
        race(racer, place, tmp_path / str(number), builds(place)[: 1 + number % 2])
    figures("racing publishers", publishers=PUBLISHERS, rounds=rounds, second_winners=0)
