"""The release flow on a terminal, for a custodian: failures show texts of structural errors."""

import argparse
import contextlib
import io
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from dpiw.cli.parser import Parser
from dpiw.cli.pipeline import add_release_arguments
from dpiw.errors import DPIWError, LedgerConflictError, SourceError, SpecError, StageFailedError
from dpiw.ledger import StageState
from dpiw.plan.calendar import nearest_period
from dpiw.plan.spec import load_spec
from dpiw.run.advice import advice
from dpiw.run.ahead import question, source_fault
from dpiw.run.commands import program, release_command, typed_commands, void_command
from dpiw.run.continuation import counts_more, goes_on
from dpiw.run.launch import failure_file, failure_text
from dpiw.run.more_rows import more_rows
from dpiw.run.publish import published
from dpiw.run.reserve import check_ahead, reserve
from dpiw.run.run import ReleaseRun, RunRequest, cells_file
from flows import HOME_MADE
from flows.interrupts import Interrupts
from flows.parameters import typed_here
from flows.step_log import StepLog
from flows.summary import more_rows_summary, summary
from tasks.failures import DrawnStepFailedError, StepFailedError, record


def read_source(parsed: argparse.Namespace, request: RunRequest, heard: Interrupts) -> str:
    """Reserve a run's budget, read its source, stop, and return where to look.

    The text is the same for every table. Raises LedgerConflictError if a draw was begun before.

    Privacy:
        The stages `reserve` and `ingest` only: nothing is drawn, and nothing leaves the
        confidential zone. A custodian's decision on the statement may depend on rows.
    """
    from tasks import stages

    check_ahead(request, pay_again=parsed.pay_again)
    heard.run = run = request.prepared()
    record = run.open_ledger().find_run(run.key)
    if record is not None and record.drawn:
        raise LedgerConflictError(
            f"this run has begun to draw, so its source was read before; look at {_cells(run)}, or"
            " type the command without --until ingest",
            field="--until ingest",
        )
    _announce(run, parsed)
    before = run.snapshot.exists()
    if parsed.pay_again:
        reserve(run, pay_again=True)
    stages.ingest.fn(stages.reserve.fn(run.directory))
    return "\n".join(["", *_read_lines(run, before=before)])


def _cells(run: ReleaseRun) -> str:
    return os.path.relpath(cells_file(run.directory))


def _read_lines(run: ReleaseRun, *, before: bool) -> list[str]:
    spec, attempt = run.spec, run.open_ledger().run(run.key).attempts[-1].attempt
    when = "before, once a run" if before else "now: copied, checked and scaled"
    return [
        f"read       {when}; this command draws nothing",
        f"held       epsilon={spec.epsilon}, delta={spec.delta}",
        f"look at    {_cells(run)} (exact counts, for the custodian alone)",
        f"to give up {void_command(spec, run.key, attempt)}",
        "           what is held is given back; the read counts as one without a draw",
        "           if you correct the file, write another source.snapshot in the spec: this run"
        " keeps its copy",
    ]


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="dpiw release")
    add_release_arguments(parser)
    parsed = parser.parse_args(arguments)
    if parsed.rows is not None and (parsed.until or parsed.pay_again):
        parser.error("--rows: expected without --until and --pay-again; it reads and pays nothing")
    return parsed


