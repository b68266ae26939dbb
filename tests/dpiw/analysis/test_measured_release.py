"""Measured weights in a published folder: their law, their replicates, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.linalg import block_diag

from dpiw import analysis
from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.export_files import export
from dpiw.analysis.sample import WeightedSample
from dpiw.data.row_weights import ReplicateWeights
from dpiw.data.schema import PublicSchema
from dpiw.data.tables import SyntheticTable
from dpiw.errors import ChecksumError, ManifestError, ReleaseError, SpecError
from dpiw.methods.one_way import MOST_INDICATORS, OneWayLaw
from dpiw.methods.weights.measured import method as measured_weights
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.measured.weighing import law_of_measured, replicate_measured
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.release.certificate import UNSEEN
from dpiw.release.manifest import REPLICATES, FileBytes
from dpiw.release.publication import build_folder
from dpiw.release.replicate_weights import (
    check_replicates,
    read_replicate_footer,
    read_replicates,
    replicate_facts,
    replicates_promised,
    write_replicates,
)
from dpiw.release.signing import create_key_pair, load_private_key
from dpiw.release.verification import verify
from dpiw.run.weigh import PUBLISHED_ROWS, committed_measurement, read_rows

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = "omega_seed: 5, frequencies: 20, base_rows: 3000"
PLAIN = f"measured, settings: {{{SETTINGS}}}"
WITH_REPLICATES = f"measured, settings: {{{SETTINGS}, replicates: 40}}"


def law_inside(run):
    """The law as a run knows it, and its rows, in the order before they were shuffled."""
    with np.load(run.directory / "weights.npz") as stored:
        logs, chosen = stored["log_weights"], stored["chosen"]
    facts = json.loads((run.directory / "weights.json").read_bytes())["diagnostics"]["measured"]
    rows = read_rows(run, PUBLISHED_ROWS).scaled.take(chosen)
    table = SyntheticTable(schema=run.plan.schema, scaled=rows)
    measurement = committed_measurement(run, WEIGHTS_STAGE)
    return law_of_measured(run.plan.weights, table, logs, facts), table, measurement


def order_of(table, shuffled):
    """Some order in which rows of `table` are rows of `shuffled`: equal rows are alike."""
    texts, shuffled_texts = (
        frame.astype(object).where(frame.notna(), "missing").astype(str).agg("|".join, axis=1)
        for frame in (table, shuffled)
    )
    assert sorted(texts) == sorted(shuffled_texts)
    place = pd.Series(np.argsort(texts.to_numpy(), kind="stable"))
    order = np.empty(len(table), dtype=int)
    order[np.argsort(shuffled_texts.to_numpy(), kind="stable")] = place
    return order


def test_the_law_follows_from_the_folder(publishing):
    run, release = publishing(weights=PLAIN)
    law = law_of_release(release)
    inside, table, measurement = law_inside(run)
    assert release.certificate.weights["stage"] == WEIGHTS_STAGE
    assert law.rows == inside.rows == law.nominal_rows
    assert law.credit == inside.credit
    assert law.base_rows == inside.base_rows
    estimator = run.plan.weights
    c, n = estimator.calibrated.constant, inside.rows
    assert n == measurement.arrays["sum"][-1] / c
    scale, schema = (estimator.calibrated.law.scale / n) ** 2, run.plan.schema
    known = OneWayLaw.from_json(release.certificate.diagnostics["measured"]["one_way"], schema)
    assert law.means.size == estimator.stack(schema).dimension + known.dimension
    measured = law.means[: -known.dimension]
    measured_covariance = scale * (np.eye(measured.size) + np.outer(measured, measured) / c**2)
    exact = block_diag(measured_covariance, known.covariance(law.means[-known.dimension :], n))
    for found in (law, inside):
        np.testing.assert_allclose(found.covariance, exact, rtol=1e-9)
    # The features are those of the same rows: whole numbers and levels come back as they were.
    order = order_of(run.plan.schema.unscale(table.scaled), release.table)
    np.testing.assert_allclose(law.features, inside.features[order], atol=1e-9)
    found = analysis.mean(release, "age")
    influence = np.empty_like(found.influence)
    influence[order] = found.influence
    np.testing.assert_allclose(
        sum(law.variances(found.influence)), sum(inside.variances(influence)), rtol=0.2
    )


def test_intervals_of_a_release(publishing):
    _, release = publishing(weights=PLAIN)
    estimates = (
        analysis.mean(release, "age"),
        analysis.quantile(release, "income", 0.5),
        analysis.correlation(release, "age", "income"),
        analysis.linear_regression(release, "income", ["age"]),
    )
    for estimate in estimates:
        interval = estimate.interval()
        assert interval.method == "noise_aware"
        assert set(interval.parts) == {"rows", "means", "prior"}
        assert np.all((interval.support >= 0) & (interval.support <= 1))
        assert set(interval.verdicts) <= {"use", "use with care", "do not use"}
        alone = estimate.interval(method="sandwich")
        assert np.all(
            interval.parts["rows"] <= release.sample.law.repeats * alone.parts["rows"] * 1.01
        )
        assert np.all(interval.parts["means"] > 0)
        assert set(alone.verdicts) == {"not assessed"}
    drawn = estimates[0].interval(
        method="noise_aware_bootstrap", replicates=50, rng=np.random.default_rng(1)
    )
    assert drawn.lower < drawn.upper
    posterior = analysis.logistic_posterior(release, "ill", ["age"])
    assert posterior.size <= release.sample.law.rows


def test_a_release_says_that_its_test_saw_nothing(publishing):
    """The test's probability lies among the method's own facts, one level down."""
    certificate = publishing(weights=PLAIN)[1].certificate
    assert "evidence_p_value" not in certificate.diagnostics

    def told(p):
        method_facts = certificate.diagnostics["measured"] | {"evidence_p_value": p}
        facts = certificate.diagnostics | {"measured": method_facts}
        return dataclasses.replace(certificate, diagnostics=facts).unseen

    p_value = certificate.diagnostics["measured"]["evidence_p_value"]
    assert certificate.unseen == told(p_value) == (UNSEEN if p_value > 0.05 else "")
    assert [told(p) for p in (0.14, 0.05)] == [UNSEEN, ""]


def test_replace_one_has_no_count(publishing):
    _, release = publishing(weights=PLAIN)
    stages = tuple(
        dataclasses.replace(s, parameters={**s.parameters, "constant": 0.0})
        for s in release.certificate.stages
    )
    certificate = dataclasses.replace(release.certificate, stages=stages)
    law = law_of_release(dataclasses.replace(release, certificate=certificate))
    scale = release.certificate.stages[1].parameters["scale"] / law.rows
    width = stack_width(release)
    np.testing.assert_array_equal(law.covariance[:width, :width], scale**2 * np.eye(width))
    assert not law.covariance[:width, width:].any()
    assert law.means.size > width


def test_marginals_are_as_well_known_as_the_generator_measured_them(publishing):
    run, release = publishing(weights=PLAIN)
    one_way = release.certificate.diagnostics["measured"]["one_way"]
    stage = next(s for s in release.certificate.stages if s.stage == GENERATOR_STAGE)
    assert stage.method == "histogram"
    assert set(one_way["variances"]) == {column.name for column in run.plan.schema.released}
    for variance in one_way["variances"].values():
        assert variance == pytest.approx(stage.parameters["multiplier"] ** 2)


@pytest.mark.parametrize(
    "change",
    [
        {"credit": "x"}, {"credit": 0}, {"rows": -1.0}, {"rows": []}, {"effective_base_rows": None},
        {"rows": 0}, {"rows": 1e300}, {"least_credit": 0}, {"least_credit": -1.0},
        {"pairs_credit": 0}, {"pairs_credit": -1.0}, {"pairs_credit": 1e300},
        {"pairs_credit": float("nan")},
        {"least_credit": float("nan")}, {"least_credit": 1e300}, {"calibration": 0},
        {"calibration": "x"}, {"calibration": float("nan")}, {"calibration": -5},
        {"residual": [1.0]}, {"residual": "x"},
        {"one_way": [1]}, {"one_way": {"bins": 4, "total_variance": 1, "variances": {"age": 0}}},
    ],
)  # fmt: skip
def test_a_certificate_of_odd_numbers_leaves_no_law(publishing, change):
    _, release = publishing(weights=PLAIN)
    diagnostics = dict(release.certificate.diagnostics)
    diagnostics["measured"] = diagnostics["measured"] | change
    certificate = dataclasses.replace(release.certificate, diagnostics=diagnostics)
    with pytest.raises(ReleaseError, match="certificate: "):
        law_of_release(dataclasses.replace(release, certificate=certificate))


def test_a_release_without_known_marginals_has_its_law(publishing):
    """Rows of a generator that measured none, or of a release made before they were used."""
    _, release = publishing(weights=PLAIN)
    diagnostics = dict(release.certificate.diagnostics)
    diagnostics["measured"] = {
        key: value
        for key, value in diagnostics["measured"].items()
        if key not in ("one_way", "residual")
    }
    certificate = dataclasses.replace(release.certificate, diagnostics=diagnostics)
    law = law_of_release(dataclasses.replace(release, certificate=certificate))
    assert law.means.size == stack_width(release)


def stack_width(release):
    """Measured features: cosines, sines, and what the rule of the schema adds."""
    stage = next(s for s in release.certificate.stages if s.stage == WEIGHTS_STAGE)
    return stage.parameters["dimension"]


def test_a_certificate_that_does_not_tell_leaves_no_law(publishing):
    _, release = publishing(weights=PLAIN)
    changed = dataclasses.replace(release.certificate, post_processing=("clip at 3",))
    assert law_of_release(dataclasses.replace(release, certificate=changed)) is None
    changed = dataclasses.replace(release.certificate, diagnostics={})
    with pytest.raises(ReleaseError, match="measured"):
        law_of_release(dataclasses.replace(release, certificate=changed))


def test_replicates_are_published_in_the_order_of_the_rows(publishing):
    run, release = publishing(weights=WITH_REPLICATES)
    replicates = release.replicate_weights
    assert replicates.weights.shape == (300, 40)
    assert np.all(replicates.weights > 0)
    np.testing.assert_allclose(replicates.weights.mean(axis=0, dtype=np.float64), 1, rtol=1e-6)
    inside, table, measurement = law_inside(run)
    again = replicate_measured(inside, measurement, count=40)
    assert again.scale == replicates.scale
    # Row by row: the ratio of a replicate to the row's weight names the row.
    ratios = replicates.weights / release.weights[:, None]
    expected = again.weights / inside.weights[:, None]
    places = np.array([np.argmin(np.abs(expected - ratio).sum(axis=1)) for ratio in ratios])
    assert sorted(places) == list(range(300))
    np.testing.assert_allclose(ratios, expected[places], rtol=1e-5)
    frame = run.plan.schema.unscale(table.scaled).iloc[places].reset_index(drop=True)
    pd.testing.assert_frame_equal(frame, release.table, check_dtype=False, check_categorical=False)
    # 40 replicates: a variance has a relative standard error of 22%; the tolerance is 4 of them.
    for estimate in (analysis.mean(release, "age"), analysis.mean(release, "ill")):
        variance = replicates.variance(estimate.refit, release.weights)
        np.testing.assert_allclose(variance, sum(estimate.interval().parts.values()), rtol=0.9)
    page = json.loads((release.verified.folder / "croissant.json").read_bytes())
    assert [file["name"] for file in page["distribution"]] == ["synthetic.parquet", REPLICATES]
    assert replicates_promised(release.certificate) == 40


def has_survey():
    """Whether R and its survey package are on this machine."""
    if shutil.which("Rscript") is None:
        return False
    command = ["Rscript", "-e", "quit(status = !requireNamespace('survey', quietly = TRUE))"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_survey(), reason="needs R with its package survey")
def test_r_finds_the_same_standard_errors(tmp_path):
    rng, rows = np.random.default_rng(61), 800
    ages = rng.normal(50, 15, rows).round().astype(np.int64)
    table = pd.DataFrame({"age": ages, "smoker": rng.random(rows) < 0.3,
                          "hours": rng.integers(0, 60, rows)})  # fmt: skip
    table["ill"] = rng.random(rows) < 1 / (1 + np.exp(2 - table["age"] / 40))
    x = (table[["age", "smoker"]] - table[["age", "smoker"]].mean()).to_numpy(dtype=float) / 50
    weights = np.exp(x[:, 0])
    weights /= weights.mean()
    law = MeansLaw(
        features=x, weights=weights, covariance=1e-4 * np.eye(2), rows=1000.0, credit=500.0
    )
    drawn = law.replicates(100, rng)
    town = PublicSchema.from_yaml(ROOT / "examples" / "population" / "schema.yaml").to_mapping()
    columns = [column for column in town["columns"] if column["name"] in table.columns]
    release = types.SimpleNamespace(
        table=table, weights=weights, replicate_weights=drawn, schema=town | {"columns": columns}
    )
    file = export(release, tmp_path / "rows.csv", replicates=True)
    script = ROOT / "examples" / "population" / "survey.R"
    output = subprocess.run(
        ["Rscript", script, file, repr(drawn.scale)], capture_output=True, text=True, check=True
    ).stdout
    survey = pd.read_csv(io.StringIO(output), index_col="name")
    sample = WeightedSample(table=table, weights=weights, law=law)
    for name, estimate in {
        "age": analysis.mean(sample, "age"),
        "smokerTRUE": analysis.mean(sample, "smoker"),
        "ill~": analysis.logistic_regression(sample, "ill", ["age", "smoker"]),
    }.items():
        ours = np.sqrt(drawn.variance(estimate.refit, weights))
        chosen = survey[survey.index.str.startswith(name)]
        np.testing.assert_allclose(chosen["estimate"], estimate.values, rtol=1e-5)
        np.testing.assert_allclose(chosen["error"], ours, rtol=1e-4)


def test_without_the_setting_there_are_none(publishing):
    for weights in (PLAIN, "beta_debiased", "none"):
        _, release = publishing(weights=weights)
        assert release.replicate_weights is None
        assert REPLICATES not in release.verified.manifest.files


def test_a_changed_file_is_not_read(publishing, tmp_path):
    _, release = publishing(weights=WITH_REPLICATES)
    folder = tmp_path / "copy"
    shutil.copytree(release.verified.folder, folder)
    data = bytearray((folder / REPLICATES).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / REPLICATES).write_bytes(bytes(data))
    with pytest.raises(ChecksumError, match="SHA-256"):
        verify(folder)
    moved = dataclasses.replace(
        release, verified=dataclasses.replace(release.verified, folder=folder)
    )
    with pytest.raises(ChecksumError, match=REPLICATES):
        _ = moved.replicate_weights


def test_promise_and_files_agree(publishing, tmp_path):
    """A signer who mixes releases up is found out, in either direction."""
    create_key_pair(tmp_path, "test")
    key = load_private_key(tmp_path / "test.key")
    releases = [publishing(weights=weights)[1] for weights in (WITH_REPLICATES, PLAIN)]
    for name, release in zip(("without", "with"), releases, strict=True):
        manifest = release.verified.manifest
        files = {file: (release.verified.folder / file).read_bytes() for file in manifest.files}
        if name == "without":
            del files[REPLICATES]
        else:
            files[REPLICATES] = (releases[0].verified.folder / REPLICATES).read_bytes()
        folder = tmp_path / name
        build_folder(folder, files=files, facts=manifest.facts, key=key)
        with pytest.raises(ManifestError, match="disagree on whether it exists"):
            verify(folder)


def footer(path):
    return read_replicate_footer(FileBytes.of(path))


def test_the_file_is_checked_against_the_certificate(publishing, tmp_path):
    _, release = publishing(weights=WITH_REPLICATES)
    certificate, full = release.certificate, release.replicate_weights
    order = np.arange(300)

    def written(name, weights=full.weights, **changes):
        path = tmp_path / name
        replicates = ReplicateWeights(weights=weights, scale=full.scale)
        facts = replicate_facts(certificate, count=40, scale=full.scale) | changes
        write_replicates(path, replicates, order=order[: len(weights)], facts=facts)
        return path

    assert check_replicates(footer(written("good")), certificate, rows=300) == full.scale
    assert written("same").read_bytes() == (tmp_path / "good").read_bytes()
    metadata = pq.ParquetFile(tmp_path / "good").metadata.metadata
    assert metadata[b"dpiw.type"] == b"bootstrap"
    for path in (
        written("fewer rows", full.weights[:299]),
        written("fewer replicates", full.weights[:, :39]),
        written("another release", release_id="other"),
        written("another kind", type="jackknife"),
        written("no scale", scale="0.0"),
        written("no number", scale="many"),
    ):
        with pytest.raises(ManifestError):
            check_replicates(footer(path), certificate, rows=300)
    np.testing.assert_array_equal(
        read_replicates(FileBytes.of(tmp_path / "good"), certificate, rows=300).weights,
        full.weights.astype(np.float32),
    )
    good = pq.read_table(tmp_path / "good")
    key_values = {key: value for key, value in metadata.items() if key != b"ARROW:schema"}
    for value in (0.0, -1.0, np.nan, np.inf):
        column = pa.array(np.full(300, value, dtype=np.float32))
        with pq.ParquetWriter(tmp_path / "odd", good.schema) as writer:
            writer.write_table(good.set_column(3, good.schema.field(3), column))
            writer.add_key_value_metadata(key_values)
        with pytest.raises(ManifestError, match="finite replicate weights > 0"):
            read_replicates(FileBytes.of(tmp_path / "odd"), certificate, rows=300)
    pq.write_table(pa.table({"r1": [1.0]}), tmp_path / "plain")
    with pytest.raises(ManifestError, match="not readable as replicate weights"):
        check_replicates(footer(tmp_path / "plain"), certificate, rows=1)
    for wrong in (-full.weights, full.weights * np.nan):
        with pytest.raises(ReleaseError, match="finite weight"):
            written("wrong", wrong)


@pytest.mark.parametrize("count", ["19", "1001", "-1", "true", "20.5"])
def test_a_count_out_of_range_is_refused(make_workplace, count):
    place = make_workplace(weights=f"measured, settings: {{{SETTINGS}, replicates: {count}}}")
    spec = load_spec(place.spec)
    with pytest.raises(SpecError, match="replicates"):
        compile_plan(spec, load_schema(spec))


def test_too_many_numbers_are_refused_before_anything_is_paid(make_workplace):
    place = make_workplace(weights=WITH_REPLICATES)
    text = place.spec.read_text().replace("synthetic_rows: 300", "synthetic_rows: 7000000")
    place.spec.write_text(text)
    spec = load_spec(place.spec)
    with pytest.raises(SpecError, match="synthetic_rows times replicates"):
        compile_plan(spec, load_schema(spec))


def test_features_that_replicates_could_not_hold_are_refused(make_workplace, monkeypatch):
    place = make_workplace(weights=WITH_REPLICATES)
    spec = load_spec(place.spec)
    width = compile_plan(spec, load_schema(spec)).weights.calibrated.dimension + MOST_INDICATORS
    monkeypatch.setattr(measured_weights, "MOST_FEATURES_HELD", 300 * width - 1)
    with pytest.raises(SpecError, match=f"at most 299 with replicates, which take {width} feat"):
        compile_plan(spec, load_schema(spec))
