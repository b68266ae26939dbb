"""Whole runs of what has rules of its own: found levels, constraints, marginals."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.audit import audit
from dpiw.cli.main import main as dpiw
from dpiw.errors import ReleaseError, SpecError, StageFailedError
from dpiw.ledger import CompositionRule, Ledger, StageState
from dpiw.methods.base import Method
from dpiw.methods.generators.unseen_levels import UnseenLevels
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun
from flows.summary import summary
from tests.proof.blind import CONSTRAINTS, MEASURED
from tests.support import whole_runs
from tests.support.fits import fitted_at_once
from tests.support.found_levels import without_list

Found = tuple[Any, ReleaseRun, Path]
MEASURE = UnseenLevels.measure


@pytest.fixture(scope="module")
def found(make_workplace):
    """A release that found levels; nothing after it in its workplace costs what it counts on."""
    place = without_list(make_workplace())
    run, folder = whole_runs.publish_run(place.spec)
    return place, run, folder


@pytest.mark.slow
def test_what_an_auditor_and_an_analyst_are_told(found, says):
    place, _, folder = found
    certificate = verify(folder).certificate
    (stage,) = certificate.stages
    assert [event["type"] for event in stage.events] == ["gaussian", "threshold"]
    assert certificate.accountants["pld"] <= 2
    assert "delta=5e-07, count=1" in says("plan", place.spec)
    entries = [vars(entry) for entry in Ledger.open(place.ledger).entries()]
    assert "smith" not in json.dumps(entries, default=str)  # no level, not even one that is shown


@pytest.mark.slow
def test_levels_are_found_and_a_later_release_takes_them(found, monkeypatch):
    place, run, folder = found
    monkeypatch.chdir(place.root.parent)  # what is printed fits the dictionary, wherever one is
    listed = (folder / "levels-001.csv").read_text().splitlines()
    assert listed[0] == "trade,noisy_count"
    assert [line.rpartition(",")[0] for line in listed[1:]] == ['"Baker, Jr."', "smith"]
    release = whole_runs.loaded(folder)
    assert set(release.table["trade"]) <= {"Baker, Jr.", "rest", "smith"}
    (column,) = release.schema["columns"]
    assert column["provenance"] == f"earlier release: {run.release_id}, run {run.key}"
    assert whole_runs.spent(place).epsilon == 2
    advice = summary(folder, whole_runs.asked(place.spec), 1.0)
    assert "rehearse" not in advice
    (line,) = [row for row in advice.splitlines() if "levels_file" in row]
    ages = "  - {name: age, kind: integer, lower: 0, upper: 100}"
    (place.root / "schema.yaml").write_text("\n".join(["name: town", "columns:", ages, line]))
    generator = "{method: histogram, settings: {bins: 4}}"
    text = place.spec.read_text().replace("{method: levels}", generator)
    place.spec.write_text(text.replace("name: town\n", "name: trades\n", 1))
    later, later_folder = whole_runs.publish_run(place.spec)
    assert whole_runs.spent(place).epsilon == 4
    assert later.key != run.key
    assert later.plan.schema.released[1].levels == ("Baker, Jr.", "smith", "rest")
    assert set(whole_runs.loaded(later_folder).table["trade"]) <= {"Baker, Jr.", "rest", "smith"}
    report = audit(f"sqlite:///{place.ledger}", [folder, later_folder], [place.key])
    assert (report.ok, report.findings) == (True, ())


def test_a_draw_with_another_threshold_than_planned_is_found(make_workplace, monkeypatch):
    """The certificate states the threshold that was applied, and the audit counts from it."""

    def lower(self, *args, **facts):
        calibrated = dataclasses.replace(self.calibrated, threshold=-50.0)
        return MEASURE(dataclasses.replace(self, calibrated=calibrated), *args, **facts)

    monkeypatch.setattr(UnseenLevels, "measure", lower)
    place = without_list(make_workplace())
    _, folder = whole_runs.publish_run(place.spec)
    assert "xylographer" in (folder / "levels-001.csv").read_text()
    report = audit(f"sqlite:///{place.ledger}", [folder], [place.key])
    assert [finding.code for finding in report.findings] == ["threshold_too_low"]


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
         "generator.method=levels"),
        ("schema.yaml", "name: trade", "name: a=b", "column a=b: unseen: "),
        ("schema.yaml", "rest}", "rest}\nconstraints: [{name: c, sum: [age], at_most: 90}]",
         "^constraints: "),
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
        steps.reserve(whole_runs.prepared(place))
    assert ledger.spent("village").epsilon == 0


@pytest.mark.slow
def test_a_release_satisfies_its_constraints_and_says_how_often_they_bound(make_workplace):
    place = make_workplace(weights=MEASURED)
    with (place.root / "schema.yaml").open("a") as file:
        file.write(CONSTRAINTS)
    run = whole_runs.draw(whole_runs.prepared(place))
    before = (run.directory / "synthetic_rows.constraints.json").read_bytes()
    steps.draw_synthetic(run)  # what is there is not drawn again
    assert (run.directory / "synthetic_rows.constraints.json").read_bytes() == before
    folder = whole_runs.finish(run)
    table = whole_runs.loaded(folder).table
    assert len(table) == 300
    assert not (table["region"].isin(["north", "other"]) & table["ill"]).any()
    assert not ((table["age"] <= 70) & (table["region"] == "south")).any()
    interval = analysis.confidence_interval(analysis.mean(whole_runs.loaded(folder), "age"))
    assert interval.method == "noise_aware"  # rejection and projection leave the law as it is
    certificate = verify(folder).certificate
    bound = certificate.diagnostics["constraints"]
    assert set(bound["broken"]) == {"healthy", "old"}
    assert 0 < bound["rejected"] < 1
    assert 0 < bound["projected"] < 1
    assert certificate.post_processing[0].startswith("satisfy declared constraints: of ")
    assert f"{bound['broken']['old']:.2%}" in (folder / "report.html").read_text()
    assert json.loads((folder / "schema.json").read_bytes())["constraints"][0]["name"] == "healthy"


WORK = """
name: town
columns:
  - {name: job, kind: categorical, levels: [none, pupil, worker, retired]}
  - {name: wage, kind: ordinal, levels: [child, adult, old]}
