import hashlib
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpiw
from dpiw.analysis.release import Release, UnreliableWeightsWarning, load_release
from dpiw.data.row_weights import mean_one_weights
from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ManifestError, ReleaseError
from dpiw.release import parquet
from tests.dpiw.release.release_example import (
    DTYPES,
    SCHEMA,
    example_certificate,
    example_frame,
    example_log_weights,
    publish_example,
)
from tests.support.read import file_bytes
from tests.support.worlds import declared


@pytest.fixture(scope="module")
def release(published):
    return load_release(published, published.parent / "curator.pub")


def _write(path, **changes):
    arguments = {
        "frame": example_frame(), "log_weights": example_log_weights(), "schema": SCHEMA,
        "facts": parquet.footer_facts(example_certificate()), "rng": np.random.default_rng(3),
    } | changes  # fmt: skip
    frame = arguments.pop("frame")
    parquet.write_synthetic(path.parent, frames=[frame], **arguments)
    return (path.parent / "synthetic.parquet").rename(path)


def _sorted(frame):
    return frame.sort_values(["age", "born", "income"], na_position="last").reset_index(drop=True)


def test_an_analyst_gets_the_rows_in_declared_types(release):
    assert {name: str(dtype) for name, dtype in release.table.dtypes.items()} == DTYPES
    assert release.verified.pinned
    assert release.certificate == example_certificate()
    assert PublicSchema.from_mapping(release.schema) == SCHEMA
    pd.testing.assert_frame_equal(_sorted(release.table), _sorted(example_frame()))


def test_weights_have_mean_one_and_follow_their_rows(release):
    frame, logs = example_frame(), example_log_weights()
    assert release.weights.mean() == pytest.approx(1)
    naive = np.exp(release.log_weights)
    assert release.weights == pytest.approx(naive / naive.mean())
    by_row = {(age, born): log for age, born, log in zip(frame.age, frame.born, logs, strict=True)}
    table = release.table
    found = [by_row[key] for key in zip(table.age, table.born, strict=True)]
    assert release.log_weights == pytest.approx(np.array(found))


def test_what_an_analyst_does_to_rows_changes_no_estimate(release):
    """A sort in place would part rows from their weights, and nothing would tell."""
    before, first = release.mean("age").value, release.table
    first["age"] = 0
    first.loc[first.index[:3], "visits"] = 1
    first.pop("born")
    first.loc[:, "smoker"] = first["smoker"].to_numpy()[::-1]
    assert release.mean("age").value == before
    assert len(release.table) == len(release.weights) == 200
    assert release.table.age.any()
    for weights in (release.weights, release.log_weights):
        with pytest.raises(ValueError, match="read-only"):
            weights[:] = 1


def test_resampling_gives_unweighted_rows(release):
    with pytest.warns(UserWarning, match="5,000 rows"):
        rows = release.resample(5000, np.random.default_rng(1))
    assert len(rows) == 5000
    assert {name: str(dtype) for name, dtype in rows.dtypes.items()} == DTYPES
    assert rows.age.mean() == pytest.approx(release.mean("age").value, abs=0.3)
    assert abs(release.table.age.mean() - release.mean("age").value) > 0.6  # the test can tell


def test_weights_that_must_not_be_used_warn(tmp_path):
    bad = example_certificate(verdict="do not use", verdict_rule="k-hat >= 1")
    folder = publish_example(tmp_path, bad)
    with pytest.warns(UnreliableWeightsWarning):
        load_release(folder)


def test_the_footer_holds_dp_facts_and_nothing_else(tmp_path):
    frame = example_frame()
    frame.attrs["secret"] = "canary-attrs"
    frame["grade"] = pd.Categorical(frame["grade"], categories=["low", "high", "canary-level"])
    frame.index = pd.Index([f"canary-{n}" for n in range(len(frame))], name="canary-index")
    path = _write(tmp_path / "p", frame=frame)
    assert b"canary" not in path.read_bytes()
    metadata = pq.ParquetFile(path).metadata
    assert {key.decode() for key in metadata.metadata} == {*parquet.FACTS, "ARROW:schema"}
    schema = pq.read_schema(path)
    assert b"pandas" not in (schema.metadata or {})
    assert schema.names == [*DTYPES, "weight", "log_weight"]
    facts = parquet.read_footer(file_bytes(path)).facts
    assert facts["dpiw.epsilon"] == "1"
    assert facts["dpiw.unit"] == "max_rows=2; id_column=person"
    assert facts["dpiw.mechanisms"] == "generator:privbayes,weights:beta_debiased"
    assert facts["dpiw.certificate_sha256"] == example_certificate().digest


