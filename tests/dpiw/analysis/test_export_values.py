"""Every kind of value through every format: what comes back is the same, or refused by name."""

import ast
import csv
import datetime as dt
import re
import warnings
import zoneinfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.analysis import export_files
from dpiw.analysis.export_files import export
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.levels import guarded, is_formula, unguarded
from dpiw.errors import ReleaseError
from tests.dpiw.analysis.conftest import release_of

PROFILE = {"derandomize": True, "database": None, "deadline": None}
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"]
LEVELS = [
    "NA", "null", "nan", "None", "007", "1", "1e5", "TRUE", "f", "MAR1", "1-2", "2020-01-01", "inf",
    "a,b", 'say "x"', "-9", "+1", "-", "ä" * 59, "ä" * 61, "b" * 120, "b" * 121, "漢字", "'=1",
    "1,5",
]  # fmt: skip
FORMULAS = ["=1+1", "+x", "-none", "@SUM(A1)", "=", "\uff1d1+1", "-2+3", "+49 170"]
WHOLE = {
    -(2**52): [0, -1, 7, 2**52, 2**52 - 1], 2**52: [2**53, 2**53 + 1, 2**53 + 2, 2**53 - 1],
    -(2**53) - 2: [-(2**53) - 1, -(2**53), -(2**53) - 2, -1],
    2**62: [2**62, 2**62 + 1, 2**62 + 2048], -(2**63): [-(2**63), -(2**63) + 1],
    2**63 - 2**52: [2**63 - 1, 2**63 - 1024],
}  # fmt: skip
MOMENTS = ["2024-01-12T08:30", "2024-10-27T00:30", "2024-10-27T01:30", "1969-12-31T23:59:59",
           "1850-06-01T12:00", "1582-10-14T12:00", "1582-10-16T12:00", "0099-06-01", "0100-06-01",
           "9999-06-01T01:02:03"]  # fmt: skip
REALS = [0.1, -0.0, 1e-320, 1e300, 8.9e307, 9e307, -1.7976931348623157e308, 123456789.123456789]


def column_of(kind, name, draw):
    """A column and a strategy's cells: any of the hostile ones, or missing."""
    some = st.lists(st.none() | st.sampled_from(range(12)), min_size=3, max_size=3)
    chosen = draw(some)
    pick = lambda pool: [None if i is None else pool[i % len(pool)] for i in chosen]  # noqa: E731
    description = draw(st.sampled_from(["", "what é " * 20]))
    named = {"name": name, "nullable": True, "description": description}
    if kind in (ColumnKind.CATEGORICAL, ColumnKind.ORDINAL):
        pool = draw(st.permutations(draw(st.sampled_from([LEVELS, FORMULAS]))))
        column = Column(kind=kind, levels=tuple(pool), **named)
        return column, pd.Series(pick(pool), dtype="str")
    if kind is ColumnKind.BOOLEAN:
        return Column(kind=kind, **named), pd.Series(pick([True, False]), dtype="boolean")
    if kind is ColumnKind.INTEGER:
        lower = draw(st.sampled_from(list(WHOLE)))
        pool = draw(st.permutations(WHOLE[lower]))
        column = Column(kind=kind, lower=lower, upper=min(lower + 2**53, 2**63 - 1), **named)
        return column, pd.Series(pick(pool), dtype="Int64")
    if kind is ColumnKind.CONTINUOUS:
        pool = draw(st.permutations(REALS))
        column = Column(kind=kind, lower=0.0, upper=1.0, **named)
        return column, pd.Series([np.nan if v is None else v for v in pick(pool)], dtype="float64")
    moments = pick([dt.datetime.fromisoformat(text) for text in draw(st.permutations(MOMENTS))])
    bounds = {"lower": "0010-01-01", "upper": "9999-12-01"}
    if kind is ColumnKind.DATE:
        days = [None if moment is None else moment.date() for moment in moments]
        return Column(kind=kind, **bounds, **named), pd.Series(
            np.array(["NaT" if day is None else day.isoformat() for day in days], "datetime64[s]")
        )
    zone = draw(st.sampled_from(ZONES))
    utc = np.array(["NaT" if m is None else m.isoformat() for m in moments], "datetime64[s]")
    cells = pd.Series(utc).dt.tz_localize("UTC").dt.tz_convert(zone)
    return Column(kind=kind, time_zone=zone, **bounds, **named), cells


