"""What a plan says of the release to come: files that are not there, and what would pay anew."""

from __future__ import annotations

from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.errors import BudgetExceededError
from dpiw.ledger import Ledger
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.run.ahead import missing_files, paid_anew
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun
from tests.support.whole_runs import publish_run


def rewritten(place: Any, old: str, new: str) -> None:
    text = place.spec.read_text()
    assert old in text
    place.spec.write_text(text.replace(old, new, 1))


def test_a_plan_warns_of_files_that_are_not_there(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(missing_files(load_spec(workplace.spec)))
    rewritten(workplace, "path: data.csv", "path: town.parquet")
    (workplace.root / "state/keys/test.key").unlink()
    assert main(["plan", str(workplace.spec)]) == 0
    told = capsys.readouterr().out
    assert "warning: source.path: no such file (" in told
    assert "town.parquet, and source.format is csv" in told
    assert "warning: signing_key: no such file; dpiw key new " in told


def test_another_setting_and_another_label_pay_anew(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_run(workplace.spec)
    ledger = Ledger.open(workplace.ledger)
    spec = load_spec(workplace.spec)
    plan = compile_plan(spec, load_schema(spec))
    assert not list(paid_anew(plan, ledger, None))
    (label,) = paid_anew(plan, ledger, "2026-q4")
    assert label.startswith("period 2026-q4: cadence once gives labels such as once;")
    rewritten(workplace, "synthetic_rows: 300", "synthetic_rows: 301")
    assert main(["plan", str(workplace.spec)]) == 0
    assert "town once is published already, with other settings" in capsys.readouterr().out


def test_a_budget_that_is_short_is_told_before_a_plan_is_made(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(workplace, "epsilon: 2", "epsilon: 9")
    monkeypatch.setattr("dpiw.run.run.compile_plan", lambda *_: pytest.fail("planned"))
    with pytest.raises(BudgetExceededError, match="who spent it: dpiw ledger show"):
        check_ahead(workplace.spec, None)
    assert ReleaseRun.find(workplace.spec, period=None) is None


def test_a_plan_says_how_wide_bins_are(workplace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(workplace.spec)]) == 0
    assert "bins            age 4 of 25 each, income 4 of 250 each;" in capsys.readouterr().out
    schema = workplace.root / "schema.yaml"
    cut = schema.read_text().replace("upper: 100}", "upper: 100, cuts: [20, 60]}", 1)
    schema.write_text(cut.replace("upper: 1000,", "upper: 1000, cuts: [50, 200],", 1))
    assert main(["plan", str(workplace.spec)]) == 0
    assert "spread evenly" not in capsys.readouterr().out
