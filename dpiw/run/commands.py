"""The commands that messages name, as the curator of a spec must type them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from dpiw.ledger import RunRecord
from dpiw.ledger.location import AS_IN_THE_SPEC, REGISTER
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.signing import NEW_KEY
from dpiw.run.run import ledger_url

RELEASE = "dpiw release SPEC"
"""How a release's command begins in an error; `filled_in` adds the typed path."""


def program() -> str:
    """Return `dpiw` as this person must type it: with its folder if the environment is inactive."""
    if shutil.which("dpiw"):
        return "dpiw"
    return os.path.relpath(Path(sys.executable).parent / "dpiw")


def ledger_place(spec: ReleaseSpec) -> str:
    """Return the place of a spec's ledger: a relative path, or a URL."""
    url = ledger_url(spec)
    return os.path.relpath(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else url


def release_command(spec: ReleaseSpec, path: Path, period: str) -> str:
    """Return the command that begins or continues a run, on any day; another period pays again."""
    named = "" if spec.cadence == period == "once" else f" --period {period}"
    return f"{program()} release {shlex.quote(str(path))}{named}"


def void_command(spec: ReleaseSpec, key: str, attempt: int) -> str:
    """Return the command that gives back a reservation from which nothing was drawn."""
    places = {"ledger": ledger_place(spec), "state": os.path.relpath(spec.state)}
    words = [f"--{name} {shlex.quote(place)}" for name, place in places.items()]
    return " ".join([f"{program()} ledger void {key} --attempt {attempt}", *words])


def given_back(spec: ReleaseSpec, record: RunRecord) -> str:
    """Return how to give back a run's last attempt; earlier attempts that drew stay charged."""
    last = record.attempts[-1]
    void = void_command(spec, record.run_key[:12], last.attempt)
    return f"{void} gives back {last.held}, unless it is running at this moment"


def recover_command(spec: ReleaseSpec) -> str:
    """Return the command that records a folder's releases again; capitals mark decisions."""
    places = {
        "ledger": ledger_place(spec),
        "releases": os.path.relpath(spec.publish_to),
        "key": os.path.relpath(Path(spec.signing_key).with_suffix(".pub")),
    }
    words = [f"--{name} {shlex.quote(place)}" for name, place in places.items()]
    loss = "--loss-epsilon E --loss-delta D --loss-reads N"
    return " ".join(["dpiw ledger recover", *words, loss])


def loss_command(spec: ReleaseSpec) -> str:
    """Return the command that charges unpublished draws; capitals mark decisions."""
    return (
        f"dpiw ledger recover --ledger {shlex.quote(ledger_place(spec))}"
        f" --population {spec.population} --loss-only"
        " --loss-epsilon E --loss-delta D --loss-reads N"
    )


def filled_in(told: str, spec: ReleaseSpec, path: Path) -> str:
    """Return a message with the spec's names and terms in its commands; people decide budgets."""
    unit, place = spec.privacy_unit, shlex.quote(ledger_place(spec))
    person = "" if unit.id_column is None else f" --id-column {shlex.quote(unit.id_column)}"
    terms = f"--epsilon E --delta D --relation {unit.relation.value}{person}"
    terms += "" if unit.id_column is None else f" --max-rows {unit.max_rows}"
    commands = {
        "OTHER": f"dpiw ledger register OTHER --ledger {place} {terms}",
        **dict.fromkeys(
            ("NAME", spec.population),
            f"dpiw ledger register --spec {shlex.quote(str(path))} --epsilon E --delta D",
        ),
    }
    for generic, typed in commands.items():
        told = told.replace(REGISTER.format(name=generic, ledger="PATH"), typed)
    told = told.replace(AS_IN_THE_SPEC, "")
    told = told.replace(RELEASE, f"{program()} release {shlex.quote(str(path))}")
    told = told.replace("dpiw ledger show", f"dpiw ledger show --ledger {place}")
    told = told.replace("`dpiw ledger recover`", f"`{recover_command(spec)}`")
    return key_filled_in(told, spec)


def key_filled_in(told: str, spec: ReleaseSpec) -> str:
    """Return a message with the place of the spec's signing key."""
    return told.replace(NEW_KEY, new_key_command(spec))


def new_key_command(spec: ReleaseSpec) -> str:
    """Return the command that makes the key pair that a spec names."""
    key = os.path.relpath(Path(spec.signing_key).with_suffix(""))
    return f"dpiw key new {shlex.quote(key)}"


__all__ = [
    "RELEASE",
    "filled_in",
    "given_back",
    "key_filled_in",
    "ledger_place",
    "loss_command",
    "new_key_command",
    "program",
    "recover_command",
    "release_command",
    "void_command",
]