@st.composite
def releases(draw):
    kinds = draw(st.lists(st.sampled_from(list(ColumnKind)), min_size=1, max_size=4))
    pairs = [column_of(kind, f"c{i}", draw) for i, kind in enumerate(kinds)]
    table = pd.DataFrame({column.name: cells for column, cells in pairs})
    return release_of(table, *(column for column, _ in pairs), weights=np.array([0.1, 1.0, 1.9]))


def local(moment, column):
    if column.kind is ColumnKind.DATE:
        return moment.to_pydatetime()
    return (
        moment.to_pydatetime().astimezone(zoneinfo.ZoneInfo(column.time_zone)).replace(tzinfo=None)
    )


def beyond(column, cells, ending):
    """Whether a format cannot hold a column, by the formats' own documents."""
    held = [cell for cell in cells if not pd.isna(cell)]
    if ending == ".csv":
        return any(len(str(c)) > 1 and c in FORMULAS for c in held) and column.is_discrete
    if column.kind is ColumnKind.INTEGER:
        return any(int(float(int(cell))) != cell for cell in held)
    if column.kind is ColumnKind.CONTINUOUS:
        return any(c > 8.988e307 if ending == ".dta" else c < -1.797e308 for c in held)
    if column.kind in (ColumnKind.DATE, ColumnKind.DATETIME):
        first = dt.datetime(100, 1, 1) if ending == ".dta" else dt.datetime(1582, 10, 15)
        return any(local(cell, column) < first for cell in held)
    return ending == ".sav" and any(len(text.encode()) > 120 for text in column.level_names)


def cells_of_csv(path, columns):
    """As Python's own reader of CSV sees them."""
    with path.open(encoding="utf-8", newline="") as stream:
        _, *rows = csv.reader(stream)
    convert = {
        ColumnKind.INTEGER: int, ColumnKind.CONTINUOUS: float, ColumnKind.BOOLEAN: "TRUE".__eq__,
        ColumnKind.DATE: dt.datetime.fromisoformat, ColumnKind.DATETIME: dt.datetime.fromisoformat,
    }  # fmt: skip
    return {
        column.name: [convert.get(column.kind, str)(row[i]) if row[i] else None for row in rows]
        for i, column in enumerate(columns)
    }


def cells_of_package(path, columns):
    """As pyreadstat sees them, in numbers, and what it says about columns."""
    library = pytest.importorskip("pyreadstat")
    read = library.read_dta if path.suffix == ".dta" else library.read_sav
    frame, about = read(str(path), disable_datetime_conversion=True)
    day = dt.datetime(1960, 1, 1) if path.suffix == ".dta" else dt.datetime(1582, 10, 14)
    cells = {}
    for column in columns:
        moment = column.kind is ColumnKind.DATETIME
        unit = {(".dta", False): 86400.0, (".dta", True): 1e-3}.get((path.suffix, moment), 1.0)
        labels = about.variable_value_labels.get(column.name)
        timed = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
        read = lambda v: day + dt.timedelta(seconds=v * unit) if timed else v  # noqa: E731, B023
        named = [v if pd.isna(v) or labels is None else labels[v] for v in frame[column.name]]
        truth = {"true": True, "false": False} if column.kind is ColumnKind.BOOLEAN else {}
        cells[column.name] = [None if pd.isna(v) else truth.get(v, read(v)) for v in named]
    return cells, about


def at_utc(cell):
    """Python calls no two moments of different zones equal in an hour that a clock shows twice."""
    if isinstance(cell, dt.datetime) and cell.tzinfo is not None:
        return cell.astimezone(dt.UTC)
    return cell


