"""What the operator's window shows of a run that ended well, and the documents' pictures of it."""

import importlib.util
import re
from pathlib import Path

from dpiw.ledger import Ledger
from dpiw.release.verification import verify
from dpiw.run.run import ReleaseRun

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "images" / "operator_pages.py"
LINES = [
    "plan: ", "reserve: ", "ingest: ", "fit_generator: ", "draw_synthetic: ", "fit_weights: ",
    "debias: ", "diagnose: ", "publish: ",
]  # fmt: skip


def artifacts(server, run):
    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    return {artifact["key"]: artifact for artifact in server.api("artifacts/filter", mine)}


def picture_taker():
    """docs/images/operator_pages.py, which is no module of ours."""
    spec = importlib.util.spec_from_file_location("operator_pages", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_story(server, place):
    """Its name, a line and a task a step, in order, and five pages: nothing else."""
    run = server.run_of(place.spec)
    spec = ReleaseRun.prepare(place.spec, period=None)
    assert run["name"] == f"{spec.spec.name} {spec.period}"
    assert run["state_type"] == "COMPLETED"
    assert run["parameters"] == {"spec": str(place.spec), "period": spec.period}
    assert Ledger.open(place.ledger).spent("town").epsilon == 2

    lines = server.log_lines(run, len(LINES))
    assert [re.match(r"\w+: ", line["message"]).group() for line in lines] == LINES
    assert {line["name"] for line in lines} == {"dpiw"}

    tasks = server.tasks(run, last="publish")
    parents = [
        {parent["id"] for inputs in task["task_inputs"].values() for parent in inputs}
        for task in tasks
    ]
    assert not any(task["tags"] for task in tasks)
    assert parents[1:] == [{task["id"]} for task in tasks[:-1]]  # a chain, in the story's order

    shown = artifacts(server, run)
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


def check_pictures(server, browser_path, folder):
    """The newest run can be pictured, by asking nobody but the server."""
    base = server.url.removesuffix("/api")
    assert picture_taker().pictures(base, browser_path, folder) == []
    for picture in ("prefect-run.png", "prefect-budget.png"):
        assert 5_000 < (folder / picture).stat().st_size < 150_000
        assert (SCRIPT.parent / picture).stat().st_size < 150_000
