"""What tests of a ledger say again and again: digests, terms, costs, requests, commands."""

import argparse
import io
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.ledger import add_ledger_commands
from dpiw.errors import BudgetExceededError, DPIWError
from dpiw.ledger import Grant, Ledger, LedgerHead, Population
from dpiw.ledger.accounts import Account
from dpiw.ledger.entries import entry_hash, entry_json
from dpiw.ledger.stores import postgresql, sqlite
from dpiw.ledger.values import Charge
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost
from dpiw.release.withdrawal import Withdrawal

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighbouringRelation.REPLACE_ONE
BOTH = {
    "generator": [{"type": "gaussian", "noise_multiplier": 1.5, "count": 3}],
    "weights": [{"type": "laplace", "noise_multiplier": 4.0, "count": 1}],
}


def digest(number: int) -> str:
    """Of nothing; also a run key."""
    return f"{number:064x}"


def key(number: int) -> str:
    """A run key whose first eight digits differ."""
    return f"{number:08x}" * 8


RUN, PLAN, OUT, MANIFEST = digest(1), digest(2), digest(3), digest(4)
FORGED = Grant(population="adult", run_key=RUN, attempt=1, stage="generator", token=digest(0))

NONE = PrivacyCost.of(Decimal(0), Decimal(0), ADD)


def terms(**changes: Any) -> Population:
    given: dict[str, Any] = {
        "name": "town", "relation": ADD, "max_rows": 1, "epsilon": Decimal(2),
        "delta": Decimal("1e-5"),
    }  # fmt: skip
    return Population(**(given | changes))


def adult(**changes: Any) -> Population:
    return terms(**({"name": "adult"} | changes))


def cost(epsilon: str = "0.5", delta: str = "1e-6", relation: Any = ADD) -> PrivacyCost:
    return PrivacyCost.of(Decimal(epsilon), Decimal(delta), relation)


def ask(**changes: Any) -> dict[str, Any]:
    """A request of `reserve`: the first attempt of `RUN` with stages `BOTH`."""
    return {
        "population": "adult", "run_key": RUN, "attempt": 1, "cost": cost(), "stages": BOTH,
        "plan_digest": PLAN, "period": "2027-q1", "max_attempts": 3,
    } | changes  # fmt: skip


def withdrawal(**changes: Any) -> Withdrawal:
    """What the tombstone of a release states."""
    stated: dict[str, Any] = {
        "release_id": "town", "manifest": MANIFEST, "rows_of": None, "reason": "error",
        "replaced_by": None, "withdrawn_at": "2027-04-01T06:00:00Z",
    }  # fmt: skip
    return Withdrawal(**(stated | changes))


def opened(url: str, *, wait: float) -> Ledger:
    """A ledger that waits so many seconds for others' locks."""
    with pytest.MonkeyPatch.context() as patch:
        for store in (postgresql, sqlite):
            patch.setattr(store, "BUSY_TIMEOUT_SECONDS", wait)
        return Ledger.open(url)


def spend(ledger: Ledger, number: int, epsilon: str = "0.01") -> LedgerHead:
    """Reserve the smallest run there is, of one stage `s` and no delta."""
    return ledger.reserve(
        population="adult", run_key=digest(number), attempt=1, stages={"s": [{"count": 1}]},
        cost=cost(epsilon, "0"), plan_digest=digest(1), period="p", max_attempts=1,
    )  # fmt: skip


def refused(ledger: Ledger, error: type[DPIWError], act: Callable[[], Any]) -> Any:
    """`act` raises, and not one entry was written."""
    before = ledger.head()
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    assert ledger.head() == before
    return caught.value


def filled(account: Account, charge: Charge, most: int = 10**9) -> tuple[Account, int]:
    """The account after all equal charges that `admit` lets pass, `most` at most; their number."""
    for granted in range(most):
        try:
            account.admit(charge)
        except BudgetExceededError:
            return account, granted
        account = account.plus(charge)
    return account, most


def finish(ledger: Ledger, run_key: str = RUN, attempt: int = 1) -> None:
    for number, name in enumerate(sorted(BOTH)):
        ledger.commit(ledger.arm(run_key, attempt, name), digest(10 + number))


def chain(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of an export, numbered and linked again: a perfect chain."""
    previous = "0" * 64
    for seq, fields in enumerate(entries, start=1):
        fields.pop("hash", None)
        fields.update(seq=seq, previous=previous)
        previous = fields["hash"] = entry_hash(fields)
    return entries


def stored(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows a store would hold of these entries."""
    return [{**fields, "payload": entry_json(fields["payload"])} for fields in entries]


def sql(value: Any) -> str:
    """A stored value as SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def insert(entry: dict[str, Any]) -> str:
    """The statement that writes an exported entry's row."""
    (row,) = stored([entry])
    return f"INSERT INTO entries ({', '.join(row)}) VALUES ({', '.join(map(sql, row.values()))})"


def update(entry: dict[str, Any]) -> str:
    """The statement that puts an exported entry in the place of its row."""
    (row,) = stored([entry])
    columns = ", ".join(f"{name} = {sql(value)}" for name, value in row.items())
    return f"UPDATE entries SET {columns} WHERE seq = {row['seq']}"


def restore(place: Any, copy: bytes) -> None:
    """Put an old copy of a ledger, by its path or its workplace, in its place as from a backup."""
    path = place if isinstance(place, Path) else place.ledger
    for leftover in path.parent.glob("ledger.sqlite-*"):
        leftover.unlink()
    path.write_bytes(copy)


def cli(*words: str) -> tuple[int, str]:
    """Exit code and output of `dpiw ledger WORDS`."""
    parser = argparse.ArgumentParser()
    add_ledger_commands(parser.add_subparsers())
    arguments = parser.parse_args(["ledger", *words])
    arguments.stream = io.StringIO()
    return arguments.handler(arguments), arguments.stream.getvalue()


def told(*words: str) -> str:
    """What `dpiw ledger WORDS` tells, and that it ends well."""
    code, text = cli(*words)
    assert code == 0
    return text


def recover(
    place: Any, *words: str, releases: Sequence[Path] = (), loss: tuple[str, str] = ("0", "0")
) -> str:
    """What `dpiw ledger recover` tells of a workplace's releases, or of these folders."""
    folders = releases or (place.releases,)
    return told(
        "recover", "--ledger", str(place.ledger), "--key", str(place.key),
        *(word for folder in folders for word in ("--releases", str(folder))),
        "--loss-epsilon", loss[0], "--loss-delta", loss[1], "--loss-reads", "0", *words,
    )  # fmt: skip
