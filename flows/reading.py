"""Read a source and stop before the first draw, for its custodian to look how cells were read."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from dpiw.run.commands import ledger_place, program
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun, cells_file
from flows.interrupts import Interrupts


def read_source(spec: Path, period: str | None, heard: Interrupts) -> ReleaseRun:
    """Reserve a run's budget and read its source, as the release flow does, and go no further.

    Privacy:
        The stages `reserve` and `ingest` alone: nothing is drawn, and nothing leaves the
        confidential zone. What a custodian decides on its statement may depend on rows.
    """
    from tasks.ingest import ingest
    from tasks.reserve import reserve

    check_ahead(spec, period)
    heard.run = run = ReleaseRun.prepare(spec, period=period)
    ingest.fn(reserve.fn(run.directory))
    return run


def told(run: ReleaseRun, again: str) -> str:
    """Where to look, and how to go on or to give up; the same for every table.

    Args:
        run: whose source was read.
        again: the command that goes on with it.
    """
    place = shlex.quote(ledger_place(run.spec))
    cells = cells_file(Path(run.spec.state), run.spec.population, run.key)
    attempt = run.open_ledger().run(run.key).attempts[-1].attempt
    void = f"{program()} ledger void {run.key} --attempt {attempt} --ledger {place}"
    return "\n".join([
        "",
        "read       copied, checked and scaled; this command draws nothing",
        f"held       epsilon={run.spec.epsilon}, delta={run.spec.delta}",
        f"look at    {os.path.relpath(cells)} (exact counts, for the custodian alone)",
        f"to go on   {again}",
        f"to give up {void} --state {shlex.quote(os.path.relpath(run.spec.state))}",
        "           what is held is given back, and one more read has ended without a draw",
    ])  # fmt: skip
