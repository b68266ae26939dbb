"""Constraints of a data dictionary: how they are stated, decided, and what is nearest to a row."""

import contextlib
import itertools
import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema.constraints import Repair, read_constraint
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import SchemaError
from dpiw.methods.admission import admitted
from tests.dpiw.data.schema_example import PROPERTY
from tests.dpiw.data.schema_example import SCHEMA as PLAIN
from tests.support.worlds import uniform_rows

COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "role": "identifier"},
    {"name": "sex", "kind": "categorical", "levels": ["male", "female", "other"]},
    {"name": "births", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
    {"name": "age", "kind": "integer", "lower": 0, "upper": 99},
    {"name": "group", "kind": "ordinal", "levels": ["child", "adult", "old"]},
    {"name": "smokes", "kind": "boolean", "nullable": True},
    {"name": "came", "kind": "date", "lower": "2020-01-01", "upper": "2029-12-31"},
    {"name": "days", "kind": "integer", "lower": 0, "upper": 400},
    {"name": "left", "kind": "date", "lower": "2020-06-01", "upper": "2029-12-31"},
    {"name": "seen", "kind": "datetime", "lower": "2020-01-01", "upper": "2020-12-31",
     "nullable": True},
    {"name": "shown", "kind": "datetime", "lower": "2020-01-01", "upper": "2020-12-31"},
    {"name": "rent", "kind": "continuous", "lower": -5, "upper": 90, "decimals": 2},
    {"name": "food", "kind": "continuous", "lower": 0, "upper": 50.5, "decimals": 2,
     "nullable": True},
    {"name": "spent", "kind": "continuous", "lower": 0, "upper": 100, "decimals": 2},
    {"name": "free", "kind": "continuous", "lower": 0, "upper": 1},
    {"name": "huge", "kind": "integer", "lower": 2**62, "upper": 2**62 + 9},
]  # fmt: skip
CONSTRAINTS: list[dict[str, Any]] = [
    {"name": "births", "never": {"sex": ["male", "other"], "births": {"lower": 1}}},
    {"name": "smoke", "never": {"group": "child", "smokes": [True, None]}, "repair": "project"},
    {"name": "group", "column": "group", "of": "age", "cases": [
        {"when": {"upper": 17}, "is": "child"}, {"when": {"lower": 18, "upper": 64}, "is": "adult"},
        {"when": {"lower": 65}, "is": "old"}]},
    {"name": "stay", "sum": ["came", "days"], "equals": "left"},
    {"name": "seen", "sum": ["seen"], "at_most": "shown"},
    {"name": "money", "sum": ["rent", "food"], "at_most": "spent", "repair": "project"},
]  # fmt: skip


def dictionary(*constraints: dict[str, Any], columns: Any = COLUMNS) -> PublicSchema:
    stated = {"constraints": list(constraints)} if constraints else {}
    return PublicSchema.from_mapping({"name": "town", "columns": columns, **stated})


