"""What a run shows an operator in Prefect: plan, places, budget, release; public facts only.

The number of reads without a draw is for the custodian and not shown.
"""

import base64
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from dpiw.ledger.accounts import Account
from dpiw.plan.plan import Plan
from dpiw.privacy import accounting
from dpiw.release.verification import verify
from dpiw.run.run import ReleaseRun, cells_file
from dpiw.series.completeness import Series
from tasks.window import Window

P = ParamSpec("P")


def _page(show: Callable[Concatenate[Window, P], None]) -> Callable[P, None]:
    """Show it in this task's window; a finished step does not fail because of its pages."""

    @functools.wraps(show)
    def shown(*facts: P.args, **named: P.kwargs) -> None:
        window = Window.of_this_task()
        if window is not None:
            with contextlib.suppress(Exception):
                show(window, *facts, **named)

    return shown


@_page
def show_run(window: Window, run: ReleaseRun) -> None:
    """Show the plan as a table, and the run's places."""
    title = f"{run.spec.name}, {run.period}"
    promise = f"{title}: epsilon {run.spec.epsilon}, delta {run.spec.delta} in all"
    window.artifact(f"{run.spec.name}-plan", "table", plan_rows(run.plan), promise)
    window.artifact(f"{run.spec.name}-run", "markdown", run_page(run), title)


@_page
def show_budget(window: Window, run: ReleaseRun) -> None:
    """Show the population's budget with this run reserved, as a table and as a picture."""
    account = run.open_ledger().account(run.spec.population)
    name = account.population.name
    description = f"Population {name}, with {run.release_id} reserved"
    window.artifact(f"{name}-budget", "table", budget_rows(account), description)
    window.artifact(f"{name}-budget-picture", "image", budget_picture(account), description)


@_page
def show_release(window: Window, run: ReleaseRun, folder: Path) -> None:
    """Show the release's place, cost and verdict."""
    certificate = verify(folder).certificate
    report = (folder / "report.html").resolve()
    page = (
        f"[Report]({report.as_uri()}) at `{report}`\n\n"
        f"Spent: epsilon {certificate.epsilon}, delta {certificate.delta}"
        f" ({certificate.relation.value}). Weights: **{certificate.weights_are}**.\n\n"
        f"Check it offline: `dpiw verify {folder.resolve()}`\n"
    )
    window.artifact(f"{run.spec.name}-release", "markdown", page, run.release_id)


@_page
def show_periods(window: Window, series: Series) -> None:
    """Show the periods of a series as a table, under the forecast."""
    rows = [
        {
            "period": state.label, "status": state.status.value,
            "release": state.release or "", "why": state.why,
            "data dictionary": "another than before" if state.schema_changed else "",
        }
        for state in series.periods
    ]  # fmt: skip
    window.artifact(f"{series.name}-series", "table", rows, series.forecast)


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return one row for each event of each private stage."""
    rows = []
    for stage in plan.stages:
        alone = plan.stage_cost(frozenset({stage.name}))
        for event in stage.events:
            facts = dict(accounting.event_to_json(event))
            kind = facts.pop("type")
            noise = ", ".join(f"{key} {value:.4g}" for key, value in facts.items())
            rows.append({
                "stage": stage.name, "method": stage.method, "event": kind, "noise": noise,
                "stage alone": f"epsilon {alone.epsilon:.4g}",
            })  # fmt: skip
    return rows


def run_page(run: ReleaseRun) -> str:
    """Return the run's key and the custodian's paths, in Markdown."""
    return (
        f"| | |\n|---|---|\n| run | `{run.key}` |\n| release | `{run.release_id}` |\n"
        f"| logs, for the custodian alone | `{run.directory / 'log'}` |\n"
        f"| how cells were read, for the custodian alone | `{cells_file(run.directory)}` |\n\n"
        "A run that failed goes on where it stopped when it is started again.\n"
    )


def budget_rows(account: Account) -> list[dict[str, str]]:
    """Return the lifetime budget, what is spent and what is left."""
    amounts = {"for life": account.population.budget, "spent or reserved": account.spent,
               "left": account.remaining}  # fmt: skip
    return [
        {"": name, "epsilon": f"{amount.epsilon}", "delta": f"{amount.delta}"}
        for name, amount in amounts.items()
    ]


def budget_picture(account: Account) -> str:
    """Return a bar of the spent epsilon as a data URL."""
    budget, spent = account.population.budget.epsilon, account.spent.epsilon
    share = min(1.0, float(spent / budget))
    width = round(400 * share)
    text = f"epsilon {spent} of {budget} spent or reserved"
    image = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 70" width="840" height="140">'
        f'<rect width="420" height="70" fill="#fff"/><text x="10" y="22" font-size="13"'
        f' font-family="sans-serif" fill="#222">{text}</text><rect x="10" y="34" width="400"'
        f' height="22" fill="#d9e2ec"/><rect x="10" y="34" width="{width}" height="22"'
        ' fill="#2f6f9f"/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(image.encode()).decode()
