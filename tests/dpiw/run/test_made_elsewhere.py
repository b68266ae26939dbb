"""Releases of rows made elsewhere: who pays, when they are refused, and what is told apart."""

import json
from decimal import Decimal
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.cli.main import main as dpiw
from dpiw.errors import LedgerConflictError, SpecError
from dpiw.ledger import CompositionRule, Ledger
from dpiw.methods.generators.external import External
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import MADE_ELSEWHERE, ReleaseRun
from tests.support.ledger import terms
from tests.support.made_elsewhere import rows_of_town, write_spec, written
from tests.support.whole_runs import asked, fitted, loaded, prepared, publish_run, reserved, spent

DECLARED = "declared by A. Curator, not promised: epsilon=0.5, delta=1e-07 for rows of sdg 1.2"


@pytest.fixture(scope="module")
def published(make_workplace):
    """One release that pays for its rows, and one of the same rows that names it."""
    place = make_workplace()
    run, folder = publish_run(write_spec(place))
    again, later = publish_run(write_spec(place, counted_by=run.key, top={"name": "again"}))
    return place, (run, folder), (again, later)


@pytest.mark.slow
def test_the_declared_cost_is_charged_once_and_named_ever_after(published, capsys):
    place, (run, folder), (_, later) = published
    assert str(spent(place)) == "epsilon=2, delta=2E-6"  # 1 with the rows, 1 beside them
    first, second = verify(folder).certificate, verify(later).certificate
    assert [event["type"] for s in first.stages for event in s.events] == ["declared", "gaussian"]
    assert [event["type"] for s in second.stages for event in s.events] == ["gaussian"]
    assert first.generator["made_elsewhere"]["charged"] is True
    assert DECLARED in str(first.declared)
    assert f"{DECLARED}, paid by run {run.key}" in str(second.declared)
    for certificate in (first, second):
        facts = certificate.generator["made_elsewhere"]
        assert facts["rows"] == 400
        assert 390 < facts["distinct_rows"] < 400  # some are alike but for a missing income
        assert "rows" not in certificate.generator["settings"]
        assert str(place.root) not in certificate.to_json().decode()


def test_every_window_tells_declared_from_promised(published, capsys, says):
    place, (run, folder), (again, later) = published
    for command in ("verify", "describe"):
        assert DECLARED in says(command, folder)
    shown = says("ledger", "show", "--ledger", place.ledger)
    assert "fit_generator=committed (declared epsilon=0.5, delta=1e-07)" in shown
    assert DECLARED in (folder / "report.html").read_text()
    assert dpiw(["ledger", "show", "--json", "--ledger", str(place.ledger)]) == 0
    (population,) = json.loads(capsys.readouterr().out)["populations"]
    first, second = population["runs"]
    stage = first["attempts"][0]["stages"]["fit_generator"]
    assert stage["declared"] == ["epsilon=0.5, delta=1e-07"]
    assert "declared" not in second["attempts"][0]["stages"]["fit_weights"]
    report = audit(f"sqlite:///{place.ledger}", [folder, later], [])
    codes = {finding.code: finding for finding in report.findings}
    assert codes.keys() == {"cost_declared", "key_not_pinned", "rows_paid_before"}
    assert codes["rows_paid_before"].subject == f"release {later.name}"
    assert f"run {run.key[:12]} is said to have paid" in codes["rows_paid_before"].text
    assert report.ok
    assert codes["cost_declared"].subject == f"run {run.key[:12]} attempt 1"
    loaded(folder)
    assert again.draws("fit_weights")


def test_published_rows_are_rows_of_the_file_and_of_no_other_table(published):
    """Whatever the confidential table holds: the weights and the choice alone depend on it."""
    place, (run, folder), _ = published
    columns = ["age", "income", "region", "ill"]
    schema = run.plan.schema
    given = schema.unscale(schema.scale(rows_of_town()))[columns]
    rows = loaded(folder).table[columns]
    known = {tuple(map(str, row)) for row in given.itertuples(index=False)}
    assert len(rows) == 100
    assert {tuple(map(str, row)) for row in rows.itertuples(index=False)} <= known
    assert (run.directory / MADE_ELSEWHERE).read_bytes() == (
        place.root / "made.parquet"
    ).read_bytes()