def named(stated: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": f"c{place}", **constraint} for place, constraint in enumerate(stated)]


TOWN = dictionary(*CONSTRAINTS)


def rows_of(schema: PublicSchema, rows: int, seed: int) -> ScaledTable:
    """Admissible rows of any kind."""
    return schema.project(uniform_rows(schema, rows, np.random.default_rng(seed)))


def broken(schema: PublicSchema, scaled: ScaledTable) -> dict[str, list[bool]]:
    return {name: mask.tolist() for name, mask in schema.rules.broken(scaled).items()}


def asked(schema: PublicSchema, *rows: dict[str, Any]) -> list[bool]:
    """Whether rows, given by some of their cells, break the only constraint."""
    frame = pd.DataFrame(rows).reindex(columns=[c.name for c in schema.released])
    return next(iter(broken(schema, schema.scale(frame)).values()))


def test_what_is_stated_is_read_back_and_is_part_of_the_dictionary() -> None:
    assert PublicSchema.from_mapping(TOWN.to_mapping()) == TOWN != dictionary(*CONSTRAINTS[1:])
    assert hash(TOWN) == hash(dictionary(*CONSTRAINTS))
    assert [constraint.repair for constraint in TOWN.constraints] == [
        Repair.REJECT, Repair.PROJECT, Repair.PROJECT, Repair.PROJECT, Repair.REJECT,
        Repair.PROJECT,
    ]  # fmt: skip
    for stated in CONSTRAINTS:
        assert read_constraint(stated).to_mapping() == stated


def test_a_dictionary_without_constraints_is_as_it_was() -> None:
    """Its digest, and so the keys of runs, are made of this."""
    assert set(PLAIN.to_mapping()) == {"name", "columns"}
    assert PLAIN.rules is None
    assert PublicSchema.from_mapping({**PLAIN.to_mapping(), "constraints": []}) == PLAIN


def test_a_missing_cell_is_a_value_of_its_own_only_where_null_is_stated() -> None:
    missing = dict.fromkeys(("births", "smokes", "seen", "food"))
    assert asked(dictionary(CONSTRAINTS[0]), {"sex": "male", **missing}) == [False]
    assert asked(dictionary(CONSTRAINTS[1]), {"group": "child", **missing}) == [True]
    assert asked(dictionary(CONSTRAINTS[4]), {"shown": "2020-01-01", **missing}) == [False]
    assert asked(dictionary(CONSTRAINTS[5]), {"rent": 90, "spent": 0, **missing}) == [False]
    cases = [{"when": None, "is": "child"}, {"when": [True, False], "is": "old"}]
    lookup = dictionary({"name": "c", "column": "group", "of": "smokes", "cases": cases})
    rows = [{"smokes": s, "group": g} for s in (None, True) for g in ("child", "old")]
    assert asked(lookup, *rows) == [False, True, True, False]


def test_amounts_are_added_exactly() -> None:
    money = dictionary({"name": "c", "sum": ["rent", "food"], "equals": "spent"})
    rows = [{"rent": r, "food": 0.2, "spent": s} for r, s in ((0.1, 0.3), (0.1, 0.31), (-1, 0))]
    assert asked(money, *rows) == [False, True, True]
    stay = dictionary(CONSTRAINTS[3])
    rows = [{"came": "2024-02-28", "days": 2, "left": f"2024-03-0{day}"} for day in (1, 2)]
    assert asked(stay, *rows) == [False, True]


SMALL = [
    {"name": "a", "kind": "integer", "lower": -1, "upper": 3},
    {"name": "b", "kind": "integer", "lower": 0, "upper": 3, "nullable": True},
    {"name": "c", "kind": "integer", "lower": 0, "upper": 4},
    {"name": "l", "kind": "ordinal", "levels": ["x", "y", "z"]},
]  # fmt: skip
A, B, C, L = range(-1, 4), (*range(4), None), range(5), "xyz"
TOTALS = [
    {"sum": ["a", "b"], "equals": "c"}, {"sum": ["a", "b"], "at_most": "c"},
    {"sum": ["c"], "at_most": "a"}, {"sum": ["a", "c"], "equals": 5}, {"sum": ["a"], "at_most": 0},
]  # fmt: skip
NEVERS = [
    {"a": {"lower": 1}, "b": {"upper": 1}}, {"b": [None, 0, 1, 3], "c": [0, 1, 2, 4]},
    {"b": None, "l": "y"}, {"l": {"lower": "y"}, "b": {"lower": 0}}, {"a": {"upper": 2}},
]  # fmt: skip


def frame_of(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    cells = dict(zip("abcl", zip(*rows, strict=True), strict=True))
    return pd.DataFrame(cells | {"b": pd.array(cells["b"], dtype="Int64")})


def repaired(constraint: dict[str, Any], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    schema = dictionary({"name": "c", **constraint}, columns=SMALL)
    frame = schema.unscale(schema.rules.projected(schema.scale(frame_of(rows))))
    cells = frame.astype(object).where(frame.notna(), None)
    return list(cells.itertuples(index=False, name=None))


def check_nearest(constraint: dict[str, Any], distance: Any) -> None:
    """Against every row that there is."""
    rows = list(itertools.product(A, B, C, L))
    schema = dictionary({"name": "c", **constraint}, columns=SMALL)
    bad = asked(schema, *(dict(zip("abcl", row, strict=True)) for row in rows))
    good = [row for row, is_bad in zip(rows, bad, strict=True) if not is_bad]
    assert 0 < len(good) < len(rows)
    mended = repaired(constraint, rows)
    assert set(mended) <= set(good)
    for row, now, is_bad in zip(rows, mended, bad, strict=True):
        least = min(distance(row, candidate) for candidate in good) if is_bad else 0
        assert distance(row, now) == pytest.approx(least), (row, now)


@pytest.mark.parametrize("stated", TOTALS, ids=str)
def test_a_total_moves_a_row_as_little_as_can_be(stated: dict[str, Any]) -> None:
    """In squares; what is missing, and what it does not name, stays."""

    def squares(row: tuple[Any, ...], other: tuple[Any, ...]) -> float:
        if row[3] != other[3] or (row[1] is None) != (other[1] is None):
            return np.inf
        return sum((x - y) ** 2 for x, y in zip(row[:3], other[:3], strict=True) if x is not None)

    check_nearest(stated, squares)


@pytest.mark.parametrize("stated", NEVERS, ids=str)
def test_a_structural_zero_is_left_by_the_nearest_way(stated: dict[str, Any]) -> None:
    """A number by its share of the range, a level or a missing cell by 1."""

    def apart(row: tuple[Any, ...], other: tuple[Any, ...]) -> float:
        total = float(row[3] != other[3])
        for x, y, span in zip(row[:3], other[:3], (4, 3, 4), strict=True):
            total += float(x is not y) if None in (x, y) else abs(x - y) / span
        return total

    check_nearest({"never": stated}, apart)


@PROPERTY
@given(st.integers(0, 2**32), st.integers(0, 40))
@pytest.mark.slow
def test_repaired_rows_satisfy_and_stay_as_they_are(seed: int, rows: int) -> None:
    scaled, rules = rows_of(TOWN, rows, seed), TOWN.rules
    mended = rules.projected(scaled)
    assert not any(map(any, broken(TOWN, mended).values()))
    assert TOWN.project(mended).equals(mended)
    assert rules.projected(mended).equals(mended)
    assert rules.projected(TOWN.scale(TOWN.unscale(mended))).equals(mended)
    rows_that_hold = ~np.any([*broken(TOWN, scaled).values()], axis=0)
    assert mended.take(rows_that_hold).equals(scaled.take(rows_that_hold))


AMOUNTS = [
    {"name": name, "kind": "continuous", "lower": 0, "upper": 1e5, "decimals": 2}
    for name in "abcdefg"
]


@pytest.mark.parametrize(
    "stated",
    ["a+b=c c+d=e e+f=g", "a+b=c a+d=e b+d<c", "a+b=c a+c=e", "d<e c<d b<c a<b",
     "a+b=g d+e=g a+d=c b+e=f", "a<b b<a"],
)  # fmt: skip
def test_sums_that_share_columns_are_mended_together(stated: str) -> None:
    """One after the other the nearest rows need not come together; what follows is then set."""
    constraints = []
    for text in stated.split():
        parts, total = re.split("[<=]", text)
        constraints.append({"sum": parts.split("+"), "equals" if "=" in text else "at_most": total})
    schema = dictionary(*named(constraints), columns=AMOUNTS)
    mended = schema.rules.projected(rows_of(schema, 500, 7))
    assert not any(map(any, broken(schema, mended).values()))


def test_only_constraints_of_the_asked_repair_move_rows() -> None:
    scaled, rules = rows_of(TOWN, 300, 1), TOWN.rules
    before, after = broken(TOWN, scaled), broken(TOWN, rules.projected(scaled, only=Repair.PROJECT))
    for constraint in TOWN.constraints:
        assert any(before[constraint.name])
        assert any(after[constraint.name]) is (constraint.repair is Repair.REJECT)


JOBS: list[dict[str, Any]] = [
    {"name": "job", "kind": "categorical", "levels": ["none", "pupil", "worker", "retired"]},
    {"name": "wage", "kind": "ordinal", "levels": ["child", "adult", "old"]},
    {"name": "pay", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
    {"name": "tax", "kind": "integer", "lower": 0, "upper": 9},
]
CYCLES: dict[str, list[dict[str, Any]]] = {
    "two zeros": [
        {"never": {"job": "none", "wage": {"lower": "adult"}}}, {"never": {"job": "pupil"}}],
    "a zero on what follows": [
        {"column": "job", "of": "wage", "cases": [
            {"when": "child", "is": "pupil"}, {"when": ["adult", "old"], "is": "worker"}]},
        {"never": {"job": "pupil"}}],
    "a zero and a sum": [
        {"never": {"tax": {"lower": 3}}}, {"sum": ["pay"], "equals": "tax"},
        {"never": {"pay": [0, None]}}],
    "two sums": [{"sum": ["pay", "tax"], "equals": 9}, {"sum": ["pay"], "at_most": "tax"}],
}  # fmt: skip


@pytest.mark.parametrize("stated", CYCLES.values(), ids=CYCLES)
def test_rules_that_undo_each_other_come_together(stated: list[dict[str, Any]]) -> None:
    """Every row that there is; the nearest rows alone would go round for ever."""
    schema = dictionary(*named(stated), columns=JOBS)
    rules, levels = schema.rules, [column["levels"] for column in JOBS[:2]]
    rows = list(itertools.product(*levels, [*range(10), None], range(10)))
    cells = dict(zip(("job", "wage", "pay", "tax"), zip(*rows, strict=True), strict=True))
    frame = pd.DataFrame(cells | {"pay": pd.array(cells["pay"], dtype="Int64")})
    scaled = schema.scale(frame)
    for mended in (rules.projected(scaled), rules.replaced(scaled)):
        assert not any(map(any, broken(schema, mended).values()))
        good = ~np.any([*broken(schema, scaled).values()], axis=0)
        assert mended.take(good).equals(scaled.take(good))


@st.composite
def nevers(draw: st.DrawFn) -> dict[str, Any]:
    """Up to three columns of `JOBS`, in any order."""
    values = [column.get("levels", [0, 1, 4, 9]) for column in JOBS]
    places = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
    never = {
        JOBS[place]["name"]: draw(
            st.lists(st.sampled_from(values[place]), min_size=1, max_size=2, unique=True)
        )
        for place in places
    }
    return {"never": never, "repair": draw(st.sampled_from(["reject", "project"]))}


LOOKUPS = st.sampled_from([CYCLES["a zero on what follows"][0], *CYCLES["two sums"]])


@settings(PROPERTY, max_examples=8)
@given(st.lists(nevers() | LOOKUPS, min_size=2, max_size=6), st.integers(0, 2**32))
@pytest.mark.slow
def test_an_accepted_dictionary_mends_every_row(stated: list[dict[str, Any]], seed: int) -> None:
    """A model may hold one row alone; and the order of keys, which JSON loses, changes nothing."""
    try:
        schema = dictionary(*named(stated), columns=JOBS)
    except SchemaError as refusal:
        assert str(refusal).startswith("constraint c")  # noqa: PT017
        return
    again = PublicSchema.from_mapping(json.loads(json.dumps(schema.to_mapping(), sort_keys=True)))
    assert again == schema
    for row in range(4):
        scaled = rows_of(schema, 4, seed).take(np.full(30, row))
        mended, facts = admitted(lambda rows, one=scaled: one.take(np.arange(rows) % 30), 10,
                                 rules=schema.rules)  # fmt: skip
        assert facts is not None
        assert not any(map(any, broken(schema, mended).values()))
        assert schema.project(mended).equals(mended)
        assert again.rules.projected(scaled).equals(schema.rules.projected(scaled))
        assert not any(map(any, broken(schema, schema.rules.replaced(scaled)).values()))


NEVER, SUM = {"name": "c", "never": {"sex": "male"}}, {"name": "c", "sum": ["age"], "at_most": 7}
OF_AGE: dict[str, Any] = {"name": "c", "column": "group", "of": "age"}
REFUSED = [
    ({"name": "c"}, "c: expected one of the keys never, of, sum"),
    (NEVER | {"when": 1}, "c: when: unknown key; expected one of name, never, repair"),
    (NEVER | {"repair": "drop"}, "c: repair: expected one of reject, project"),
    (NEVER | {"never": {}}, "c: never: expected a mapping"),
    (NEVER | {"never": {"sex": {"least": 1}}}, "c: never: column sex: expected the keys"),
    (NEVER | {"never": {"sexe": "male"}}, "c: no released column is called sexe; did you mean"),
    (NEVER | {"never": {"id": "7"}}, "c: no released column is called id"),
    (NEVER | {"never": {"sex": "mal"}}, "c: never: column sex: expected a level.*'male'"),
    (NEVER | {"never": {"sex": {"lower": "male"}}}, "c: never: column sex: has no order"),
    (NEVER | {"never": {"sex": None}}, "c: never: column sex: null: its cells are never missing"),
    (NEVER | {"never": {"smokes": "yes"}}, "column smokes: expected true or false"),
    (NEVER | {"never": {"age": {"lower": 100}}}, "column age: no such value is within its bounds"),
    (NEVER | {"never": {"came": "soon"}}, "column came: .*'soon' is no date value"),
    (NEVER | {"never": {"free": {"lower": 0.5}}}, "c: column free: decimals: expected a number"),
    (NEVER | {"never": {"huge": 2**62}}, "c: column huge: bounds beyond 2"),
    (NEVER | {"never": {"age": {"lower": -5}}}, "c: never: forbids every row"),
    (SUM | {"sum": ["came", "left"], "at_most": "days"}, "c: sum: expected one date in sum, one"),
    (SUM | {"equals": 9}, "c: sum: expected either at_most or equals beside it"),
    (SUM | {"at_most": 7.5}, "c: sum: expected a total of at most 0 decimals"),
    (SUM | {"at_most": -1}, "c: sum: cannot hold within the bounds of its columns"),
    (SUM | {"at_most": "age"}, "c: sum: a column is named twice"),
    (SUM | {"at_most": "rent"}, "c: sum: expected columns of the same `decimals`"),
    (SUM | {"at_most": "sex"}, "c: sum: expected columns of numbers or dates .*`never`"),
    (OF_AGE, "c: cases: missing"),
    (OF_AGE | {"of": "group", "cases": [{"when": "old", "is": "old"}]}, "c: of: expected another"),
    (OF_AGE | {"cases": [{"when": {"upper": 50}, "is": "old"}]},
     "c: cases: expected every value of column age in exactly one"),
    (OF_AGE | {"of": "births", "cases": [{"when": {"lower": 0}, "is": "old"}]},
     "c: cases: expected every value, and null, of column births in exactly one"),
    (OF_AGE | {"cases": [{"when": {"lower": 0}, "is": "ancient"}]}, "column group: expected a lev"),
]  # fmt: skip


@pytest.mark.parametrize(("stated", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_a_constraint_that_cannot_be_is_refused_by_name(stated: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=told) as refusal:
        dictionary(stated)
    assert str(refusal.value).startswith("constraint")


WORDS = st.sampled_from(
    [*(column["name"] for column in COLUMNS), "male", "child", "lower", "upper", "when", "is", "c",
     "2020-02-30", "2020-02-03"]
)  # fmt: skip
SCALARS = WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(WORDS, one, max_size=2),
    max_leaves=6,
)
KEYS = ("never", "column", "of", "cases", "sum", "at_most", "equals", "repair")


@PROPERTY
@given(st.fixed_dictionaries({"name": st.just("c")}, optional=dict.fromkeys(KEYS, VALUES)))
@pytest.mark.slow
def test_whatever_is_stated_is_taken_or_refused(stated: dict[str, Any]) -> None:
    with contextlib.suppress(SchemaError):
        dictionary(stated)
    never = {"name": "c", "never": {"births": stated.get("of"), "came": stated.get("sum")}}
    with contextlib.suppress(SchemaError):
        dictionary(never)
    with contextlib.suppress(SchemaError):
        dictionary({"name": "c", "sum": ["age"], "at_most": stated.get("sum")})


def test_constraints_that_cannot_hold_together_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"^constraint c: name: another constraint"):
        dictionary(NEVER, SUM)
    low, high = {**SUM, "at_most": 20}, {"name": "d", "never": {"age": {"upper": 60}}}
    with pytest.raises(SchemaError, match=r"^constraint [cd]: cannot hold together with the other"):
        dictionary(low, high)
    with pytest.raises(SchemaError, match=r"^constraints: expected a list"):
        PublicSchema.from_mapping({"name": "t", "columns": COLUMNS, "constraints": {}})
