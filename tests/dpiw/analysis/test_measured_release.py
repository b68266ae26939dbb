"""Measured weights in a published folder: their law, their replicates, and what is refused."""

import dataclasses
import json
import shutil
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
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ChecksumError, ManifestError, ReleaseError, SpecError
from dpiw.methods.one_way import MOST_INDICATORS, OneWayLaw
from dpiw.methods.weights.measured import method as measured_weights
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.release.manifest import REPLICATES
from dpiw.release.parquet import stored_footer
from dpiw.release.publication import build_folder
from dpiw.release.replicate_weights import (
    check_replicates,
    read_replicates,
    replicate_facts,
    replicates_promised,
    write_replicates,
)
from dpiw.release.signing import create_key_pair, load_private_key
from dpiw.release.verification import verify
from tests.support.played import law_inside
from tests.support.read import file_bytes
from tests.support.worlds import at_weights

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = "omega_seed: 5, frequencies: 20, base_rows: 3000"
PLAIN = f"measured, settings: {{{SETTINGS}}}"
WITH_REPLICATES = f"measured, settings: {{{SETTINGS}, replicates: 40}}"


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


@pytest.mark.slow
def test_the_law_follows_from_the_folder(publishing):
    run, release = publishing(weights=PLAIN)
    law = law_of_release(release)
    inside, table, measurement = law_inside(run)
    assert release.replicate_weights is None
    assert release.certificate.weights["stage"] == WEIGHTS_STAGE
    assert law.rows == inside.rows
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


def certified(release, **changes):
    """A release with another certificate."""
    certificate = dataclasses.replace(release.certificate, **changes)
    return dataclasses.replace(release, certificate=certificate)


def measured(release, change, *, without=()):
    """A release whose certificate has other facts of the method."""
    facts = dict(release.certificate.diagnostics)
    kept = {key: value for key, value in facts["measured"].items() if key not in without}
    return certified(release, diagnostics=facts | {"measured": kept | change})


def test_replace_one_has_no_count(publishing):
    _, release = publishing(weights=PLAIN)
    stages = tuple(
        dataclasses.replace(s, parameters={**s.parameters, "constant": 0.0})
        for s in release.certificate.stages
    )
    law = law_of_release(certified(release, stages=stages))
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


ODD = {
    "credit": ["x", 0], "rows": [-1.0, [], 0, 1e300], "effective_base_rows": [None],
    "least_credit": [0, -1.0, np.nan, 1e300], "pairs_credit": [0, -1.0, np.nan, 1e300],
    "calibration": [0, "x", np.nan, -5], "residual": [[1.0], "x"],
    "theta": [[1.0], "x"],
    "one_way": [[1], {"bins": 4, "total_variance": 1, "variances": {"age": 0}}],
}  # fmt: skip


@pytest.mark.parametrize("field", ODD)
def test_a_certificate_of_odd_numbers_leaves_no_law(publishing, field):
    _, release = publishing(weights=PLAIN)
    for value in ODD[field]:
        with pytest.raises(ReleaseError, match="certificate: "):
            law_of_release(measured(release, {field: value}))


def test_a_release_without_known_marginals_has_its_law(publishing):
    _, release = publishing(weights=PLAIN)
    of_features = {"residual": [0.0] * stack_width(release)}
    law = law_of_release(measured(release, of_features, without=("one_way", "theta")))
    assert law.means.size == stack_width(release)


def stack_width(release):
    """Measured features: cosines, sines, and what the rule of the schema adds."""
    stage = next(s for s in release.certificate.stages if s.stage == WEIGHTS_STAGE)
    return stage.parameters["dimension"]


def test_a_certificate_that_does_not_tell_leaves_no_law(publishing):
    _, release = publishing(weights=PLAIN)
    assert law_of_release(certified(release, post_processing=("clip at 3",))) is None
    of_images = tuple(
        dataclasses.replace(s, parameters={**s.parameters, "features": {"patches": 1.0}})
        for s in release.certificate.stages
    )
    with pytest.raises(ReleaseError, match="patches of an older dpiw"):
        law_of_release(certified(release, stages=of_images))
    with pytest.raises(ReleaseError, match="measured"):
        law_of_release(certified(release, diagnostics={}))
    with pytest.raises(ReleaseError, match="residual"):
        law_of_release(measured(release, {}, without=("residual",)))


def test_replicates_are_published_in_the_order_of_the_rows(publishing):
    run, release = publishing(weights=WITH_REPLICATES)
    replicates = release.replicate_weights
    assert replicates.weights.shape == (300, 40)
    assert np.all(replicates.weights > 0)
    np.testing.assert_allclose(replicates.weights.mean(axis=0, dtype=np.float64), 1, rtol=1e-6)
    inside, table, measurement = law_inside(run)
    seed = np.random.SeedSequence(int(measurement.digest[:32], 16), spawn_key=(1,))
    again = inside.replicates(40, np.random.default_rng(seed))
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
    for column in ("age", "ill"):
        estimate = analysis.mean(release, column)
        mean = at_weights(lambda s, column=column: analysis.mean(s, column), release.sample)
        variance = replicates.variance(mean, release.weights)
        np.testing.assert_allclose(variance, sum(estimate.interval().parts.values()), rtol=0.9)
    page = json.loads((release.verified.folder / "croissant.json").read_bytes())
    assert [file["name"] for file in page["distribution"]] == ["synthetic.parquet", REPLICATES]
    assert replicates_promised(release.certificate) == 40


