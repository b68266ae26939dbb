"""docs/privacy.md section 6, the rows about a file's structure: refused before anything is drawn.

Each refusal is a SourceError (exit code 12) whose text quotes nothing, gives the reservation back
(charge 0), and leaves neither a file in the workspace nor a folder among the releases.
"""

import os

import pytest

from dpiw.errors import SourceError
from dpiw.ledger import StageState
from dpiw.run import steps
from tests.hostile.bad_inputs.structure_cases import NAMES, STRUCTURE
from tests.hostile.bad_inputs.workbench import CANARY, csv, make_bench, silent


@pytest.fixture(scope="module")
def bench(make_workplace):
    return make_bench(make_workplace)


@pytest.mark.nightly_cases("16 truths", "30 structs", "30 maps")
@pytest.mark.parametrize("case", list(STRUCTURE))
@pytest.mark.slow
def test_structure_is_refused_without_charge(bench, case):
    content, match, settings = STRUCTURE[case]
    before = bench.spent()
    with pytest.raises(SourceError, match=match) as caught:
        bench.ingest(case, content, **settings)
    assert caught.value.exit_code == 12
    assert silent(caught.value)
    assert len(str(caught.value)) < 300
    assert bench.spent() == before
    run = bench.fresh(case)
    states = {stage.state for stage in bench.ledger.run(run.key).stages.values()}
    assert states == {StageState.VOIDED}
    assert list(run.private.iterdir()) == []
    assert not bench.place.releases.exists()


@pytest.mark.slow
def test_admissible_beside_what_is_refused(bench):
    """Order by name, a byte-order mark, a declared encoding and separator, quoted newlines."""
    shuffled = csv({"region": "süd"}, names=NAMES[::-1])
    assert bench.cells(bench.ingest("order", shuffled))["region"].tolist() == ["süd"]
    assert bench.cells(bench.ingest("bom", b"\xef\xbb\xbf" + shuffled))["age"].tolist() == [30]
    latin = bench.ingest("latin", shuffled.decode().encode("latin-1"), encoding="latin-1")
    assert bench.cells(latin)["region"].tolist() == ["süd"]
    wide = bench.ingest("utf-16", shuffled.decode().encode("utf-16"), encoding="utf-16")
    assert bench.cells(wide)["region"].tolist() == ["süd"]
    wrong = bench.ingest("invalid bytes", shuffled.decode().encode("latin-1"))
    assert bench.cells(wrong)["region"].tolist() == ["other"]
    semicolons = bench.ingest("separator", shuffled.replace(b",", b";"), delimiter=";")
    assert bench.cells(semicolons)["age"].tolist() == [30]


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder", "nothing"])
def test_a_source_that_is_no_plain_file_is_refused(bench, kind):
    """Row 31. By its name, before anything is held or read; and again when it is opened."""
    place = bench.place.root / f"{CANARY}-{kind}"
    if kind == "link":
        place.symlink_to(bench.place.source)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    target = "/dev/zero" if kind == "device" else place
    run = bench.with_source(bench.fresh(kind), target)
    before = bench.spent()
    with pytest.raises(SourceError, match=r"regular file|no such file") as caught:
        steps.reserve(run)
    assert silent(caught.value)
    assert bench.ledger.find_run(run.key) is None
    target = run.spec.source.path
    steps.reserve(bench.with_source(run, bench.place.source))
    with pytest.raises(SourceError, match=r"regular file|opened") as caught:
        steps.ingest(bench.with_source(run, target))
    assert silent(caught.value)
    assert bench.spent() == before
    assert list(run.private.iterdir()) == []
