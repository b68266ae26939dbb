"""The operator's window: what a run shows of itself in Prefect, and that it shows nothing else."""

import base64
import importlib.util
import re
from pathlib import Path

import pytest

from dpiw.errors import BudgetExceededError, DPIWError
from dpiw.ledger import Ledger
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.release.verification import verify
from dpiw.run.run import ReleaseRun
from flows import release
from tasks import pages
from tests.support.patience import until
from tests.support.whole_runs import publish_run

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "images" / "operator_pages.py"
LINES = [
    "plan: ", "reserve: ", "ingest: ", "fit_generator: ", "draw_synthetic: ", "fit_weights: ",
    "debias: ", "diagnose: ", "publish: ",
]  # fmt: skip


def log_lines(server, run, number):
    """The lines of a flow run, in order, once all have been recorded."""
    body = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "sort": "TIMESTAMP_ASC"}

    def recorded():
        lines = server.api("logs/filter", body)
        return lines if len(lines) >= number else []

    return until(recorded, every=0.5, what=f"{number} lines")


def artifacts(server, run):
    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    return {one["key"]: one for one in server.api("artifacts/filter", mine)}


def picture_taker():
    """docs/images/operator_pages.py, which is no module of ours."""
    spec = importlib.util.spec_from_file_location("operator_pages", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.flow
def test_a_run_tells_its_story_in_order(prefect_server, workplace, tmp_path, request):
    done = prefect_server.run_flow(workplace.spec)
    assert done.returncode == 0, done.stdout + done.stderr
    run = prefect_server.newest_run()
    spec = ReleaseRun.prepare(workplace.spec, period=None)
    assert run["name"] == f"{spec.spec.name} {spec.period}"
    assert run["state_type"] == "COMPLETED"
    assert run["parameters"] == {"spec": str(workplace.spec), "period": None}
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2

    lines = log_lines(prefect_server, run, len(LINES))
    assert [re.match(r"\w+: ", line["message"]).group() for line in lines] == LINES
    assert {line["name"] for line in lines} == {"dpiw"}

    tasks = prefect_server.tasks(run, last="publish")
    parents = [
        {one["id"] for inputs in task["task_inputs"].values() for one in inputs} for task in tasks
    ]
    assert not any(task["tags"] for task in tasks)
    assert parents[1:] == [{task["id"]} for task in tasks[:-1]]  # a chain, in the story's order

    shown = artifacts(prefect_server, run)
    name, population = (text.replace("_", "-") for text in (spec.spec.name, spec.spec.population))
    assert set(shown) == {
        f"{name}-plan", f"{name}-run", f"{population}-budget", f"{population}-budget-picture",
        f"{name}-release",
    }  # fmt: skip
    assert spec.key in shown[f"{name}-run"]["data"]
    assert str(spec.directory / "log") in shown[f"{name}-run"]["data"]
    report = re.search(r"`(/[^`]*report\.html)`", shown[f"{name}-release"]["data"]).group(1)
    assert Path(report).is_file()
    verdict = verify(Path(report).parent).certificate.verdict
    assert f"**{verdict}**" in shown[f"{name}-release"]["data"]

    browser_path = request.getfixturevalue("browser_path")  # without one, the rest is skipped
    base = prefect_server.url.removesuffix("/api")
    assert picture_taker().pictures(base, browser_path, tmp_path) == []  # asked of nobody else
    for picture in ("prefect-run.png", "prefect-budget.png"):
        assert 5_000 < (tmp_path / picture).stat().st_size < 150_000
        assert (SCRIPT.parent / picture).stat().st_size < 150_000


@pytest.mark.flow
def test_a_failed_step_says_what_to_do(prefect_server, make_workplace):
    place = make_workplace(epsilon="1")
    refused = prefect_server.run_flow(place.spec)
    assert refused.returncode == BudgetExceededError.exit_code
    lines = log_lines(prefect_server, prefect_server.newest_run(), 2)
    assert lines[-1]["message"] == f"reserve failed. What to do: {BudgetExceededError.advice}."
    assert lines[-1]["level"] == 40


def subclasses(kind):
    return {kind} | {each for below in kind.__subclasses__() for each in subclasses(below)}


def test_every_error_has_advice_that_names_no_value():
    for kind in subclasses(DPIWError):
        assert re.fullmatch(r"[a-z][^{}%]{20,}", kind.advice), kind


def test_what_a_run_shows_is_the_same_for_any_table(make_workplace):
    """But for the folder it lies in."""
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


class Down:
    """A window that cannot be written to."""

    def artifact(self, *_):
        raise OSError


@pytest.mark.parametrize("fault", ["ledger", "release", "window"])
def test_a_step_that_is_done_does_not_fail_for_its_pages(workplace, monkeypatch, fault):
    run, folder = publish_run(workplace.spec)
    monkeypatch.setattr(pages.Window, "of_this_task", classmethod(lambda _: Down()))
    if fault == "ledger":
        workplace.ledger.unlink()
    if fault == "release":
        (folder / "manifest.json").unlink()
    pages.show_run(run)
    pages.show_budget(run)
    pages.show_release(run, folder)


def test_the_number_of_unpaid_reads_is_on_no_page(workplace):
    """It tells how reads ended, and is the custodian's."""
    run = ReleaseRun.prepare(workplace.spec, period=None)
    account = run.open_ledger().account("town")
    shown = repr(pages.budget_rows(account)) + pages.run_page(run) + pages.budget_picture(account)
    assert "read" not in shown.replace("how cells were read", "")


@pytest.mark.parametrize("text", [None, "epsilon: [", "name: 7"])
def test_a_run_whose_spec_cannot_be_read_is_named_after_its_file(tmp_path, text):
    spec = tmp_path / "mine.yaml"
    if text is not None:
        spec.write_text(text)
    assert release.title(spec, None) == "mine"


def test_a_run_is_named_by_release_and_period(workplace):
    assert release.title(workplace.spec, "2027-q1").endswith(" 2027-q1")
