"""The collector's spec, a YAML file, and the public parameters made from it (docs/local.md)."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from dpiw.data.files import write_durably
from dpiw.data.yaml import load_file, told_in
from dpiw.errors import DPIWError, SpecError
from dpiw.local import Feature, LocalParameters, calibrated
from dpiw.plan.json_schema import model_schema
from dpiw.plan.spec import located
from dpiw.plan.spec_types import Count, Exact, Name, PlainText, Section, told

LEAST_REPORTS = 1000
"""Default `least_reports`: their average still has a thirtieth of one report's noise."""

_FIELDS = {"collection": "name", "levels": "label"}
"""Fields of the parameters that have another name in the spec."""


def _number(value: object) -> float:
    if isinstance(value, bool | str) or value is None:
        raise ValueError("expected a number")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError("expected a number that a float can hold") from None


Number = Annotated[float, BeforeValidator(_number)]


class FeatureSpec(Section):
    """A number that people tell, with public bounds.

    Attributes:
        name: of the feature, a key of each report.
        low: told as -1; what lies below is clipped.
        high: told as +1; what lies above is clipped.
        private: whether it is noised; if not, nothing protects it.
    """

    name: PlainText
    low: Number
    high: Number
    private: bool = True


class LabelSpec(Section):
    """One of a few levels that people tell.

    Attributes:
        name: of the label, a key of each report.
        levels: what it may be, two or more different texts.
    """

    name: PlainText
    levels: Annotated[list[PlainText], Field(min_length=2, max_length=1000)]


class LocalSpec(Section):
    """What people are asked, what it costs each of them, and where the reports go.

    Attributes:
        format: of this file, 1.
        name: of the collection and of its folder; one person reports to it once.
        features: numbers with public bounds, told on a scale of -1 to 1.
        label: told by randomised response; left out: there is none.
        epsilon: of a person's whole report, in [0.001, 20], replace-one.
        delta: of a whole report, in [1e-30, 0.001]; 0 where no feature is private.
        radius: of the ball onto which private features are projected; left out: all records fit.
        parameter_norm: a public guess at the norm of a model's parameters.
        parameters: the file of public parameters that clients get.
        reports: a folder of reports, or a `.csv` or `.parquet` file.
        signing_key: the collector's private key file.
        publish_to: the folder in which the release's folder will lie.
        least_reports: with fewer of them nothing is published, as a release is never replaced.
    """

    format: Literal[1]
    name: Name
    features: tuple[FeatureSpec, ...] = ()
    label: LabelSpec | None = None
    epsilon: Exact
    delta: Exact
    radius: Number | None = None
    parameter_norm: Number = 0.0
    parameters: PlainText
    reports: PlainText
    signing_key: PlainText
    publish_to: PlainText
    least_reports: Annotated[Count, Field(ge=1, le=10**12)] = LEAST_REPORTS

    def calibrated(self) -> LocalParameters:
        """Return the parameters with the least noise that keeps the promise; SpecError if none."""
        refused = ""
        try:
            return calibrated(
                collection=self.name,
                features=[Feature(**feature.model_dump()) for feature in self.features],
                label=None if self.label is None else self.label.name,
                levels=() if self.label is None else self.label.levels,
                epsilon=self.epsilon, delta=self.delta,
                radius=self.radius, parameter_norm=self.parameter_norm,
            )  # fmt: skip
        except DPIWError as error:
            refused = str(error).removeprefix("parameters.json: ")
        raise SpecError(refused)


def local_schema() -> dict[str, Any]:
    """Return the JSON Schema of a local spec."""
    return model_schema(LocalSpec, sys.modules[__name__], "dpiw local collection")


def parse_local_spec(mapping: dict[str, Any]) -> LocalSpec:
    """Check a mapping of settings; SpecError names the field, what was expected, and the range."""
    faults = ""
    try:
        return LocalSpec.model_validate(mapping)
    except ValidationError as error:
        faults = told(error, LocalSpec)
    raise SpecError(faults)


def load_local_spec(path: Path) -> LocalSpec:
    """Read a spec file; its relative paths become absolute, from the file's folder.

    Raises SpecError as `parse_local_spec`, with the place in the file.
    """
    mapping = load_file(path, what=path.name, exact=True)
    if not isinstance(mapping, dict):
        raise SpecError(f"{path.name}: expected a mapping of settings, `key: value`")
    with told_in(path, SpecError):
        spec, base = parse_local_spec(mapping), path.resolve().parent
        names = ("parameters", "reports", "signing_key", "publish_to")
        return spec.model_copy(
            update={name: str(located(base, name, getattr(spec, name)).resolve()) for name in names}
        )


def write_parameters(spec: LocalSpec) -> LocalParameters:
    """Write the public parameters for clients, unless the file exists.

    Raises SpecError if the existing file promises something else, or it cannot be written.
    """
    path = Path(spec.parameters)
    if path.exists():
        return read_parameters(spec)
    parameters = spec.calibrated()
    try:
        write_durably(path, parameters.to_json(), mode=0o644)
    except OSError as reason:
        raise SpecError(f"parameters: {path.name} cannot be written: {reason.strerror}") from reason
    return parameters


def read_parameters(spec: LocalSpec) -> LocalParameters:
    """Read the clients' parameters; SpecError if their promise is not the spec's.

    The noise may differ: another version of SciPy may solve for another value. Else raises as
    `LocalParameters.read`.
    """
    parameters, meant = LocalParameters.read(spec.parameters), spec.calibrated()
    adjusted = replace(parameters, stddev=meant.stddev, kept=meant.kept)
    names = [f.name for f in fields(meant) if getattr(adjusted, f.name) != getattr(meant, f.name)]
    if names:
        raise SpecError(
            f"parameters: {Path(spec.parameters).name}, which clients were given, is of another"
            f" spec ({', '.join(_FIELDS.get(name, name) for name in names)}); put the spec back to"
            " publish their reports, also to publish more of them: for that change `publish_to`"
            " alone. Another collection, of new reports, needs another `name`, `parameters` and"
            " `reports`"
        )
    return parameters


def told_plan(parameters: LocalParameters) -> list[str]:
    """Return lines for people: what a collection costs and allows."""
    lines = [
        f"collection {parameters.collection}: epsilon={parameters.epsilon},"
        f" delta={parameters.delta} a person, replace-one",
    ]
    if parameters.dimension:
        lines += [
            f"features   noise of {parameters.stddev:.4g} in each, on a scale of -1 to 1;"
            f" ball of radius {parameters.radius:.4g}",
            f"           learns parameters of a norm of at most {parameters.largest_norm:.3g}",
        ]
    if parameters.response is not None:
        lines += [
            f"label      told as it is with probability {parameters.response.keep:.4f},"
            f" epsilon {parameters.response.epsilon:.4g} alone"
        ]
    bare = ", ".join(parameters.bare)
    return [*lines, *([f"not noised, not protected: {bare}"] if bare else [])]
