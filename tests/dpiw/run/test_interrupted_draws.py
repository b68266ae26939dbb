"""A stage that dies between two of its draws: never a second look at the data that nobody paid.

Of every registered method: each start that died is on record, as lost and paid once more or as
resumed within what was paid, and the last one is published.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.audit.findings import Severity
from dpiw.errors import SpecError
from dpiw.ledger import EntryKind, Ledger, StageState
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.manifest import release_folders
from dpiw.release.verification import verify
from dpiw.run import more_rows as more_rows_module
from dpiw.run import steps
from dpiw.run.more_rows import more_rows
from dpiw.run.run import ReleaseRun
from tests.crash.harness import ForkServer, Place
from tests.golden.make_releases import prepare, spec_of
from tests.support.noise import Cut
from tests.support.whole_runs import asked, finish, publish_run

GENERATOR_SETTINGS: dict[str, dict[str, Any]] = {
    "privbayes": {"bins": 4}, "dpgan": {"steps": 12}, "dpcgan": {"steps": 12},
    "pategan": {"teachers": 4, "queries": 20},
}  # fmt: skip
WEIGHT_SETTINGS: dict[str, dict[str, Any]] = {
    "measured": {"frequencies": 10, "omega_seed": 1}, "dp_mlp": {"steps": 12, "hidden": [4]},
    "output_noised": {"allow_more_rows": True},
}  # fmt: skip
METHODS = (
    [(method, "none", GENERATOR_STAGE) for method in GENERATORS if method != "external"]
    + [("histogram", method, WEIGHTS_STAGE) for method in WEIGHTS if method != "discriminator"]
    + [("dpgan", "discriminator", GENERATOR_STAGE)]
)
"""Every registered method that draws, and the stage; discriminator weights are of that training."""


def prepared(root: Path, generator: str, weights: str, *, attempts: int = 1) -> Path:
    """A spec of two methods, which may pay so often, in a workplace of its own."""
    prepare(root)
    spec = json.loads(spec_of("levels-none" if generator == "levels" else "bayes-none", root)
                      .read_text())  # fmt: skip
    chosen = {"method": weights, "settings": WEIGHT_SETTINGS.get(weights, {})}
    spec |= {
        "generator": {"method": generator, "settings": GENERATOR_SETTINGS.get(generator, {})},
        "weights": chosen | ({} if weights == "none" else {"when_infeasible": "keep"}),
        "max_attempts": attempts,
    }
    (root / "release.yaml").write_text(json.dumps(spec))
    return root / "release.yaml"


def all_draws(run: ReleaseRun, stage: str, noise: Cut) -> None:
    """Every stage that draws; that one by this noise."""
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=noise if stage == GENERATOR_STAGE else SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise if stage == WEIGHTS_STAGE else SecureNoise())


def check_paid(run: ReleaseRun, stage: str, *, died: int) -> None:
    """Each start that died is on record; the account holds what all attempts cost."""
    ledger = run.open_ledger()
    record = ledger.run(run.key)
    kinds = [entry.kind for entry in ledger.entries(run_key=run.key) if entry.stage == stage]
    assert kinds.count(EntryKind.LOSE) + kinds.count(EntryKind.RESUME) == died
    assert kinds.count(EntryKind.ARM) == 1 + kinds.count(EntryKind.LOSE)
    assert len(record.attempts) == 1 + kinds.count(EntryKind.LOSE)
    assert ledger.spent("town").epsilon_units == sum(
        attempt.charge.cost.epsilon_units for attempt in record.attempts
    )
    assert record.stages[stage].state is StageState.COMMITTED
    assert ledger.verify().ok


def published_as_paid(root: Path, folder: Path) -> None:
    key = root / "state" / "keys" / "test.pub"
    report = audit(f"sqlite:///{root / 'state' / 'ledger.sqlite'}",
                   release_folders(root / "state" / "releases"), [key])  # fmt: skip
    assert [finding for finding in report.findings if finding.severity is Severity.ERROR] == []
    assert verify(folder, public_key=[key])


@pytest.fixture(scope="module")
def server():
    warm = ForkServer()
    warm.wait_until_warm()
    yield warm
    warm.close()


def killed_at(watch: Any, task: dict[str, Any]) -> None:
    """In a child of the server: the process is gone behind so many draws of the stage."""
    noise = Cut(task["cut"], killed=True)
    real = getattr(steps, task["stage"])
    setattr(steps, task["stage"], lambda run, **_: real(run, noise=noise))


@pytest.mark.crash
@pytest.mark.parametrize(("generator", "weights", "stage"), METHODS)
def test_a_process_that_was_killed_between_two_draws(generator, weights, stage, tmp_path, server):
    spec = prepared(tmp_path, generator, weights, attempts=6)
    place = Place(root=tmp_path, url=f"sqlite:///{tmp_path / 'state' / 'ledger.sqlite'}")
    task = {"changes": [f"{__name__}:killed_at"], "stage": stage}
    ends = [server.run(place, **task, cut=cut) for cut in (0, 1, 2, 5)]
    if ends[-1] == -signal.SIGKILL:
        assert server.run(place) == 0
    died = ends.count(-signal.SIGKILL)
    assert ends == [-signal.SIGKILL] * died + [0] * (4 - died)
    assert died > 0
    run = ReleaseRun.prepare(spec, period=None)
    check_paid(run, stage, died=died)
    published_as_paid(tmp_path, finish(run))


# --- more rows of every method --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generator", "weights"),
    [("bayes", "none"), ("histogram", "output_noised"),
     *(pytest.param(*case, marks=pytest.mark.nightly) for case in [
         *(case[:2] for case in METHODS if case[0] != "bayes" and case[1] != "output_noised"),
         ("dpcgan", "discriminator"), ("dpgan", "measured"),
     ])],
)  # fmt: skip
@pytest.mark.slow
def test_more_rows_of_every_method(generator, weights, tmp_path):
    """From the draws that are kept: for nothing, with weights of their own; or refused by name."""
    spec = prepared(tmp_path, generator, weights)
    run, first = publish_run(spec)
    ledger = Ledger.open(tmp_path / "state" / "ledger.sqlite")
    before, spent = len(ledger.entries()), ledger.spent("town")
    run.snapshot.unlink()
    (tmp_path / "data.csv").unlink()
    if weights == "output_noised":
        with pytest.raises(SpecError, match="output_noised"):
            more_rows(asked(spec), rows=90)
        assert len(ledger.entries()) == before
        return
    folder = more_rows(asked(spec), rows=90)
    assert more_rows(asked(spec), rows=90) == folder
    assert ledger.spent("town") == spent
    assert [entry.kind for entry in ledger.entries()[before:]] == [EntryKind.PUBLISH]
    one, other = verify(first), verify(folder)
    assert (other.manifest.facts.rows, other.manifest.facts.rows_of) == (90, one.manifest.digest)
    published_as_paid(tmp_path, folder)


# --- `--rows`, killed -----------------------------------------------------------------------------

STEPS = ("link_file", "draw_synthetic", "debias", "diagnose", "clean", "certify_more_rows", "build",
         "make_visible")  # fmt: skip
"""Of `dpiw.run.more_rows`, in order."""


def rows_killed_at(watch: Any, task: dict[str, Any]) -> None:
    """In a child of the server: `--rows` alone, gone before or behind one of its steps."""
    from tests.crash import child

    if task["step"] is not None:
        owner = Ledger if task["step"] == "publish_rows" else more_rows_module
        real = getattr(owner, task["step"])

        def dies(*words: Any, **named: Any) -> Any:
            if task["behind"]:
                real(*words, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, task["step"], dies)
    child.take_all_steps = lambda run, watch: more_rows(
        asked(Path(task["root"]) / "release.yaml"), rows=task["rows"]
    )


@pytest.mark.crash
@pytest.mark.parametrize("behind", [False, True])
def test_more_rows_that_were_killed_leave_nothing_half_written(behind, tmp_path, server):
    """After each kill the releases are whole ones; the same command ends with one folder more."""
    spec = prepared(tmp_path, "histogram", "none")
    run, _ = publish_run(spec)
    place = Place(root=tmp_path, url=f"sqlite:///{tmp_path / 'state' / 'ledger.sqlite'}")
    ledger = Ledger.open(tmp_path / "state" / "ledger.sqlite")
    spent, releases = ledger.spent("town"), tmp_path / "state" / "releases"
    task = {"changes": [f"{__name__}:rows_killed_at"], "behind": behind}
    for rows, step in enumerate((*STEPS, "publish_rows"), start=70):
        assert server.run(place, **task, step=step, rows=rows) == -signal.SIGKILL, step
        for folder in release_folders(releases):
            assert verify(folder)
        assert server.run(place, **task, step=None, rows=rows) == 0, step
        assert [path.name for path in releases.iterdir() if "rows" in path.name].count(
            f"bayes-none-once-rows{rows}-{run.key[:8]}"
        ) == 1
        assert ledger.spent("town") == spent
        assert len(ledger.run(run.key).further) == rows - 69
        assert not [path for path in releases.iterdir() if path.name.startswith(".")]
        published_as_paid(tmp_path, sorted(releases.iterdir())[-1])