ENDINGS = pytest.mark.parametrize("ending", [".csv", ".dta", ".sav"])


@ENDINGS
@settings(max_examples=15, **PROFILE)
@given(release=releases())
def test_what_comes_back_is_the_same_or_refused_by_name(tmp_path_factory, ending, release):
    path = tmp_path_factory.mktemp("out") / f"x{ending}"
    expected = [c for c in release.columns if beyond(c, release.table[c.name], ending)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if expected:
            with pytest.raises(ReleaseError) as refusal:
                export(release, path)
            named = re.findall(r"'(c\d)'", str(refusal.value))
            assert sorted(named) == [c.name for c in expected]
            assert not list(path.parent.iterdir())
            return
        export(release, path)
    if ending == ".csv":
        cells = cells_of_csv(path, release.columns)
    else:
        cells, about = cells_of_package(path, release.columns)
        for column in release.columns:
            if column.kind is ColumnKind.DATETIME:
                assert column.time_zone in about.column_names_to_labels[column.name]
            if column.kind is ColumnKind.ORDINAL and ending == ".sav":
                assert about.variable_measure[column.name] == "ordinal"
    for column in release.columns:
        for found, cell in zip(cells[column.name], release.table[column.name], strict=True):
            if pd.isna(cell):
                assert found is None
            elif column.kind in (ColumnKind.DATE, ColumnKind.DATETIME) and ending != ".csv":
                assert found == local(cell, column)
            else:
                assert at_utc(found) == at_utc(cell)


@pytest.mark.nightly
@ENDINGS
@settings(max_examples=300, **PROFILE)
@given(release=releases())
def test_what_comes_back_of_many_releases(tmp_path_factory, ending, release):
    check = test_what_comes_back_is_the_same_or_refused_by_name.hypothesis.inner_test
    check(tmp_path_factory, ending, release)


def one(kind, cells, dtype, **fields):
    column = Column(name="code", kind=kind, nullable=True, **fields)
    return release_of(pd.DataFrame({"code": pd.Series(cells, dtype=dtype)}), column)


def to_type(caught):
    """The options for pandas that the warning says."""
    said = re.search(r"read_csv\(.*?\)(?=; R:)", str(caught[0].message))[0]
    call = ast.parse(said.replace("..., ", ""), mode="eval").body
    return {option.arg: ast.literal_eval(option.value) for option in call.keywords}


MISREAD = ["NA", "null", "nan", "None", "N/A", "#N/A", "007", "1", "1.50", "1e5", "+1", "0x10",
           "inf", "TRUE", "True", "f", "no", "MAR1", "1-2", "2020-01-01", "12:30", "1,5",
           "1 000", "5%", ".", "$5", "5 \u20ac", "\xa31.50", "(5)", "12:30 PM",
           "1:05:09am"]  # fmt: skip


@pytest.mark.parametrize("value", [*MISREAD, 2**53 + 1, -(2**53) - 1, 2**62 + 1])
def test_cells_that_readers_of_csv_change_are_named_with_what_to_type(tmp_path, value):
    if isinstance(value, str):
        release = one(ColumnKind.CATEGORICAL, [value, None], "str", levels=(value, "other"))
    else:
        bounds = {"lower": value - 2**52, "upper": value + 2**52}
        release = one(ColumnKind.INTEGER, [value, None], "Int64", **bounds)
    with pytest.warns(UserWarning, match="code") as caught:
        path = export(release, tmp_path / "x.csv")
    frame = pd.read_csv(path, **to_type(caught))
    assert frame["code"][0] == value
    assert pd.isna(frame["code"][1])


@pytest.mark.parametrize("ending", [".csv", ".sav"])
def test_a_column_may_have_any_name_of_a_python_argument(tmp_path, ending):
    days = {"lower": "2024-01-01", "upper": "2025-01-01"}
    for kind, cells, dtype, bounds in (
        (ColumnKind.BOOLEAN, [True, None], "boolean", {}),
        (ColumnKind.DATE, ["2024-02-01", None], "datetime64[s]", days),
    ):
        column = Column(name="self", kind=kind, nullable=True, **bounds)
        table = pd.DataFrame({"self": pd.Series(cells, dtype=dtype)})
        assert export(release_of(table, column), tmp_path / f"x{ending}").exists()


def test_plain_text_is_exported_without_a_word(tmp_path):
    export(one(ColumnKind.CATEGORICAL, ["north", "Mariä", "a b", "n.a"], "str",
               levels=("north", "Mariä", "a b", "n.a")), tmp_path / "x.csv")  # fmt: skip


def test_a_formula_of_a_name_gets_another(tmp_path):
    column = Column(name="=1+1", kind=ColumnKind.BOOLEAN)
    release = release_of(pd.DataFrame({"=1+1": [True]}), column)
    with pytest.raises(ReleaseError, match=r"names=") as refusal:
        export(release, tmp_path / "x.csv")
    names = ast.literal_eval(str(refusal.value).rpartition("names=")[2])
    assert export(release, tmp_path / "x.csv", names=names).read_text()[0] not in "=+-@"


def swapped(frame, name):
    """A frame whose last two rows of one column have changed places."""
    return frame.assign(**{name: frame[name].iloc[[0, 2, 1]].to_numpy()})


@pytest.mark.parametrize("ending", [".csv", ".dta", ".sav"])
def test_a_writer_that_changes_a_cell_is_found(tmp_path, ending, monkeypatch):
    """The comparison sees one changed cell of any kind, also behind the first chunk of rows."""
    monkeypatch.setattr(export_files, "CHUNK", 2)
    columns = [
        Column(name="n", kind=ColumnKind.INTEGER, lower=0, upper=9),
        Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=9.0),
        Column(name="t", kind=ColumnKind.DATETIME, lower="2000-01-01", upper="2020-01-01"),
        Column(name="g", kind=ColumnKind.ORDINAL, levels=("low", "high")),
        Column(name="b", kind=ColumnKind.BOOLEAN),
    ]
    table = pd.DataFrame({
        "n": [1, 2, 3], "x": [0.5, 1.5, 2.5], "g": pd.Series(["low", "high", "low"], dtype="str"),
        "t": pd.Series(pd.date_range("2001-01-01", periods=3, tz="UTC", unit="s")),
        "b": [True, False, True],
    })[["n", "x", "t", "g", "b"]]  # fmt: skip
    release = release_of(table, *columns, weights=np.array([0.5, 1.0, 1.5]))
    library = pytest.importorskip("pyreadstat")
    target, name = {
        ".csv": (pd.DataFrame, "to_csv"), ".dta": (pd.DataFrame, "to_stata"),
        ".sav": (library, "write_sav"),
    }[ending]  # fmt: skip
    write = getattr(target, name)

    def refused(change):
        def changed(frame, *given, **named):
            is_asked_about_a_name = len(frame) == 1
            return write(frame if is_asked_about_a_name else change(frame), *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(target, name, changed)
            with pytest.raises(ReleaseError) as refusal:
                export(release, tmp_path / f"x{ending}")
        return re.findall(r"'(\w+)'", str(refusal.value))

    export(release, tmp_path / f"x{ending}")
    for column in (*table, "weight"):
        assert refused(lambda frame, column=column: swapped(frame, column)) == [column]
    for rows in ([0, 1], [0, 1, 2, 0]):
        assert refused(lambda frame, rows=rows: frame.iloc[rows]) == [*table, "weight"]


@settings(max_examples=20, **PROFILE)
@given(text=st.text(min_size=1) | st.text("'=+-@1x\t", min_size=1, max_size=5))
@pytest.mark.slow
def test_a_published_list_holds_no_formula_and_loses_no_text(text):
    assert not is_formula(guarded(text))
    assert unguarded(guarded(text)) == text
    assert guarded(text) == text or is_formula(text.lstrip("'"))
