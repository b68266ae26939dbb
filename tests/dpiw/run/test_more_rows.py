"""`dpiw release SPEC --rows N`: more rows from the draws that are paid, after whatever happened."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpiw import errors
from dpiw.audit import audit
from dpiw.audit.auditing import AuditReport
from dpiw.audit.statements import unreleased
from dpiw.ledger import EntryKind, Ledger
from dpiw.ledger.from_releases import missing_releases
from dpiw.plan import spec as specs
from dpiw.release import manifest
from dpiw.release.manifest import release_folders
from dpiw.release.verification import verify
from dpiw.run import more_rows as module
from dpiw.run import publish, steps
from dpiw.run.more_rows import more_rows
from dpiw.run.run import ReleaseRun
from flows import console
from tests.support import whole_runs
from tests.support.ledger import recover, restore


def audited(place: Any, folders: list[Path] | None = None) -> AuditReport:
    folders = release_folders(place.releases) if folders is None else folders
    return audit(f"sqlite:///{place.ledger}", folders, [place.key])


@pytest.mark.slow
def test_more_rows_cost_nothing_read_nothing_and_name_the_first(place):
    """With weights of their own: `test_interrupted_draws.py`."""
    run, first = whole_runs.publish_run(place.spec)
    place.source.unlink()
    shutil.rmtree(run.private)  # the snapshot, and all that is confidential
    ledger = Ledger.open(place.ledger)
    before = ledger.entries()
    text = place.spec.read_text()  # as somebody does who wants more rows
    place.spec.write_text(text.replace("synthetic_rows: 300", "synthetic_rows: 450"))
    for rows in (450, 450, 7):
        folder = more_rows(whole_runs.asked(place.spec), rows=rows)
        assert folder.name == f"town-once-rows{rows}-{run.key[:8]}"
        assert len(whole_runs.loaded(folder).table) == rows
    added = ledger.entries()[len(before) :]
    assert [entry.kind for entry in added] == [EntryKind.PUBLISH, EntryKind.PUBLISH]
    assert whole_runs.spent(place).epsilon == 2
    one, other = verify(first), verify(place.releases / f"town-once-rows450-{run.key[:8]}")
    assert other.certificate.more_rows_of == {
        "release_id": run.release_id, "manifest": one.manifest.digest,
    }  # fmt: skip
    assert other.manifest.facts.previous == other.manifest.facts.rows_of == one.manifest.digest
    assert run.release_id in other.statement
    for name in ("epsilon", "delta", "attempts", "account", "ledger_head", "plan_digest", "stages"):
        assert getattr(other.certificate, name) == getattr(one.certificate, name)
    assert not {tuple(row) for row in whole_runs.loaded(first).table.to_numpy()} >= {
        tuple(row) for row in whole_runs.loaded(other.folder).table.to_numpy()
    }  # other rows of the same law
    report = audited(place)
    assert (report.findings, unreleased(report, "town")) == ((), [])
    alone = audited(place, [other.folder])  # its certificate states what was paid
    assert [finding.code for finding in alone.findings] == ["folder_missing", "folder_missing"]
    assert unreleased(alone, "town") == []
    assert ledger.verify().ok


STEPS = ((publish, "build_folder"), (Ledger, "publish_rows"), (publish, "publish_built"))


@pytest.mark.slow
def test_a_command_that_was_cut_off_ends_with_the_same_folder(place):
    """Behind a step; with real kills before and behind every one: `test_interrupted_draws.py`."""
    run, _ = whole_runs.publish_run(place.spec)
    for rows, (owner, name) in enumerate(STEPS, start=50):
        with whole_runs.killed_at(owner, name, behind=True):
            more_rows(whole_runs.asked(place.spec), rows=rows)
        built = run.directory / f"rows-{rows}" / "built"
        bytes_before = (built / manifest.MANIFEST).read_bytes() if built.exists() else None
        folder = more_rows(whole_runs.asked(place.spec), rows=rows)
        assert bytes_before in (None, (folder / manifest.MANIFEST).read_bytes())
        assert verify(folder).manifest.facts.rows == rows
    assert len(list(place.releases.glob("town-*"))) == len(STEPS) + 1
    further = Ledger.open(place.ledger).run(run.key).further
    assert len(further) == len(set(further)) == len(STEPS)
    assert audited(place).findings == ()


HARM: dict[str, tuple[Callable[[ReleaseRun], object], type[errors.DPIWError]]] = {
    "no draw": (lambda run: run.measurement("fit_generator").unlink(), errors.ReleaseError),
    "no record": (lambda run: (run.directory / "run.json").unlink(), errors.ReleaseError),
    "no folder": (lambda run: shutil.rmtree(run.directory), errors.ReleaseError),
    "another draw": (lambda run: run.measurement("fit_generator").write_bytes(b"another"),
                     errors.LedgerTamperedError),
}  # fmt: skip


@pytest.mark.parametrize("name", HARM)
def test_without_the_draws_of_the_ledger_there_are_no_more_rows(make_workplace, name):
    harm, error = HARM[name]
    place = make_workplace(weights="none")
    run, _ = whole_runs.publish_run(place.spec)
    harm(run)
    head = Ledger.open(place.ledger).head()
    with pytest.raises(error, match="--pay-again" if error is errors.ReleaseError else None):
        more_rows(whole_runs.asked(place.spec), rows=20)
    assert Ledger.open(place.ledger).head() == head


def test_another_version_makes_no_rows_of_these_draws(place, monkeypatch):
    whole_runs.publish_run(place.spec)
    monkeypatch.setattr(specs, "__version__", "0.9.9")
    with pytest.raises(errors.LedgerConflictError):
        more_rows(whole_runs.asked(place.spec), rows=20)


def test_before_a_release_is_published_there_are_no_more_rows(place):
    for rows in (0, -1, 10**9 + 1):
        with pytest.raises(errors.SpecError, match=r"^rows:"):
            more_rows(whole_runs.asked(place.spec), rows=rows)
    with pytest.raises(errors.SpecError):
        more_rows(whole_runs.asked(place.spec), rows=20)
    whole_runs.draw(whole_runs.prepared(place))
    with pytest.raises(errors.SpecError):
        more_rows(whole_runs.asked(place.spec), rows=20)


@pytest.mark.slow
def test_two_paid_runs_are_told_apart_by_the_spec(place):
    one, _ = whole_runs.publish_run(place.spec)
    text = place.spec.read_text()
    for rows in (301, 302):
        place.spec.write_text(text.replace("synthetic_rows: 300", f"synthetic_rows: {rows}"))
        if rows == 301:
            other = whole_runs.prepared(place)
            steps.reserve(other, pay_again=True)
            whole_runs.draw(other)
            whole_runs.finish(other)
            assert more_rows(whole_runs.asked(place.spec), rows=20).name.endswith(other.key[:8])
    with pytest.raises(errors.SpecError, match=f"{one.key[:8]}, {other.key[:8]}"):
        more_rows(whole_runs.asked(place.spec), rows=20)
    place.spec.write_text(text)
    assert more_rows(whole_runs.asked(place.spec), rows=20).name.endswith(one.key[:8])
    codes = {finding.code for finding in audited(place).findings}
    assert codes == {"period_twice"}


ROWS, OTHER_ROWS, FIRST = "rows20", "rows30", "once-"


@pytest.mark.nightly_cases("[1]", "[2")
@pytest.mark.parametrize(
    "given", [[ROWS], [ROWS, OTHER_ROWS], [FIRST, ROWS], [OTHER_ROWS, ROWS, FIRST]], ids=len
)
@pytest.mark.slow
def test_folders_of_the_same_draws_are_charged_once(place, given):
    """The host died: the ledger was restored, the workspace is gone, some folders are lost."""
    before = place.ledger.read_bytes()
    run, first = whole_runs.publish_run(place.spec)
    folders = {FIRST: first} | {
        f"rows{rows}": more_rows(whole_runs.asked(place.spec), rows=rows) for rows in (20, 30)
    }
    kept = shutil.copytree(first, place.root / "found later" / first.name)
    restore(place, before)
    shutil.rmtree(run.directory)
    if FIRST not in given:
        shutil.rmtree(first)
        with pytest.raises(errors.SpecError):
            recover(place, releases=[folders[name] for name in given])
    recover(
        place,
        *["--previous-lost"] * (FIRST not in given),
        releases=[folders[name] for name in given],
    )
    assert whole_runs.spent(place).epsilon == 2
    steps.reserve(_next(place))  # folders that were not given are known, too
    codes = [finding.code for finding in audited(place).findings]
    assert codes == ["recovered"] + ["folder_missing"] * (FIRST not in given)
    with pytest.raises(errors.LedgerConflictError):
        recover(place, releases=[kept, *folders.values()] if FIRST in given else [kept])
    found = audited(place, [kept, folders[ROWS], folders[OTHER_ROWS]])
    assert [finding.code for finding in found.findings] == ["recovered"]
    place.rewrite("name: village", "name: town")
    place.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    with pytest.raises(errors.AlreadyPaidError):
        whole_runs.reserved(place)


@pytest.mark.slow
def test_later_releases_follow_one_for_which_more_rows_stand(make_workplace):
    """Two releases and more rows of the first; the first's own folder is lost."""
    place = make_workplace(epsilon="9", weights="none")
    place.rewrite("cadence: once", "cadence: yearly")
    before = place.ledger.read_bytes()
    _, first = whole_runs.publish_run(place.spec, period="2025")
    rows = more_rows(whole_runs.asked(place.spec, "2025"), rows=20)
    between = place.ledger.read_bytes()
    _, second = whole_runs.publish_run(place.spec, period="2026")
    moved = shutil.move(first, place.root / first.name)
    for at in (between, before):  # the ledger knows the first, or neither
        restore(place, at)
        recover(place, *["--previous-lost"] * (at is before), releases=[rows, second])
        assert whole_runs.spent(place).epsilon == 4
        steps.reserve(_next(place, "2025"))
        place.rewrite("name: village", "name: town")
    assert verify(Path(moved))


