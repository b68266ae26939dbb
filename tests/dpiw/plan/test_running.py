"""Time and memory of a plan from public facts: told, refused if far out; GPUs that are missing."""

import runpy
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.base import FEATURE_SECONDS, Method, Running
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.plan.plan import LONGEST, TOLD, check_running, compile_plan, running_text
from dpiw.plan.spec import parse_spec
from dpiw.plan.table import plan_table
from dpiw.run.ahead import missing_gpus
from dpiw.run.run import ReleaseRun
from tests.support import specs

ROOT = Path(__file__).resolve().parents[3]


def schema(columns, levels):
    names = tuple(str(level) for level in range(levels))
    return PublicSchema(
        name="wide",
        columns=tuple(
            Column(name=f"c{j}", kind=ColumnKind.CATEGORICAL, levels=names) for j in range(columns)
        ),
    )


def plan(method, *, columns, rows, levels=8, **settings):
    spec = specs.GOOD | {
        "generator": {"method": method, "settings": settings}, "weights": {"method": "none"},
        "nominal_rows": rows, "epsilon": Decimal(5), "delta": "1e-13",
    }  # fmt: skip
    return compile_plan(parse_spec(spec), schema(columns, levels))


MEASURED = [
    ("mst", 1, 100_000, 0.8, 13), ("mst", 3, 100_000, 3.7, 40), ("dpgan", 1, 10_000, 15, 134),
    ("dpgan", 1, 100_000, 17.5, 204), ("dpgan", 3, 10_000, 37.7, 329),
    ("dpcgan", 1, 10_000, 15, 132), ("pategan", 1, 10_000, 18, 133),
    ("pategan", 1, 100_000, 20, 176), ("pategan", 3, 10_000, 39.3, 450),
    ("bayes", 1, 10_000, 1.6, 26), ("bayes", 3, 10_000, 3.6, 35),
    ("measured", 1, 10_000, 2.6, 222), ("measured", 1, 100_000, 5.6, 240),
    ("measured", 3, 10_000, 18.5, 657),
]  # fmt: skip
"""Of each method: how many times the 15 columns of `benchmarks/scale_table.py`, rows, and seconds
and MiB beyond those of `histogram`, by `benchmarks/scale.py` of df7790b4, on one of two shared
cores."""


@pytest.mark.nightly_cases("-2-", "-3-", "dpgan-1-100000")
@pytest.mark.parametrize(("method", "copies", "rows", "seconds", "mebibytes"), MEASURED)
def test_forecasts_are_within_a_factor_of_two_of_seconds_and_bytes_measured(
    method, copies, rows, seconds, mebibytes, tmp_path
):
    dictionary = runpy.run_path(str(ROOT / "benchmarks" / "scale_table.py"))["dictionary"]
    (tmp_path / "schema.yaml").write_text(dictionary(copies))
    own = {"method": method, "settings": {"omega_seed": 1} if method == "measured" else {}}
    is_weights = method == "measured"
    spec = specs.GOOD | {
        "generator": {"method": "histogram"} if is_weights else own,
        "weights": own if is_weights else {"method": "none"},
        "nominal_rows": rows, "synthetic_rows": 1000,
    }  # fmt: skip
    compiled = compile_plan(parse_spec(spec), PublicSchema.from_yaml(tmp_path / "schema.yaml"))
    found = running(compiled, weights=is_weights)
    assert seconds / 2 <= found.seconds <= seconds * 2
    assert mebibytes / 2 <= found.held_bytes / 2**20 <= mebibytes * 2


SCORED = [("adult", 100_000, 0.09), ("adult", 50_000, 0.07), ("banknote", 50_000, 1.4)]
"""Schemas of examples, rows, and CPU seconds of the sums that choices look at, November 2026."""


