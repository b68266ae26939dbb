"""The commands that messages name, as the curator of a spec must type them."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from dpiw.errors import Command
from dpiw.ledger import RunRecord
from dpiw.plan.spec import ReleaseSpec
from dpiw.run.run import ledger_url


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
    places = _options(ledger=ledger_place(spec), state=os.path.relpath(spec.state))
    return f"{program()} ledger void {key} --attempt {attempt} {places}"


def given_back(spec: ReleaseSpec, record: RunRecord) -> str:
    """Return how to give back a run's last attempt; earlier attempts that drew stay charged."""
    last = record.attempts[-1]
    void = void_command(spec, record.run_key[:12], last.attempt)
    return f"{void} gives back {last.held.cost}, unless a process draws for this run now"


def recover_command(spec: ReleaseSpec) -> str:
    """Return the command that records a folder's releases again; capitals mark decisions."""
    return f"dpiw ledger recover {_places(spec)} {_LOSS} {_signed(spec)}"


def loss_command(spec: ReleaseSpec) -> str:
    """Return the command that charges unpublished draws; capitals mark decisions."""
    places = _options(ledger=ledger_place(spec), population=spec.population)
    return f"dpiw ledger recover {places} --loss-only {_LOSS} {_signed(spec)}"


def _signed(spec: ReleaseSpec) -> str:
    return f"--sign-with {shlex.quote(os.path.relpath(spec.signing_key))}"


_LOSS = "--loss-epsilon E --loss-delta D --loss-reads N"


def _places(spec: ReleaseSpec) -> str:
    return _options(
        ledger=ledger_place(spec),
        releases=os.path.relpath(spec.publish_to),
        key=os.path.relpath(Path(spec.signing_key).with_suffix(".pub")),
    )


def _options(**values: str) -> str:
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in values.items())


def typed_commands(spec: ReleaseSpec, path: Path) -> dict[Command, str]:
    """Return the commands of messages with a spec's names and terms; people decide budgets."""
    unit, place = spec.privacy_unit, shlex.quote(ledger_place(spec))
    other = f"dpiw ledger register OTHER --ledger {place} --epsilon E --delta D"
    other += f" --relation {unit.relation.value}"
    if unit.id_column is not None:
        other += f" --id-column {shlex.quote(unit.id_column)} --max-rows {unit.max_rows}"
    named = shlex.quote(str(path))
    return {
        Command.REGISTER: f"dpiw ledger register --spec {named} --epsilon E --delta D",
        Command.REGISTER_OTHER: other,
        Command.SHOW: f"dpiw ledger show --ledger {place}",
        Command.RECOVER: recover_command(spec),
        Command.NEW_KEY: new_key_command(spec),
        Command.ADD_KEY: f"dpiw key add --ledger {named} --public FILE.pub --role ROLE"
        f" {_signed(spec)}",
        Command.LIST_KEYS: f"dpiw key list --ledger {named}",
        Command.APPROVE: f"dpiw approve {named} --period PERIOD --key FILE.key",
        Command.REHEARSE: f"dpiw rehearse {named}",
        Command.RELEASE: f"{program()} release {named}",
        Command.PLAN: f"dpiw plan {named}",
        Command.AUDIT: f"dpiw audit {_places(spec)} --out audit",
    }


def new_key_command(spec: ReleaseSpec) -> str:
    """Return the command that makes the key pair that a spec names."""
    key = os.path.relpath(Path(spec.signing_key).with_suffix(""))
    return f"dpiw key new {shlex.quote(key)}"