@pytest.mark.slow
def test_r_finds_the_same_standard_errors(survey, tmp_path):
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
    found = survey(ROOT / "examples" / "population" / "survey.R", file, repr(drawn.scale))
    sample = WeightedSample(frame=table, weights=weights, law=law)
    for name, estimator in {
        "age": lambda s: analysis.mean(s, "age"),
        "smokerTRUE": lambda s: analysis.mean(s, "smoker"),
        "ill~": lambda s: analysis.logistic_regression(s, "ill", ["age", "smoker"]),
    }.items():
        estimate = estimator(sample)
        ours = np.sqrt(drawn.variance(at_weights(estimator, sample), weights))
        chosen = found[found.index.str.startswith(name)]
        np.testing.assert_allclose(chosen["estimate"], estimate.values, rtol=1e-5)
        np.testing.assert_allclose(chosen["error"], ours, rtol=1e-4)


def test_a_changed_file_is_not_read(publishing, tmp_path):
    _, release = publishing(weights=WITH_REPLICATES)
    folder = shutil.copytree(release.verified.folder, tmp_path / "copy")
    data = bytearray((folder / REPLICATES).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / REPLICATES).write_bytes(bytes(data))
    moved = dataclasses.replace(
        release, verified=dataclasses.replace(release.verified, folder=folder)
    )
    for read in (lambda: verify(folder), lambda: moved.replicate_weights):
        with pytest.raises(ChecksumError, match=REPLICATES):
            read()


def test_promise_and_files_agree(publishing, tmp_path):
    key = load_private_key(create_key_pair(tmp_path, "test")[0])
    promised, plain = (publishing(weights=weights)[1] for weights in (WITH_REPLICATES, PLAIN))
    replicates = (promised.verified.folder / REPLICATES).read_bytes()
    for name, release in (("without", promised), ("with", plain)):
        facts, listed = release.verified.manifest.facts, release.verified.manifest.files
        files = {file: (release.verified.folder / file).read_bytes() for file in listed}
        if files.pop(REPLICATES, None) is None:
            files[REPLICATES] = replicates
        build_folder(tmp_path / name, files=files, facts=facts, key=key)
        with pytest.raises(ManifestError, match=REPLICATES):
            verify(tmp_path / name)


def test_the_file_is_checked_against_the_certificate(publishing, tmp_path):
    _, release = publishing(weights=WITH_REPLICATES)
    certificate, full = release.certificate, release.replicate_weights
    order = np.arange(300)

    def written(name, weights=full.weights, **changes):
        path = tmp_path / name
        replicates = ReplicateWeights(weights=weights, scale=full.scale)
        facts = replicate_facts(certificate, count=40, scale=full.scale)
        facts |= {f"dpiw.{name}": value for name, value in changes.items()}
        write_replicates(path, replicates, order=order[: len(weights)], facts=facts)
        return path

    def scale_in(path, rows=300):
        footer = stored_footer(file_bytes(path), what="weights")
        return check_replicates(footer, certificate, rows=rows)

    assert scale_in(written("good")) == full.scale
    assert written("same").read_bytes() == (tmp_path / "good").read_bytes()
    metadata = pq.ParquetFile(tmp_path / "good").metadata.metadata
    assert metadata[b"dpiw.type"] == b"bootstrap"
    for place, (weights, changes) in enumerate((
        (full.weights[:299], {}), (full.weights[:, :39], {}),
        (full.weights, {"release_id": "other"}), (full.weights, {"type": "jackknife"}),
        (full.weights, {"scale": "0.0"}), (full.weights, {"scale": "many"}),
    )):  # fmt: skip
        path = written(str(place), weights, **changes)
        with pytest.raises(ManifestError):
            scale_in(path)
    np.testing.assert_array_equal(
        read_replicates(file_bytes(tmp_path / "good"), certificate, rows=300).weights,
        full.weights.astype(np.float32),
    )
    good = pq.read_table(tmp_path / "good")
    key_values = {key: value for key, value in metadata.items() if key != b"ARROW:schema"}
    for value in (0.0, -1.0, np.nan, np.inf):
        column = pa.array(np.full(300, value, dtype=np.float32))
        with pq.ParquetWriter(tmp_path / "odd", good.schema) as writer:
            writer.write_table(good.set_column(3, good.schema.field(3), column))
            writer.add_key_value_metadata(key_values)
        with pytest.raises(ManifestError):
            read_replicates(file_bytes(tmp_path / "odd"), certificate, rows=300)
    pq.write_table(pa.table({"r1": [1.0]}), tmp_path / "plain")
    with pytest.raises(ManifestError):
        scale_in(tmp_path / "plain", rows=1)
    for wrong in (-full.weights, full.weights * np.nan):
        with pytest.raises(ReleaseError):
            written("wrong", wrong)


def test_a_count_out_of_range_is_refused(make_workplace):
    spec = load_spec(make_workplace(weights=WITH_REPLICATES).spec)
    schema, weights = load_schema(spec), spec.weights
    for count in (19, 1001, -1, True, 20.5):
        settings = {**weights.settings, "replicates": count}
        changed = weights.model_copy(update={"settings": settings})
        with pytest.raises(SpecError, match="replicates"):
            compile_plan(spec.model_copy(update={"weights": changed}), schema)


def test_more_numbers_or_features_than_replicates_hold_are_refused(make_workplace, monkeypatch):
    spec = load_spec(make_workplace(weights=WITH_REPLICATES).spec)
    schema = load_schema(spec)
    many = spec.model_copy(update={"synthetic_rows": 7_000_000})
    with pytest.raises(SpecError, match="synthetic_rows times replicates"):
        compile_plan(many, schema)
    width = compile_plan(spec, schema).weights.calibrated.dimension + MOST_INDICATORS
    monkeypatch.setattr(measured_weights, "MOST_FEATURES_HELD", 300 * width - 1)
    with pytest.raises(SpecError, match=f"at most 299 with replicates, which take {width} feat"):
        compile_plan(spec, schema)