constraints:
  - {name: adults-work, never: {wage: {lower: adult}, job: none}}
  - {name: no-pupils, never: {job: pupil}}
"""


@pytest.mark.slow
def test_a_paid_draw_is_published_though_no_row_of_the_model_is_admissible(make_workplace):
    """The nearest row of one constraint breaks the other, and back again."""
    place = make_workplace(weights=MEASURED)
    (place.root / "schema.yaml").write_text(WORK)
    rows = pd.DataFrame({"job": ["none"] * 400, "wage": ["adult"] * 400})
    rows.to_csv(place.root / "data.csv", index=False)
    folder = whole_runs.publish_run(place.spec)[1]
    table = whole_runs.loaded(folder).table
    assert not (table["job"].eq("none") & table["wage"].ne("child")).any()
    assert not table["job"].eq("pupil").any()
    certificate = verify(folder).certificate
    forced = certificate.diagnostics["constraints"]["forced"]
    assert forced > 1000
    statement = f"{forced} of 2000 rows"  # of the base, which the published ones are chosen from
    assert any(sentence.startswith(statement) for sentence in certificate.caveats)
    assert certificate.diagnostics["reasons"][-1].startswith(statement)
    shares = analysis.mean(whole_runs.loaded(folder), lambda rows: rows["job"] == "none")
    assert analysis.confidence_interval(shares).method == "sandwich"
    with pytest.raises(ReleaseError, match=f"{forced} rows were forced to satisfy adults-work"):
        analysis.confidence_interval(shares, method="noise_aware")


MARGINALS = "measured, settings: {frequencies: 20, omega_seed: 1, base_rows: 2000}"


def ready_to_draw(make_workplace: Callable[..., Any], generator: str) -> ReleaseRun:
    place = make_workplace(weights=MARGINALS)
    place.rewrite("{method: histogram, settings: {bins: 4}}", generator)
    return whole_runs.ingested(place)


@pytest.mark.nightly
def test_mst_is_published_and_its_marginals_are_targets_of_the_weights(make_workplace):
    with fitted_at_once():
        folder = whole_runs.finish(whole_runs.draw(ready_to_draw(make_workplace, "{method: mst}")))
    known = verify(folder).certificate.diagnostics["measured"]["one_way"]
    assert known["variances"]
    assert all(np.isfinite(value) for value in known["variances"].values())


@pytest.mark.nightly
def test_aim_fits_inside_its_confidential_stage(make_workplace):
    """In the processes of production, within the stage's limits."""
    run = ready_to_draw(make_workplace, "{method: aim, settings: {bins: 2}}")
    launch_stage("fit_generator", run.directory)
    stage = run.open_ledger().run(run.key).stages["fit_generator"]
    assert stage.state is StageState.COMMITTED
    steps.draw_synthetic(run)
    assert (run.directory / "synthetic_rows.parquet").exists()


@pytest.mark.slow
def test_nothing_is_charged_where_nothing_fits(make_workplace, monkeypatch):
    """What fits is tried before the stage is armed, so the same run goes on once it is mended."""
    run = ready_to_draw(make_workplace, "{method: mst}")
    broken = StageFailedError("fit", StageFailedError.exit_code)
    with monkeypatch.context() as patch:
        patch.setattr(Method, "check_fits", mock.Mock(side_effect=broken))
        with pytest.raises(StageFailedError, match="stage fit"):
            steps.fit_generator(run, noise=SecureNoise())
    stage = run.open_ledger().run(run.key).stages["fit_generator"]
    assert stage.state is StageState.RESERVED
    assert not run.measurement("fit_generator").exists()
    with fitted_at_once():
        steps.fit_generator(run, noise=SecureNoise())
    assert run.open_ledger().run(run.key).stages["fit_generator"].state is StageState.COMMITTED
