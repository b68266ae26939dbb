"""The page at the end of a release on a terminal: what was published, and what to do next."""

import contextlib
import json
import os
import warnings
from pathlib import Path

import pandas as pd

from dpiw.analysis.release import load_release
from dpiw.data.schema.levels import level_file
from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.ledger.history import more_such
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.certificate import DO_NOT_USE
from dpiw.release.manifest import SCHEMA
from dpiw.release.report.figures import counted
from dpiw.release.verification import verify
from dpiw.run.commands import ledger_place, program
from dpiw.run.publish import MOST_ANSWERED
from dpiw.run.run import RunRequest, cells_file, ledger_url


def summary(folder: Path, request: RunRequest, seconds: float) -> str:
    """Return where the release is, its cost, what is left, its weights' verdict, and next steps."""
    verified = verify(folder)
    certificate, diagnostics = verified.certificate, verified.certificate.diagnostics
    size, rows = diagnostics["effective_sample_size"], verified.manifest.facts.rows
    noise, k_hat = diagnostics.get("noise"), diagnostics.get("k_hat")
    spec, place = request.spec, os.path.relpath(folder)
    lists = _lists(folder, Path(spec.schema_path))
    told_of_weights = advice(
        certificate.verdict, request.path, unseen=certificate.unseen,
        rehearsed="made_elsewhere" not in certificate.generator,
    )  # fmt: skip
    lines = [
        "",
        f"release    {place}",
        f"cost       epsilon={certificate.epsilon}, delta={certificate.delta}"
        f" ({certificate.relation.value})",
        f"population {certificate.population}: epsilon {certificate.spent_epsilon} of"
        f" {certificate.budget_epsilon}, delta {certificate.spent_delta} of"
        f" {certificate.budget_delta} spent, this release included",
        *_left(request),
        f"weights    {certificate.weights_are}: effective sample size {size:.0f} of {rows} rows"
        + ("" if noise is None else f", log-weight noise {noise:.3f}")
        + ("" if k_hat is None else f", k-hat {k_hat:.2f}"),
        *(f"           {reason}" for reason in diagnostics.get("reasons", ())),
        *([] if lists else told_of_weights),
        *_questions(folder, rows),
        f"time       {seconds:.0f} s",
        "",
        "next, look at it:          open " + str(Path(place) / "report.html"),
        f"     check it, offline:    {program()} verify {place}{_key(spec)}",
        f'     use it, in Python:    dpiw.load_release("{place}").mean(...)',
        f"     see what was spent:   {program()} ledger show --ledger {ledger_place(spec)}",
        "     how cells were read (exact counts, for the custodian alone): "
        + os.path.relpath(cells_file(request.directory)),
        *lists,
    ]
    return "\n".join(lines)


def more_rows_summary(folder: Path, spec: ReleaseSpec) -> str:
    """Return where more rows of a release are, and the verdict on their weights."""
    verified = verify(folder)
    certificate, rows = verified.certificate, verified.manifest.facts.rows
    first = certificate.more_rows_of or {}
    size, place = certificate.diagnostics["effective_sample_size"], os.path.relpath(folder)
    return "\n".join(
        [
            "",
            f"release    {place}",
            f"rows       {rows}, from the draws of {first.get('release_id')}; nothing was read",
            "cost       none: what was drawn is paid for",
            f"weights    {certificate.weights_are}: effective sample size {size:.0f} of"
            f" {rows} rows",
            "",
            f"next, check it, offline:    {program()} verify {place}{_key(spec)}",
            f'      use it, in Python:    dpiw.load_release("{place}").mean(...)',
        ]
    )


def _left(request: RunRequest) -> list[str]:
    try:
        ledger = Ledger.open(ledger_url(request.spec))
        account = ledger.account(request.spec.population)
        return [f"left       {account.remaining}; {more_such(account, ledger.run(request.key))}"]
    except DPIWError as error:  # the release is published anyway
        return [f"left       not known ({type(error).__name__})"]


def _questions(folder: Path, rows: int) -> list[str]:
    """How many values of the declared questions have each verdict; empty where none are."""
    if rows > MOST_ANSWERED:
        return []
    found = pd.DataFrame()
    # The release is published anyway.
    with warnings.catch_warnings(action="ignore"), contextlib.suppress(Exception):
        found = load_release(folder).questions()
    if found.empty:
        return []
    return [
        f"questions  {counted(found['verdict'].value_counts())}; to see them:"
        f" {program()} describe {os.path.relpath(folder)} --questions"
    ]


def _key(spec: ReleaseSpec) -> str:
    """The option that names the public key beside the signing key, if it exists."""
    public = Path(spec.signing_key).with_suffix(".pub")
    return f" --key {os.path.relpath(public)}" if public.exists() else ""


def advice(verdict: str, spec: Path, *, unseen: str = "", rehearsed: bool = True) -> list[str]:
    """Return advice on weights that need care; `rehearsed`: stand-ins can rehearse it."""
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
    """Lines for a data dictionary that takes the levels that a release found."""
    if not (folder / level_file(1)).exists():
        return []
    keys = ("name", "kind", "nullable", "normaliser", "other", "provenance")
    lines = ["", f"to take these levels, in a dictionary beside {os.path.relpath(dictionary)}:"]
    for place, column in enumerate(json.loads((folder / SCHEMA).read_bytes())["columns"], start=1):
        entry = {name: column[name] for name in keys if name in column}
        levels = folder / level_file(place)
        entry["levels_file"] = os.path.relpath(levels, dictionary.parent)
        lines.append(f"  - {json.dumps(entry, ensure_ascii=False)}")
    return lines
