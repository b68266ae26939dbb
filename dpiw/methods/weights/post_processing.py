"""The named steps between a released ratio and the published weights: free, public, recorded.

    beta_calibrate   rewrites the ratio on its own scale (Kull et al. 2017)
    temper           raises it to a public power
    pareto_smooth    replaces the largest weights by quantiles of a fitted tail
    clip             cuts weights at a public multiple of their mean
    self_normalise   scales weights to mean one
    resample         redraws rows by weight; the weights are then one

They are applied in this order, each at most once, by `dpiw.methods.weights.weigh.weigh`. The first
two act on the log-linear ratio and come before debiasing, because the debiasing factor must know
them; a tail is fitted before it is cut, because a cut tail is none. Every step is a function of
released values and public constants, so it costs nothing; a beta calibration is fitted on declared
public rows (`dpiw.methods.weights.beta_map_fit`).
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from dpiw.errors import SpecError, nearest, one_of
from dpiw.methods.weights.steps import (
    BetaCalibrate,
    Clip,
    ParetoSmooth,
    Resample,
    SelfNormalise,
    Step,
    Temper,
)

__all__ = [
    "ORDER",
    "STEPS",
    "BetaCalibrate",
    "Clip",
    "ParetoSmooth",
    "PostProcessing",
    "Resample",
    "SelfNormalise",
    "Step",
    "Temper",
    "files_of",
    "parse_post_processing",
]

STEPS: tuple[type[Step], ...] = (
    BetaCalibrate,
    Temper,
    ParetoSmooth,
    Clip,
    SelfNormalise,
    Resample,
)
"""Every step, in the only order."""

ORDER = ", ".join(kind.step for kind in STEPS)


def files_of(step: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of a step, as a spec writes it, that are paths of files; of no known step: none."""
    return next((kind.files for kind in STEPS if kind.step == step.get("step")), ())


@dataclass(frozen=True, kw_only=True)
class PostProcessing:
    """Steps in the order of `STEPS`, each at most once; none by default."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Raises SpecError: a step twice, or out of order."""
        ranks = [STEPS.index(type(step)) for step in self.steps]
        if any(later <= earlier for earlier, later in itertools.pairwise(ranks)):
            names = ", ".join(step.step for step in self.steps)
            raise SpecError(
                f"weights.post_processing: {names}: expected the order {ORDER}, each at most once"
            )

    def check(self, *, self_normalised: bool) -> None:
        """Refuse steps that contradict the release's normalisation.

        Raises:
            SpecError: `self_normalise`, `resample` or a beta calibration, whose number of public
                rows says nothing, with unnormalised weights: their scale is what they are
                published for.
        """
        for step in self.steps:
            if step.rescales and not self_normalised:
                raise SpecError(
                    f"weights.post_processing.{step.step}: loses the scale that"
                    " weights.normalisation: unnormalised keeps; remove one of the two"
                )

    @property
    def calibrate(self) -> BetaCalibrate | None:
        """The beta calibration, if any."""
        return next((step for step in self.steps if isinstance(step, BetaCalibrate)), None)

    @property
    def resample(self) -> Resample | None:
        """The resampling, if any."""
        return next((step for step in self.steps if isinstance(step, Resample)), None)

    def with_calibration(self, a: float, b: float, c: float) -> PostProcessing:
        """The same steps with the numbers that were fitted."""
        return PostProcessing(
            steps=tuple(
                replace(step, a=a, b=b, c=c) if isinstance(step, BetaCalibrate) else step
                for step in self.steps
            )
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """One public sentence per step."""
        return tuple(step.text for step in self.steps)

    def to_json(self) -> list[dict[str, Any]]:
        """JSON values; `parse_post_processing` reads them back."""
        return [_to_json(step) for step in self.steps]

    @classmethod
    def from_json(cls, value: Sequence[Mapping[str, Any]]) -> PostProcessing:
        """Read what `to_json` wrote."""
        return parse_post_processing(value)


def _to_json(step: Step) -> dict[str, Any]:
    settings: dict[str, Any] = {"step": step.step}
    for name in (field.name for field in fields(step)):
        value = getattr(step, name)
        if value is not None:
            settings[name] = value.value if isinstance(value, enum.Enum) else value
    return settings


def _step(value: object) -> Step:
    kinds = {kind.step: kind for kind in STEPS}
    name = value.get("step") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str) or name not in kinds:
        raise SpecError(
            f"weights.post_processing: each a mapping with `step`; {one_of(name, kinds)}"
        )
    kind = kinds[name]
    settings = {key: setting for key, setting in value.items() if key != "step"}
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(str(name) for name in set(settings) - set(known))
    if unknown:
        hint = nearest(unknown[0], known) or f" (known: {', '.join(known) or 'none'})"
        raise SpecError(f"weights.post_processing.{kind.step}.{unknown[0]}: unknown{hint}")
    for key, field in known.items():
        if field.default is MISSING and key not in settings:
            raise SpecError(f"weights.post_processing.{kind.step}.{key}: missing")
    return kind(**settings)


def parse_post_processing(value: object) -> PostProcessing:
    """Steps from a spec's list of mappings: `[{step: temper, alpha: 0.5}, {step: clip, at: 20}]`.

    Raises:
        SpecError: not a list of known steps in their order, or a setting is missing, unknown or
            out of range. Numbers may be decimals.
    """
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise SpecError("weights.post_processing: expected a list of steps")
    return PostProcessing(steps=tuple(_step(item) for item in value))