def test_folders_of_the_same_draws_under_other_heads_are_refused(place):
    whole_runs.publish_run(place.spec)
    more_rows(whole_runs.asked(place.spec), rows=20)
    one, other = (verify(folder) for folder in release_folders(place.releases))
    certificate = replace(other.certificate, ledger_head="0" * 64)
    mixed = replace(other, certificate=certificate)
    for releases in ([one, mixed], [mixed, one], [other, mixed]):
        with pytest.raises(errors.LedgerConflictError):
            missing_releases(Ledger.open(place.ledger), releases)


def _next(place: Any, period: str | None = None) -> ReleaseRun:
    """A run of another name: the population spends again, whatever lies beside its releases."""
    place.rewrite("name: town", "name: village")
    return whole_runs.prepared(place, period=period)


def test_a_folder_that_claims_another_first_is_no_release(place, monkeypatch):
    """Certificate and manifest name one and the same, or a signer mixed them up."""
    whole_runs.publish_run(place.spec)
    real = module.build
    monkeypatch.setattr(
        module, "build", lambda *words, previous: real(*words, previous="0" * 64)
    )  # fmt: skip
    with pytest.raises(errors.ManifestError, match="release whose draws these rows are"):
        more_rows(whole_runs.asked(place.spec), rows=20)


def test_the_command_prints_where_the_rows_are(place, capsys, monkeypatch):
    whole_runs.publish_run(place.spec)
    monkeypatch.setattr(console, "quiet_prefect", lambda: None)
    assert console.main(pytest.fail, [str(place.spec), "--rows", "20"]) == 0
    assert "rows       20, from the draws of town-once-" in capsys.readouterr().out
    for words in (["--until", "ingest"], ["--pay-again"]):
        with pytest.raises(SystemExit):
            console.main(pytest.fail, [str(place.spec), "--rows", "20", *words])
