"""No noise before the durable arm; no rename before its fsyncs; no claim before what it claims."""

import json
from pathlib import Path

import pytest

from tests.crash import strace
from tests.crash.harness import Place, Servers, check_published
from tests.crash.recorder import Event, Judge
from tests.crash.stores import on_stores

RECORD = "tests.crash.recorder:record"


def recorded(servers: Servers, place: Place, *mutants: str) -> list[Event]:
    changes = [RECORD, *(f"tests.crash.mutants:{mutant}" for mutant in mutants)]
    servers.run(place, changes=changes)
    return [json.loads(line) for line in (place.root / "events.jsonl").read_text().splitlines()]


@pytest.mark.crash_cases("postgresql")
@on_stores("sqlite", "postgresql")
def test_the_real_pipeline_keeps_the_order(servers, new_place):
    place = new_place()
    events = recorded(servers, place)
    assert Judge().judge(events) == []
    check_published(place)
    # what the order was seen of: nothing of it went unseen
    done = [event["do"] for event in events]
    assert done.count("armed") == done.count("committed") == 2
    assert done.count("noise") >= 2
    renamed = {Path(event["target"]).name for event in events if event["do"] == "rename"}
    assert {"run.json", "fit_generator.npz", "fit_weights.npz", "built"} <= renamed
    assert place.run.release_id in renamed


@pytest.mark.crash_cases("no_fsync_of_fo", "no_fsync_of_the", "fsync_after", "commit_before")
@pytest.mark.parametrize(
    ("mutant", "caught"),
    [
        ("draw_before_arming", "noise before the durable arm"),
        ("ledger_that_does_not_wait_for_the_disk", "the arm is not durable"),
        ("no_fsync_of_files", "fit_generator.npz is renamed before the fsync"),
        ("no_fsync_of_folders", "fit_generator.npz: no fsync of"),
        ("no_fsync_of_the_releases_folder", "no fsync of releases before publish"),
        ("fsync_after_the_rename", "fit_weights.npz is renamed before the fsync"),
        ("commit_before_writing", "an output is committed before it is durable"),
        ("visible_before_the_ledger_knows", "visible before the ledger knows"),
    ],
)
def test_each_wrong_order_is_caught(servers, new_place, mutant, caught):
    violations = Judge().judge(recorded(servers, new_place(), mutant))
    assert any(caught in violation for violation in violations), violations


@pytest.mark.crash
@pytest.mark.skipif(not strace.available(), reason="strace is not here, or may not trace")
def test_the_kernel_sees_the_same_order(new_place, figures):
    """System calls of a whole run: the writes inside SQLite and Arrow are seen here, too."""
    place = new_place()
    disk = strace.Disk(place.root)
    disk.judge(strace.traced(place))
    check_published(place)
    assert disk.violations == []
    assert disk.noise >= 2
    assert disk.renames >= 10
    figures("order of system calls", noise=disk.noise, renames=disk.renames, violations=0)
    for mutant in ("ledger_that_does_not_wait_for_the_disk", "no_fsync_of_files"):
        broken = new_place()
        seen = strace.Disk(broken.root)
        seen.judge(strace.traced(broken, f"tests.crash.mutants:{mutant}"))
        assert seen.violations, mutant


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_file_of_two_names_is_synced_before_its_folder_appears(is_synced):
    """It is written by one name and synced by the other: the judge follows it."""
    root, staging = "/place", "/place/run/.staging-1"
    calls = [
        f'1 write(3<{root}/run/.building-1/rows.parquet>, "rows", 4) = 4',
        f'1 link("{root}/run/.building-1/rows.parquet", "{staging}/rows.parquet") = 0',
        *([f"1 fsync(3<{staging}/rows.parquet>) = 0"] if is_synced else []),
        f'1 renameat2(AT_FDCWD, "{staging}", AT_FDCWD, "{root}/run/built", 1) = 0',
    ]
    disk = strace.Disk(Path(root))
    disk.judge(calls)
    assert (disk.violations == []) is is_synced
    elsewhere = strace.Disk(Path(root))  # a link anywhere else is a rename
    elsewhere.judge([calls[0], calls[1].replace(".staging-1", "kept")])
    assert elsewhere.violations
