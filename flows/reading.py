"""Read a source and stop before the first draw, for its custodian to check how cells were read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dpiw.errors import LedgerConflictError
from dpiw.run.commands import void_command
from dpiw.run.reserve import check_ahead
from dpiw.run.reserve import reserve as reserve_run
from dpiw.run.run import ReleaseRun, RunRequest, cells_file
from flows.interrupts import Interrupts


def read_source(
    request: RunRequest,
    heard: Interrupts,
    announce: Callable[[ReleaseRun], None],
    *,
    pay_again: bool = False,
) -> str:
    """Reserve a run's budget, read its source, stop, and return where to look.

    The text is the same for every table. Raises LedgerConflictError if a draw was begun before.

    Privacy:
        The stages `reserve` and `ingest` only: nothing is drawn, and nothing leaves the
        confidential zone. A custodian's decision on the statement may depend on rows.
    """
    from tasks.stages import ingest, reserve

    check_ahead(request, pay_again=pay_again)
    heard.run = run = request.prepared()
    _check_undrawn(run)
    announce(run)
    before = run.snapshot.exists()
    if pay_again:
        reserve_run(run, pay_again=True)
    ingest.fn(reserve.fn(run.directory))
    return "\n".join(["", *_read_lines(run, before=before)])


def _check_undrawn(run: ReleaseRun) -> None:
    record = run.open_ledger().find_run(run.key)
    if record is None or not record.drawn:
        return
    raise LedgerConflictError(
        "--until ingest: a draw of this run was begun before, and its source was read for it; look"
        f" at {_cells(run)}, or go on without the option"
    )


def _cells(run: ReleaseRun) -> str:
    return os.path.relpath(cells_file(Path(run.spec.state), run.spec.population, run.key))


def _read_lines(run: ReleaseRun, *, before: bool) -> list[str]:
    spec, attempt = run.spec, run.open_ledger().run(run.key).attempts[-1].attempt
    when = "before, once a run" if before else "now: copied, checked and scaled"
    return [
        f"read       {when}; this command draws nothing",
        f"held       epsilon={spec.epsilon}, delta={spec.delta}",
        f"look at    {_cells(run)} (exact counts, for the custodian alone)",
        f"to give up {void_command(spec, run.key, attempt)}",
        "           what is held is given back; the read counts as one without a draw",
        "           a file that you mend is another source.snapshot in the spec: this run keeps its"
        " copy",
    ]
