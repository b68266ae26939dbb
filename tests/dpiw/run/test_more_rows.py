"""`dpiw release SPEC --rows N`: more rows from the draws that are paid, after whatever happened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.audit.auditing import AuditReport
from dpiw.audit.statements import unreleased
from dpiw.errors import (
    AlreadyPaidError,
    LedgerConflictError,
    LedgerTamperedError,
    ManifestError,
    ReleaseError,
    SpecError,
)
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
from dpiw.run.workspace import purge, survey
from flows import console
from tests.support.ledger import restore, told
from tests.support.whole_runs import asked, draw, loaded, prepared, publish_run, spent


def audited(place: Any, folders: list[Path] | None = None) -> AuditReport:
    folders = release_folders(place.releases) if folders is None else folders
    key = place.root / "state" / "keys" / "test.pub"
    return audit(f"sqlite:///{place.ledger}", folders, [key])


def unreadable(place: Any, run: ReleaseRun) -> None:
    """Remove the table, its snapshot and all that is confidential."""
    place.source.unlink()
    shutil.rmtree(run.private)


def test_more_rows_cost_nothing_read_nothing_and_name_the_first(make_workplace: Any) -> None:
    """With weights of their own: `test_interrupted_draws.py`."""
    place = make_workplace(weights="none")
    run, first = publish_run(place.spec)
    unreadable(place, run)
    ledger = Ledger.open(place.ledger)
    before = ledger.entries()
    text = place.spec.read_text()  # as somebody does who wants more rows
    place.spec.write_text(text.replace("synthetic_rows: 300", "synthetic_rows: 450"))
    for rows in (450, 450, 7):
        folder = more_rows(asked(place.spec), rows=rows)
        assert folder.name == f"town-once-rows{rows}-{run.key[:8]}"
        assert len(loaded(folder).table) == rows
    added = ledger.entries()[len(before) :]
    assert [entry.kind for entry in added] == [EntryKind.PUBLISH, EntryKind.PUBLISH]
    assert spent(place).epsilon == 2
    one, other = verify(first), verify(place.releases / f"town-once-rows450-{run.key[:8]}")
    assert other.certificate.more_rows_of == {
        "release_id": run.release_id, "manifest": one.manifest.digest,
    }  # fmt: skip
    assert other.manifest.facts.previous == other.manifest.facts.rows_of == one.manifest.digest
    assert run.release_id in other.statement
    for name in ("epsilon", "delta", "attempts", "account", "ledger_head", "plan_digest", "stages"):
        assert getattr(other.certificate, name) == getattr(one.certificate, name)
    assert not {tuple(row) for row in loaded(first).table.to_numpy()} >= {
        tuple(row) for row in loaded(other.folder).table.to_numpy()
    }  # other rows of the same law
    report = audited(place)
    assert (report.findings, unreleased(report, "town")) == ((), [])
    alone = audited(place, [other.folder])  # its certificate states what was paid
    assert [finding.code for finding in alone.findings] == ["folder_missing", "folder_missing"]
    assert unreleased(alone, "town") == []
    assert ledger.verify().ok


STEPS = ((publish, "build_folder"), (Ledger, "publish_rows"), (publish, "publish_built"))


def test_a_command_that_was_cut_off_ends_with_the_same_folder(
    make_workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a step; with real kills before and behind every one: `test_interrupted_draws.py`."""
    place = make_workplace(weights="none")
    run, _ = publish_run(place.spec)
    for rows, (owner, name) in enumerate(STEPS, start=50):
        real = getattr(owner, name)

        def dies(*words: Any, real: Any = real, **options: Any) -> Any:
            real(*words, **options)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dies)
            with pytest.raises(KeyboardInterrupt):
                more_rows(asked(place.spec), rows=rows)
        built = run.directory / f"rows-{rows}" / "built"
        bytes_before = (built / manifest.MANIFEST).read_bytes() if built.exists() else None
        folder = more_rows(asked(place.spec), rows=rows)
        assert bytes_before in (None, (folder / manifest.MANIFEST).read_bytes())
        assert verify(folder).manifest.facts.rows == rows
    assert len(list(place.releases.glob("town-*"))) == len(STEPS) + 1
    further = Ledger.open(place.ledger).run(run.key).further
    assert len(further) == len(set(further)) == len(STEPS)
    assert audited(place).findings == ()


def test_a_purge_leaves_what_more_rows_need(make_workplace: Any) -> None:
    place = make_workplace(weights="none")
    publish_run(place.spec)
    (listed,) = survey(place.root / "state")
    purge(listed)
    assert verify(more_rows(asked(place.spec), rows=20)).manifest.facts.rows == 20


