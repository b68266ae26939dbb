"""Rows of every generator satisfy the dictionary's constraints, and how that is brought about."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from dpiw.data.schema.rule_kinds import Cells
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods import recipe as recipe_module
from dpiw.methods.admission import MOST_DRAWN, RULE, Admission, admitted
from dpiw.methods.generators.external import RowsModel
from dpiw.methods.generators.registry import GENERATORS, make_generator
from dpiw.methods.recipe import Recipe
from dpiw.methods.weights.base import Weighing
from dpiw.methods.weights.diagnostics import Verdict, diagnose
from dpiw.methods.weights.paper.steps import PostProcessing
from dpiw.privacy.randomness import SeededNoise
from tests.support.small import SMALL
from tests.support.worlds import UNIT, declared, uniform_rows

TOWN = declared(
    {"name": "age", "kind": "integer", "lower": 0, "upper": 99},
    {"name": "group", "kind": "ordinal", "levels": ["child", "adult"]},
    {"name": "rent", "kind": "continuous", "lower": 0, "upper": 90, "decimals": 1},
    {"name": "spent", "kind": "continuous", "lower": 0, "upper": 100, "decimals": 1},
    {"name": "left", "kind": "date", "lower": "2020-01-01", "upper": "2020-12-31",
     "nullable": True},
    {"name": "came", "kind": "date", "lower": "2020-01-01", "upper": "2020-12-31"},
    {"name": "ill", "kind": "boolean", "role": "target"},
    name="town", constraints=[
        {"name": "group", "column": "group", "of": "age", "cases": [
            {"when": {"upper": 17}, "is": "child"}, {"when": {"lower": 18}, "is": "adult"}]},
        {"name": "money", "sum": ["rent"], "at_most": "spent"},
        {"name": "stay", "sum": ["came"], "at_most": "left"},
        {"name": "healthy", "never": {"group": "child", "ill": True}},
    ],
)  # fmt: skip


def table():
    """Most rows break a constraint: what is confidential is measured as it is."""
    rng = np.random.default_rng(1)
    codes = TOWN.project(uniform_rows(TOWN, 60, rng))
    assert np.mean(np.any([*TOWN.rules.broken(codes).values()], axis=0)) > 0.5
    return PrivateTable(schema=TOWN, scaled=codes)


def recipe_of(generator, rows, *, weights=None):
    uncalibrated = make_generator(generator, SMALL.get(generator, {}), pure=False)
    facts = {"schema": TOWN, "unit": UNIT, "nominal_rows": 60}
    return Recipe(
        schema=TOWN,
        generator=uncalibrated.calibrate(rho=0.5, **facts),
        weights=weights and weights.calibrate(rho=0.5, **facts),
        weighing=Weighing(rows=rows, post_processing=PostProcessing()),
    )


def check(frame):
    """The constraints again, in the words of a data frame."""
    assert ((frame["age"] < 18) == (frame["group"] == "child")).all()
    assert ((frame["rent"] * 10).round() <= (frame["spent"] * 10).round()).all()
    assert (frame["left"].isna() | (frame["came"] <= frame["left"])).all()
    assert not ((frame["group"] == "child") & frame["ill"]).any()


FITTED = sorted(GENERATORS.keys() - {"external", "levels"})
"""Rows of a file that break a constraint are refused: `test_public_rows.py`."""


@pytest.mark.nightly_cases("[aim]", "[mst]")
@pytest.mark.parametrize("method", FITTED)
def test_every_generator_s_rows_satisfy_every_constraint(method):
    recipe, rng = recipe_of(method, 80), np.random.default_rng(3)
    fitted = recipe.generator.measure(table(), noise=SeededNoise(2))
    model = recipe.generator.model(fitted, schema=TOWN)
    ((rows, admission),) = recipe.draw(model, 80, rng=rng)
    assert rows.rows == 80
    check(rows.frame())
    assert set(admission.broken) == {"group", "money", "stay", "healthy"}
    assert admission.broken["group"] > 0
    check(recipe.sample(model, rng=rng).weighed.frame())


def test_rows_are_drawn_some_at_a_time_and_counted_together(monkeypatch):
    monkeypatch.setattr(recipe_module, "DRAWN_ROWS", 30)
    recipe = recipe_of("histogram", 80)
    fitted = recipe.generator.measure(table(), noise=SeededNoise(2))
    model = recipe.generator.model(fitted, schema=TOWN)
    parts = [*recipe.draw(model, 80, rng=np.random.default_rng(3))]
    assert [rows.rows for rows, _ in parts] == [30, 30, 20]
    rows = recipe.sample(model, rng=np.random.default_rng(3))
    assert rows.weighed.scaled.equals(ScaledTable.concatenate([part.scaled for part, _ in parts]))
    assert rows.admission == Admission.together([part for _, part in parts if part])
    assert rows.admission.rows == 80
    check(rows.weighed.frame())


class _Uniform:
    """A model of numbers, of which one in fifty is let through."""

    one_way: ClassVar[None] = None
    judge: ClassVar[None] = None
    at_hand: ClassVar[None] = None

    def sample(self, rows, *, rng):
        scaled = ScaledTable({name: rng.integers(1000, size=rows) / 999 for name in "nm"}, rows)
        return SyntheticTable(schema=digits(never={"n": {"lower": 20}}), scaled=scaled)


def test_rows_that_were_projected_are_no_more_at_the_end_than_at_the_beginning():
    """Weights are fitted on the first rows: a share of three deviations from that of all."""
    recipe = replace(recipe_of("histogram", 6000), schema=digits(never={"n": {"lower": 20}}))
    ((rows, admission),) = recipe.draw(_Uniform(), 6000, rng=np.random.default_rng(3))
    assert 0.2 < admission.forced / 6000 < 0.8
    edge = np.rint(999 * rows.scaled.columns["n"]) == 19  # where projection puts them
    assert abs(edge[:600].mean() - edge.mean()) < 3 * 0.5 / np.sqrt(600)


def test_no_row_of_a_file_is_drawn_twice(monkeypatch):
    monkeypatch.setattr(recipe_module, "DRAWN_ROWS", 30)
    schema = declared({"name": "n", "kind": "integer", "lower": 0, "upper": 99})
    hundred = SyntheticTable(schema=schema, scaled=ScaledTable({"n": np.arange(100) / 99}, 100))
    recipe = replace(recipe_of("histogram", 100), schema=schema)
    rows = recipe.sample(RowsModel(table=hundred), rng=np.random.default_rng(3)).weighed
    assert sorted(rows.frame()["n"]) == [*range(100)]


def digits(**constraint):
    columns = [{"name": name, "kind": "integer", "lower": 0, "upper": 999} for name in "nm"]
    stated = {"name": "d", "columns": columns, "constraints": [{"name": "c", **constraint}]}
    return PublicSchema.from_mapping(stated)


def uniform(seed, sizes):
    """Rows of two independent numbers; keeps how many were asked for."""
    rng = np.random.default_rng(seed)

    def draw(rows):
        sizes.append(rows)
        return ScaledTable({name: rng.integers(1000, size=rows) / 999 for name in "nm"}, rows)

    return draw


def let_through(rules, rows):
    sizes = []
    drawn, admission = admitted(uniform(5, sizes), rows, rules=rules)
    assert drawn.rows == rows
    assert sum(sizes) == admission.drawn
    assert not any(mask.any() for mask in rules.broken(drawn).values())
    return np.rint(999 * drawn.columns["n"]), admission, len(sizes)


def test_rejected_rows_leave_the_first_good_ones_in_their_order():
    """So what is left has the model's own distribution, given that no constraint is broken."""
    numbers, admission, _ = let_through(digits(never={"n": {"lower": 250}}).rules, 400)
    assert set(numbers) <= set(range(250))
    assert admission.projected == admission.forced == 0
    assert admission.rejected == admission.broken["c"]
    assert admission.rejected / admission.drawn == pytest.approx(0.75, abs=0.05)
    first = np.rint(999 * uniform(5, [])(400).columns["n"])
    assert numbers[: np.sum(first < 250)].tolist() == first[first < 250].tolist()
    assert numbers.mean() == pytest.approx(124.5, abs=4 * 72 / 20)


