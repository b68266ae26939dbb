"""A beta calibration on a declared public file: free, named by its SHA-256, read once."""

import contextlib
import datetime as dt
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpiw import analysis
from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.estimators.bayes import scaled_weights
from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.data.source import public_rows
from dpiw.data.source.copy import IngestLimits
from dpiw.data.source.public_rows import read_rows_file
from dpiw.errors import ReleaseError, SpecError
from dpiw.ledger import Ledger
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.plan.spec import load_spec
from dpiw.plan.table import plan_table
from dpiw.release.certificate import Certificate
from dpiw.run import steps, weigh
from dpiw.run.reserve import check_ahead
from tests.conftest import town
from tests.support.whole_runs import asked, draw, finish, loaded, prepared

STEP = "{step: beta_calibrate, source: public, rows: survey.csv, declared: the 2020 survey}"


@pytest.fixture
def place(make_workplace):
    made = make_workplace()
    made.add_steps(STEP)
    town(500, seed=3).to_csv(made.root / "survey.csv", index=False)
    return made


def publish(run):
    folder = finish(draw(run))
    return folder, loaded(folder)


@pytest.mark.slow
def test_a_release_calibrated_on_public_rows(place):
    digest = hashlib.sha256((place.root / "survey.csv").read_bytes()).hexdigest()
    run = prepared(place)
    folder, release = publish(run)
    certificate = release.certificate
    # two private stages and no more: the calibration is free
    assert [stage.stage for stage in certificate.stages] == ["fit_generator", "fit_weights"]
    assert Ledger.open(place.ledger).spent("town").epsilon == 2
    (step,) = certificate.weights["post_processing"]
    assert step == {"step": "beta_calibrate", "source": "public", "declared": "the 2020 survey",
                    "sha256": digest}  # fmt: skip
    assert any(digest in said and "the 2020 survey" in said for said in certificate.assumptions)
    first, second, last = certificate.post_processing
    assert first == "debias b(x - mu) before the calibration"
    assert second.startswith("beta calibration (a=")
    assert second.endswith("; the 2020 survey)")
    assert last == "self-normalise"  # the map has no noise of its own
    assert any("no interval of dpiw.analysis includes it" in said for said in certificate.caveats)
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert "beta calibration (a=" in (folder / "report.html").read_text()
    assert digest in plan_table(run.plan)
    # neither the file's place nor its rows are published
    published = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"survey.csv" not in published
    assert str(place.root).encode() not in published
    # a rerun is the same release, also when the free steps are repeated
    before = (run.directory / "weights.npz").read_bytes()
    steps.debias(prepared(place))
    with np.load(run.directory / "weights.npz") as again:
        assert again["log_weights"].size == 300
    assert (run.directory / "weights.npz").read_bytes() == before


def test_the_weights_are_the_calibrated_ratio_of_the_released_coefficients(place):
    """By hand: log w = g(u).c + constant, u the log ratio with the factor b(x - mu) in it."""
    run = prepared(place)
    _, release = publish(run)
    plan = run.plan
    published, fitting = (
        weigh.read_rows(run, name) for name in (weigh.PUBLISHED_ROWS, weigh.FITTING_ROWS)
    )
    drawn = weigh.committed_measurement(run, "fit_weights")
    x = LinearMap(plan.schema).matrix
    beta, scale = drawn.arrays["coefficients"], drawn.facts["scale"]
    fitted, rows = x(fitting.scaled), x(published.scaled)
    share = np.exp(fitted @ beta)
    mu = share @ fitted / share.sum()
    u = rows @ beta - scale**2 * ((rows - mu) ** 2).sum(axis=1) / 2
    (said,) = (s for s in json.loads((run.directory / "weights.json").read_bytes())["steps"]
               if s.startswith("beta calibration"))  # fmt: skip
    a, b, c = (float(found) for found in re.findall(r"[abc]=([-+.e0-9]+)", said))
    s = 1 / (1 + np.exp(-np.clip(u, -5, 5)))
    logs = a * np.log(s) - b * np.log1p(-s) + c
    with np.load(run.directory / "weights.npz") as stored:
        released = stored["log_weights"]
    np.testing.assert_allclose(released, logs - np.log(np.exp(logs).mean()), atol=1e-2)
    assert np.exp(released).mean() == pytest.approx(1)
    # their law is not known, and analysts are told
    assert law_of_release(release) is None
    found = analysis.mean(release, "age").interval()
    assert (found.method, found.verdicts) == ("sandwich", ("not assessed",))
    with pytest.raises(ReleaseError, match="noise-aware"):
        analysis.mean(release, "age").interval(method="noise_aware")
    _, size = scaled_weights(release)
    assert size.sum() <= 400  # no more evidence than nominal_rows


