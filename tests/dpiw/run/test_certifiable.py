"""What a certificate needs is there before anything is paid; what fails behind a draw keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpiw.cli.main import main
from dpiw.data.columns import Column, ColumnKind
from dpiw.data.schema import PublicSchema
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
from tests.support.whole_runs import draw, finish

UNSEEN = PublicSchema(
    name="unseen",
    columns=(Column(name="job", kind=ColumnKind.CATEGORICAL, unseen=True),),
)
NONE: Mapping[str, Any] = {}
NEEDS: Mapping[str, dict[str, Any]] = {
    "measured": {"omega_seed": 1},
    "output_noised": {"allow_more_rows": True},
    "dp_mlp": {"hidden": [4], "steps": 10, "replays": 0},
}
"""Settings without which a method of weights has no plan."""


def plan_of(generator: str, weights: str = "none", external: Mapping[str, Any] = NONE) -> Any:
    """A plan of a method, of whatever it needs; `external`: settings of rows made elsewhere."""
    settings = external if generator == "external" else NONE
    spec = specs.GOOD | {
        "generator": {"method": generator, "settings": dict(settings)},
        "weights": {
            "method": weights,
            "settings": NEEDS.get(weights, {}),
            "when_infeasible": "keep",
        },
        "epsilon": Decimal(10),
    }
    return compile_plan(parse_spec(spec), UNSEEN if generator == "levels" else specs.SCHEMA)


PLANNED = [(name, "measured" if name == "external" else "none") for name in GENERATORS] + [
    ("dpgan" if name == "discriminator" else "histogram", name) for name in WEIGHTS
]
"""Every registered method."""


@pytest.mark.parametrize(("generator", "weights"), PLANNED)
def test_a_stand_in_s_certificate_is_written(generator: str, weights: str, tmp_path: Path) -> None:
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


class Fewer(Histogram):
    """A toy that states no noise, though its events have it."""

    def released_noise(self, **_: Any) -> Any:
        return ()


class Less(Histogram):
    """A toy that states a third of the noise that its events account for."""

    def released_noise(self, **whom: Any) -> Any:
        (law,) = super().released_noise(**whom)
        return (dataclasses.replace(law, scale=law.scale / 3),)


class Loose(Histogram):
    """A toy that states noise without what it covers."""

    def released_noise(self, **_: Any) -> Any:
        return (ReleasedNoise(values="counts", law=NoiseKind.GAUSSIAN, scale=9.0),)


class Endless(Histogram):
    """A toy whose noise is no number."""

    def released_noise(self, **_: Any) -> Any:
        return (
            ReleasedNoise(
                values="v", law=NoiseKind.GAUSSIAN, scale=float("nan"), sensitivity=1.0, event=0
            ),
        )


class Odd(Histogram):
    """A toy with a parameter that JSON cannot hold."""

    def parameters(self) -> Any:
        return {**super().parameters(), "rates": {0.5}}


class Threshold(Histogram):
    """A toy whose public parameter readers of the release take for that of a list of levels."""

    def parameters(self) -> Any:
        return {**super().parameters(), "threshold": 5.0}


class Foreign(Histogram):
    """A toy that rests on a library that nobody has."""

    libraries = ("no-such-distribution",)


class Wordless(Histogram):
    """A toy whose caveats are no sentences."""

    caveats = (3,)


class Vector(Histogram):
    """A toy that states a scale for each column."""

    def released_noise(self, **whom: Any) -> Any:
        (law,) = super().released_noise(**whom)
        return (dataclasses.replace(law, scale=np.full(5, law.scale)),)


class OtherLaw(Histogram):
    """A toy that states noise of a law that its event does not account for."""

    def released_noise(self, **whom: Any) -> Any:
        (law,) = super().released_noise(**whom)
        return (dataclasses.replace(law, law=NoiseKind.SPHERICAL),)


class OtherEvent(Histogram):
    """A toy that states another event than it has."""

    def released_noise(self, **whom: Any) -> Any:
        (law,) = super().released_noise(**whom)
        return (dataclasses.replace(law, event=1),)


TOYS = [
    Fewer,
    Less,
    Loose,
    Endless,
    Odd,
    Foreign,
    Wordless,
    Vector,
    OtherLaw,
    OtherEvent,
    Threshold,
]


@pytest.fixture
def registered(make_workplace: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register a toy, and make a workplace whose spec names it."""

    def register(toy: type[Histogram]) -> Any:
        monkeypatch.setattr(registry, "GENERATORS", {**GENERATORS, "toy": toy})
        place = make_workplace(weights="none")
        text = place.spec.read_text()
        place.spec.write_text(text.replace("method: histogram", "method: toy"))
        assert "toy" in place.spec.read_text()
        return place

    return register