def suit_the_terminal() -> None:
    """Replace characters that the terminal's encoding lacks, so that no print fails a step."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def quiet_prefect() -> StepLog:
    """Keep Prefect's own log off a person's screen; show the steps instead."""
    suit_the_terminal()
    for level in ("PREFECT_LOGGING_LEVEL", "PREFECT_INTERNAL_LOGGING_LEVEL"):
        os.environ.setdefault(level, "CRITICAL")
    for name in ("prefect", "prefect.flow_runs", "prefect.task_runs", "prefect.server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logger = logging.getLogger("dpiw.progress")
    for handler in logger.handlers:
        if isinstance(handler, StepLog):  # of the release before this one
            return handler
    logger.setLevel(logging.INFO)
    logger.propagate = False
    step_log = StepLog(Console())
    logger.addHandler(step_log)
    return step_log


def _explain(
    error: DPIWError, path: Path, request: RunRequest | None, run: ReleaseRun | None
) -> str:
    if request is None or not isinstance(error, StageFailedError):
        text = error.told()
        with contextlib.suppress(DPIWError):  # without a request: its key may be missing alone
            spec = request.spec if request else load_spec(path)
            if isinstance(error, SourceError) and error.field == "source.path":
                error = source_fault(spec, names_others=True) or error  # with path and nearest name
            text = error.told(typed_commands(spec, path))
        return f"{type(error).__name__}: {text}"
    run = run or request.prepared()
    reason = failure_text(run.directory, error.stage)
    held = run.plan.held_rows(error.stage)
    failure = f"stage {error.stage}: {reason}" if reason else str(error)
    lines = [failure, f"(confidential log: {run.directory / 'log'})"]
    return "\n".join([*lines, *_next(run, error), *([held] if held else []), _reads(run, error)])


def _unexpected(error: Exception, run: ReleaseRun) -> str:
    """An unforeseen error's text; its traceback goes to the custodian's log, not to a screen."""
    if not isinstance(error, StepFailedError):  # the step recorded it
        record(error, "release", run.directory)
    failure = error if isinstance(error, StepFailedError) else type(error).__name__
    return f"{failure}\n(confidential log: {run.directory / 'log'})\nnext: {_advice(error, run)}"


def _advice(error: Exception, run: ReleaseRun) -> str:
    """What a person does next; never advises a run that has drawn to pay for another."""
    if isinstance(error, StepFailedError):
        return error.advice
    with contextlib.suppress(DPIWError):
        held = run.open_ledger().find_run(run.key)
        stages = () if held is None else tuple(held.stages.values())
        if any(stage.state is StageState.COMMITTED for stage in stages):
            return DrawnStepFailedError.advice
    return DPIWError.advice


def _next(run: ReleaseRun, error: StageFailedError) -> list[str]:
    """What to do next; empty if the reason already says it."""
    if error.code == SourceError.exit_code:  # the same whether or not its place is known
        log = os.path.relpath(failure_file(run.directory, error.stage))
        return [
            "next: correct the file, the spec or the data dictionary, and start the same command"
            f" again; if one row is at fault and its number is known, {log} names it, for the"
            " custodian alone"
        ]
    if error.exit_code != StageFailedError.exit_code:
        return []
    with contextlib.suppress(DPIWError):
        return [goes_on(run, error.stage)]
    return []


def _reads(run: ReleaseRun, error: StageFailedError) -> str:
    """How many reads may still end without a draw; epsilon does not pay for them."""
    try:
        account = run.open_ledger().account(run.spec.population)
        died = error.exit_code == StageFailedError.exit_code and counts_more(run, error.stage)
    except DPIWError as reason:  # do not lose the reason above
        return f"reads without a draw: not known ({type(reason).__name__})"
    next_start = f"; {account.unpaid_reads + 1} from the next start on, which counts this draw too"
    return (
        f"reads without a draw: {account.unpaid_reads} of at most"
        f" {account.population.max_unpaid_reads} in the life of population"
        f" {account.population.name}"
    ) + next_start * died


def _again(parsed: argparse.Namespace, request: RunRequest | None) -> str:
    """The command that goes on with this run on any day: in a new period it would pay again.

    A person types `--pay-again` each time.
    """
    given = {"period": parsed.period, "until": parsed.until, "rows": parsed.rows}
    if request is not None:
        command = release_command(request.spec, request.path, request.period)
        del given["period"]
    else:  # the spec, or what it names, cannot be read: nothing goes on until it is repaired
        command = f"{program()} release {shlex.quote(str(parsed.spec))}"
    options = {name: value for name, value in given.items() if value is not None}
    return command + "".join(f" --{name} {shlex.quote(str(options[name]))}" for name in options)


def _on_any_day(parsed: argparse.Namespace, request: RunRequest | None) -> str:
    """A line with the whole command: without its period it may mean another one tomorrow."""
    command = _again(parsed, request)
    if parsed.period is not None or " --period " not in command:
        return ""
    return f"\nthe same command, on any day: {command}"


def release_flow(spec: str, period: str | None) -> str:
    """Run `flows.release.release`, imported here because Prefect is slow to import."""
    from flows.release import release

    return release(spec, period)


def _announce(run: ReleaseRun, parsed: argparse.Namespace) -> None:
    """Print period, cost, what is left and the next command, before anything is held."""
    for line in advice(
        run.plan, parsed.spec, run.period,
        asked=parsed.period is not None, pay_again=parsed.pay_again,
    ):  # fmt: skip
        print(f"  {line}", flush=True)


def _ask(request: RunRequest) -> bool:
    """Ask before a period out of turn is paid; whether a person agreed. SpecError after a no."""
    spec, period = request.spec, request.period
    if nearest_period(spec.cadence, period) != period:
        return False  # not a label of this cadence: refused later
    asked = question(spec, key=request.key, label=period)
    if not asked:
        return False
    if sys.stdin.isatty():
        print(f"  {asked}\n  type the period again to go on: ", end="", flush=True)
        if sys.stdin.readline().strip() == period:
            return True
        raise SpecError("not confirmed; nothing was reserved", field=f"period {period}")
    raise SpecError(
        f"{asked}; nothing was reserved\ntype the command at a terminal, which asks, or declare"
        " in the spec's `series.retention` how many periods back may be published"
    )


def _publish(
    flow: Callable[..., str],
    parsed: argparse.Namespace,
    request: RunRequest,
    heard: Interrupts,
    *,
    agreed: bool,
) -> Path:
    """Plan, start the server, run the flow. Reserves what a person agreed to: no flow can agree."""
    from flows.server import prefect_server

    check_ahead(request, pay_again=parsed.pay_again)
    heard.run = run = request.prepared()
    _announce(run, parsed)
    with prefect_server(), typed_here():
        if agreed:
            reserve(run, pay_again=parsed.pay_again)
        return Path(flow(str(parsed.spec), run.period))  # the announced period, also after midnight


def main(flow: Callable[..., str], arguments: list[str]) -> int:
    """Run the flow for a person, unless its release exists; return the exit status."""
    parsed = _arguments(arguments)
    step_log, started, agreed = quiet_prefect(), time.monotonic(), parsed.pay_again
    print(f"dpiw {parsed.spec}", flush=True)
    if HOME_MADE is not None:
        home = os.path.relpath(HOME_MADE)
        print(f"  made {home}: Prefect's record of steps, no rows (PREFECT_HOME names another)")
    interrupts, request = Interrupts(), None
    try:
        request = RunRequest.read(parsed.spec, period=parsed.period)
        if parsed.rows is not None:
            more = more_rows(request, rows=parsed.rows)
            print(more_rows_summary(more, request.spec))
            return 0
        before = request.found()
        folder = None if before is None else published(before)
        if folder is not None:
            print("\nalready published, nothing spent")
        else:
            agreed = (parsed.period is not None and _ask(request)) or agreed
            step_log.begin("getting ready")  # server and plan may take a minute
            try:
                with interrupts:
                    if parsed.until:
                        read = read_source(parsed, request, interrupts)
                        command = release_command(request.spec, request.path, request.period)
                        print(f"{read}\nto go on   {command}")
                        return 0
                    folder = _publish(flow, parsed, request, interrupts, agreed=agreed)
            finally:
                step_log.settle()
    except KeyboardInterrupt:
        try:
            print(f"\n{interrupts.told(_again(parsed, request))}", flush=True)
        except OSError:  # the terminal is gone: print nothing more
            sys.stdout = io.StringIO()
        return interrupts.exit_code
    except DPIWError as error:
        failed = "not read" if parsed.until else "not published"
        reason = _explain(error, parsed.spec, request, interrupts.run)
        print(f"\n{failed}: {reason}{_on_any_day(parsed, request)}")
        return error.exit_code
    except Exception as error:
        if interrupts.run is None:
            raise
        print(f"\nnot published: {_unexpected(error, interrupts.run)}")
        return DPIWError.exit_code
    print(summary(folder, request, time.monotonic() - started))
    return 0