@pytest.mark.nightly_cases("dp_mlp")
@pytest.mark.parametrize("method", ["dp_mlp", "discriminator"])
@pytest.mark.slow
def test_a_network_s_ratio_is_calibrated_too(method, place):
    """By hand: log w = a log s - b log(1 - s), up to a constant, of the network's clipped logit."""
    small = {"dp_mlp": "dp_mlp, settings: {steps: 20, lot: 32, hidden: [4]}"}
    nets = "generator: [4], discriminator: [4]"
    generator = f"{{method: dpgan, settings: {{steps: 8, lot: 32, {nets}, loss: logistic}}}}"
    place.write_spec(weights=small.get(method, method))
    if method == "discriminator":
        place.rewrite("{method: histogram, settings: {bins: 4}}", generator)
    place.add_steps(STEP)
    run = prepared(place)
    _, release = publish(run)
    said, last = release.certificate.post_processing
    assert (last, said.endswith("; the 2020 survey)")) == ("self-normalise", True)
    a, b = (float(found) for found in re.findall(r"[ab]=([-+.e0-9]+)", said))
    stage = "fit_generator" if method == "discriminator" else "fit_weights"
    ratio = weigh.estimator(run).ratio(
        weigh.committed_measurement(run, stage), schema=run.plan.schema
    )
    u = ratio.log_ratio(weigh.read_rows(run, weigh.PUBLISHED_ROWS))
    logs = a * -np.logaddexp(0, -u) + b * np.logaddexp(0, u)
    with np.load(run.directory / "weights.npz") as stored:
        released = stored["log_weights"]
    np.testing.assert_allclose(released, logs - np.log(np.exp(logs).mean()), atol=1e-2)
    assert analysis.mean(release, "age").interval().verdicts == ("not assessed",)


def test_the_file_is_part_of_the_promise_and_its_place_is_not(place):
    run = prepared(place)
    kept = run.public_rows.read_bytes()
    (place.root / "survey.csv").rename(place.root / "moved.csv")
    place.spec.write_text(place.spec.read_text().replace("survey.csv", "moved.csv"))
    assert prepared(place).key == run.key
    assert run.public_rows.read_bytes() == kept
    town(500, seed=4).to_csv(place.root / "moved.csv", index=False)
    assert prepared(place).key != run.key
    # a digest in the spec pins the file
    place.spec.write_text(
        place.spec.read_text().replace("declared:", f"sha256: {'0' * 64}, declared:")
    )
    with pytest.raises(
        SpecError, match="rows: the file's SHA-256 is not the one that `sha256` states"
    ):
        prepared(place)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("/dev/null", "the file cannot be read"),
        ("age,income,region,ill\n", "expected at least one row"),
        ("age,income,region,ill\n1,2,north\n", "ragged"),
    ],
)
def test_a_file_that_will_not_do_costs_nothing(place, content, message):
    if content == "/dev/null":
        place.spec.write_text(place.spec.read_text().replace("survey.csv", content))
    else:
        (place.root / "survey.csv").write_text(content)
    with pytest.raises(SpecError, match=f"beta_calibrate.rows: .*{message}"):
        prepared(place)
    assert Ledger.open(place.ledger).spent("town").epsilon == 0
    left = [p.name for p in place.root.rglob(".public-*")]
    assert left == []


def test_a_file_that_changes_after_the_plan_is_refused(place, monkeypatch):
    spec = load_spec(place.spec)
    town(500, seed=4).to_csv(place.root / "survey.csv", index=False)
    monkeypatch.setattr("dpiw.run.run.load_spec", lambda path: spec)
    monkeypatch.setattr("dpiw.plan.plan.check_digest", lambda path, sha256, field: None)
    with pytest.raises(SpecError, match="has changed since the plan was made"):
        prepared(place)


def test_a_run_goes_on_without_the_file_if_the_spec_states_its_digest(place):
    run, survey = prepared(place), place.root / "survey.csv"
    digest = hashlib.sha256(survey.read_bytes()).hexdigest()
    survey.unlink()
    with pytest.raises(SpecError, match="`sha256` is missing"):
        prepared(place)
    draw(run)  # another release of the period would be asked for in its place, and paid
    with pytest.raises(SpecError, match="`sha256` is missing"):
        check_ahead(asked(place.spec))
    place.rewrite("declared:", f"sha256: {digest}, declared:")
    assert prepared(place).key == run.key
    check_ahead(asked(place.spec))


