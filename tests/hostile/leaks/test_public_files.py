"""A public file is never the confidential table, a file of the workspace, or a copy in a list.

Every kind of public file that a spec, a dictionary or a rehearsal names, with every way to name a
confidential file; and every kind of list, with every form in which a table may stand in it.
"""

import csv
import gzip
import io
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.cli.main import main
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.yaml import load_file
from dpiw.errors import DPIWError, SchemaError, SpecError
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.table import plan_table
from tests.hostile.bad_inputs.workbench import zipped
from tests.support import made_elsewhere

CANARY = "canary-7f3a"
"""A cell of the confidential table."""

STEP = "{{step: beta_calibrate, source: public, rows: {path}, declared: the 2020 survey}}"


def _of_dictionary(field: str) -> Callable[[Any, str], None]:
    def offer(place: Any, path: str) -> None:
        text = (place.root / "schema.yaml").read_text()
        column = f"{{name: region, kind: categorical, {field}: {json.dumps(path)}}}"
        lines = [line for line in text.splitlines() if "region" not in line]
        (place.root / "schema.yaml").write_text("\n".join([*lines, f"  - {column}", ""]))
        load_schema(load_spec(place.spec))

    return offer


def _schema(place: Any, path: str) -> None:
    spec = load_file(place.spec, what="spec")
    place.spec.write_text(json.dumps(spec | {"schema": path}))
    load_schema(load_spec(place.spec))


def _steps(place: Any, path: str) -> None:
    place.add_steps(STEP.format(path=json.dumps(path)))
    load_spec(place.spec)


def _made_elsewhere(place: Any, path: str) -> None:
    made_elsewhere.write_spec(place, rows=path)
    load_spec(place.spec)


def _rehearsed(*options: str) -> Callable[[Any, str], None]:
    def offer(place: Any, path: str) -> None:
        named = str(place.root / path)
        words = [option if option != "PATH" else named for option in options]
        assert main(["rehearse", str(place.spec), "--runs", "1", *words]) == SpecError.exit_code
        raise SpecError("refused on the command line")

    return offer


KINDS: dict[str, Callable[[Any, str], None]] = {
    "schema": _schema, "levels_file": _of_dictionary("levels_file"),
    "hierarchy_file": _of_dictionary("hierarchy_file"), "beta_calibrate.rows": _steps,
    "generator.settings.rows": _made_elsewhere,
    "--public-rows": _rehearsed("--public-rows", "PATH", "--i-declare-these-rows-public"),
    "--like": _rehearsed("--like", "PATH"),
}  # fmt: skip
"""Offer a path, from the spec's folder, as a public file; the refusal comes out."""


def _hard_link(place: Any, target: Path) -> str:
    (place.root / f"hard-{target.stem}.yaml").hardlink_to(target)
    return f"hard-{target.stem}.yaml"


def _symlink(place: Any, target: Path) -> str:
    folder = place.root / "codes"
    folder.mkdir(exist_ok=True)
    (folder / f"soft-{target.name}").symlink_to(os.path.relpath(target, folder))
    return f"codes/soft-{target.name}"


def _linked_folder(place: Any, target: Path) -> str:
    (place.root / f"folder-{target.stem}").symlink_to(target.parent)
    return f"folder-{target.stem}/{target.name}"


WAYS: dict[str, Callable[[Any, Path], str]] = {
    "by its name": lambda place, target: os.path.relpath(target, place.root),
    "by its whole path": lambda place, target: str(target),
    "by a way around": lambda place, target: (
        f"state/releases/../../state/../{os.path.relpath(target, place.root)}"
    ),
    "by a hard link": _hard_link,
    "by a symbolic link": _symlink,
    "by a linked folder": _linked_folder,
}


@pytest.fixture
def place(make_workplace: Any) -> Any:
    made = make_workplace()
    workspace = made.root / "state" / "workspace" / "town" / ("0" * 32) / "private"
    workspace.mkdir(parents=True)
    (workspace / "rows.csv").write_text(made.source.read_text())
    (made.root / "state" / "notes.csv").write_text(f"code\n{CANARY}\n")
    made.releases.mkdir(exist_ok=True)
    return made


