"""More rows of a published release, in `<run>/rows-<N>/`, from the same draws, at no cost."""

import os
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dpiw.data.files import link_file, private_folder
from dpiw.errors import Command, LedgerConflictError, Next, ReleaseError, SpecError
from dpiw.ledger import Ledger, RunRecord, RunState
from dpiw.methods.generators.base import MadeElsewhere
from dpiw.plan.spec import ReleaseSpec
from dpiw.plan.stages import check_rows
from dpiw.release.certificate import Certificate
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import manifest_digest, read_signed_manifest, verify
from dpiw.release.withdrawal import refuse_withdrawn
from dpiw.run.ahead import check_label
from dpiw.run.locks import working
from dpiw.run.publish import build, certify_more_rows, clean, make_visible
from dpiw.run.restored import check_heads
from dpiw.run.run import (
    MADE_ELSEWHERE,
    PUBLIC_ROWS,
    ReleaseRun,
    RunRequest,
    ledger_url,
    run_folder,
)
from dpiw.run.weigh import check_output, debias, diagnose, draw_synthetic

MOST_ROWS = 10**9
"""The limit of `synthetic_rows` in a spec."""


@dataclass(frozen=True, kw_only=True)
class MoreRows(ReleaseRun):
    """A published run with another number of rows, in a folder inside the run's."""

    @property
    def release_id(self) -> str:
        """Name of the published folder: the first release's, with the number of rows."""
        rows = self.spec.synthetic_rows
        return f"{self.spec.name}-{self.period}-rows{rows}-{self.key[:8]}"


def more_rows(request: RunRequest, *, rows: int) -> Path:
    """Publish `rows` further rows of a published release, and return their folder.

    Uses the settings that its run kept; the spec finds it and gives folders and key. Idempotent.

    Privacy:
        Post-processing of committed measurements. The table and its snapshot are not opened.

    Raises SpecError if no such number of rows can be made, or nothing is published for this period;
    ReleaseError if the draws are not in the workspace; else as `dpiw.run.publish.publish`.
    """
    if not 1 <= rows <= MOST_ROWS:
        raise SpecError(f"found {rows}", field="rows", allowed=f"a number from 1 to {MOST_ROWS:,}")
    spec, label = request.spec, request.period
    check_label(spec, label)
    key = load_private_key(Path(spec.signing_key))
    ledger = Ledger.open(ledger_url(spec), key=key)
    check_heads(spec, ledger)
    record = _published(spec, ledger, own=request.key, period=label)
    first = _drawn(spec, record, label)
    certificate = _certificate(first, record)
    run = _prepared(first, spec, rows)
    draw_synthetic(run)
    debias(run)
    diagnose(run)
    with working(run):
        clean(run)
        _build(run, ledger, key, certificate, record)
        return make_visible(
            run, run.directory / "built", ledger, key,
            record=partial(ledger.publish_rows, run.key),
        )  # fmt: skip


def _published(spec: ReleaseSpec, ledger: Ledger, *, own: str, period: str) -> RunRecord:
    """The run that published this release and period; the spec's own if there are several."""
    runs = [
        run
        for run in ledger.runs(spec.population)
        if run.state is RunState.PUBLISHED
        and (run.run_key == own or (run.release, run.period) == (spec.name, period))
    ]
    ledger.check_not_withdrawn(ledger.find_run(own))
    mine = [run for run in runs if run.run_key == own] or runs
    if len(mine) == 1:
        return mine[0]
    if not mine:
        for run in ledger.runs(spec.population):
            if (run.release, run.period) == (spec.name, period):
                ledger.check_not_withdrawn(run)
        raise SpecError(
            f"release {spec.name} has published nothing for period {period}, so there are"
            " no draws to make more rows of",
            field="rows",
            next=[Next("to publish it first", Command.RELEASE, f" --period {period}")],
        )
    names = ", ".join(run.run_key[:8] for run in mine)
    raise SpecError(
        f"release {spec.name}, period {period} was published by runs {names}",
        field="rows",
        allowed="the settings of one of them in the spec",
    )


def _drawn(spec: ReleaseSpec, record: RunRecord, period: str) -> ReleaseRun:
    folder = run_folder(Path(spec.state), spec.population, record.run_key)
    files = [folder / "run.json", *(folder / f"{name}.npz" for name in record.stages)]
    if missing := [path.name for path in files if not path.exists()]:
        raise ReleaseError(
            f"{missing[0]} of run {record.run_key[:8]} is not in the workspace of "
            f"{os.path.relpath(spec.state)} any more, and no row can be made without"
            " it\nat no cost: put the run's folder back from a backup",
            field="rows",
            next=[
                Next(
                    f"a new release draws again and pays {spec.cost}",
                    Command.RELEASE,
                    f" --period {period} --pay-again",
                )
            ],
        )
    try:
        run = ReleaseRun.load(folder)
    except LedgerConflictError:
        raise LedgerConflictError(
            f"run {record.run_key[:8]} was drawn by another version of dpiw",
            field="rows",
            allowed="that version, which makes more rows of it at no cost",
        ) from None
    for stage in record.stages.values():
        check_output(run.measurement(stage.stage), stage)
    return run


def _certificate(first: ReleaseRun, record: RunRecord) -> Certificate:
    places = (first.directory / "built", Path(first.spec.publish_to) / first.release_id)
    refuse_withdrawn(places[1], None)  # a ledger that lost entries may lack its withdrawal
    for place in places:
        if manifest_digest(place) == record.manifest_digest:
            return verify(place, then="").certificate
    raise ReleaseError(
        "its folder is neither in the workspace nor where it was published",
        field=f"release {first.release_id}",
        allowed=f"it, from a backup (SHA-256 of manifest.json {str(record.manifest_digest)[:12]})",
    )


def _prepared(first: ReleaseRun, spec: ReleaseSpec, rows: int) -> MoreRows:
    """The run's calibrated methods with another number of rows, and links to its draws."""
    places = ("state", "ledger", "signing_key", "publish_to", "catalogue")
    now = {name: getattr(spec, name) for name in places} | {"synthetic_rows": rows}
    plan = replace(first.plan, spec=first.spec.model_copy(update=now))
    weights = plan.weights
    if weights is not None and weights.bound_to_rows:
        raise SpecError(
            f"weights.method={weights.method} drew its noise for the published rows alone, so"
            " further rows have no weights",
            field="rows",
            allowed="a new release, which pays, with more synthetic_rows or other weights",
        )
    if weights is not None:
        weights.check_release(plan.recipe.weighing, plan.schema)
    if isinstance(first.generator, MadeElsewhere):
        check_rows(plan.spec, plan.schema, first.generator, weights)
    directory = private_folder(first.directory / f"rows-{rows}")
    run = MoreRows(directory=directory, key=first.key, period=first.period, plan=plan)
    draws = [f"{stage.name}.npz" for stage in plan.stages]
    with working(run):
        for name in (*draws, MADE_ELSEWHERE, PUBLIC_ROWS):
            if (first.directory / name).exists():
                (directory / name).unlink(missing_ok=True)  # a copy may have been cut off
                link_file(first.directory / name, directory / name)
    return run


def _build(
    run: MoreRows, ledger: Ledger, key: PrivateKey, first: Certificate, record: RunRecord
) -> None:
    """Build the folder once; again only if the key was replaced before it was on record."""
    built = run.directory / "built"
    if built.exists():
        manifest = read_signed_manifest(built)
        if manifest.digest in record.further or manifest.signer == key.public:
            return
        shutil.rmtree(built)
    build(run, certify_more_rows(run, ledger, first), key, previous=record.manifest_digest)