SCHEMA = PublicSchema(
    name="every-kind",
    columns=(
        Column(name="id", role=ColumnRole.IDENTIFIER),
        Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=10.0, nullable=True),
        Column(name="n", kind=ColumnKind.INTEGER, lower=0, upper=99),
        Column(name="job", kind=ColumnKind.CATEGORICAL, levels=("a", "b")),
        Column(name="day", kind=ColumnKind.DATE, lower="2020-01-01", upper="2021-12-31"),
        Column(name="sick", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET),
    ),
)
GOOD: dict[str, Any] = {
    "x": pa.array([1.5, None, 10.0]), "n": pa.array([0, 99, 7]), "job": pa.array(["a", "b", "a"]),
    "day": pa.array([dt.date(2020, 2, 29)] * 3), "sick": pa.array([True, False, True]),
}  # fmt: skip


def written(path: Path, **changes: Any) -> str:
    """The good file with other columns; None: without it."""
    columns = {name: one for name, one in (GOOD | changes).items() if one is not None}
    pq.write_table(pa.table(columns), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_rows_that_break_a_constraint_are_refused(tmp_path: Path) -> None:
    """A file has no further rows to draw, so a paid run would find too few of them."""
    digest = written(tmp_path / "made.parquet")
    for sick in (False, True):  # the file's third row is a: 7, sick
        never = {"name": "no-such-row", "never": {"job": "a", "n": 7, "sick": sick}}
        schema = PublicSchema.from_mapping(SCHEMA.to_mapping() | {"constraints": [never]})
        refusal = pytest.raises(SpecError, match="rows that break constraint no-such-row")
        with refusal if sick else contextlib.nullcontext():
            read = read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=schema)
            frame = SCHEMA.unscale(read)
            assert frame["n"].tolist() == [0, 99, 7]
            assert frame["x"].isna().tolist() == [False, True, False]


SECRET = 77_777
"""Stands in every hostile cell, and in no message."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n": pa.array([1, 2, SECRET])}, r"column n: has cells outside \[0, 99\]"),
        ({"job": pa.array(["a", "b", str(SECRET)])}, "column job: has cells that are none of its"),
        ({"job": pa.array(["a", None, "b"])}, "column job: has missing cells, and is not nullable"),
        ({"n": pa.array([1.0, 2.5, 2.0])}, "column n: has numbers that are not whole"),
        ({"x": pa.array(["1", "2", "1,5"])}, "column x: has cells that are no continuous"),
        ({"x": pa.array([b"1"] * 3), "n": pa.array([True] * 3)},
         "column [nx]: not stored as.*column [nx]: not stored as"),
        ({"sick": pa.array(["true", str(SECRET), "false"])}, "column sick: has cells that are no"),
        ({"day": pa.array([dt.date(7777, 7, 7)] * 3)}, "column day: has cells outside"),
        ({"extra": pa.array([SECRET] * 3)}, "columns that the data dictionary does not declare"),
        ({"job": None}, "columns missing in the file: job"),
    ],
)  # fmt: skip
def test_what_it_does_not_admit_is_refused_untold(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    digest = written(tmp_path / "made.parquet", **changes)
    with pytest.raises(SpecError, match=told) as refused:
        read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=SCHEMA)
    assert str(SECRET) not in str(refused.value)
    assert digest not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_a_file_that_is_no_parquet_or_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.parquet"
    digest = written(path)
    with pytest.raises(SpecError, match="SHA-256 is not the one"):
        read_rows_file(path, sha256="0" * 64, schema=SCHEMA)
    for data in (b"n,x\n1,2\n", path.read_bytes()[:-30], b"", b"PAR1" + b"\0" * 50 + b"PAR1"):
        path.write_bytes(data)
        with pytest.raises(SpecError, match="expected a Parquet file"):
            read_rows_file(path, sha256=hashlib.sha256(data).hexdigest(), schema=SCHEMA)
    path.unlink()
    with pytest.raises(SpecError, match="cannot be read"):
        read_rows_file(path, sha256=digest, schema=SCHEMA)


def test_a_file_too_large_to_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_rows, "_LIMITS", IngestLimits(max_memory_bytes=50))
    digest = written(tmp_path / "made.parquet")
    with pytest.raises(SpecError, match="exceeds max_memory_bytes"):
        read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=SCHEMA)