@pytest.mark.slow
def test_a_private_choice_is_forecast_within_a_factor_of_two_of_seconds_measured():
    for name, rows, seconds in SCORED:
        schema = PublicSchema.from_yaml(ROOT / "examples" / name / "schema.yaml")

        def forecast(choose, *, rows=rows, schema=schema):
            settings = {"omega_seed": 1, "choose": choose, "base_rows": 2000}
            spec = specs.GOOD | {
                "weights": {"method": "measured", "settings": settings}, "synthetic_rows": 1000,
                "nominal_rows": 1000, "generator": {"method": "histogram"},
            }  # fmt: skip
            weights = compile_plan(parse_spec(spec), schema).weights
            found = weights.running(schema=schema, nominal_rows=rows, published=1000)
            summing = FEATURE_SECONDS * weights.calibrated.dimension * rows
            return found.seconds - summing

        chosen = forecast(1) - forecast(1, rows=0)
        assert seconds / 2 <= chosen <= seconds * 2
        assert abs(forecast(0) - forecast(0, rows=0)) < 1e-9


WIDE = [("mst", 20, 0.2), ("mst", 60, 0.7), ("mst", 300, 14.0), ("aim", 10, 37.0)]
"""Columns of eight levels, and CPU seconds, November 2026; of `aim` the ten of NIST's board."""


@pytest.mark.slow
def test_columns_of_many_levels_are_forecast_and_told_or_refused():
    for method, columns, measured in WIDE:
        compiled = plan(method, columns=columns, rows=1000)
        found = running(compiled).seconds
        assert measured / 2 <= found <= measured * 2
        assert found < LONGEST
        assert ("running time" in plan_table(compiled)) == (found > TOLD)
    assert "running time" in plan_table(plan("aim", columns=20, rows=1000))
    for method in ("aim", "privbayes"):
        with pytest.raises(SpecError, match="columns"):
            plan(method, columns=300, rows=1000)
    assert "dpgan is not forecast" in plan_table(plan("dpgan", columns=3, rows=9, device="auto"))


def running(compiled, *, weights=False):
    method = compiled.weights if weights else compiled.generator
    found = method.running(
        schema=compiled.schema,
        nominal_rows=compiled.spec.nominal_rows,
        published=compiled.spec.synthetic_rows,
    )
    assert found is not None
    return found


FORECAST = {"privbayes", "histogram", "mst", "aim", "bayes", "dpgan", "dpcgan", "pategan",
            "measured"}  # fmt: skip


@pytest.mark.parametrize("method", [*GENERATORS, *WEIGHTS])
def test_a_method_forecasts_or_the_plan_says_that_it_does_not(method):
    kind = GENERATORS.get(method) or WEIGHTS[method]
    assert (kind.running is not Method.running) == (method in FORECAST)
    compiled = plan("histogram", columns=3, rows=1000)
    if method not in FORECAST:
        named = SimpleNamespace(method=method, running=lambda **_: None)
        assert running_text(named, compiled.schema, compiled.spec) == f"{method} is not forecast"


@pytest.mark.parametrize("rows", [10**9, 10**10])
@pytest.mark.slow
def test_what_takes_days_is_refused_by_the_plan(rows):
    assert LONGEST == 12 * 3600
    with pytest.raises(SpecError, match="mst"):
        plan("mst", columns=300, rows=rows)
    plan("histogram", columns=300, rows=rows)


def test_what_holds_more_than_a_stage_may_is_refused_by_the_plan():
    compiled = plan("mst", columns=4, rows=1000)
    heavy = SimpleNamespace(
        method="mst", running=lambda **_: Running(seconds=1, held_bytes=1 << 50)
    )
    with pytest.raises(SpecError, match="max_memory_bytes"):
        check_running(heavy, compiled.schema, compiled.spec)


@pytest.mark.parametrize(("device", "warnings"), [("cpu", 0), ("auto", 0), ("cuda", 1)])
def test_a_plan_warns_of_a_gpu_that_is_not_there(device, warnings, monkeypatch):
    monkeypatch.setattr("dpiw.methods.neural.backend._cuda_is_there", lambda **_: False)
    compiled = plan("dpgan", columns=3, rows=1000, device=device, steps=5)
    assert len(list(missing_gpus(compiled))) == warnings


def test_a_draw_that_holds_all_rows_says_what_that_takes(make_workplace):
    plan = ReleaseRun.prepare(make_workplace(weights="beta_debiased").spec, period="once").plan
    told = plan.held_rows("fit_weights")
    assert f"max_memory_bytes={plan.spec.source.max_memory_bytes} admits " in told
    assert plan.held_rows("fit_generator") == plan.held_rows("ingest") == ""
