"""The assurance flow: the long suites of a checkout, with a table of counts at the end.

    python -m flows.assurance
    python -m flows.assurance --suites proof --keep build/assurance

It needs a checkout with the test tools installed, and nothing confidential: tests make their own
data. Finished parts are kept for a week (docs/operations.md), so that a run which was cut off goes
on where it was, and the next week's begins anew. It ends FAILED when a part is red or missing, or
when a suite has no parts, so that a schedule alarms somebody.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Sequence

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from dpiw.cli.parser import Parser
from dpiw.errors import DPIWError
from flows.console import quiet_prefect
from flows.parameters import below_root, typed_here
from flows.server import prefect_server
from tasks.assure import CHECKOUT, AssuranceFailedError, SuiteOutcome
from tasks.assure import assure as assure_task
from tasks.failures import told_briefly

SUITES = ("proof", "test-crash", "nightly")
"""`nightly` holds `test-crash`, whose parts it finds finished."""

KEY = "dpiw-assurance"


def _week() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%G-W%V")


def page(outcomes: Sequence[SuiteOutcome]) -> str:
    """Markdown: counts, and the names of the tests that failed."""
    head = "| suite | | parts | green | failed | missing | kept from earlier | commits |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for outcome in outcomes:
        end = "ok" if outcome.ok else "**FAILED**"
        missing = outcome.total - outcome.green - outcome.failed
        counts = (
            f"{outcome.total} | {outcome.green} | {outcome.failed} | {missing} | {outcome.kept}"
        )
        lines.append(f"| {outcome.suite} | {end} | {counts} | {', '.join(outcome.commits)} |")
    failures = sorted({name for outcome in outcomes for name in outcome.failures})
    return "\n".join([*lines, "", *(f"- `{name}`" for name in failures)])


@flow(name="dpiw-assurance", retries=0, persist_result=False, log_prints=False)
def assurance(
    suites: Sequence[str] = SUITES,
    root: str | None = None,
    keep: str | None = None,
    only: str = "",
) -> str:
    """Run the long suites, one after the other, all of them however they end.

    Args:
        suites: names of suites (`python -m tests.assurance --help`).
        root: the checkout to test; None: this one.
        keep: a folder for finished parts and tables; None: `build/assurance/<week>` below root.
        only: only tests whose id holds this.

    Returns:
        The summary, as it is in the artefact.

    Raises:
        AssuranceFailedError: a part is red or missing, or a suite is empty.
    """
    if not set(suites) <= set(SUITES):
        raise AssuranceFailedError(f"suites: expected some of {', '.join(SUITES)}")
    with told_briefly("assurance"):
        place = CHECKOUT if root is None else below_root("root", root).resolve()
        kept = None if keep is None else below_root("keep", str(place / keep))
    folder = kept or place / f"build/assurance/{_week()}"
    outcomes = [assure_task(suite, place, folder, only) for suite in suites]
    summary = page(outcomes)
    create_markdown_artifact(summary, key=KEY, description="the long suites, in counts")
    failed = [outcome.suite for outcome in outcomes if not outcome.ok]
    if failed or not outcomes:
        raise AssuranceFailedError(f"assurance: {', '.join(failed) or 'no suite'} failed")
    return summary


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m flows.assurance")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--root", help="the checkout to test (this one)")
    parser.add_argument("--keep", help="folder for finished parts (build/assurance/<week>)")
    parser.add_argument("--only", default="", help="only tests whose id holds this")
    return parser.parse_args(arguments)


def main(run: Callable[..., str], arguments: list[str]) -> int:
    """Run the flow for a person; returns the exit status: 0, or 34 if a suite failed."""
    parsed = _arguments(arguments)
    quiet_prefect()
    try:
        with prefect_server() as wait_for_server:
            wait_for_server()
            with typed_here():
                summary = run(parsed.suites, parsed.root, parsed.keep, parsed.only)
    except DPIWError as error:
        sys.stdout.write(f"\n{type(error).__name__}: {error.full or error}\n")
        return error.exit_code
    sys.stdout.write(f"\n{summary}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(assurance, sys.argv[1:]))
