"""The release flow under a real Prefect server: one draw, one cost, and no value anywhere in it."""

import subprocess
import sys

import pytest

from dpiw.errors import BudgetExceededError, SourceError, StageFailedError
from dpiw.ledger import Ledger
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.release.verification import verify
from tests.flows.conftest import ROOT
from tests.support.whole_runs import publish_run

pytestmark = pytest.mark.flow

CANARY = "canary-7c1f9e"
NUMBER = "613.374951"  # a confidential income no bound, bin or noise would write


def task_names(server, run, *, last="publish"):
    """The tasks of a flow run, in order of their start."""
    return [task["name"].rsplit("-", 1)[0] for task in server.tasks(run, last=last)]


def plant(place, *, extra_line=""):
    """Put the canaries into the confidential table."""
    lines = place.source.read_text().splitlines()
    lines[1] = f"77,{NUMBER},{CANARY},true"
    place.source.write_text("\n".join(lines) + "\n" + extra_line)


def traces(data: bytes) -> list[str]:
    return [token for token in (CANARY, NUMBER) if token.encode() in data]


def outside_the_confidential_zone(place) -> bytes:
    """The ledger and the published releases: all that leaves besides Prefect."""
    files = [p for p in place.releases.rglob("*") if p.is_file()] if place.releases.exists() else []
    files += list(place.ledger.parent.glob("ledger.sqlite*"))
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.crash
def test_a_run_that_is_published_costs_nothing_again(prefect_server, workplace):
    """As a worker runs it: every step, to the same end."""
    _, folder = publish_run(workplace.spec)
    worker = "import sys; from flows.release import release; release(sys.argv[1])"
    again = subprocess.run(
        [sys.executable, "-c", worker, str(workplace.spec)],
        capture_output=True, text=True, check=False, cwd=ROOT, env=prefect_server.environment(),
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert task_names(prefect_server, prefect_server.run_of(workplace.spec))[-1] == "publish"
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2
    assert list(workplace.releases.iterdir()) == [folder]


@pytest.mark.crash
def test_a_structural_failure_tells_the_custodian_and_not_prefect(prefect_server, workplace):
    plant(workplace, extra_line=f"{CANARY},{NUMBER},too,many,cells\n")
    failed = prefect_server.run_flow(workplace.spec)
    assert failed.returncode == SourceError.exit_code
    assert "SourceError" in failed.stdout
    newest = prefect_server.newest_run()
    assert newest["state_type"] == "FAILED"
    assert f"code {SourceError.exit_code}" in newest["state"]["message"]
    assert task_names(prefect_server, newest)
    assert traces(prefect_server.everything_stored()) == []
    assert traces((failed.stdout + failed.stderr).encode()) == []
    assert traces(outside_the_confidential_zone(workplace)) == []
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 0
    assert not workplace.releases.exists()


@pytest.mark.nightly
def test_an_unexpected_failure_leaves_prefect_with_a_code(prefect_server, workplace, tmp_path):
    """A crash whose text quotes a row: it goes to the confidential log and nowhere else."""
    plant(workplace)
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import sys\n"
        "if 'dpiw.run.process' in ' '.join(sys.orig_argv) and 'fit_generator' in sys.orig_argv:\n"
        "    import dpiw.methods.generators.histogram as h\n"
        "    def measure(self, table, *, noise):\n"
        f"        raise ValueError('row 1 is {CANARY} {NUMBER}')\n"
        "    h.Histogram.measure = measure\n"
    )
    environment = prefect_server.environment() | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    failed = subprocess.run(
        [sys.executable, "-m", "flows", str(workplace.spec)],
        capture_output=True, text=True, env=environment, check=False,
        cwd=ROOT,
    )  # fmt: skip
    assert failed.returncode == StageFailedError.exit_code
    newest = prefect_server.newest_run()
    assert newest["state_type"] == "FAILED"
    assert "stage fit_generator ended with code 70" in newest["state"]["message"]
    assert task_names(prefect_server, newest)
    assert traces(prefect_server.everything_stored()) == []
    assert traces((failed.stdout + failed.stderr).encode()) == []
    logs = b"".join(path.read_bytes() for path in workplace.root.rglob("log/fit_generator.log"))
    assert traces(logs) == [CANARY, NUMBER]  # the custodian can find out why
    # it was armed, so it is charged
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2


def check_stages(server, place, done):
    """Every private stage is a task of its own, and a stage of the one reservation."""
    (folder,) = place.releases.iterdir()
    certificate = verify(folder).certificate
    assert [stage.stage for stage in certificate.stages] == list(PRIVATE_STAGES)
    (attempt,) = certificate.attempts
    assert (attempt["epsilon"], len(attempt["stages"])) == ("2", 2)
    assert task_names(server, server.newest_run()) == [
        "plan", "reserve", "ingest", "fit_generator", "draw_synthetic", "fit_weights",
        "debias", "diagnose", "publish",
    ]  # fmt: skip
    assert traces(server.everything_stored()) == []
    assert traces((done.stdout + done.stderr).encode()) == []
    assert traces(outside_the_confidential_zone(place)) == []


@pytest.mark.crash
def test_overspending_is_refused_before_a_private_byte_is_read(prefect_server, make_workplace):
    place = make_workplace(epsilon="3")
    plant(place)
    cadence = "cadence: monthly\nback_fill: true"
    place.spec.write_text(place.spec.read_text().replace("cadence: once", cadence))
    done = prefect_server.run_flow(place.spec, "--period", "2026-11")
    assert done.returncode == 0, done.stdout + done.stderr
    check_stages(prefect_server, place, done)
    refused = prefect_server.run_flow(place.spec, "--period", "2026-12")
    assert refused.returncode == BudgetExceededError.exit_code
    assert "asks epsilon=2" in refused.stdout
    assert "epsilon=1" in refused.stdout
    assert Ledger.open(place.ledger).spent("town").epsilon == 2
    assert len(list(place.releases.iterdir())) == 1
    snapshots = list((place.root / "state" / "workspace").rglob("scaled.parquet"))
    assert len(snapshots) == 1  # of the first period only


def test_a_budget_too_small_is_refused_before_a_byte_is_read(prefect_server, make_workplace):
    place = make_workplace(epsilon="1")
    refused = prefect_server.run_flow(place.spec)
    assert refused.returncode == BudgetExceededError.exit_code
    assert "asks epsilon=2" in refused.stdout
    assert "epsilon=1" in refused.stdout
    assert "prefect" not in refused.stdout.lower()  # told before a server is asked
    assert Ledger.open(place.ledger).spent("town").epsilon == 0
    assert not list((place.root / "state" / "workspace").rglob("scaled.parquet"))


def test_a_bad_spec_is_refused_by_name(prefect_server, workplace):
    workplace.spec.write_text(workplace.spec.read_text().replace("epsilon: 2", "epsilon: -2"))
    refused = prefect_server.run_flow(workplace.spec)
    assert refused.returncode == 10
    assert "epsilon" in refused.stdout
    assert not (workplace.root / "state" / "workspace").exists()