@pytest.mark.parametrize("gone", ["fit_generator.npz", "run.json", ""])
def test_without_the_draws_it_says_what_would_cost_what(make_workplace: Any, gone: str) -> None:
    place = make_workplace(weights="none")
    run, _ = publish_run(place.spec)
    path = run.directory / gone
    path.unlink() if gone else shutil.rmtree(path)
    head = Ledger.open(place.ledger).head()
    with pytest.raises(ReleaseError, match="--pay-again"):
        more_rows(asked(place.spec), rows=20)
    assert Ledger.open(place.ledger).head() == head


def test_draws_that_are_not_those_of_the_ledger_are_refused(make_workplace: Any) -> None:
    place = make_workplace(weights="none")
    run, _ = publish_run(place.spec)
    run.measurement("fit_generator").write_bytes(b"another")
    with pytest.raises(LedgerTamperedError):
        more_rows(asked(place.spec), rows=20)


@pytest.mark.parametrize("rows", [0, -1, 10**9 + 1])
def test_numbers_of_rows_that_nobody_can_have(workplace: Any, rows: int) -> None:
    with pytest.raises(SpecError, match=r"^rows:"):
        more_rows(asked(workplace.spec), rows=rows)


def test_before_a_release_is_published_there_are_no_more_rows(make_workplace: Any) -> None:
    place = make_workplace(weights="none")
    with pytest.raises(SpecError):
        more_rows(asked(place.spec), rows=20)
    draw(prepared(place))
    with pytest.raises(SpecError):
        more_rows(asked(place.spec), rows=20)


def test_noise_that_was_drawn_for_the_published_rows_has_no_other_rows(
    make_workplace: Any,
) -> None:
    place = make_workplace(weights="output_noised")
    text = place.spec.read_text()
    settings = "when_infeasible: keep, settings: {allow_more_rows: true}"
    place.spec.write_text(text.replace("when_infeasible: keep", settings))
    run, _ = publish_run(place.spec)
    with pytest.raises(SpecError, match=r"weights.method=output_noised"):
        more_rows(asked(place.spec), rows=20)
    assert not Ledger.open(place.ledger).run(run.key).further


