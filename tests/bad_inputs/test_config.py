"""docs/privacy.md section 6, the rows about configuration: refused before anything is read or held.

Each refusal names its field, has exit code 10 (spec) or 11 (schema), appends nothing to the
ledger, and makes no folder in the workspace.
"""

import pytest

from dpiw.errors import BudgetExceededError, NotPublishableError, SchemaError, SpecError
from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.run.run import ReleaseRun

PASSWORD = "hunter2-bad52"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nname: *c\n"

SPEC = {
    # 31: names are plain
    "31 traversal": ("name: town", "name: ../town", "name", SpecError),
    "31 absolute": ("name: town", "name: /etc/town", "name", SpecError),
    "31 a device of old": ("name: town", "name: CON", "name", SpecError),
    "31 a NUL": ("path: data.csv", 'path: "data\\0.csv"', "source.path", SpecError),
    "31 a home of nobody": ("path: data.csv", "path: ~nobody-x/d.csv", "source.path", SpecError),
    # 35: epsilon
    "35 zero": ("epsilon: 2", "epsilon: 0", "epsilon", SpecError),
    "35 negative": ("epsilon: 2", "epsilon: -1", "epsilon", SpecError),
    "35 NaN": ("epsilon: 2", "epsilon: .nan", "epsilon", SpecError),
    "35 infinite": ("epsilon: 2", "epsilon: .inf", "epsilon", SpecError),
    "35 a comma": ("epsilon: 2", "epsilon: 1,0", "epsilon", SpecError),
    "35 tiny": ("epsilon: 2", "epsilon: 1e-400", "epsilon", SpecError),
    # 36: the policy's maximum
    "36 above": ("epsilon: 2", "epsilon: 10.000000000001", "epsilon", SpecError),
    # 37: delta
    "37 negative": ("delta: 1e-6", "delta: -1e-6", "delta", SpecError),
    "37 one": ("delta: 1e-6", "delta: 1", "delta", SpecError),
    "37 above 1/N": ("delta: 1e-6", "delta: 0.00251", "delta", SpecError),
    "37 zero for Gaussian noise": (
        "delta: 1e-6", "delta: 0", "generator.settings.noise: delta 0 needs laplace", SpecError),
    # 39: penalty
    "39 no penalty": (
        "method: beta_debiased", "method: beta_debiased, settings: {penalty: 0}", "penalty",
        SpecError),
    "39 negative penalty": (
        "method: beta_debiased", "method: beta_debiased, settings: {penalty: -1}", "penalty",
        SpecError),
    "39 no debias factor": (
        "method: beta_debiased",
        "method: beta_debiased, settings: {noise: laplace, penalty: 0.001}", "weights", SpecError),
    # 46: relations and unit
    "46 unknown relation": ("add_or_remove_one", "both", "relation", SpecError),
    # 47: mechanisms
    "47 unknown generator": ("method: histogram", "method: magic", "generator.method", SpecError),
    "47 unknown weights": ("method: beta_debiased", "method: magic", "weights.method", SpecError),
    "47 not private": ("method: beta_debiased", "method: logreg", "logreg", NotPublishableError),
    # 50: YAML
    "50 a bomb": ("format: 1\n", BOMB + "format: 1\n", "anchors and aliases", SpecError),
    "50 a key twice": ("epsilon: 2", "epsilon: 2\nepsilon: 1", "key 'epsilon'", SpecError),
    "50 a tag": ("name: town", "name: !!python/object/apply:os.getcwd []", "tags", SpecError),
    "50 no is no boolean": ("max_attempts: 1", "max_attempts: no", "max_attempts", SpecError),
    "50 a date is text": ("epsilon: 2", "epsilon: 2026-11-30", "epsilon", SpecError),
    # 51: secrets
    "51 a password": (
        "state: state\n", f"state: state\nledger: postgresql://me:{PASSWORD}@host/db\n",
        "ledger: holds a password", SpecError),
    "51 a field for it": (
        "path: data.csv", f"path: data.csv, password: {PASSWORD}", "source.password", SpecError),
}  # fmt: skip

BOUNDS = {
    "40 equal": ("upper: 100}", "upper: 0}", "lower < upper"),
    "40 the wrong way": ("lower: 0, upper: 100}", "lower: 9, upper: 1}", "lower < upper"),
    "40 NaN": ("upper: 1000,", "upper: .nan,", "finite"),
    "40 infinite": ("upper: 1000,", "upper: .inf,", "finite"),
    "40 to be inferred": (", lower: 0, upper: 100}", "}", "required and never inferred"),
    "40 text": ("upper: 1000,", "upper: auto,", "no continuous value"),
    "40 levels to be inferred": (", levels: [north, south, other], other: other", "", "required"),
    "15 names that differ by case": ("name: income", "name: AGE", "equal up to case"),
    "15 names that differ by Unicode form": ("name: income", "name: ａge", "equal up to case"),
    "13 a name twice": ("name: income", "name: age", "equal up to case"),
}


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
