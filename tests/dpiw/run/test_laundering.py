"""Budget laundering: whatever is renamed, copied, restored or set back,
the population's budget is charged, or the attempt is refused."""

import dataclasses
import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from dpiw.errors import (
    BudgetExceededError,
    LedgerError,
    LedgerTamperedError,
    SpecError,
    UnsupportedRelationError,
)
from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.ledger import restore, terms
from tests.support.whole_runs import prepared, publish_run, reserved, spent


@pytest.fixture
def used(make_workplace):
    """A workplace whose budget of 3 has one unit left: each release costs 2."""
    place = make_workplace(epsilon="3")
    reserved(place, period="2026-11")
    assert spent(place).epsilon == 2
    return place


def refused(place: Any, run: ReleaseRun) -> None:
    with pytest.raises(BudgetExceededError, match=r"epsilon=1, .* is left"):
        steps.reserve(run)
    assert spent(place).epsilon == 2
    assert not run.snapshot.exists()


def second_spec(place: Any, old: str, new: str) -> Any:
    """The workplace, by another spec."""
    second = dataclasses.replace(place, spec=place.root / "second.yaml")
    shutil.copy(place.spec, second.spec)
    second.rewrite(old, new)
    return second


@pytest.mark.parametrize("how", ["renamed", "copied", "linked"])
def test_another_name_for_the_file(used, how):
    other = used.root / "other.csv"
    if how == "renamed":
        used.source.rename(other)
    elif how == "copied":
        shutil.copy(used.source, other)
    else:
        other.hardlink_to(used.source)
    used.rewrite("data.csv", "other.csv")
    reserved(used, period="2026-11")  # the same run: it goes on, and costs nothing more
    assert spent(used).epsilon == 2
    refused(used, prepared(used, period="2026-12"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("name: town", "name: hamlet"), ("synthetic_rows: 300", "synthetic_rows: 301"),
     ("nominal_rows: 400", "nominal_rows: 401"), ("format: csv}", "format: csv, snapshot: again}")],
)  # fmt: skip
def test_a_second_spec(used, old, new):
    refused(used, prepared(second_spec(used, old, new), period="2026-11"))


@pytest.mark.parametrize(
    ("terms", "error"),
    [("relation: replace_one", UnsupportedRelationError),
     ("relation: add_or_remove_one\nunit: {max_rows: 2, id_column: person}", SpecError),
     ("relation: add_or_remove_one\nunit: {max_rows: 1, id_column: person}", SpecError)],
)  # fmt: skip
def test_other_terms_than_the_populations(used, terms, error):
    """A relation or a bound of rows per person that is not the registered one is refused."""
    if "person" in terms:
        identified(used)
    used.rewrite("relation: add_or_remove_one", terms)
    with pytest.raises(error, match=r"is registered (under|with)"):
        reserved(used, period="2026-12")
    assert spent(used).epsilon == 2


def identified(place: Any) -> None:
    with (place.root / "schema.yaml").open("a") as schema:
        schema.write("  - {name: person, kind: integer, role: identifier}\n")


def test_a_population_of_persons_is_not_paid_by_rows(make_workplace):
    """The registered unit is drawn; the same rows without their identifier are another promise."""
    place = make_workplace(population="visitors", weights="none")
    identified(place)
    Ledger.open(place.ledger).register(terms(name="visitors", id_column="person"))
    with pytest.raises(SpecError):
        reserved(place, period="2026-11")
    place.rewrite("relation: add_or_remove_one",
                  "relation: add_or_remove_one\nunit: {id_column: person}")  # fmt: skip
    reserved(place, period="2026-11")
    assert spent(place, "visitors").epsilon == 2


def test_a_new_ledger_in_the_old_ones_place(workplace):
    publish_run(workplace.spec, period="2026-11")
    restore(workplace, b"")
    workplace.ledger.unlink()
    with pytest.raises(LedgerError, match="to begin one"):
        reserved(workplace, period="2026-12")
    Ledger.create(workplace.ledger).register(terms(epsilon=Decimal(5), delta=Decimal("1e-4")))
    with pytest.raises(LedgerTamperedError):
        reserved(workplace, period="2026-12")


def test_a_cloned_ledger(workplace):
    """Two copies of one ledger: what one releases, the other must pay before it goes on."""
    clone = workplace.root / "clone.sqlite"
    shutil.copy(workplace.ledger, clone)
    second = second_spec(workplace, "state: state", f"state: state\nledger: sqlite:///{clone}")
    clone.chmod(0o600)
    publish_run(workplace.spec, period="2026-11")
    for period in ("2026-12", "2026-11"):
        with pytest.raises(LedgerTamperedError):
            reserved(second, period=period)
    assert Ledger.open(clone).spent("town").epsilon == 0
    assert spent(workplace).epsilon == 2


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_set_elsewhere(used, years):
    """Time is a label: neither a period of long ago nor one to come has a budget of its own."""
    now = datetime.now(UTC) + timedelta(days=365 * years)
    ledger = Ledger.open(used.ledger, clock=lambda: now)
    ledger.register(terms(name="village"))
    run = ReleaseRun.prepare(used.spec, period=f"{now.year}-11", today=now.date())
    refused(used, run)
    assert ledger.verify().ok
    assert ledger.spent("town").epsilon == 2
