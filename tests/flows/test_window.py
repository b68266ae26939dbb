"""The operator's window: what a run shows of itself in Prefect, and that it shows nothing else."""

import base64
import re
from types import SimpleNamespace
from unittest import mock

import pytest

from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.run.run import ReleaseRun
from tasks import pages
from tests.support.whole_runs import publish_run


def subclasses(kind):
    return {kind} | {subclass for below in kind.__subclasses__() for subclass in subclasses(below)}


def test_every_error_has_advice_that_names_no_value():
    for kind in subclasses(DPIWError):
        assert re.fullmatch(r"[a-z][^{}%]{20,}", kind.advice), kind


def test_what_a_run_shows_is_the_same_for_any_table(make_workplace):
    seen = set()
    for content in (None, "age,income,region,ill\n1,2,north,true\n", "", "\x00" * 500):
        place = make_workplace()
        if content is not None:
            place.source.write_text(content)
        run = ReleaseRun.prepare(place.spec, period="2027-q1")
        account = run.open_ledger().account(run.spec.population)
        page = pages.run_page(run).replace(str(place.root), "")
        seen.add(repr((pages.plan_rows(run.plan), page, pages.budget_rows(account))))
    assert len(seen) == 1


def test_the_plan_page_holds_each_event_of_each_stage(workplace):
    run = ReleaseRun.prepare(workplace.spec, period=None)
    rows = pages.plan_rows(run.plan)
    assert {row["stage"] for row in rows} == set(PRIVATE_STAGES)
    assert len(rows) == sum(len(stage.events) for stage in run.plan.stages)


@pytest.mark.slow
def test_the_budget_page_adds_up(workplace):
    publish_run(workplace.spec)
    account = Ledger.open(workplace.ledger).account("town")
    life, spent, left = (float(row["epsilon"]) for row in pages.budget_rows(account))
    assert life == spent + left
    assert spent == 2
    picture = base64.b64decode(pages.budget_picture(account).split(",")[1]).decode()
    assert f"epsilon {account.spent.epsilon} of {account.population.budget.epsilon}" in picture
    widths = [int(width) for width in re.findall(r'<rect x="10" y="34" width="(\d+)"', picture)]
    assert widths == [400, round(400 * spent / life)]


@pytest.mark.slow
def test_a_step_that_is_done_does_not_fail_for_its_pages(workplace, monkeypatch):
    run, folder = publish_run(workplace.spec)
    down = SimpleNamespace(artifact=mock.Mock(side_effect=OSError))  # nothing can be written to it
    monkeypatch.setattr(pages.Window, "of_this_task", classmethod(lambda _: down))
    for gone in (None, folder / "manifest.json", workplace.ledger):
        if gone is not None:
            gone.unlink()
        pages.show_run(run)
        pages.show_budget(run)
        pages.show_release(run, folder)


def test_the_number_of_unpaid_reads_is_on_no_page(workplace):
    """It tells how reads ended, and is the custodian's."""
    run = ReleaseRun.prepare(workplace.spec, period=None)
    account = run.open_ledger().account("town")
    shown = repr(pages.budget_rows(account)) + pages.run_page(run) + pages.budget_picture(account)
    assert "read" not in shown.replace("how cells were read", "")
