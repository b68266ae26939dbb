"""Files for other packages, read back; recipes, run where their tool is installed."""

import ast
import dataclasses
import io
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpiw import analysis
from dpiw.analysis.export_files import export
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.release.parquet import WEIGHT_ROLES
from tests.dpiw.analysis.conftest import release_of

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "analysts.md"
RECIPES = ROOT / "examples" / "recipes"
REPLICATES = "measured, settings: {omega_seed: 5, frequencies: 20, base_rows: 3000, replicates: 40}"


def same(frame, release):
    """A file's numbers and weights are the release's."""
    assert list(frame.columns) == [*release.table.columns, "weight"]
    np.testing.assert_allclose(frame["weight"], release.weights)
    for name in ("age", "income"):
        np.testing.assert_allclose(
            frame[name].to_numpy(dtype=float, na_value=np.nan),
            release.table[name].to_numpy(dtype=float, na_value=np.nan),
        )


@pytest.mark.parametrize("ending", ["csv", "dta"])
def test_a_folder_is_made_and_a_path_that_cannot_be_written_is_told(released, tmp_path, ending):
    path = released.export(tmp_path / "new" / "folder" / f"rows.{ending}")
    assert path.is_file()
    if ending == "csv":
        same(pd.read_csv(path), released)
    with pytest.raises(ReleaseError):
        released.export(path / f"x.{ending}")
    with pytest.raises(ReleaseError):  # no release
        analysis.export(released.sample, tmp_path / f"x.{ending}")


@pytest.mark.parametrize(
    ("ending", "typed"), [("dta", "svyset [pweight = weight]"), ("sav", "WEIGHT BY weight")]
)
def test_another_reader_sees_the_same_rows_levels_and_the_weight_s_role(
    released, tmp_path, ending, typed
):
    library = pytest.importorskip("pyreadstat")
    path = released.export(tmp_path / f"rows.{ending}")
    frame, about = getattr(library, f"read_{ending}")(path)
    same(frame, released)
    assert about.column_names_to_labels["weight"] == WEIGHT_ROLES["weight"]
    assert typed in about.file_label
    for column in released.schema["columns"]:
        if (name := column["name"]) in ("region", "ill"):
            labels = column.get("levels") or ["false", "true"]
            assert [*about.variable_value_labels[name].values()] == [*labels]
    if ending == "sav":
        assert about.variable_measure["weight"] == "scale"


