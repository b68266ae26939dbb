"""`dpiw rehearse`: what a curator sees, and what is never touched."""

import os
import signal

import pytest

from dpiw.cli.main import main
from dpiw.errors import ReleaseError, SourceError, SpecError
from dpiw.plan.rehearsal.candidates import MEASURED
from dpiw.plan.rehearsal.populations import labelled_rows
from dpiw.plan.spec import load_schema, load_spec
from tests.support.fits import fitted_at_once
from tests.support.whole_runs import publish_run

FEW = ["--runs", "5", "--rows", "100", "--jobs", "1"]
FAST = ["--runs", "5", "--rows", "150", "--jobs", "1", "--populations", "strong"]


@pytest.fixture(autouse=True)
def small_candidates(monkeypatch):
    """Two measured weights of few features and few base rows, and fits of MST and AIM at once.

    What is compared, not how well.
    """
    few = {"frequencies": 10, "base_rows": 300, "omega_seed": 1}
    small = {name: (settings | few, shares) for name, (settings, shares) in [*MEASURED.items()][:2]}
    monkeypatch.setattr("dpiw.plan.rehearsal.candidates.MEASURED", small)
    with fitted_at_once():
        yield


def files(workplace):
    """Every file of the workplace with its bytes and times, but what tests write."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(workplace.root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_rehearsal_opens_no_source_and_leaves_everything_as_it_was(workplace, capsys, says):
    workplace.source.unlink()
    os.mkfifo(workplace.source)  # opening it would wait for ever
    before = files(workplace)
    call = ["rehearse", str(workplace.spec), *FAST]
    assert main(call) == 0  # a seed is drawn, and printed
    shown = capsys.readouterr()
    assert files(workplace) == before
    seed = shown.out.splitlines()[1].rpartition("seed ")[2]
    assert says(*call, "--seed", seed) == shown.out
    lines = shown.out.splitlines()
    rows = [line for line in lines if line.startswith("strong ")]
    assert len(rows) == 3 + 2 + 3  # stand-in rows, none, the spec; measured weights; generators
    assert "the spec's generator, `histogram`; `privbayes`, `mst`, `aim`: " in shown.out
    assert sum(line.startswith("recommendation: publish ") for line in lines) == 1


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_rehearsal_that_is_stopped_ends_with_the_code_of_its_signal(
    workplace, capsys, monkeypatch, sent, code
):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("dpiw.cli.rehearse._progress", lambda: lambda *_: signal.raise_signal(sent))
    try:
        ended = main(["rehearse", str(workplace.spec), *FAST])
    except SystemExit as end:
        ended = end.code
    assert ended == code
    assert capsys.readouterr().out == ""
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_source_can_not_be_offered_as_public_rows(workplace, tmp_path):
    link, hard = tmp_path / "link.csv", tmp_path / "hard.csv"
    link.symlink_to(workplace.source)
    os.link(workplace.source, hard)
    workspace = workplace.root / "state" / "workspace"
    workspace.mkdir()
    (workspace / "rows.csv").write_text("x\n")
    for path in (workplace.source, link, hard, workspace / "rows.csv"):
        call = ["rehearse", str(workplace.spec), "--public-rows", str(path)]
        assert main([*call, "--i-declare-these-rows-public"]) == SpecError.exit_code


@pytest.mark.slow
def test_public_rows_need_the_curators_word(workplace, says, tmp_path):
    rows = tmp_path / "public.csv"
    rows.write_bytes(workplace.source.read_bytes())
    call = ["rehearse", str(workplace.spec), *FEW, "--seed", "1", "--public-rows", str(rows)]
    workplace.source.unlink()
    assert "--i-declare-these-rows-public" in says(*call, code=SpecError.exit_code)
    assert "\npublic " in says(*call, "--i-declare-these-rows-public")
    rows.write_text("\n".join(rows.read_text().splitlines()[:20]) + "\n")
    assert main([*call, "--i-declare-these-rows-public"]) == SourceError.exit_code


def test_a_calibration_on_public_rows_is_rehearsed_at_their_number(workplace, tmp_path):
    rows = tmp_path / "public.csv"
    rows.write_bytes(workplace.source.read_bytes())
    step = "{step: beta_calibrate, rows: %s, declared: a census}"
    text = workplace.spec.read_text()
    workplace.add_steps(step % rows)
    spec = load_spec(workplace.spec)
    workplace.source.unlink()
    assert labelled_rows(spec, load_schema(spec)) == 400
    workplace.spec.write_text(text)
    spec = load_spec(workplace.spec)
    assert labelled_rows(spec, load_schema(spec)) == 0


@pytest.mark.slow
def test_a_former_release_can_stand_in(workplace, says, make_workplace):
    _, folder = publish_run(workplace.spec)
    before = files(workplace)
    call = ["rehearse", str(workplace.spec), *FEW, "--like", str(folder)]
    assert "\nrelease " in says(*call, "--key", workplace.root / "state/keys/test.pub")
    assert files(workplace) == before
    unlike = make_workplace()
    text = (unlike.root / "schema.yaml").read_text().replace("upper: 100}", "upper: 90}")
    (unlike.root / "schema.yaml").write_text(text)
    call[1] = str(unlike.spec)
    assert main(call) == ReleaseError.exit_code


@pytest.mark.parametrize(
    "words", ["--rows 0", "--jobs 0", "--key k.pub", "--populations weak --like f", "--seed -1"]
)
def test_arguments_that_make_no_sense_are_refused(workplace, words):
    """More of them: `tests/hostile/mistakes`."""
    assert main(["rehearse", str(workplace.spec), *words.split()]) == SpecError.exit_code
