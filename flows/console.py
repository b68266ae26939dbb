"""The release flow on a terminal: progress while it runs, a clear page at the end.

A custodian who starts a run by hand sits inside the confidential zone: on failure this shows the
text of a structural error. A worker's runs do not come through here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from dpiw.data.levels import level_file
from dpiw.errors import DPIWError, SourceError, StageFailedError
from dpiw.ledger import Ledger
from dpiw.ledger.history import more_such
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.plan.held_rows import held_rows
from dpiw.plan.spec import load_spec
from dpiw.release.certificate import DO_NOT_USE
from dpiw.release.manifest import SCHEMA
from dpiw.release.report.report import load_report
from dpiw.release.verification import verify
from dpiw.run.ahead import paid_anew
from dpiw.run.commands import filled_in, ledger_place, program
from dpiw.run.continuation import goes_on
from dpiw.run.imports import importing
from dpiw.run.process import failure_file, failure_text, stages_ahead
from dpiw.run.publish import published
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun, cells_file, ledger_url
from flows import HOME_MADE
from flows.interrupts import Interrupts
from flows.reading import read_source
from flows.step_log import StepLog
from tasks.failures import StepFailedError, record


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dpiw release")
    parser.add_argument("spec", type=Path, help="a release spec (YAML)")
    parser.add_argument("--period", help="default: the current one; another label pays anew")
    parser.add_argument("--until", choices=["ingest"], help="stop there: nothing is drawn")
    return parser.parse_args(arguments)


def suit_the_terminal() -> None:
    """Where its encoding lacks a sign of ours, show another one: no step is to fail of it."""
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
    logger.setLevel(logging.INFO)
    logger.propagate = False
    shown = StepLog(Console())
    logger.addHandler(shown)
    return shown


def _explain(error: DPIWError, spec: Path, period: str | None) -> str:
    if not isinstance(error, StageFailedError):
        said = f"{type(error).__name__}: {error}"
        with contextlib.suppress(DPIWError):
            said = filled_in(said, load_spec(spec))
        return said
    run = ReleaseRun.prepare(spec, period=period)
    reason = failure_text(run.directory, error.stage) or str(error)
    held = held_rows(run.plan, error.stage)
    told_of = [f"stage {error.stage}: {reason}", f"(confidential log: {run.directory / 'log'})"]
    return "\n".join([*told_of, *_next(run, error), *([held] if held else []), _reads(run)])


def _unexpected(error: Exception, run: ReleaseRun) -> str:
    """Of what nobody thought of: its traceback is for the custodian's log, and not for a screen."""
    if not isinstance(error, StepFailedError):  # which the step has kept
        record(error, "release", run.directory)
    told = error if isinstance(error, StepFailedError) else type(error).__name__
    return f"{told}\n(confidential log: {run.directory / 'log'})\nnext: {DPIWError.advice}"


def _next(run: ReleaseRun, error: StageFailedError) -> list[str]:
    """What to do; nothing where the reason that was told says it."""
    if error.code == SourceError.exit_code:
        return [_mend(run, error.stage)]
    if error.exit_code != StageFailedError.exit_code:
        return []
    with contextlib.suppress(DPIWError):
        return [goes_on(run, error.stage)]
    return []


def _mend(run: ReleaseRun, stage: str) -> str:
    """What follows a fault of the source: the same, whether or not its place is known."""
    log = os.path.relpath(failure_file(run.directory, stage))
    return (
        "next: mend the file, and start the same command again; which row it is, where that is"
        f" known, stands in {log}, for the custodian alone"
    )


def _reads(run: ReleaseRun) -> str:
    """What is left of the reads that may end like this one: a count that epsilon does not pay."""
    try:
        account = run.open_ledger().account(run.spec.population)
    except DPIWError as error:  # the reason above is not to be lost for this line
        return f"reads without a draw: not known ({type(error).__name__})"
    return (
        f"reads without a draw: {account.unpaid_reads} of at most"
        f" {account.population.max_unpaid_reads} in the life of population"
        f" {account.population.name}"
    )