@pytest.mark.skipif(shutil.which("pspp") is None, reason="needs PSPP")
def test_the_lines_for_spss_give_the_same_means(released, tmp_path):
    pytest.importorskip("pyreadstat")
    row = re.search(r"^\| SPSS \|.*$", GUIDE.read_text(), re.M).group()
    lines = [f'GET FILE="{released.export(tmp_path / "rows.sav")}".', *re.findall("`(.*?)`", row)]
    (tmp_path / "means.sps").write_text("\n".join(lines))
    process = subprocess.run(
        ["pspp", "-O", "format=csv", "-o", tmp_path / "told.csv", tmp_path / "means.sps"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout
    theirs = dict(re.findall(r"^(\w+),([\d.]+)$", (tmp_path / "told.csv").read_text(), re.M))
    ours = analysis.mean(released, "income", by="region")
    values = {name.partition("=")[2]: ours[name] for name in ours.names}
    shown = {level: value for level, value in values.items() if np.isfinite(value)}  # with rows
    assert {level: float(theirs[level]) for level in shown} == pytest.approx(shown, abs=0.006)
    plain = analysis.mean((released.table, None), "income", by="region")
    apart = [abs(plain[level] - value) for level, value in shown.items()]
    assert max(apart) > 0.1  # the weights are not left out


@pytest.mark.parametrize("ending", ["csv", "dta", "sav"])
def test_an_export_that_is_stopped_leaves_the_old_file_whole(
    released, tmp_path, ending, monkeypatch
):
    path = tmp_path / f"rows.{ending}"
    path.write_text("an older file")
    target, name = {
        "csv": (pd.DataFrame, "to_csv"), "dta": (pd.DataFrame, "to_stata"),
        "sav": (pytest.importorskip("pyreadstat"), "write_sav"),
    }[ending]  # fmt: skip

    write = getattr(target, name)

    def stopped(*arguments, **settings):
        places = [argument for argument in arguments if isinstance(argument, str | Path)]
        if not places:  # the writer is asked about a name
            return write(*arguments, **settings)
        Path(places[0]).write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target, name, stopped)
        with pytest.raises(KeyboardInterrupt):
            released.export(path)
    assert path.read_text() == "an older file"
    released.export(path)
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]  # nothing beside it
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.slow
def test_replicates_follow_the_weight(publishing, released, tmp_path):
    _, measured = publishing(weights=REPLICATES)
    frame = pd.read_csv(measured.export(tmp_path / "r.csv", replicates=True))
    np.testing.assert_allclose(frame[[f"r{i}" for i in range(1, 41)]],
                               measured.replicate_weights.weights)  # fmt: skip
    with pd.io.stata.StataReader(measured.export(tmp_path / "r.dta", replicates=True)) as reader:
        texts, typed = reader.variable_labels(), reader.data_label
    drawn = measured.replicate_weights
    fay = re.search(r"brrweight\(r1-r40\) fay\(([\d.]+)\) vce\(brr\) mse$", typed)
    assert f"scale {drawn.scale:.10g}, rscales 1" in texts["r40"]
    assert 1 / (40 * (1 - float(fay[1])) ** 2) == pytest.approx(drawn.scale, rel=1e-4)
    library = pytest.importorskip("pyreadstat")
    _, about = library.read_sav(measured.export(tmp_path / "r.sav", replicates=True))
    assert about.column_names_to_labels["r1"].endswith("rscales 1, combined, mse")
    assert f"scale {drawn.scale:.10g}" in "".join(about.notes)
    assert {about.variable_measure[name] for name in ("weight", "r1", "r40")} == {"scale"}
    with pytest.raises(ReleaseError):
        released.export(tmp_path / "r.csv", replicates=True)


def renamed_first(release, name):
    """A release whose first column has another name; and its old one."""
    columns = [dict(column) for column in release.schema["columns"]]
    old, columns[0]["name"] = columns[0]["name"], name
    table = release.table.rename(columns={old: name})
    schema = {**release.schema, "columns": columns}
    return dataclasses.replace(release, schema=schema, _table=table)


def test_what_is_refused(released, tmp_path):
    with pytest.raises(ReleaseError):
        released.export(tmp_path / "rows.xlsx")
    renamed = renamed_first(released, "a b")
    for ending in ("dta", "sav"):
        with pytest.raises(ReleaseError, match=r"column 'a b': .* names=\{'a b': 'a_b'\}"):
            renamed.export(tmp_path / f"x.{ending}")
    for wrong in ("Weight", "INCOME", "", " x", 5, None, "log_weight", "x" * 200):
        with pytest.raises(ReleaseError):
            renamed.export(tmp_path / "x.csv", names={"a b": wrong})
    for names in ({"incme": "c"}, {"b": "c"}, {"a b": "z", "income": "z"}):
        with pytest.raises(ReleaseError):
            renamed.export(tmp_path / "x.csv", names=names)
    assert not list(tmp_path.iterdir())


STRANGE = [
    "self", "größe in cm", "class", "and", "_n", "2x", "x" * 65, "_", "m²", "½ share", "Ⅷ", "str5",
]  # fmt: skip


