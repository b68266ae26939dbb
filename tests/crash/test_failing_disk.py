"""A full, read-only or damaged disk at every operation: a clear error, nothing lost, resumable."""

import errno
import json
import os
from collections import Counter

import pytest

from dpiw.errors import ReleaseError, SpecError, StageFailedError
from dpiw.ledger import EntryKind
from tests.crash import full_disk
from tests.crash.harness import ForkServer, Place, check, check_charge, check_published, units

FAIL = "tests.crash.faults:fail"
CODES = (errno.ENOSPC, errno.EIO, errno.EROFS)


@pytest.fixture(scope="module")
def operations(servers, new_place):
    """What a whole run does to the disk, in order: one text per operation."""
    place = new_place()
    assert servers.run(place, changes=[FAIL], fail_at=0, code=0) == 0
    lines = (place.root / "operations.jsonl").read_text().splitlines()
    return [" ".join(json.loads(line)) for line in lines]


def statement(operations: list[str]) -> range:
    """Where the custodian's statement is written, from opening it to its folder's fsync.

    It decides nothing: a run goes on without it, whatever the disk says.
    """
    positions = [at for at, name in enumerate(operations, 1) if "cells.txt" in name]
    assert operations[positions[-1]].startswith("fsync")  # the operation after the last one
    return range(positions[0], positions[-1] + 2)


def fails_clearly(
    server: ForkServer, place: Place, operations: list[str], at: int, code: int
) -> bool:
    """Fail at operation `at` (from 1), then run on a sound disk; whether a draw was lost."""
    end = server.run(place, changes=[FAIL], fail_at=at, code=code)
    if end == 0:  # mkdir of a folder that is there fails either way, and that is no failure
        harmless = code == errno.EIO and operations[at - 1].startswith("mkdir")
        assert harmless or at in statement(operations)
        check_published(place)
        return False
    message = place.error()
    in_public = any("mkdir releases" in name for name in operations[:at])
    if in_public:
        assert end == ReleaseError.exit_code, message
    else:
        codes = {error.exit_code for error in (SpecError, ReleaseError, StageFailedError)}
        assert end in {*codes, 1}, message
    if end != StageFailedError.exit_code:  # whose reason stays in the stage's own log
        assert os.strerror(code) in message
    assert os.strerror(code) in (place.root / "child.log").read_text()
    check(place)
    before = place.ledger().spent("town")
    assert server.run(place) == 0
    check_published(place)
    lost = check_charge(place)
    if in_public:
        assert lost == 0
        assert units(place.ledger().spent("town")) == units(before)
    assert all(e.kind is not EntryKind.VOID for e in place.ledger().entries())
    return bool(lost)


@pytest.mark.crash
def test_every_operation_fails_once(servers, new_place, operations, figures):
    """With one of the codes each, so that each kind of operation meets each code.

    A disk that is full when room for a draw is tried, before arming, loses none.
    """
    met, cases = Counter[str](), []
    for at, operation in enumerate(operations, 1):
        kind, is_room = operation.split()[0], "open ..room" in operation
        cases.append((at, errno.ENOSPC if is_room else CODES[met[kind] % len(CODES)]))
        met[kind] += not is_room
        met["room"] += is_room
    assert met["room"] == 2
    assert all(met[kind] >= len(CODES) for kind in ("open", "write", "fsync", "rename"))

    def one(server, case):
        at, code = case
        place = new_place()
        try:
            lost = fails_clearly(server, place, operations, at, code)
            assert not (lost and "open ..room" in operations[at - 1])
        except AssertionError as error:
            error.add_note(f"{errno.errorcode[code]} at {at}: {operations[at - 1]}")
            raise
        new_place.done(place)
        return lost

    lost = sum(servers.each(cases, one))
    assert lost > 0  # the writes of draws that were armed are among them
    figures("a failing disk", histories=len(cases), draws_lost=lost, partial_releases=0)


@pytest.mark.crash
@pytest.mark.skipif(not full_disk.available(), reason="no rights to mount a small disk")
def test_a_disk_that_is_really_full(figures):
    """The kernel's own ENOSPC and EROFS, in SQLite and Arrow, too; on a disk of a few KiB."""
    result = full_disk.try_all()
    assert result["violations"] == []
    assert result["failed"] > 10
    figures("a really full disk", **result)
