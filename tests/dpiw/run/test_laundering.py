"""Budget laundering: whatever is renamed, copied, restored or set back,
the population's budget is charged, or the attempt is refused."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import (
    BudgetExceededError,
    LedgerConflictError,
    LedgerError,
    LedgerTamperedError,
    SpecError,
    UnknownPopulationError,
    UnsupportedRelationError,
)
from dpiw.ledger import CompositionRule, Ledger, Population
from dpiw.privacy.units import NeighbouringRelation
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.whole_runs import publish_run

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE


def prepared(place: Any, spec: Path | None = None, period: str | None = None) -> ReleaseRun:
    return ReleaseRun.prepare(spec or place.spec, period=period)


def released(place: Any, period: str | None = None) -> ReleaseRun:
    return publish_run(place.spec, period=period)[0]


def spent(place: Any) -> float:
    return Ledger.open(place.ledger).spent("town").epsilon


def terms(**changes: Any) -> Population:
    given: dict[str, Any] = {
        "name": "town", "relation": ADD, "max_rows": 1, "epsilon": Decimal(5),
        "delta": Decimal("1e-4"),
    }  # fmt: skip
    return Population(**{**given, **changes})


@pytest.fixture
def used(make_workplace: Any) -> Any:
    """A workplace whose budget of 3 has one unit left: each release costs 2."""
    place = make_workplace(epsilon="3")
    steps.reserve(prepared(place, period="2026-11"))
    assert spent(place) == 2
    return place


def refused(place: Any, run: ReleaseRun) -> None:
    with pytest.raises(BudgetExceededError, match=r"epsilon=1, .* is left"):
        steps.reserve(run)
    assert spent(place) == 2
    assert not run.snapshot.exists()


@pytest.mark.parametrize("how", ["renamed", "copied", "linked"])
def test_another_name_for_the_file(used: Any, how: str) -> None:
    other = used.root / "other.csv"
    act = {"renamed": used.source.rename, "copied": None, "linked": other.hardlink_to}[how]
    if how == "copied":
        shutil.copy(used.source, other)
    else:
        act(other if how == "renamed" else used.source)  # type: ignore[misc]
    used.spec.write_text(used.spec.read_text().replace("data.csv", "other.csv"))
    same = prepared(used, period="2026-11")
    steps.reserve(same)  # the same run: it goes on, and costs nothing more
    assert spent(used) == 2
    refused(used, prepared(used, period="2026-12"))


def test_another_snapshot_label_for_the_same_file(used: Any) -> None:
    text = used.spec.read_text().replace("format: csv}", "format: csv, snapshot: again}")
    used.spec.write_text(text)
    refused(used, prepared(used, period="2026-11"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("name: town", "name: hamlet"), ("synthetic_rows: 300", "synthetic_rows: 301"),
     ("nominal_rows: 400", "nominal_rows: 401")],
)  # fmt: skip
def test_a_second_spec(used: Any, old: str, new: str) -> None:
    second = used.root / "second.yaml"
    text = used.spec.read_text()
    assert old in text
    second.write_text(text.replace(old, new, 1))
    refused(used, prepared(used, second, period="2026-11"))


def test_a_second_spec_under_an_unregistered_population(used: Any) -> None:
    second = used.root / "second.yaml"
    second.write_text(used.spec.read_text().replace("population: town", "population: hamlet"))
    with pytest.raises(UnknownPopulationError, match="hamlet"):
        steps.reserve(prepared(used, second))


@pytest.mark.parametrize(
    "change",
    [{"epsilon": Decimal(50)}, {"delta": Decimal("1e-3")}, {"id_column": "person"},
     {"max_rows": 2, "id_column": "person"},
     {"relation": NeighbouringRelation.REPLACE_ONE}, {"composition": CompositionRule.RENYI}],
)  # fmt: skip
def test_registering_again_under_the_same_name(used: Any, change: dict[str, Any]) -> None:
    with pytest.raises(LedgerConflictError, match="set once"):
        Ledger.open(used.ledger).register(terms(**{"epsilon": Decimal(3), **change}))
    Ledger.open(used.ledger).register(terms(epsilon=Decimal(3)))  # the same terms reset nothing
    assert spent(used) == 2
    refused(used, prepared(used, period="2026-12"))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [("relation: add_or_remove_one", "relation: replace_one", UnsupportedRelationError),
     ("relation: add_or_remove_one",
      "relation: add_or_remove_one\nunit: {max_rows: 2, id_column: person}", SpecError),
     ("relation: add_or_remove_one",
      "relation: add_or_remove_one\nunit: {max_rows: 1, id_column: person}", SpecError)],
)  # fmt: skip
def test_other_terms_than_the_populations(
    used: Any, old: str, new: str, error: type[Exception]
) -> None:
    """A relation or a bound of rows per person that is not the registered one is refused."""
    schema = used.root / "schema.yaml"
    if "person" in new:
        schema.write_text(
            schema.read_text() + "  - {name: person, kind: integer, role: identifier}\n"
        )
    used.spec.write_text(used.spec.read_text().replace(old, new, 1))
    with pytest.raises(error, match=r"is registered (under|with)"):
        steps.reserve(prepared(used, period="2026-12"))
    assert spent(used) == 2


def forget_log(place: Any) -> None:
    for leftover in place.ledger.parent.glob("ledger.sqlite-*"):
        leftover.unlink()


def test_a_restored_backup(workplace: Any) -> None:
    backup = workplace.ledger.read_bytes()
    released(workplace, "2026-11")
    forget_log(workplace)
    workplace.ledger.write_bytes(backup)
    with pytest.raises(LedgerTamperedError, match="recover"):
        steps.reserve(prepared(workplace, period="2026-12"))


def test_a_new_ledger_in_the_old_ones_place(workplace: Any) -> None:
    released(workplace, "2026-11")
    forget_log(workplace)
    workplace.ledger.unlink()
    with pytest.raises(LedgerError, match="to begin one"):
        steps.reserve(prepared(workplace, period="2026-12"))
    Ledger.create(workplace.ledger).register(terms())
    with pytest.raises(LedgerTamperedError, match="recover"):
        steps.reserve(prepared(workplace, period="2026-12"))


def test_a_cloned_ledger(workplace: Any) -> None:
    """Two copies of one ledger: what one releases, the other must pay before it goes on."""
    clone = workplace.root / "clone.sqlite"
    shutil.copy(workplace.ledger, clone)
    second = workplace.root / "second.yaml"
    second.write_text(workplace.spec.read_text() + f"ledger: sqlite:///{clone}\n")
    clone.chmod(0o600)
    released(workplace, "2026-11")
    with pytest.raises(LedgerTamperedError, match="recover"):
        steps.reserve(prepared(workplace, second, period="2026-12"))
    with pytest.raises(LedgerTamperedError, match="recover"):
        steps.reserve(prepared(workplace, second, period="2026-11"))
    assert Ledger.open(clone).spent("town").epsilon == 0
    assert spent(workplace) == 2


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_set_elsewhere(used: Any, years: int) -> None:
    """Time is a label: neither a period of long ago nor one to come has a budget of its own."""
    now = datetime.now(UTC) + timedelta(days=365 * years)
    ledger = Ledger.open(used.ledger, clock=lambda: now)
    ledger.register(terms(name="village"))
    run = ReleaseRun.prepare(used.spec, period=f"{now.year}-11")
    refused(used, run)
    assert ledger.verify().ok
    assert ledger.spent("town").epsilon == 2


def test_a_population_of_persons_is_not_paid_by_rows(make_workplace: Any) -> None:
    """The registered unit is drawn; the same rows without their identifier are another promise."""
    place = make_workplace(population="visitors", weights="none")
    schema = place.root / "schema.yaml"
    schema.write_text(schema.read_text() + "  - {name: person, role: identifier}\n")
    Ledger.open(place.ledger).register(terms(name="visitors", id_column="person"))
    text = place.spec.read_text()
    with pytest.raises(SpecError, match=r"id_column=None: .* registered with person"):
        steps.reserve(prepared(place, period="2026-11"))
    place.spec.write_text(text + "unit: {id_column: person}\n")
    steps.reserve(prepared(place, period="2026-11"))
    assert Ledger.open(place.ledger).spent("visitors").epsilon == 2
