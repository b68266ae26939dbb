"""What fuzzing has found, one test each."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpiw.data.schema import PublicSchema
from dpiw.data.sources import IngestLimits, read_csv
from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError, SpecError
from dpiw.plan.spec import load_spec, parse_spec
from tests.hostile.fuzz import corpus
from tests.hostile.fuzz.worker import chain
from tests.support.read import read_parquet

BASE = corpus.SPEC_YAML.replace(f"user:{corpus.SECRET}@", "")


def load(tmp_path, text):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return load_spec(path)


def refused(tmp_path, text, match):
    with pytest.raises(SpecError, match=match) as caught:
        load(tmp_path, text)
    assert chain(caught.value) == [caught.value]
    return caught.value


@pytest.mark.parametrize(
    ("old", "field"),
    [
        ("generator: 0.5", "shares.generator"), ("bins: 5", "generator.settings"),
        ("noise_penalty: 0.3", "generator.settings"), ("features: linear", "weights.settings"),
    ],
)  # fmt: skip
def test_a_number_beyond_floats_is_refused(tmp_path, old, field):
    """An OverflowError of `float`, at once or when the plan was made."""
    name = old.partition(":")[0]
    refused(tmp_path, BASE.replace(old, f"{name}: 1{'0' * 400}"), f"{field}: .*expected")


def test_a_line_that_became_a_key_is_not_repeated():
    """An open quote can turn a line with a password into a key that the schema does not know."""
    line = f"ledger: postgresql+psycopg://user:{corpus.SECRET}@host/db"
    with pytest.raises(SpecError, match="a key that is no plain word") as caught:
        parse_spec({"format": 1, line: None})
    assert corpus.SECRET not in str(caught.value)
    with pytest.raises(SpecError, match="duplicate key") as caught:
        load_text(f'"{line}": 1\n"{line}": 2\n', what="spec")
    assert corpus.SECRET not in str(caught.value)


@pytest.mark.parametrize("value", [["exact"], {"a": 1}, 3, None])
def test_a_normaliser_that_is_no_text_is_refused(value):
    """A list is not hashable: a TypeError."""
    column = {"name": "c", "kind": "categorical", "levels": ["a"], "normaliser": value}
    with pytest.raises(SchemaError, match="normaliser"):
        PublicSchema.from_mapping({"name": "s", "columns": [column]})


@pytest.mark.parametrize("column", [{"name": "x" * 5000}, {"name": "c", "y" * 5000: 1}])
def test_a_name_or_key_that_never_ends_is_not_repeated(column):
    with pytest.raises(SchemaError) as caught:
        PublicSchema.from_mapping({"name": "s", "columns": [column]})
    assert len(str(caught.value)) < 200


def test_a_row_of_quotes_is_no_longer_than_its_cells(tmp_path):
    """In the file each quote in a cell is doubled: such a row ended the run with code 12."""
    names = [f"c{number}" for number in range(105)]
    quotes = ",".join(['"' + '""' * 10_000 + '"'] * len(names))
    path = tmp_path / "table.csv"
    path.write_text("\n".join([",".join(names), quotes, ",".join("1" * len(names)), ""]))
    frame = read_csv(path, names, limits=IngestLimits(), encoding="utf-8", delimiter=",").frame
    assert frame["c104"].tolist() == ['"' * 10_000, "1"]


def test_a_late_moment_of_96_bits_does_not_wrap_around(tmp_path):
    """It was read in nanoseconds, in which the year 3111 became 1942."""
    late = pa.array([2**55, -(2**55), 1_500_000, -1_500_001], pa.timestamp("us"))
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"t": late}), path, use_deprecated_int96_timestamps=True)
    cells = read_parquet(path, ["t"], limits=IngestLimits()).frame["t"]
    assert cells.dt.year.tolist() == [3111, 828, 1970, 1969]
    assert cells.iloc[2:].astype("int64").tolist() == [1500, -1501]  # rounded down
