"""Time and memory of a plan from public facts: told, refused if far out; GPUs that are missing."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.base import Forecasts, Running
from dpiw.plan.forecast import LONGEST, TOLD, check_running
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.plan.table import plan_table
from dpiw.run.ahead import missing_gpus
from tests.support import specs


def schema(columns: int, levels: int) -> PublicSchema:
    names = tuple(str(level) for level in range(levels))
    return PublicSchema(
        name="wide",
        columns=tuple(
            Column(name=f"c{j}", kind=ColumnKind.CATEGORICAL, levels=names) for j in range(columns)
        ),
    )


def plan(method: str, *, columns: int, rows: int, levels: int = 8, **settings: Any) -> Any:
    spec = specs.GOOD | {
        "generator": {"method": method, "settings": settings},
        "weights": {"method": "none"},
        "nominal_rows": rows,
        "epsilon": Decimal(5),
        "delta": "1e-13",
    }
    return compile_plan(parse_spec(spec), schema(columns, levels))


@pytest.mark.parametrize(
    ("columns", "measured"), [(20, 37.0), (60, 79.0), (300, 720.0)]
)  # seconds on one of two shared cores, November 2026
def test_forecasts_are_within_a_factor_of_two_of_what_was_measured(
    columns: int, measured: float
) -> None:
    compiled = plan("mst", columns=columns, rows=1000)
    seconds = compiled.generator.running(schema=compiled.schema, nominal_rows=1000).seconds
    assert measured / 2 <= seconds <= measured * 2


@pytest.mark.parametrize("method", ["mst", "privbayes"])
def test_forecasts_grow_with_columns_levels_and_rows(method: str) -> None:
    def seconds(columns: int, rows: int) -> float:
        compiled = plan(method, columns=columns, rows=rows)
        assert isinstance(compiled.generator, Forecasts)
        return float(compiled.generator.running(schema=compiled.schema, nominal_rows=rows).seconds)

    assert seconds(5, 1000) < seconds(20, 1000) < seconds(20, 10**6)


def test_a_plan_says_how_long_it_takes() -> None:
    assert "running time: about 1" in plan_table(plan("mst", columns=300, rows=1000))
    small = plan("mst", columns=4, rows=1000)
    assert small.generator.running(schema=small.schema, nominal_rows=1000).seconds < TOLD
    assert "running time" not in plan_table(small)


@pytest.mark.parametrize("rows", [10**9, 10**10])
def test_what_takes_days_is_refused_by_the_plan(rows: int) -> None:
    assert LONGEST == 12 * 3600
    with pytest.raises(SpecError, match="mst"):
        plan("mst", columns=300, rows=rows)
    plan("histogram", columns=300, rows=rows)


def test_what_holds_more_than_a_stage_may_is_refused_by_the_plan() -> None:
    compiled = plan("mst", columns=4, rows=1000)
    heavy = SimpleNamespace(
        method="mst", running=lambda **_: Running(seconds=1, held_bytes=1 << 50)
    )
    with pytest.raises(SpecError, match="max_memory_bytes"):
        check_running(heavy, compiled.schema, compiled.spec)


@pytest.mark.parametrize(("device", "warnings"), [("cpu", 0), ("auto", 0), ("cuda", 1)])
def test_a_plan_warns_of_a_gpu_that_is_not_there(
    device: str, warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpiw.methods.neural.backend._cuda_is_there", lambda **_: False)
    compiled = plan("dpgan", columns=3, rows=1000, device=device, steps=5)
    assert len(list(missing_gpus(compiled))) == warnings
