"""When a run was due, by what Prefect says of it."""

import datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from dpiw.errors import SpecError
from dpiw.ledger import Ledger
from flows import release as module
from flows.release import title
from tasks import stages as plan_module

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


def flow_run(**changes: Any) -> SimpleNamespace:
    given = {
        "id": uuid4(), "name": "town 2027-03", "deployment_id": uuid4(), "parent_task_run_id": None,
        "auto_scheduled": True,
        "run_count": 1, "expected_start_time": NOW - 3 * DAY, "created": NOW - 9 * DAY,
    }  # fmt: skip
    return SimpleNamespace(**(given | changes))


@pytest.fixture
def under_way(monkeypatch):
    def under_way(run):
        context = SimpleNamespace(flow_run=run)
        monkeypatch.setattr(module.FlowRunContext, "get", lambda: context)
        return run

    return under_way


def test_a_run_is_due_when_it_was_scheduled_and_not_before_it_was_made(under_way):
    run = under_way(flow_run())
    assert module.due().moment == module.due().scheduled == run.expected_start_time
    forged = under_way(flow_run(expected_start_time=NOW - 9000 * DAY, created=NOW))
    assert module.due().moment == NOW
    assert module.due().scheduled == forged.expected_start_time


def test_a_worker_s_run_alone_starts_again(under_way):
    before = datetime.datetime.now(datetime.UTC)
    assert before <= module.due().moment <= datetime.datetime.now(datetime.UTC) + DAY
    assert module.reruns() == 0
    for deployment, expected in ((None, 0), (uuid4(), module.RERUNS)):
        under_way(flow_run(deployment_id=deployment))
        assert module.reruns() == expected
    under_way(flow_run(deployment_id=None, parent_task_run_id=uuid4()))  # of a series
    assert module.reruns() == module.RERUNS


def test_a_scheduled_run_s_period_is_its_own_day_s(workplace, under_way, monkeypatch):
    workplace.rewrite("cadence: once", "cadence: daily\ntime_zone: Pacific/Kiritimati")
    at = datetime.datetime(2026, 3, 31, 23, 30, tzinfo=datetime.UTC)
    under_way(flow_run(expected_start_time=at, created=at - DAY))
    monkeypatch.setenv("DPIW_ROOT", str(workplace.root))
    assert title(workplace.spec, None) == "town 2026-04-01"
    folder = plan_module.plan.fn(workplace.spec, None, module.due())
    assert '"period":"2026-04-01"' in (folder / "run.json").read_text()


def test_a_caller_of_the_api_chooses_no_period(workplace, under_way):
    workplace.rewrite("cadence: once", "cadence: monthly")
    entries = Ledger.open(workplace.ledger).entries()
    under_way(flow_run(expected_start_time=NOW - 900 * DAY, created=NOW, auto_scheduled=True))
    for period in (None, "1000-01"):
        with pytest.raises(SpecError, match="nothing was reserved"):
            plan_module.plan.fn(workplace.spec, period, module.due())
    assert Ledger.open(workplace.ledger).entries() == entries
    assert not (workplace.root / "state/workspace").exists()
