"""What a certificate needs is there before anything is paid; what fails behind a draw keeps it."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import PrivacyError, SpecError
from dpiw.ledger import EntryKind, Ledger
from dpiw.methods.generators import registry
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.units import NoiseKind
from dpiw.release.certificate import CertifiedStage
from dpiw.run.certifiable import check_certifiable, stage_record
from dpiw.run.run import ReleaseRun
from tasks import stages
from tasks.failures import DRAWN_ADVICE, DrawnStepFailedError, StepFailedError
from tests.support import made_elsewhere, specs
from tests.support.whole_runs import draw, finish, prepared

UNSEEN = PublicSchema(
    name="unseen", columns=(Column(name="job", kind=ColumnKind.CATEGORICAL, unseen=True),)
)
NONE: Mapping[str, Any] = {}
NEEDS: Mapping[str, dict[str, Any]] = {
    "measured": {"omega_seed": 1},
    "output_noised": {"allow_more_rows": True},
    "dp_mlp": {"hidden": [4], "steps": 10},
}
"""Settings without which a method of weights has no plan."""


def plan_of(generator: str, weights: str = "none", external: Mapping[str, Any] = NONE) -> Any:
    """A plan of a method, of whatever it needs; `external`: settings of rows made elsewhere."""
    settings = external if generator == "external" else NONE
    spec = specs.GOOD | {
        "generator": {"method": generator, "settings": dict(settings)},
        "weights": {
            "method": weights, "settings": NEEDS.get(weights, {}), "when_infeasible": "keep",
        },
        "epsilon": Decimal(10),
    }  # fmt: skip
    return compile_plan(parse_spec(spec), UNSEEN if generator == "levels" else specs.SCHEMA)


PLANNED = [(name, "measured" if name == "external" else "none") for name in GENERATORS] + [
    ("dpgan" if name == "discriminator" else "histogram", name) for name in WEIGHTS
]
"""Every registered method."""


@pytest.mark.parametrize(("generator", "weights"), PLANNED)
@pytest.mark.slow
def test_a_stand_in_s_certificate_is_written(generator, weights, tmp_path):
    made = tmp_path / "made.parquet"
    digest = made_elsewhere.written(
        made, pd.DataFrame({f"x{i}": [0.5] * 500 for i in range(5)} | {"y": True})
    )
    plan = plan_of(generator, weights, made_elsewhere.settings(made, digest))
    check_certifiable(plan)
    for stage in plan.stages:
        measurement = Measurement(
            kind="k", arrays={}, facts={}, publishable=True, noise=stage.noise
        )
        kept = Measurement.from_bytes(measurement.to_bytes())
        assert stage_record(stage, kept.stated_noise) == stage_record(stage, stage.noise)
        assert isinstance(stage_record(stage, kept.stated_noise), CertifiedStage)


def stated(**changes: Any) -> Callable[..., Any]:
    """`released_noise` of a toy that states its noise otherwise than its events account for it."""

    def released_noise(self: Histogram, **whom: Any) -> Any:
        (law,) = Histogram.released_noise(self, **whom)
        return (dataclasses.replace(law, **{k: f(law) for k, f in changes.items()}),)

    return released_noise


def parameters(**more: Any) -> Callable[..., Any]:
    return lambda self: {**Histogram.parameters(self), **more}


LOOSE = ReleasedNoise(values="counts", law=NoiseKind.GAUSSIAN, scale=9.0)
TOYS: dict[str, dict[str, Any]] = {
    "states none, though its events have it": {"released_noise": lambda *_, **__: ()},
    "states a third": {"released_noise": stated(scale=lambda law: law.scale / 3)},
    "does not state what its noise covers": {"released_noise": lambda *_, **__: (LOOSE,)},
    "states no number": {"released_noise": stated(scale=lambda _: math.nan)},
    "a scale for each column": {"released_noise": stated(scale=lambda law: np.full(5, law.scale))},
    "another law": {"released_noise": stated(law=lambda _: NoiseKind.SPHERICAL)},
    "another event": {"released_noise": stated(event=lambda _: 1)},
    "a parameter that JSON cannot hold": {"parameters": parameters(rates={0.5})},
    "a parameter that reads as a list's threshold": {"parameters": parameters(threshold=5.0)},
    "a library that nobody has": {"libraries": ("no-such-distribution",)},
    "caveats that are no sentences": {"caveats": (3,)},
}


@pytest.mark.parametrize("name", TOYS)
def test_what_no_certificate_can_state_is_refused_before_it_is_reserved(
    make_workplace, monkeypatch, name, says
):
    toy = type("Toy", (Histogram,), TOYS[name])
    monkeypatch.setattr(registry, "GENERATORS", {**GENERATORS, "toy": toy})
    place = make_workplace(weights="none")
    place.rewrite("method: histogram", "method: toy")
    with pytest.raises(PrivacyError) as refused:
        prepared(place)
    assert "Error: " in says("plan", place.spec, code=refused.value.exit_code)
    kinds = {entry.kind for entry in Ledger.open(f"sqlite:///{place.ledger}").entries()}
    assert EntryKind.RESERVE not in kinds


MEASURED = {
    "draw_synthetic": "dpiw.run.weigh._model", "debias": "dpiw.run.weigh._weights",
    "diagnose": "dpiw.run.steps.diagnose", "publish": "dpiw.run.publish.certify",
}  # fmt: skip
"""What is broken in each step behind a draw."""


def run_step(name: str, run: ReleaseRun) -> Path:
    task = getattr(stages, name)
    folder: Path = task.fn(run.directory)
    return folder


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("error", [KeyError("noise"), SpecError("not this file")])
@pytest.mark.slow
def test_what_fails_behind_a_draw_keeps_what_was_drawn(place, name, error, monkeypatch):
    """It says what is safe and whom to ask; repaired, the run publishes the same draws."""
    drawn = draw(prepared(place))
    ledger, foreseen = drawn.open_ledger(), isinstance(error, SpecError)
    before, spent = drawn.measurement("fit_generator").read_bytes(), ledger.spent("town")
    (drawn.directory / "synthetic_rows.parquet").unlink()
    steps = list(MEASURED)
    with monkeypatch.context() as patch:
        patch.setattr(MEASURED[name], mock.Mock(side_effect=error))
        for step in steps[: steps.index(name)]:
            run_step(step, drawn)
        with pytest.raises(SpecError if foreseen else DrawnStepFailedError) as failed:
            run_step(name, drawn)
    if foreseen:
        assert failed.value.advice == DRAWN_ADVICE != SpecError.advice
    else:
        assert "start the run again" not in failed.value.advice
        assert "maintainers" in failed.value.advice
    for step in steps[steps.index(name) :]:
        folder = run_step(step, drawn)
    assert folder.is_dir()
    assert drawn.measurement("fit_generator").read_bytes() == before
    assert ledger.spent("town") == spent
    (built,) = [path for path in (drawn.directory / "built").iterdir() if path.suffix == ".sig"]
    assert (folder / built.name).read_bytes() == built.read_bytes()
    assert finish(drawn) == folder


def test_before_a_draw_the_advice_is_to_start_again(tmp_path):
    with pytest.raises(StepFailedError) as failed:
        run_step("reserve", type("Gone", (), {"directory": tmp_path})())  # type: ignore[arg-type]
    assert not isinstance(failed.value, DrawnStepFailedError)


@pytest.mark.parametrize(
    ("facts", "noise"),
    [
        ({"noise": "gaussian", "scale": 2.0}, [("k", 2.0)]),
        ({"noise": "gaussian", "pair_scale": 3.0, "one_way_scale": 2.0},
         [("one_way", 2.0), ("pair", 3.0)]),
        ({"noise": "gaussian", "scale": 2.0, "frequency_scale": 1.0}, [("k", 2.0)]),
        ({"scale": 2.0}, []),
        ({"noise": "gaussian", "scales": [2.0]}, []),
    ],
)  # fmt: skip
def test_a_measurement_that_was_drawn_before_is_read_and_certified(facts, noise):
    """One of an earlier version: its file states no noise, and stays byte for byte what it was."""
    earlier = Measurement(kind="k", arrays={}, facts=facts | {"threshold": 4.0}, publishable=True)
    read = Measurement.from_bytes(earlier.to_bytes())
    assert [(law.values, law.scale) for law in read.stated_noise] == noise
    assert all(law.sensitivity is None for law in read.stated_noise)
    assert read.threshold == 4.0