def test_one_refusal_has_names_for_all(tmp_path):
    library = pytest.importorskip("pyreadstat")
    long = "a very long name of a column, as one finds it in questionnaires, "
    labels = [*STRANGE, "a b", "a_b", "a-b", "weight %", f"{long}1", f"{long}2", "log weight"]
    columns = [Column(name=label, kind=ColumnKind.BOOLEAN) for label in labels]
    source = release_of(pd.DataFrame({label: [True, False] for label in labels}), *columns)
    for ending, read in (("dta", library.read_dta), ("sav", library.read_sav)):
        with pytest.raises(ReleaseError) as refusal:
            export(source, tmp_path / f"x.{ending}", names={"a_b": "given"})
        names = ast.literal_eval(str(refusal.value).rpartition("names=")[2])
        assert names["a_b"] == "given"
        frame, about = read(export(source, tmp_path / f"x.{ending}", names=names))
        assert list(frame.columns) == [*(names.get(label, label) for label in labels), "weight"]
        for label in names:  # labels and the old name go along
            assert about.column_names_to_labels[names[label]] == label[:80]
            assert {*about.variable_value_labels[names[label]].values()} == {"true", "false"}
    assert source.table["self"].tolist() == [True, False]  # as it was


def test_the_parquet_file_says_what_its_columns_are(released):
    schema = pq.read_schema(released.verified.folder / "synthetic.parquet")
    metadata = {field.name: field.metadata for field in schema}
    assert metadata["weight"][b"role"] == b"weight"
    assert metadata["weight"][b"description"].decode() == WEIGHT_ROLES["weight"]
    for column in released.schema["columns"]:
        if column.get("role") != "identifier":
            about = metadata[column["name"]]
            assert about[b"role"].decode() == column.get("role", "feature")
            assert about.get(b"description", b"").decode() == column.get("description", "")


@pytest.mark.parametrize("tool", ["polars", "duckdb"])
@pytest.mark.parametrize(("column", "by"), [("income", "ill"), ("ill", "region"), ("age", "ill")])
def test_recipes_of_python_give_the_same_means(released, tool, column, by, monkeypatch, capsys):
    pytest.importorskip(tool)
    file = released.verified.folder / "synthetic.parquet"
    monkeypatch.setattr("sys.argv", ["recipe", str(file), column, by])
    runpy.run_path(str(RECIPES / f"{tool}_means.py"), run_name="__main__")
    means = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index(by)["mean"]
    for group, mean in means.items():
        ours = analysis.mean(released, column, where=released.table[by] == group)
        np.testing.assert_allclose(mean, ours.value, rtol=1e-9)


@pytest.mark.nightly
def test_the_recipe_of_r_gives_the_same_estimates(survey, tmp_path):
    town = PublicSchema.from_yaml(ROOT / "examples" / "population" / "schema.yaml")
    assert {"age", "smoker", "hours"} <= {c.name for c in town.released}  # it is meant for these
    rng, rows = np.random.default_rng(62), 800
    ages = rng.normal(50, 15, rows).astype("int64")
    table = pd.DataFrame({"age": ages, "smoker": rng.random(rows) < 0.3})
    table["hours"] = rng.poisson(np.exp(table["age"] / 40))
    weights = rng.gamma(2.0, 1.0, rows)
    columns = tuple(c for name in table for c in town.released if c.name == name)
    export(release_of(table, *columns, weights=weights), tmp_path / "rows.csv")
    theirs = survey(RECIPES / "survey_weights.R", tmp_path / "rows.csv")
    source = (table, weights)
    for name, estimate in {
        "age|smoker": analysis.mean(source, "age", by="smoker"),
        "variance(age)": analysis.variance(source, "age"),
        "hours~": analysis.poisson_regression(source, "hours", ["age", "smoker"]),
    }.items():
        chosen = theirs[theirs.index.str.startswith(name)]
        # survey divides by n - 1: the sandwich's error times sqrt(n / (n - 1))
        errors = np.sqrt(np.diag(estimate.covariance()) * rows / (rows - 1))
        factor = rows / (rows - 1) if name.startswith("variance") else 1.0
        np.testing.assert_allclose(chosen["estimate"], estimate.values * factor, rtol=1e-5)
        np.testing.assert_allclose(chosen["error"], errors * factor, rtol=1e-3)
