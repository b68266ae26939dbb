"""docs/privacy.md section 6, the rows about a file's structure: refused before anything is drawn.

Each refusal is a SourceError (exit code 12) whose text quotes nothing, gives the reservation back
(charge 0), and leaves neither a file in the workspace nor a folder among the releases.
"""

import errno
import os

import pytest

from dpiw.data import files
from dpiw.errors import SourceError, StageFailedError
from dpiw.ledger import StageState
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.hostile.bad_inputs.structure_cases import NAMES, STRUCTURE
from tests.hostile.bad_inputs.workbench import CANARY, csv, make_bench, silent


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    from tests.conftest import make_workplace

    return make_bench(make_workplace.__wrapped__(tmp_path_factory))


def refused(bench, label, content, match, **settings):
    before = bench.spent()
    with pytest.raises(SourceError, match=match) as caught:
        bench.ingest(label, content, **settings)
    assert caught.value.exit_code == 12
    assert silent(caught.value)
    assert len(str(caught.value)) < 300
    assert bench.spent() == before
    run = bench.fresh(label)
    states = {stage.state for stage in bench.ledger.run(run.key).stages.values()}
    assert states == {StageState.VOIDED}
    assert list(run.private.iterdir()) == []
    assert not bench.place.releases.exists()


@pytest.mark.parametrize("case", list(STRUCTURE))
def test_structure_is_refused_without_charge(bench, case):
    content, match, settings = STRUCTURE[case]
    refused(bench, case, content, match, **settings)


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


# Rows 7, 8, 9: the number of rows is public under replace-one, and there alone
def test_the_number_of_rows_under_replace_one(make_workplace):
    from decimal import Decimal

    from dpiw.ledger import Ledger, Population
    from dpiw.privacy.units import NeighbouringRelation

    place = make_workplace(population="village")
    relation = NeighbouringRelation.REPLACE_ONE
    Ledger.open(place.ledger).register(
        Population(name="village", relation=relation, max_rows=1, epsilon=Decimal(5),
                   delta=Decimal("1e-4"))
    )  # fmt: skip
    text = place.spec.read_text().replace("add_or_remove_one", "replace_one")
    place.spec.write_text(text)
    good = place.source.read_text()
    lines = good.splitlines()
    for number, content in enumerate((lines[:1], lines[:2], lines[:-1], [*lines, lines[-1]])):
        place.source.write_text("\n".join(content) + "\n")
        run = ReleaseRun.prepare(place.spec, period=f"p{number}")
        steps.reserve(run)
        with pytest.raises(SourceError, match="number of rows is not the one declared") as caught:
            steps.ingest(run)
        assert silent(caught.value, "399", "401")
        assert Ledger.open(place.ledger).spent("village").epsilon == 0
        assert list(run.private.iterdir()) == []
    place.source.write_text(good)
    run = ReleaseRun.prepare(place.spec, period="whole")
    steps.reserve(run)
    steps.ingest(run)
    assert run.snapshot.exists()


# Row 48: a full disk
def full(monkeypatch, name):
    """Every durable write of a file called `name` meets a full disk."""
    real = os.rename

    def rename(source, target):
        if os.path.basename(target) == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(files.os, "rename", rename)


def test_a_full_disk_at_the_draw_loses_it_and_charges(workplace, monkeypatch):
    run = ReleaseRun.prepare(workplace.spec, period=None)
    steps.reserve(run)
    steps.ingest(run)
    full(monkeypatch, "fit_generator.npz")
    with pytest.raises(StageFailedError, match="code 70"):
        steps.fit_generator(run, noise=SecureNoise())
    monkeypatch.undo()
    with pytest.raises(Exception, match="max_attempts"):
        steps.reserve(run)
    record = run.open_ledger().run(run.key)
    assert record.stages["fit_generator"].state is StageState.LOST
    assert run.open_ledger().spent("town").epsilon == 2
    with pytest.raises(StageFailedError):
        steps.draw_synthetic(run)
    assert not workplace.releases.exists()
