"""The release flow under a real Prefect server: one draw, one cost, and no value anywhere in it."""

import functools
from typing import Any

import pytest

from dpiw.errors import BudgetExceededError
from dpiw.ledger import Ledger
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.release.verification import verify
from tests.flows.conftest import PrefectServer

CANARY = "canary-7c1f9e"
NUMBER = "613.374951"  # a confidential income no bound, bin or noise would write

AS_A_WORKER = "import sys; from flows.release import release; release(sys.argv[1], '2026-11')"

STEPS = [
    "plan", "reserve", "ingest", "fit_generator", "draw_synthetic", "fit_weights", "debias",
    "diagnose", "publish",
]  # fmt: skip


def task_names(server: PrefectServer, run: dict[str, Any]) -> list[str]:
    """The tasks of a flow run, in order of their start."""
    return [task["name"].rsplit("-", 1)[0] for task in server.tasks(run, last="publish")]


def traces(data: bytes) -> list[str]:
    return [token for token in (CANARY, NUMBER) if token.encode() in data]


def outside_the_confidential_zone(place: Any) -> bytes:
    """The ledger and the published releases: all that leaves besides Prefect."""
    files = [path for path in place.releases.rglob("*") if path.is_file()]
    files += list(place.ledger.parent.glob("ledger.sqlite*"))
    return b"".join(path.read_bytes() for path in files)


def check_stages(server: PrefectServer, place: Any, shown: str) -> None:
    """Every private stage is a task of its own, and a stage of the one reservation."""
    (folder,) = place.releases.iterdir()
    certificate = verify(folder).certificate
    assert [stage.stage for stage in certificate.stages] == list(PRIVATE_STAGES)
    (attempt,) = certificate.attempts
    assert (attempt["epsilon"], len(attempt["stages"])) == ("2", 2)
    assert task_names(server, server.newest_run()) == STEPS
    assert traces(server.everything_stored()) == []
    assert traces(shown.encode()) == []
    assert traces(outside_the_confidential_zone(place)) == []


@pytest.mark.flow
@pytest.mark.crash
def test_overspending_is_refused_before_a_private_byte_is_read(prefect_server, make_workplace):
    """And a period that is published costs nothing again, as a worker runs it: every step."""
    place = make_workplace(epsilon="3")
    lines = place.source.read_text().splitlines()
    lines[1] = f"77,{NUMBER},{CANARY},true"
    place.source.write_text("\n".join(lines) + "\n")
    cadence = "cadence: monthly\nback_fill: true"
    place.spec.write_text(place.spec.read_text().replace("cadence: once", cadence))
    flow = functools.partial(prefect_server.python, "-m", "flows", place.spec, "--period")
    done = flow("2026-11")
    assert done.returncode == 0, done.stdout + done.stderr
    check_stages(prefect_server, place, done.stdout + done.stderr)

    again = prefect_server.python("-c", AS_A_WORKER, place.spec)
    assert again.returncode == 0, again.stdout + again.stderr
    assert task_names(prefect_server, prefect_server.newest_run()) == STEPS
    refused = flow("2026-12")
    assert refused.returncode == BudgetExceededError.exit_code
    assert "prefect" not in refused.stdout.lower()  # told before a server is asked
    assert Ledger.open(place.ledger).spent("town").epsilon == 2
    assert len(list(place.releases.iterdir())) == 1
    snapshots = list((place.root / "state" / "workspace").rglob("scaled.parquet"))
    assert len(snapshots) == 1  # of the first period only