def test_without_a_constraint_one_table_is_drawn_as_it_is():
    sizes = []
    drawn, admission = admitted(uniform(5, sizes), 30, rules=None)
    assert admission is None
    assert sizes == [30]
    assert drawn.equals(uniform(5, [])(30))


def test_where_rejection_is_too_rare_rows_are_projected_and_that_is_said():
    numbers, admission, _ = let_through(digits(never={"n": {"lower": 1}}).rules, 300)
    assert set(numbers) == {0}
    assert MOST_DRAWN * 300 <= admission.drawn <= (MOST_DRAWN + 1) * 300
    assert admission.projected == admission.forced > 280
    assert admission.replaced == 0
    assert len(admission.steps) == 2


def test_what_is_projected_at_once_is_not_drawn_again():
    _, admission, batches = let_through(digits(sum=["n", "m"], equals=900).rules, 300)
    assert batches == 1
    assert admission.rejected == 0
    assert not admission.forced
    assert admission.projected == admission.broken["c"] > 290


class _Stubborn:
    """A rule whose projection mends nothing."""

    def broken(self, cells):
        return cells.whole["n"] % 4 > 0

    def projected(self, cells, *, turn):
        return cells


def test_rows_that_no_projection_mends_become_public_rows(monkeypatch):
    """Nothing raises once a model is fitted, and the release says what was done."""
    monkeypatch.setattr("dpiw.methods.admission.MOST_DRAWN", 1)
    rules = digits(never={"n": 5}).rules
    fours = {name: np.arange(512) * 4 % 1000 for name in "nm"}
    public = Cells(whole=fours, missing=dict.fromkeys("nm", np.zeros(512, dtype=np.bool_)))
    rules = replace(rules, rules=(_Stubborn(),), public=public)
    numbers, admission, _ = let_through(rules, 200)
    assert not np.any(numbers % 4)
    assert admission.forced == admission.replaced == admission.to_json()["replaced"] > 50
    assert len(admission.caveats) == 1
    [(verdict, reason)] = admission.findings
    assert verdict is (Verdict.DO_NOT_USE if admission.replaced > 100 else Verdict.CARE)
    assert reason == admission.steps[-1]