def _again(parsed: argparse.Namespace) -> str:
    """The command that goes on with this run."""
    period = "" if parsed.period is None else f" --period {parsed.period}"
    return f"{program()} release {parsed.spec}{period}"


def _left(spec: Path, population: str, key: str) -> str:
    """What the population has left, and how many more such releases that allows."""
    try:
        ledger = Ledger.open(ledger_url(load_spec(spec)))
        run = next(one for one in ledger.runs(population) if one.run_key.startswith(key))
        return f"{ledger.remaining(population)}; {more_such(ledger.account(population), run)}"
    except (DPIWError, StopIteration) as error:  # the release is published all the same
        return f"not known ({type(error).__name__})"


def _key(spec: Path) -> str:
    """The option that names the public key beside the signing key, if it lies there."""
    public = Path(load_spec(spec).signing_key).with_suffix(".pub")
    return f" --key {os.path.relpath(public)}" if public.exists() else ""


def _cells(spec: Path, population: str, key: str) -> str:
    """Where to look; the same for every table, whether or not there is anything to see."""
    return os.path.relpath(cells_file(Path(load_spec(spec).state), population, key))


def _advice(verdict: str, spec: Path, *, unseen: str = "", rehearsed: bool = True) -> list[str]:
    """What to do about weights that are not simply to be used.

    Args:
        verdict: the certificate's.
        spec: of the release.
        unseen: the certificate's.
        rehearsed: whether such a release can be, on stand-ins.
    """
    before = f"           before the next one, at no cost: {program()} rehearse {spec}"
    if verdict == Verdict.CARE.value:
        return ["           give each result with and without weights; each interval has a verdict"]
    if verdict not in (DO_NOT_USE, "none"):
        return []
    if unseen:
        return [f"           {unseen}", *([before] if rehearsed else [])]
    start = f"{before}; what helps is" if rehearsed else "           what helps is"
    return [
        "           the rows keep the privacy promise, and the generator's bias",
        f"{start} more epsilon, fewer columns, more people",
    ]


def _lists(folder: Path, dictionary: Path) -> list[str]:
    """What a data dictionary beside this one says to take the levels that a release found."""
    if not (folder / level_file(1)).exists():
        return []
    kept = ("name", "kind", "nullable", "normaliser", "other", "provenance")
    lines = ["", f"to take these levels, in a dictionary beside {os.path.relpath(dictionary)}:"]
    for place, column in enumerate(json.loads((folder / SCHEMA).read_bytes())["columns"], start=1):
        told = {name: column[name] for name in kept if name in column}
        levels = folder / level_file(place)
        told["levels_file"] = os.path.relpath(levels, dictionary.parent)
        lines.append(f"  - {json.dumps(told, ensure_ascii=False)}")
    return lines


