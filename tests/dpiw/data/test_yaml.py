"""YAML as people write it: what is typed, what stays text, what is refused and where."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data import yaml
from dpiw.data.yaml import flow_text, load_text, marked
from dpiw.errors import Mark, SpecError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("no", "Yes", "on", "True", "Null", "NULL", "2020-01-01")),
        *((word, word) for word in ("1:30", "012", "00", "1_000", "0x1F", "0o17", "1e", "<<", "=")),
        ("true", True), ("false", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("+1", 1), ("1.", 1.0), (".5", 0.5), ("1e-6", 1e-6),
        ("-.inf", -float("inf")),
        ("'1'", "1"), ('"true"', "true"), ("''", ""), ("|\n  1\n", "1\n"), (">-\n  a\n  b", "a b"),
        ("9" * 4001, int("9" * 4001)), ("9" * 4002, "9" * 4002),
    ],
)  # fmt: skip
def test_a_value_is_typed_or_stays_text(text: str, value: object) -> None:
    assert load_text(f"a: {text}", what="spec") == {"a": value}
    if text and "\n" not in text:
        assert load_text(f"[{text}]", what="spec") == [value]


def test_exact_decimals_are_kept() -> None:
    read = load_text("[0.1, 1e-6, .inf, 2]", what="spec", exact=True)
    assert read == [Decimal("0.1"), Decimal("0.000001"), Decimal("Infinity"), 2]


REFUSED = [
    ("a: &x 1", "line 1, column 4"), ("a: 1\nb: *x", "line 2, column 4"),
    ("&a [*a]", "line 1, column 1"), ("a: !!python/none x", "line 1, column 4"),
    ("a: ! 1", "line 1, column 4"), ("a: {b: 1, b: 2}", "line 1, column 11"),
    ("'a': 1\na: 2", "line 2, column 1"), ("b: 1\n[c]: 2", "line 2, column 1"),
    (": 1", "line 1, column 1"), ("{: 1}", "line 1, column 3"), ("[18,5: ]", "line 1, column 5"),
    ("{1, 5: 2}", "line 1, column 2"), ("a: 1\n--- \nb: 1", "line 2, column 1"),
    ("a: x\x85b", "line 1, column 5"), ("b: 1\na: 'x\u2028b'", "line 2, column 6"),
    ("[" * 33, "line 1, column 33"), ("[" * 100_000, "line 1, column 33"),
    ("{a: " * 5_000, "line 1, column 126"), ("- " * 32 + "x", "line 1, column 65"),
    ("a: [1", "line 1, column 4"), ("a: 'x", "line 1, column 4"), ("\ta: b", "line 1, column 1"),
    ("a: b: c", "line 1, column 5"), ("a: \x01", "a character"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place"), REFUSED)
def test_what_is_refused_is_placed_and_not_repeated(text: str, place: str) -> None:
    with pytest.raises(SpecError) as refused:
        load_text(text, what="spec")
    assert place in str(refused.value)


def test_as_deep_as_allowed_is_read() -> None:
    assert load_text("[" * 32 + "]" * 32, what="spec") != []
    assert load_text("- " * 31 + "x", what="spec") != "x"


@given(
    st.text(
        st.sampled_from(":-?[]{},&*!|>'\"%@`# \n\t~019.eEa\x85\u2028\ufeff\x00\\<\r"), max_size=40
    )
)
@settings(max_examples=80, derandomize=True, database=None, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        load_text(text, what="spec")
    except SpecError:
        return


PLAIN = st.dictionaries(
    st.text("abcno_1", min_size=1, max_size=8),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
    | st.text("a no:#1-é,[]{}'\"", max_size=9),
    max_size=4,
)  # fmt: skip


@given(PLAIN)
@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@pytest.mark.slow
def test_what_is_written_for_a_file_is_read_as_it_was(mapping: dict[str, object]) -> None:
    text = flow_text(mapping)
    assert "\n" not in text
    assert load_text(text, what="spec") == mapping


def test_a_fault_names_line_and_column_of_its_field(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("a: 1\nsource:\n  path: x\ncolumns:\n  - {name: age, lower: 3}\n")
    for field, line, column in (
        ("source.path", 3, 3), ("column age: lower", 5, 17), ("source.other", 2, 1),
    ):  # fmt: skip
        with pytest.raises(SpecError) as refused, marked(path, SpecError):
            raise SpecError("no", field=field)
        assert refused.value.mark == Mark("spec.yaml", line, column)


def test_many_faults_of_a_file_are_placed_in_one_reading_of_it(tmp_path: Path, monkeypatch) -> None:
    path, nodes, read = tmp_path / "spec.yaml", yaml._nodes, []
    path.write_text("columns:\n" + "".join(f"  - {{name: c{n}}}\n" for n in range(200)))
    monkeypatch.setattr(yaml, "_nodes", lambda text: read.append(text) or nodes(text))
    faults = [SpecError("no", field=f"column c{n}: kind") for n in range(200)]
    with pytest.raises(SpecError) as refused, marked(path, SpecError):
        raise SpecError(several=[SpecError(several=faults)])
    places = [(fault.mark.line, fault.mark.column) for fault in refused.value.several]
    assert (places, len(read)) == ([(n + 2, 5) for n in range(200)], 1)
