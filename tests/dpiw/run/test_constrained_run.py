"""A release whose dictionary states constraints: its rows and its certificate."""

import json

import pandas as pd
import pytest

from dpiw import analysis
from dpiw.errors import ReleaseError
from dpiw.release.verification import verify
from dpiw.run import steps
from tests.proof.blind import CONSTRAINTS, MEASURED
from tests.support.whole_runs import draw, finish, loaded, prepared, publish_run


def test_a_release_satisfies_its_constraints_and_says_how_often_they_bound(make_workplace):
    place = make_workplace(weights=MEASURED)
    with (place.root / "schema.yaml").open("a") as file:
        file.write(CONSTRAINTS)
    run = draw(prepared(place))
    before = (run.directory / "synthetic_rows.constraints.json").read_bytes()
    steps.draw_synthetic(run)  # what is there is not drawn again
    assert (run.directory / "synthetic_rows.constraints.json").read_bytes() == before
    folder = finish(run)
    table = loaded(folder).table
    assert len(table) == 300
    assert not (table["region"].isin(["north", "other"]) & table["ill"]).any()
    assert not ((table["age"] <= 70) & (table["region"] == "south")).any()
    interval = analysis.confidence_interval(analysis.mean(loaded(folder), "age"))
    assert interval.method == "noise_aware"  # rejection and projection leave the law as it is
    certificate = verify(folder).certificate
    bound = certificate.diagnostics["constraints"]
    assert set(bound["broken"]) == {"healthy", "old"}
    assert 0 < bound["rejected"] < 1
    assert 0 < bound["projected"] < 1
    assert certificate.post_processing[0].startswith("satisfy declared constraints: of ")
    assert any("Every row satisfies the data dictionary's constraints" in sentence
               for sentence in certificate.caveats)  # fmt: skip
    page = (folder / "report.html").read_text()
    assert "Constraints that every row satisfies" in page
    assert f"{bound['broken']['old']:.2%}" in page
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


def test_a_paid_draw_is_published_though_no_row_of_the_model_is_admissible(make_workplace):
    """The nearest row of one constraint breaks the other, and back again."""
    place = make_workplace(weights=MEASURED)
    (place.root / "schema.yaml").write_text(WORK)
    rows = pd.DataFrame({"job": ["none"] * 400, "wage": ["adult"] * 400})
    rows.to_csv(place.root / "data.csv", index=False)
    folder = publish_run(place.spec)[1]
    table = loaded(folder).table
    assert not (table["job"].eq("none") & table["wage"].ne("child")).any()
    assert not table["job"].eq("pupil").any()
    certificate = verify(folder).certificate
    forced = certificate.diagnostics["constraints"]["forced"]
    assert forced > 1000
    statement = f"{forced} of 2000 rows"  # of the base, which the published ones are chosen from
    assert any(sentence.startswith(statement) for sentence in certificate.caveats)
    assert certificate.diagnostics["reasons"][-1].startswith(statement)
    assert certificate.verdict_rule.endswith("of the rows.")
    assert any("no noise-aware intervals" in sentence for sentence in certificate.caveats)
    shares = analysis.mean(loaded(folder), lambda rows: rows["job"] == "none")
    assert analysis.confidence_interval(shares).method == "sandwich"
    with pytest.raises(ReleaseError, match=f"{forced} rows were forced to satisfy adults-work"):
        analysis.confidence_interval(shares, method="noise_aware")
