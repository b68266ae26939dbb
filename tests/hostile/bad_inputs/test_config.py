"""docs/privacy.md section 6, the rows about configuration: refused before anything is read or held.

Each refusal names its field, has exit code 10 (spec) or 11 (schema), appends nothing to the
ledger, and makes no folder in the workspace.
"""

import pytest

from dpiw.errors import BudgetExceededError, SchemaError, SpecError
from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.hostile.bad_inputs.config_cases import BOUNDS, PASSWORD, SPEC


def untouched(place, entries):
    assert not (place.root / "state" / "workspace").exists()
    assert len(Ledger.open(place.ledger).entries()) == entries
    assert not place.releases.exists()


@pytest.mark.parametrize("case", list(SPEC))
def test_a_spec_is_refused_before_anything_happens(workplace, case):
    old, new, match, error = SPEC[case]
    entries = len(Ledger.open(workplace.ledger).entries())
    text = workplace.spec.read_text()
    if case.startswith("37 zero"):
        text = text.replace("settings: {bins: 4}", "settings: {bins: 4, noise: gaussian}")
    assert old in text
    workplace.spec.write_text(text.replace(old, new, 1))
    with pytest.raises(error, match=match) as caught:
        ReleaseRun.prepare(workplace.spec, period=None)
    if error is SpecError:
        assert caught.value.exit_code == 10
    assert PASSWORD not in f"{caught.value} {caught.value.__context__} {caught.value.__cause__}"
    untouched(workplace, entries)


@pytest.mark.parametrize("case", list(BOUNDS))
def test_a_schema_is_refused_before_anything_happens(workplace, case):
    old, new, match = BOUNDS[case]
    path = workplace.root / "schema.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SchemaError, match=match) as caught:
        ReleaseRun.prepare(workplace.spec, period=None)
    assert caught.value.exit_code == 11
    untouched(workplace, 2)


def test_one_unit_above_the_budget_is_denied_and_nothing_is_written(make_workplace):
    """Row 41, at the door of a run."""
    place = make_workplace(epsilon="1.999999999999")
    run = ReleaseRun.prepare(place.spec, period=None)
    entries = len(Ledger.open(place.ledger).entries())
    with pytest.raises(BudgetExceededError, match=r"1\.999999999999") as caught:
        steps.reserve(run)
    assert caught.value.exit_code == 22
    assert "1.999999999999" in caught.value.remaining
    assert len(Ledger.open(place.ledger).entries()) == entries
    assert Ledger.open(place.ledger).spent("town").epsilon == 0
