"""Levels found in a release of their own, and a release that takes them: charged, once, as others.

What happens to a run that dies: `tests/crash/test_kill_matrix.py`, with real kills.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.cli.main import main as dpiw
from dpiw.errors import SpecError
from dpiw.ledger import CompositionRule, Ledger
from dpiw.methods.generators.unseen_levels import UnseenLevels
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from flows.summary import summary
from tests.support.found_levels import without_list
from tests.support.whole_runs import asked, loaded, prepared, publish_run, spent

Found = tuple[Any, ReleaseRun, Path]
MEASURE = UnseenLevels.measure


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A release that found levels; nothing after it in its workplace costs what it counts on."""
    from tests import conftest

    place = without_list(conftest.make_workplace.__wrapped__(tmp_path_factory)())
    run, folder = publish_run(place.spec)
    return place, run, folder


def test_what_an_auditor_and_an_analyst_are_told(found, capsys):
    place, _, folder = found
    certificate = verify(folder).certificate
    (stage,) = certificate.stages
    assert [event["type"] for event in stage.events] == ["gaussian", "threshold"]
    assert certificate.accountants["pld"] <= 2
    assert any("reached a public threshold" in sentence for sentence in certificate.assumptions)
    assert "levels (but those of unseen columns, which this release" in certificate.assumptions[0]
    assert any("rarer ones are not listed" in sentence for sentence in certificate.caveats)
    assert dpiw(["plan", str(place.spec)]) == 0
    assert "threshold                         delta=5e-07, count=1" in capsys.readouterr().out
    loaded(folder)
    entries = [vars(entry) for entry in Ledger.open(place.ledger).entries()]
    assert "smith" not in json.dumps(entries, default=str)  # no level, not even one that is shown


def test_levels_are_found_and_a_later_release_takes_them(found, monkeypatch):
    place, run, folder = found
    monkeypatch.chdir(place.root.parent)  # what is printed fits the dictionary, wherever one is
    listed = (folder / "levels-001.csv").read_text().splitlines()
    assert listed[0] == "trade,noisy_count"
    assert [line.rpartition(",")[0] for line in listed[1:]] == ['"Baker, Jr."', "smith"]
    release = loaded(folder)
    assert set(release.table["trade"]) <= {"Baker, Jr.", "rest", "smith"}
    (column,) = release.schema["columns"]
    assert column["provenance"] == f"earlier release: {run.release_id}, run {run.key}"
    assert spent(place).epsilon == 2
    advice = summary(folder, asked(place.spec), 1.0)
    assert "rehearse" not in advice
    (line,) = [row for row in advice.splitlines() if "levels_file" in row]
    ages = "  - {name: age, kind: integer, lower: 0, upper: 100}"
    (place.root / "schema.yaml").write_text("\n".join(["name: town", "columns:", ages, line]))
    generator = "{method: histogram, settings: {bins: 4}}"
    text = place.spec.read_text().replace("{method: levels}", generator)
    place.spec.write_text(text.replace("name: town\n", "name: trades\n", 1))
    later, later_folder = publish_run(place.spec)
    assert spent(place).epsilon == 4
    assert later.key != run.key
    assert later.plan.schema.released[1].levels == ("Baker, Jr.", "smith", "rest")
    assert set(loaded(later_folder).table["trade"]) <= {"Baker, Jr.", "rest", "smith"}
    key = place.root / "state" / "keys" / "test.pub"
    report = audit(f"sqlite:///{place.ledger}", [folder, later_folder], [key])
    assert (report.ok, report.findings) == (True, ())


def test_a_draw_with_another_threshold_than_planned_is_found(make_workplace, monkeypatch):
    """The certificate states the threshold that was applied, and the audit counts from it."""

    def lower(self, *args, **facts):
        assert self.calibrated is not None
        calibrated = dataclasses.replace(self.calibrated, threshold=-50.0)
        return MEASURE(dataclasses.replace(self, calibrated=calibrated), *args, **facts)

    monkeypatch.setattr(UnseenLevels, "measure", lower)
    place = without_list(make_workplace())
    _, folder = publish_run(place.spec)
    assert "xylographer" in (folder / "levels-001.csv").read_text()
    report = audit(
        f"sqlite:///{place.ledger}", [folder], [place.root / "state" / "keys" / "test.pub"]
    )
    assert [finding.code for finding in report.findings] == ["threshold_too_low"]


# Refused before anything is reserved


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("release.yaml", "{method: levels}", "{method: levels, settings: {share: 1}}",
         "has no such setting"),
        ("release.yaml", "{method: levels}", "{method: histogram}", "column trade is declared"),
        ("release.yaml", "delta: 1e-6", "delta: 0", "delta=0: levels needs a delta > 0"),
        ("release.yaml", "weights: {method: none}",
         "weights: {method: measured, settings: {omega_seed: 1}}", "^weights.method=measured: "),
        ("schema.yaml", "unseen: true, other: rest", "hash_buckets: 4",
         "levels: finds the levels of columns"),
        ("schema.yaml", "name: trade", "name: a=b", "column a=b: unseen: "),
        ("schema.yaml", "rest}", "rest}\nconstraints: [{name: c, sum: [age], at_most: 90}]",
         "^constraints: rows"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_the_plan(make_workplace, file, old, new, said):
    place = without_list(make_workplace())
    path = place.root / file
    path.write_text(path.read_text().replace(old, new))
    spec = load_spec(place.spec)
    with pytest.raises(SpecError, match=said):
        compile_plan(spec, load_schema(spec))


def test_no_rehearsal_knows_which_levels_there_are(make_workplace, capsys):
    place = without_list(make_workplace())
    assert dpiw(["rehearse", str(place.spec)]) == SpecError.exit_code
    assert "the generator levels cannot be rehearsed" in capsys.readouterr().err


def test_a_population_that_sums_vectors_is_refused_before_it_is_charged(make_workplace):
    place = without_list(make_workplace())
    ledger = Ledger.open(place.ledger)
    terms = dataclasses.replace(
        ledger.population("town"), name="village", composition=CompositionRule.RENYI
    )
    ledger.register(terms)
    place.rewrite("population: town", "population: village")
    with pytest.raises(SpecError, match=r"^generator\.method: population village"):
        steps.reserve(prepared(place))
    assert ledger.spent("village").epsilon == 0