def _summary(folder: Path, spec: Path, seconds: float) -> str:
    verified = verify(folder)
    certificate, diagnostics = verified.certificate, verified.certificate.diagnostics
    size, rows = diagnostics["effective_sample_size"], verified.manifest.facts.rows
    noise, k_hat = diagnostics.get("noise"), diagnostics.get("k_hat")
    stated, shown = load_spec(spec), os.path.relpath(folder)
    lists = _lists(folder, Path(stated.schema_path))
    lines = [
        "",
        f"release    {shown}",
        f"cost       epsilon={certificate.epsilon}, delta={certificate.delta}"
        f" ({certificate.relation.value})",
        f"population {certificate.population}: epsilon {certificate.spent_epsilon} of"
        f" {certificate.budget_epsilon}, delta {certificate.spent_delta} of"
        f" {certificate.budget_delta} spent so far",
        f"left       {_left(spec, certificate.population, certificate.release_id[-8:])}",
        f"weights    {certificate.verdict}: effective sample size {size:.0f} of {rows} rows"
        + ("" if noise is None else f", log-weight noise {noise:.3f}")
        + ("" if k_hat is None else f", k-hat {k_hat:.2f}"),
        *(f"           {reason}" for reason in diagnostics.get("reasons", ())),
        *(
            []
            if lists
            else _advice(
                certificate.verdict,
                spec,
                unseen=certificate.unseen,
                rehearsed="made_elsewhere" not in certificate.generator,
            )
        ),
        f"time       {seconds:.0f} s",
        "",
        "next, look at it:          open " + str(Path(shown) / "report.html"),
        f"     check it, offline:    {program()} verify {shown}{_key(spec)}",
        f'     use it, in Python:    dpiw.load_release("{shown}").mean(...)',
        f"     see what was spent:   {program()} ledger show --ledger {ledger_place(stated)}",
        "     how cells were read (exact counts, for the custodian alone): "
        + _cells(spec, certificate.population, certificate.release_id[-8:]),
        *lists,
    ]
    return "\n".join(lines)


def release_flow(spec: str, period: str | None) -> str:
    """`flows.release.release`, imported when it is called: Prefect takes its time."""
    from flows.release import release

    return release(spec, period)


def _published_before(spec: Path, period: str | None) -> Path | None:
    return published(run) if (run := ReleaseRun.find(spec, period=period)) else None


def _publish(flow: Callable[..., str], parsed: argparse.Namespace, heard: Interrupts) -> Path:
    """Start the server; plan, start the stages and import while it comes up; run the flow."""
    from flows.server import prefect_server

    check_ahead(parsed.spec, parsed.period)
    with prefect_server() as wait_for_server:
        heard.run = run = ReleaseRun.prepare(parsed.spec, period=parsed.period)
        for note in paid_anew(run.plan, run.open_ledger(), parsed.period):
            print(f"  note: {note}")
        with stages_ahead(run.directory):
            with importing():
                import flows.release  # noqa: F401

                load_report()
            wait_for_server()
            return Path(flow(str(parsed.spec), parsed.period))


def main(flow: Callable[..., str], arguments: list[str]) -> int:
    """Run the flow for a person, unless its release is there; returns the exit status."""
    parsed = _arguments(arguments)
    shown, started = quiet_prefect(), time.monotonic()
    print(f"dpiw {parsed.spec}", flush=True)
    if HOME_MADE is not None:
        made = os.path.relpath(HOME_MADE)
        print(f"  made {made}: Prefect's record of steps, no rows (PREFECT_HOME names another)")
    interrupts = Interrupts()
    try:
        folder = _published_before(parsed.spec, parsed.period)
        if folder is not None:
            print("\nalready published, nothing spent")
        else:
            shown.begin("getting ready")  # a server comes up, and a plan may take a minute
            try:
                with interrupts:
                    if parsed.until:
                        read = read_source(parsed.spec, parsed.period, interrupts)
                        print(f"{read}\nto go on   {_again(parsed)}")
                        return 0
                    folder = _publish(flow, parsed, interrupts)
            finally:
                shown.settle()
    except KeyboardInterrupt:
        try:
            until = f" --until {parsed.until}" if parsed.until else ""
            print(f"\n{interrupts.told(_again(parsed) + until)}", flush=True)
        except OSError:  # its terminal is gone: nobody is told, now or when Python ends
            sys.stdout = io.StringIO()
        return interrupts.exit_code
    except DPIWError as error:
        failed = "not read" if parsed.until else "not published"
        print(f"\n{failed}: {_explain(error, parsed.spec, parsed.period)}")
        return error.exit_code
    except Exception as error:
        if interrupts.run is None:
            raise
        print(f"\nnot published: {_unexpected(error, interrupts.run)}")
        return DPIWError.exit_code
    print(_summary(folder, parsed.spec, time.monotonic() - started))
    return 0