def test_what_had_to_be_projected_is_no_plain_verdict():
    admission = let_through(digits(never={"n": {"lower": 1}}).rules, 30)[1]
    sound = diagnose(np.zeros(100))
    assert sound.verdict is Verdict.USE
    judged = sound.judged_with(admission.findings, rule=RULE)
    assert judged.verdict is Verdict.DO_NOT_USE
    assert judged.rule == sound.rule + RULE
    slight = replace(admission, forced=3).findings
    assert sound.judged_with(slight, rule=RULE).verdict is Verdict.CARE
    assert judged.judged_with(slight, rule="").verdict is Verdict.DO_NOT_USE
    unforced = replace(admission, forced=0)
    assert (unforced.findings, unforced.caveats, len(unforced.steps)) == ([], (), 1)


@pytest.mark.parametrize("rows", [1, 5])
def test_few_rows_have_the_law_of_many(rows):
    """A tenth of the model is let through: one row is drawn often enough to be one of these."""
    rules = digits(never={"n": {"lower": 100}}).rules
    draw = uniform(7, [])
    made = [admitted(draw, rows, rules=rules) for _ in range(100 // rows)]
    assert not any(told is None or told.forced for _, told in made)
    values = np.concatenate([np.rint(999 * table.columns["n"]) for table, _ in made])
    assert values.mean() == pytest.approx(49.5, abs=4 * 29 / 10)
    assert np.mean(values == 99) < 0.1
