"""When a run was due, by what Prefect says of it; and a schedule that starts twice in a period."""

import datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient

from dpiw.errors import SpecError
from dpiw.ledger import Ledger
from dpiw.run import steps
from flows import release as module
from flows.release import title
from tasks import stages as plan_module
from tests.support.ledger import digest
from tests.support.whole_runs import prepared

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


class Client(SyncPrefectClient):
    """Answers one question, or fails."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def read_flow_runs(self, **_: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def flow_run(**changes: Any) -> SimpleNamespace:
    given = {
        "id": uuid4(), "name": "town 2027-03", "deployment_id": uuid4(), "auto_scheduled": True,
        "run_count": 1, "expected_start_time": NOW - 3 * DAY, "created": NOW - 9 * DAY,
    }  # fmt: skip
    return SimpleNamespace(**(given | changes))


@pytest.fixture
def under_way(monkeypatch):
    def under_way(run, answer=()):
        context = SimpleNamespace(flow_run=run, client=Client(answer))
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
    assert module.scheduled_before() == ""
    for deployment, expected in ((None, 0), (uuid4(), module.RERUNS)):
        under_way(flow_run(deployment_id=deployment))
        assert module.reruns() == expected


def test_an_earlier_scheduled_run_is_found(under_way):
    own, by_hand = flow_run(), flow_run(auto_scheduled=False, expected_start_time=NOW - 8 * DAY)
    earlier = [flow_run(expected_start_time=NOW - days * DAY) for days in (5, 7, 6)]
    under_way(own, [own, by_hand])
    assert module.scheduled_before() == ""
    under_way(own, [own, by_hand, *earlier])
    assert module.scheduled_before() == (NOW - 7 * DAY).isoformat(timespec="minutes")
    for change in ({"auto_scheduled": False}, {"run_count": 2}, {"deployment_id": None}):
        under_way(flow_run(**change), earlier)
        assert module.scheduled_before() == ""
    under_way(own, RuntimeError("no answer"))
    assert module.scheduled_before() == ""


@pytest.mark.parametrize("published", [True, False])
def test_a_schedule_that_starts_twice_in_a_period_warns(workplace, monkeypatch, published):
    run = prepared(workplace)
    steps.reserve(run)
    if published:
        ledger = run.open_ledger()
        for place, stage in enumerate(run.plan.stages):
            ledger.commit(ledger.arm(run.key, 1, stage.name), digest(place + 5))
        ledger.publish(run.key, digest(9))
    lines: list[str] = []
    monkeypatch.setattr(plan_module, "tell", lambda text, *_: lines.append(text))
    monkeypatch.setattr(plan_module, "show_run", lambda *_: None)
    plan_module.plan.fn(workplace.spec, None, None, "2027-03-01T03:00+00:00")
    assert len(lines) == published
    plan_module.plan.fn(workplace.spec, None, None, "")
    assert len(lines) == published


def test_a_scheduled_run_s_period_is_its_own_day_s(workplace, under_way, monkeypatch):
    workplace.edit("cadence: once", "cadence: daily\ntime_zone: Pacific/Kiritimati")
    at = datetime.datetime(2026, 3, 31, 23, 30, tzinfo=datetime.UTC)
    under_way(flow_run(expected_start_time=at, created=at - DAY))
    monkeypatch.setenv("DPIW_ROOT", str(workplace.root))
    assert title(workplace.spec, None) == "town 2026-04-01"
    folder = plan_module.plan.fn(workplace.spec, None, module.due())
    assert '"period":"2026-04-01"' in (folder / "run.json").read_text()


def test_a_caller_of_the_api_chooses_no_period(workplace, under_way):
    workplace.edit("cadence: once", "cadence: monthly")
    entries = Ledger.open(workplace.ledger).entries()
    under_way(flow_run(expected_start_time=NOW - 900 * DAY, created=NOW, auto_scheduled=True))
    for period in (None, "1000-01"):
        with pytest.raises(SpecError, match="nothing was reserved"):
            plan_module.plan.fn(workplace.spec, period, module.due())
    assert Ledger.open(workplace.ledger).entries() == entries
    assert not (workplace.root / "state/workspace").exists()