def test_another_version_makes_no_rows_of_these_draws(
    make_workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_workplace(weights="none")
    publish_run(place.spec)
    monkeypatch.setattr(specs, "__version__", "0.9.9")
    with pytest.raises(LedgerConflictError):
        more_rows(asked(place.spec), rows=20)


def test_two_paid_runs_are_told_apart_by_the_spec(make_workplace: Any) -> None:
    place = make_workplace(weights="none")
    one, _ = publish_run(place.spec)
    text = place.spec.read_text()
    for rows in (301, 302):
        place.spec.write_text(text.replace("synthetic_rows: 300", f"synthetic_rows: {rows}"))
        if rows == 301:
            other = prepared(place)
            steps.reserve(other, pay_again=True)
            draw(other)
            steps.debias(other)
            steps.diagnose(other)
            steps.publish(other)
            assert more_rows(asked(place.spec), rows=20).name.endswith(other.key[:8])
    with pytest.raises(SpecError, match=f"{one.key[:8]}, {other.key[:8]}"):
        more_rows(asked(place.spec), rows=20)
    place.spec.write_text(text)
    assert more_rows(asked(place.spec), rows=20).name.endswith(one.key[:8])
    codes = {finding.code for finding in audited(place).findings}
    assert codes == {"period_twice"}


def test_a_ledger_that_was_lost_is_recovered_without_a_second_charge(make_workplace: Any) -> None:
    place = make_workplace(weights="none")
    before = place.ledger.read_bytes()
    publish_run(place.spec)
    more_rows(asked(place.spec), rows=20)
    restore(place, before)
    recover(place, place.releases)
    assert spent(place).epsilon == 2
    steps.reserve(_next(place))
    codes = [finding.code for finding in audited(place).findings]
    assert codes == ["recovered"]


ROWS, OTHER_ROWS, FIRST = "rows20", "rows30", "once-"


@pytest.mark.nightly_cases("[1]", "[2")
@pytest.mark.parametrize(
    "given", [[ROWS], [ROWS, OTHER_ROWS], [FIRST, ROWS], [OTHER_ROWS, ROWS, FIRST]], ids=len
)
def test_folders_of_the_same_draws_are_charged_once(make_workplace: Any, given: list[str]) -> None:
    """The host died: the ledger was restored, the workspace is gone, some folders are lost."""
    place = make_workplace(weights="none")
    before = place.ledger.read_bytes()
    run, first = publish_run(place.spec)
    folders = {FIRST: first} | {
        f"rows{rows}": more_rows(asked(place.spec), rows=rows) for rows in (20, 30)
    }
    kept = shutil.copytree(first, place.root / "found later" / first.name)
    restore(place, before)
    shutil.rmtree(run.directory)
    if FIRST not in given:
        shutil.rmtree(first)
        with pytest.raises(SpecError):
            recover(place, *(folders[name] for name in given))
    recover(place, *(folders[name] for name in given), previous_lost=FIRST not in given)
    assert spent(place).epsilon == 2
    steps.reserve(_next(place))  # folders that were not given are known, too
    codes = [finding.code for finding in audited(place).findings]
    assert codes == ["recovered"] + ["folder_missing"] * (FIRST not in given)
    with pytest.raises(LedgerConflictError):
        recover(place, kept, *folders.values() if FIRST in given else ())
    found = audited(place, [kept, folders[ROWS], folders[OTHER_ROWS]])
    assert [finding.code for finding in found.findings] == ["recovered"]
    place.spec.write_text(place.spec.read_text().replace("name: village", "name: town"))
    with pytest.raises(AlreadyPaidError):
        steps.reserve(prepared_with(place, "synthetic_rows: 300", "synthetic_rows: 301"))


def test_later_releases_follow_one_for_which_more_rows_stand(make_workplace: Any) -> None:
    """Two releases and more rows of the first; the first's own folder is lost."""
    place = make_workplace(epsilon="9", weights="none")
    place.spec.write_text(place.spec.read_text().replace("cadence: once", "cadence: yearly"))
    before = place.ledger.read_bytes()
    _, first = publish_run(place.spec, period="2025")
    rows = more_rows(asked(place.spec, "2025"), rows=20)
    between = place.ledger.read_bytes()
    _, second = publish_run(place.spec, period="2026")
    moved = shutil.move(first, place.root / first.name)
    for at in (between, before):  # the ledger knows the first, or neither
        restore(place, at)
        recover(place, rows, second, previous_lost=at is before)
        assert spent(place).epsilon == 4
        steps.reserve(_next(place, "2025"))
        place.spec.write_text(place.spec.read_text().replace("name: village", "name: town"))
    assert verify(Path(moved))


def test_folders_of_the_same_draws_under_other_heads_are_refused(make_workplace: Any) -> None:
    place = make_workplace(weights="none")
    publish_run(place.spec)
    more_rows(asked(place.spec), rows=20)
    one, other = (verify(folder) for folder in release_folders(place.releases))
    certificate = replace(other.certificate, ledger_head="0" * 64)
    mixed = replace(other, certificate=certificate)
    for releases in ([one, mixed], [mixed, one], [other, mixed]):
        with pytest.raises(LedgerConflictError):
            missing_releases(Ledger.open(place.ledger), releases)


def recover(place: Any, *folders: Path, previous_lost: bool = False) -> None:
    told(
        "recover", "--ledger", str(place.ledger),
        *(word for folder in folders for word in ("--releases", str(folder))),
        "--key", str(place.root / "state" / "keys" / "test.pub"),
        "--loss-epsilon", "0", "--loss-delta", "0", "--loss-reads", "0",
        *["--previous-lost"] * previous_lost,
    )  # fmt: skip


def prepared_with(place: Any, old: str, new: str) -> ReleaseRun:
    text = place.spec.read_text()
    assert old in text
    place.spec.write_text(text.replace(old, new))
    return prepared(place)


def test_more_rows_of_a_small_base_are_rows_of_their_own(make_workplace: Any) -> None:
    """`base_rows` was stated for the first release; rows would repeat in a longer one."""
    place = make_workplace(weights="measured")
    settings = "settings: {omega_seed: 1, frequencies: 10, base_rows: 400}"
    place.spec.write_text(place.spec.read_text().replace("when_infeasible: keep", settings))
    publish_run(place.spec)
    table = loaded(more_rows(asked(place.spec), rows=900)).table
    assert len(table.drop_duplicates()) > 420


def _next(place: Any, period: str | None = None) -> ReleaseRun:
    """A run of another name: the population spends again, whatever lies beside its releases."""
    place.spec.write_text(place.spec.read_text().replace("name: town", "name: village"))
    return prepared(place, period=period)


def test_a_folder_that_claims_another_first_is_no_release(
    make_workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate and manifest name one and the same, or a signer mixed them up."""
    place = make_workplace(weights="none")
    publish_run(place.spec)
    real = module.build
    monkeypatch.setattr(
        module, "build", lambda *words, previous: real(*words, previous="0" * 64)
    )  # fmt: skip
    with pytest.raises(ManifestError, match="release whose draws these rows are"):
        more_rows(asked(place.spec), rows=20)


def test_the_command_prints_where_the_rows_are(
    make_workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_workplace(weights="none")
    publish_run(place.spec)
    monkeypatch.setattr(console, "quiet_prefect", lambda: None)

    def never(*_: Any) -> str:
        raise AssertionError("the flow was started")

    assert console.main(never, [str(place.spec), "--rows", "20"]) == 0
    assert "rows       20, from the draws of town-once-" in capsys.readouterr().out
    for words in (["--until", "ingest"], ["--pay-again"]):
        with pytest.raises(SystemExit):
            console.main(never, [str(place.spec), "--rows", "20", *words])