TARGETS = {
    "the source": lambda place: place.source,
    "a file of the workspace": lambda place: next(
        place.root.glob("state/workspace/*/*/*/rows.csv")
    ),
    "a file of the state folder": lambda place: place.root / "state" / "notes.csv",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_no_way_leads_a_public_file_to_a_confidential_one(
    kind: str, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is opened, so that the check costs nothing."""
    files = {name: target(place) for name, target in TARGETS.items()}
    inodes = {file.stat().st_ino for file in files.values()}
    texts = [(file, file.read_text()) for file in (place.spec, place.root / "schema.yaml")]
    opened: list[str] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(name: Any, *words: Any, **named: Any) -> Any:
            if isinstance(name, str | os.PathLike) and os.path.exists(name):
                opened.extend([str(name)] * (os.stat(name).st_ino in inodes))
            return real(name, *words, **named)

        return opening

    monkeypatch.setattr(io, "open", watched(io.open))
    monkeypatch.setattr(os, "open", watched(os.open))
    for name, file in files.items():
        for way, offered in WAYS.items():
            for changed, text in texts:
                changed.write_text(text)
            path = offered(place, file)
            refusal: DPIWError | None = None
            try:
                KINDS[kind](place, path)
            except DPIWError as error:
                refusal = error
            assert isinstance(refusal, SpecError | SchemaError), (way, name)
            assert opened == [], (way, name)


@pytest.mark.parametrize("kind", ["levels_file", "hierarchy_file"])
@pytest.mark.parametrize("where", ["codes.csv", "state/releases/town-2026/levels-001.csv"])
def test_a_public_file_elsewhere_or_of_a_release_is_admitted(
    kind: str, where: str, place: Any
) -> None:
    """The control: the same calls, with a file that is public."""
    file = place.root / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("region,noisy_count\nnorth,190.04\nsouth,80.1\n")
    KINDS[kind](place, where)


NAMES = ("person", "age", "Income net", "region", "ill")
DICTIONARY = """name: town
columns:
  - {name: person, role: identifier}
  - {name: age, kind: integer, lower: 0, upper: 110}
  - {name: Income net, kind: continuous, lower: 0, upper: 9000}
  - {name: region, kind: categorical, FIELD: FILE}
  - {name: ill, kind: boolean}
"""
TABLE = pd.DataFrame(
    {
        "person": [f"{CANARY}-{row}" for row in range(8)],
        "age": range(30, 38),
        "Income net": [row * 100.5 for row in range(8)],
        "region": [f"region {row}" for row in range(8)],
        "ill": [row % 2 == 0 for row in range(8)],
    }
)
"""Its first columns hold each value once, as a list does."""


def _written(frame: pd.DataFrame, **options: Any) -> bytes:
    return str(frame.to_csv(index=False, **options)).encode()


def _parquet() -> bytes:
    buffer = io.BytesIO()
    TABLE.to_parquet(buffer)
    return buffer.getvalue()


def _database() -> bytes:
    connection = sqlite3.connect(":memory:")
    TABLE.to_sql("t", connection, index=False)
    return connection.serialize()


CSV = _written(TABLE)
OFFENCES: dict[str, bytes] = {
    "a byte-order mark and Windows lines": b"\xef\xbb\xbf" + CSV.replace(b"\n", b"\r\n"),
    "a title above": b"Register of 2026\n\n" + CSV,
    "many notes above": b"".join(b"note %d\n" % n for n in range(40)) + CSV,
    "two columns and strange ones": _written(TABLE[["person", "age"]].assign(x=1, y=2)),
    "all in quotes": _written(TABLE, quoting=csv.QUOTE_ALL),
    "a number of rows in front": str(TABLE.to_csv()).encode(),
    **{f"cells between {sep!r}": _written(TABLE, sep=sep) for sep in ";\t|:^~"},
    "columns between spaces": _written(TABLE[["person", "age", "region"]], sep=" "),
    "lines of JSON": TABLE.to_json(orient="records", lines=True).encode(),
    "a list of JSON": TABLE.to_json(orient="records", indent=1).encode().replace(b"\n  ", b" "),
    "one column, as it is": _written(TABLE[["ill"]]),
    "one column without a name": _written(TABLE[["ill"]], header=False),
    "gzip": gzip.compress(CSV),
    "zip": zipped(CSV),
    "Parquet": _parquet(),
    "SQLite": _database(),
    "UTF-16": CSV.decode().encode("utf-16"),
    "UTF-16 without its mark": CSV.decode().encode("utf-16-le"),
}
STRANGE = TABLE.set_axis(["Kennung", "Jahre", "Lohn", "Ort", "krank"], axis=1)
"""Under names that the dictionary does not have."""
FOUR = STRANGE.drop(columns="Kennung")
ROWS = [[str(cell) for cell in row] for row in STRANGE.to_numpy()]
LISTS = {
    "no header, in a list": (_written(TABLE, header=False), "copy.txt"),
    "no header, other delimiter": (_written(TABLE, header=False, sep=";"), "copy.list"),
    "no header, two columns": (_written(TABLE[["region", "ill"]], header=False), "copy.csv"),
    "no header, a number of rows in front": (TABLE.to_csv(header=False).encode(), "copy.csv"),
    **{f"cells between {sep!r}": (_written(TABLE, sep=sep), "copy.txt") for sep in "*\u00a7#/"},
    "other names, a number of rows in front": (STRANGE.to_csv().encode(), "copy.csv"),
    "other names, decimal commas": (_written(FOUR, sep=";", decimal=","), "copy.csv"),
    "HTML": (STRANGE.to_html(index=False).encode(), "copy.txt"),
    "XML": ("".join(f"<a>{row[0]}</a>\n" for row in ROWS).encode(), "copy.csv"),
    "JSON values": (STRANGE.to_json(orient="values", indent=1).encode(), "copy.txt"),
    "lines of JSON values": ("".join(f"{json.dumps(row)},\n" for row in ROWS).encode(), "copy.csv"),
    "a fixed width": (STRANGE.to_string(index=False, header=False).encode(), "copy.txt"),
    "a fixed width, in a .csv file": (STRANGE.to_string().encode(), "copy.csv"),
    "LaTeX": ("\n".join(f"{' & '.join(row)} \\\\" for row in ROWS).encode(), "copy.txt"),
    "four of five columns below notes": (b"Register\n\nof 2026\n" + _written(FOUR), "copy.txt"),
    **{f"four, between {sep!r}": (_written(FOUR, sep=sep), "copy.txt") for sep in "&|$¦;\t"},
    "groups of themselves": (b"code,group\n" + b"north,north\nsouth,south\n" * 3, "copy.csv"),
}


def refused(folder: Path, data: bytes, name: str, field: str) -> str:
    (folder / name).write_bytes(data)
    (folder / "schema.yaml").write_text(
        DICTIONARY.replace("FIELD", field).replace("FILE", json.dumps(name))
    )
    with pytest.raises(SchemaError) as refusal:
        PublicSchema.from_yaml(folder / "schema.yaml")
    return str(refusal.value)


NAMED = {
    (offence, suffix): (data, f"copy{suffix}")
    for offence, data in OFFENCES.items()
    for suffix in (".csv", ".txt", "", ".CSV")
}


@pytest.mark.nightly_cases("hierarchy_file-with names")
@pytest.mark.parametrize("cases", [NAMED, LISTS], ids=["with names", "without names"])
@pytest.mark.parametrize("field", ["levels_file", "hierarchy_file"])
def test_a_table_is_no_list(cases: dict[Any, Any], field: str, tmp_path: Path) -> None:
    for case, (data, name) in cases.items():
        message = refused(tmp_path, data, name, field)
        assert f"column region: {field}: " in message, case
        assert CANARY not in message, case


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(NAMES), min_size=2, unique=True),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([str, str.upper, str.title, lambda name: f" {name} "]),
)
def test_any_two_columns_in_any_order_and_spelling_are_a_table(
    names: list[str], delimiter: str, spelt: Callable[[str], str]
) -> None:
    from dpiw.data.schema.confidential import table_fault

    rows = [[str(cell) for cell in row] for row in TABLE[names].to_numpy()]
    lines = [delimiter.join(map(spelt, names)), *(delimiter.join(row) for row in rows)]
    assert table_fault("\n".join(lines), NAMES, listed=False)


CODES = {
    "codes.csv": [
        "code,label\n0110,Officers\n2211,Doctors\n",
        "region,noisy_count\nnorth,190.04\nsouth,80.10\n",
        "region,label,from,to\n1,North,2001,2020\n2,South,2001,2020\n",
        'place\n"Albany, NY, USA"\n"Paris, TX, USA"\n"Rome, GA, USA"\n',
    ],
    "codes.txt": [
        "Clerks, general, of banks\nClerks, other\nDoctors\n", "age\nregion\nperson\nill\n",
        "A01|Cholera\nA02|Salmonella\nA03|Shigella\n", "[0,10]\n[11,20]\n<5\n>= 90\n",
        "2026-01-01\n2026-02-01\n2026-03-01\n", "01.11.1\n01.11.2\n01.12.1\n",
        "A01  Cholera\nA02  Salmonella typhi\nA03  Shigella\n",
        "Very good\nNot so good\nNot at all good\n", "हिंदी\nदिल्ली\nसिक्किम\n",
    ],
    "groups.csv": [
        "code,chapter\nA1,A\nA2,A\nA,A\nB1,B\n",
        "region,part\nnorth,up\nsouth,down\neast,up\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in CODES for text in CODES[name]])
def test_a_code_list_is_a_list(name: str, text: str, tmp_path: Path) -> None:
    """The control: code lists as offices publish them."""
    field = "hierarchy_file" if name == "groups.csv" else "levels_file"
    (tmp_path / name).write_text(text)
    (tmp_path / "schema.yaml").write_text(
        DICTIONARY.replace("FIELD", field).replace("FILE", json.dumps(name))
    )
    assert len(PublicSchema.from_yaml(tmp_path / "schema.yaml").column("region").levels) >= 2


def test_a_plan_warns_of_levels_as_many_as_rows(place: Any) -> None:
    """One column of the table, each value once, is a list by all that can be seen of it."""
    from dpiw.data.schema.levels import level_warning

    codes = place.root / "codes.csv"
    codes.write_text("c\nc0\nc1\n")
    _of_dictionary("levels_file")(place, "codes.csv")
    for levels, rows, warns in (
        (40, 400, False), (3, 4, False), (300, 400, True), (400, 400, True), (500, 400, True),
        (390, 400, True),
    ):  # fmt: skip
        codes.write_text("c\n" + "".join(f"c{n}\n" for n in range(levels)))
        spec = load_spec(place.spec).model_copy(update={"nominal_rows": rows})
        schema = load_schema(spec)
        warning = level_warning(schema.column("region"), nominal_rows=rows)
        assert (warning is not None) is warns, levels
    assert "warning: column region: lists 390 levels for 400" in plan_table(
        compile_plan(spec, schema)
    )
