"""The commands that a message names, as the curator of a spec has to type them."""

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
"""How an error begins a release's command; `filled_in` puts a typed path into it."""


def program() -> str:
    """`dpiw` as this person has to type it: with its folder, if the environment is not active."""
    if shutil.which("dpiw"):
        return "dpiw"
    return os.path.relpath(Path(sys.executable).parent / "dpiw")


def ledger_place(spec: ReleaseSpec) -> str:
    """Where a spec's ledger lies: a path from here, or a URL."""
    url = ledger_url(spec)
    return os.path.relpath(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else url


def release_command(spec: ReleaseSpec, path: Path, period: str) -> str:
    """What begins a run, or goes on with it, on whatever day it is typed.

    Args:
        spec: of the release.
        path: of the spec, as it was typed.
        period: the run's label; another one pays again.
    """
    named = "" if spec.cadence == period == "once" else f" --period {period}"
    return f"{program()} release {shlex.quote(str(path))}{named}"


def void_command(spec: ReleaseSpec, key: str, attempt: int) -> str:
    """What gives a reservation back of which nothing was drawn."""
    places = {"ledger": ledger_place(spec), "state": os.path.relpath(spec.state)}
    words = [f"--{name} {shlex.quote(place)}" for name, place in places.items()]
    return " ".join([f"{program()} ledger void {key} --attempt {attempt}", *words])


def given_back(spec: ReleaseSpec, record: RunRecord) -> str:
    """How what is reserved of a run is given back: its last attempt, which a worker may draw now.

    Earlier attempts, of which something was drawn, stay charged.
    """
    last = record.attempts[-1]
    void = void_command(spec, record.run_key[:12], last.attempt)
    return f"{void} gives back {last.held}, unless it is running at this moment"


def recover_command(spec: ReleaseSpec) -> str:
    """What takes the releases of a spec's folder on record again; capitals stand for a decision."""
    places = {
        "ledger": ledger_place(spec),
        "releases": os.path.relpath(spec.publish_to),
        "key": os.path.relpath(Path(spec.signing_key).with_suffix(".pub")),
    }
    words = [f"--{name} {shlex.quote(place)}" for name, place in places.items()]
    loss = "--loss-epsilon E --loss-delta D --loss-reads N"
    return " ".join(["dpiw ledger recover", *words, loss])


def loss_command(spec: ReleaseSpec) -> str:
    """What charges draws of which nothing was published; capitals stand for a decision."""
    return (
        f"dpiw ledger recover --ledger {shlex.quote(ledger_place(spec))}"
        f" --population {spec.population} --loss-only"
        " --loss-epsilon E --loss-delta D --loss-reads N"
    )


def filled_in(told: str, spec: ReleaseSpec, path: Path) -> str:
    """A message with the spec's own names in the commands that it advises.

    A population keeps for life what it was registered with, so its command takes that from the
    spec. The budget is for people to decide.

    Args:
        told: an error's text.
        spec: of the run that it ended; its paths are absolute.
        path: of the spec, as it was typed.
    """
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
    """A message with the place of the spec's key; another pair's name only ends otherwise."""
    return told.replace(NEW_KEY, new_key_command(spec))


def new_key_command(spec: ReleaseSpec) -> str:
    """What makes the pair that a spec names."""
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