def test_a_charge_that_forgets_the_rows_is_found(make_workplace, monkeypatch):
    """The planted bug: reserved without the declared event; the draw knows what it should be."""
    place = make_workplace()
    write_spec(place)
    run = prepared(place)
    with monkeypatch.context() as patch:
        patch.setattr(External, "events", lambda self, **facts: ())
        reserved(place)
    steps.ingest(run)
    with pytest.raises(LedgerConflictError, match="other events than the ledger reserved"):
        steps.fit_generator(run, noise=SecureNoise())


@pytest.mark.parametrize("harm", ["changed", "gone", "a cell", "the source"])
def test_a_file_that_is_not_as_declared_reserves_nothing(make_workplace, harm):
    place = make_workplace()
    spec = write_spec(place)
    path = place.root / "made.parquet"
    if harm == "changed":
        written(path, rows_of_town(seed=9))
    elif harm == "gone":
        path.unlink()
    elif harm == "a cell":
        digest = written(path, rows_of_town().assign(age=77_777))
        write_spec(place, sha256=digest)
    else:
        path.unlink()
        path.hardlink_to(place.source)
    with pytest.raises(SpecError, match=r"generator\.settings\.rows") as refused:
        publish_run(spec)
    assert "77777" not in str(refused.value)
    ledger = Ledger.open(place.ledger)
    assert not ledger.runs("town")
    assert str(ledger.spent("town")) == "epsilon=0, delta=0"
    assert not list(place.root.glob(f"state/workspace/**/{MADE_ELSEWHERE}*"))


@pytest.mark.slow
def test_a_run_goes_on_from_its_copy_when_the_original_is_gone(make_workplace):
    """Started anew from its spec, whatever lies in the old place by then."""
    place = make_workplace()
    spec = write_spec(place)
    run = fitted(place)
    assert not [path for path in run.directory.iterdir() if path.name.startswith(".")]
    charged = str(spent(place))
    (place.root / "made.parquet").unlink()
    assert asked(spec).found() == ReleaseRun.load(run.directory)
    written(place.root / "made.parquet", rows_of_town(seed=9))
    again, folder = publish_run(spec)
    assert (again.key, str(spent(place))) == (run.key, charged)
    assert verify(folder).certificate.generator["made_elsewhere"]["rows"] == 400


def test_a_copy_that_changed_is_not_gone_on_from(make_workplace):
    place = make_workplace()
    spec = write_spec(place)
    copy = prepared(place).directory / MADE_ELSEWHERE
    copy.chmod(0o600)
    written(copy, rows_of_town(seed=9))
    with pytest.raises(SpecError, match="SHA-256 is not the one that `sha256` states"):
        ReleaseRun.prepare(spec, period=None)


CASES: dict[str, dict[str, Any]] = {
    "unknown": {"counted_by": "ab" * 32}, "paid by another": {}, "another file": {},
    "output gone": {}, "could be given back": {}, "dearer": {"epsilon": 0.6},
    "cheaper": {"epsilon": 0.4}, "another declarer": {"declared_by": "B. Curator"},
    "other evidence": {"evidence": "none"},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_a_run_that_paid_for_these_rows_has_paid(published, case):
    place, (run, _), (again, _) = published
    path, measurement = place.root / "made.parquet", run.measurement("fit_generator")
    rows, output = path.read_bytes(), measurement.read_bytes()
    counted_by = again.key if case == "paid by another" else run.key
    if case == "could be given back":
        write_spec(place, top={"name": "waiting"})
        counted_by = reserved(place).key
    before = str(spent(place))
    if case == "another file":
        written(path, rows_of_town(seed=77))
    if case == "output gone":
        measurement.unlink()
    name = {"name": f"after-{case.replace(' ', '-')}"}
    write_spec(place, **{"counted_by": counted_by, "top": name} | CASES[case])
    with pytest.raises(SpecError, match="counted_by: "):
        reserved(place)
    path.write_bytes(rows)
    measurement.write_bytes(output)
    assert str(spent(place)) == before


def test_a_delta_is_no_renyi_vector(make_workplace):
    place = make_workplace()
    Ledger.open(place.ledger).register(
        terms(name="city", epsilon=Decimal(5), composition=CompositionRule.RENYI)
    )
    write_spec(place, top={"population": "city"})
    with pytest.raises(SpecError, match="cannot count a declared delta"):
        reserved(place)
    write_spec(place, top={"population": "city"}, delta=0)
    reserved(place)
    assert spent(place, "city").epsilon_units > 0