def test_rows_are_shuffled_and_row_groups_fixed(tmp_path):
    rows = parquet.ROW_GROUP_ROWS + 10
    schema = declared({"name": "n", "kind": "integer", "lower": 0, "upper": 10**6}, name="one")
    frame = pd.DataFrame({"n": np.arange(rows)})
    path = _write(tmp_path / "p", frame=frame, log_weights=np.zeros(rows), schema=schema)
    file = pq.ParquetFile(path)
    sizes = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    assert sizes == [parquet.ROW_GROUP_ROWS, 10]
    order = file.read()["n"].to_numpy()
    assert sorted(order) == list(range(rows))
    # Under a uniform shuffle |correlation with position| > 0.02 has probability below 1e-6.
    assert abs(np.corrcoef(order, np.arange(rows))[0, 1]) < 0.02


def test_the_arrow_schema_is_declared_by_kind():
    types = {
        field.name: (str(field.type), field.nullable) for field in parquet.arrow_schema(SCHEMA)
    }
    assert types == {
        "age": ("int64", False), "income": ("double", True), "visits": ("int64", True),
        "sex <b>&": ("string", False), "grade": ("string", True), "smoker": ("bool", False),
        "insured": ("bool", True), "born": ("date32[day]", False),
        "seen": ("timestamp[ms, tz=UTC]", True), "weight": ("double", False),
        "log_weight": ("double", False),
    }  # fmt: skip
    assert len(ColumnKind) == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frame": example_frame().drop(columns="age")}, "released columns"),
        ({"frame": example_frame().assign(extra=1)}, "released columns"),
        ({"frame": example_frame().assign(age="x")}, "column age"),
        ({"frame": example_frame().assign(smoker=pd.array([None] * 200))}, "column smoker"),
        ({"frame": example_frame().assign(born=pd.NaT)}, "column born"),
        ({"frame": example_frame().head(3)}, "log_weights: expected one number"),
        ({"log_weights": np.full(200, np.nan)}, "finite"),
        ({"log_weights": np.zeros(0)}, "finite"),
        ({"facts": {"dpiw.epsilon": "1"}}, "footer facts"),
        ({"facts": {**parquet.footer_facts(example_certificate()), "host": "x"}}, "footer facts"),
    ],
)
def test_rows_other_than_declared_are_refused(tmp_path, changes, words):
    with pytest.raises(ReleaseError, match=words):
        _write(tmp_path / "p", **changes)
    assert not (tmp_path / "p").exists()


def test_an_existing_file_is_not_overwritten(tmp_path):
    path = _write(tmp_path / "synthetic.parquet")
    before = path.read_bytes()
    with pytest.raises(ReleaseError):
        _write(path)
    assert path.read_bytes() == before


def test_footer_and_metadata_hold_nothing_beside_the_list(tmp_path):
    field = pa.field("a", pa.int64(), metadata={"role": "feature", "least": "canary"})
    table = pa.table({"a": [1]})
    for wrong in (table.cast(pa.schema([field])), table.replace_schema_metadata({"host": "x"})):
        pq.write_table(wrong, tmp_path / "p")
        with pytest.raises(ManifestError, match="unknown"):
            parquet.read_footer(file_bytes(tmp_path / "p"))


def test_mean_one_weights_survive_large_logs():
    assert mean_one_weights(np.array([1000.0, 1000.0])) == pytest.approx([1, 1])
    assert mean_one_weights(np.array([-2000.0, -2000.0 + np.log(3)])) == pytest.approx([0.5, 1.5])


def test_croissant_names_the_file_and_every_column(published):
    page = json.loads((published / "croissant.json").read_bytes())
    required = {"@context", "@type", "conformsTo", "name", "description", "license", "url",
                "creator", "datePublished", "distribution", "recordSet"}  # fmt: skip
    assert required <= set(page)
    assert page["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    (file,) = page["distribution"]
    data = (published / file["contentUrl"]).read_bytes()
    assert file["sha256"] == hashlib.sha256(data).hexdigest()
    assert file["contentSize"] == f"{len(data)} B"
    (records,) = page["recordSet"]
    columns = [field["source"]["extract"]["column"] for field in records["field"]]
    assert columns == [*DTYPES, "weight", "log_weight"]
    assert len({field["@id"] for field in records["field"]}) == len(columns)
    assert "person" not in columns
    for key in ("column", "extract", "field", "recordSet", "source", "fileObject"):
        assert page["@context"][key] == f"cr:{key}"


def test_the_package_exports_little():
    """And imports light: tests/test_architecture.py."""
    assert dpiw.load_release is load_release
    assert dpiw.Release is Release
    assert dir(dpiw) == sorted(dpiw.__all__) == list(dpiw.__all__)
    with pytest.raises(AttributeError, match="absent"):
        dpiw.absent  # noqa: B018
    assert re.fullmatch(r"\d+\.\d+\.\d+", dpiw.__version__)