@pytest.mark.parametrize("toy", TOYS)
def test_what_no_certificate_can_state_is_refused_before_it_is_reserved(
    registered: Any, toy: type[Histogram], capsys: pytest.CaptureFixture[str]
) -> None:
    place = registered(toy)
    with pytest.raises(PrivacyError) as refused:
        ReleaseRun.prepare(place.spec, period=None)
    assert main(["plan", str(place.spec)]) == refused.value.exit_code
    assert "Error: " in capsys.readouterr().err
    kinds = {entry.kind for entry in Ledger.open(f"sqlite:///{place.ledger}").entries()}
    assert EntryKind.RESERVE not in kinds


# Behind a draw


MEASURED = {
    "draw_synthetic": "dpiw.run.weigh._model",
    "debias": "dpiw.run.weigh._weights",
    "diagnose": "dpiw.run.weigh._diagnose",
    "publish": "dpiw.run.publish.certify",
}
"""What is broken in each step behind a draw."""


@pytest.fixture
def drawn(make_workplace: Callable[..., Any]) -> ReleaseRun:
    return draw(ReleaseRun.prepare(make_workplace(weights="none").spec, period=None))


def run_step(name: str, run: ReleaseRun) -> Path:
    """As Prefect runs it, without Prefect."""
    task = getattr(stages, name)
    folder: Path = task.fn(run.directory)
    return folder


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("error", [KeyError("noise"), AssertionError(), ZeroDivisionError()])
def test_what_nobody_foresaw_keeps_what_was_drawn(
    drawn: ReleaseRun, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is safe and whom to ask; repaired, the run publishes the same draws."""
    ledger = drawn.open_ledger()
    before, spent = drawn.measurement("fit_generator").read_bytes(), ledger.spent("town")
    (drawn.directory / "synthetic_rows.parquet").unlink()

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    steps = list(MEASURED)
    with monkeypatch.context() as patch:
        patch.setattr(MEASURED[name], broken)
        for step in steps[: steps.index(name)]:
            run_step(step, drawn)
        with pytest.raises(DrawnStepFailedError) as failed:
            run_step(name, drawn)
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


@pytest.mark.parametrize("name", MEASURED)
def test_an_error_of_ours_behind_a_draw_does_not_say_that_nothing_was_spent(
    drawn: ReleaseRun, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise SpecError("a file: not the one it was")

    steps = list(MEASURED)
    (drawn.directory / "synthetic_rows.parquet").unlink()
    monkeypatch.setattr(MEASURED[name], refuses)
    for step in steps[: steps.index(name)]:
        run_step(step, drawn)
    with pytest.raises(SpecError) as failed:
        run_step(name, drawn)
    assert failed.value.advice == DRAWN_ADVICE != SpecError.advice


def test_before_a_draw_the_advice_is_to_start_again(tmp_path: Path) -> None:
    with pytest.raises(StepFailedError) as failed:
        run_step("reserve", type("Gone", (), {"directory": tmp_path})())  # type: ignore[arg-type]
    assert not isinstance(failed.value, DrawnStepFailedError)


# Measurements of earlier versions


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
def test_a_measurement_that_was_drawn_before_is_read_and_certified(
    facts: dict[str, Any], noise: list[tuple[str, float]]
) -> None:
    """One of an earlier version: its file states no noise, and stays byte for byte what it was."""
    earlier = Measurement(kind="k", arrays={}, facts=facts | {"threshold": 4.0}, publishable=True)
    read = Measurement.from_bytes(earlier.to_bytes())
    assert [(law.values, law.scale) for law in read.stated_noise] == noise
    assert all(law.sensitivity is None for law in read.stated_noise)
    assert read.threshold == 4.0
