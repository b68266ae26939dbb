"""docs/privacy.md section 6, the rows about configuration: refused before anything is read or held.

Each refusal names its field, has exit code 10 (spec) or 11 (schema), appends nothing to the
ledger, and makes no folder in the workspace.
"""

import pytest

from dpiw.errors import SchemaError, SpecError
from dpiw.ledger import Ledger
from dpiw.run.run import ReleaseRun
from tests.hostile.bad_inputs.config_cases import BOUNDS, PASSWORD, SPEC


def untouched(place, entries):
    assert not (place.root / "state" / "workspace").exists()
    assert len(Ledger.open(place.ledger).entries()) == entries
    assert not place.releases.exists()


@pytest.mark.parametrize("case", list(SPEC))
def test_a_spec_is_refused_before_anything_happens(workplace, case):
    old, new, match = SPEC[case]
    entries = len(Ledger.open(workplace.ledger).entries())
    text = workplace.spec.read_text()
    if case.startswith("37 zero"):
        text = text.replace("settings: {bins: 4}", "settings: {bins: 4, noise: gaussian}")
    assert old in text
    workplace.spec.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError, match=match) as caught:
        ReleaseRun.prepare(workplace.spec, period=None)
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
