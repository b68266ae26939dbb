"""The series flow: publish what is due and missing of a calendar, oldest first.

Each period is a run of the release flow under its own key, so a repeated fill pays once for
each. It goes on after a period without a table, and after one that another run has drawn or spent.
It stops at any other failure, which would meet the next period too, or use up a read. A worker does
not start again a period whose table was read without a draw: each read counts for life.
"""

import sys
from pathlib import Path

from prefect import flow

from dpiw.cli.parser import Parser
from dpiw.cli.series import add_series_arguments, series_lines
from dpiw.errors import AlreadyPaidError, DPIWError, GrantSpentError, SourceError, shown
from dpiw.plan.spec import load_spec
from dpiw.run.ahead import source_fault
from dpiw.run.commands import typed_commands
from dpiw.series.completeness import check_complete, due_of, read_series
from flows import console
from flows.parameters import spec_below_root
from flows.release import release, run_name
from flows.server import prefect_server
from tasks.failures import only_our_own, told_briefly
from tasks.stages import show_series

OF_ONE_PERIOD = (AlreadyPaidError, GrantSpentError)
"""Refusals of one period that say nothing about the next."""


def fault_of_table(path: Path, label: str) -> SourceError | None:
    """Return why a release would not open a period's table, judged by its name; None: it would."""
    return source_fault(load_spec(path).of_period(label), names_others=False)


@flow(name="dpiw-series", flow_run_name=run_name, retries=0, persist_result=False, log_prints=False)
@only_our_own("series")
def series(spec: str) -> str:
    """Publish what is due and missing of a spec's calendar; return the forecast.

    Args:
        spec: path of a release spec with a `series`.

    Raises:
        BudgetExceededError: the budget does not carry the calendar; nothing was reserved.
        IncompleteSeriesError: a period is missing.
        DPIWError: of the release at which it stopped.
    """
    with told_briefly("spec"):
        path = spec_below_root("spec", spec)
    before, without = show_series(path, fills=True), []
    try:
        for label in before.due:
            if label in before.by_hand:
                continue
            with told_briefly("source"):
                fault = fault_of_table(path, label)
            if fault is not None:
                without.append(label)
                continue
            try:
                release(str(path), label)
            except OF_ONE_PERIOD:
                continue
    finally:
        after = show_series(path, fills=False)
    check_complete(after, without=without)
    return after.forecast


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fill(path: Path, due: tuple[str, ...]) -> int:
    """Publish due periods at a terminal, each as `dpiw release` does; return the last exit code."""
    with prefect_server():
        for label in due:
            _say(f"\nperiod    {label}")
            if fault := fault_of_table(path, label):
                _say(f"passed over: {shown(str(fault))}")
                continue
            code = console.main(console.release_flow, [str(path), "--period", label])
            if code not in (0, *(error.exit_code for error in OF_ONE_PERIOD)):
                _say(f"\nstopped at {label}; the same command goes on from there")
                return code
    return 0


def main(arguments: list[str]) -> int:
    """Fill a series for a person; return the exit status: 0, 61 if incomplete, or a failure's."""
    parser = Parser(prog="dpiw series")
    add_series_arguments(parser)
    path = parser.parse_args(arguments).spec
    console.quiet_prefect()
    commands = {}
    try:
        spec, found = read_series(path)
        commands = typed_commands(spec, path)
        due = due_of(found, spec)
        _say(f"due       {', '.join(due) or 'nothing'}; pays at most {spec.cost} for each")
        code = fill(path, due) if due else 0
        _, found = read_series(path)
        _say("\n".join(["", *series_lines(found)]))
        if code == 0:
            check_complete(found)
    except DPIWError as error:
        _say(f"\n{type(error).__name__}: {shown(error.told(commands), most=None, lines=True)}")
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
