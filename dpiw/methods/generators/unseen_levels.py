"""Levels of columns whose levels are unknown, found under differential privacy.

Texts whose noisy count reaches a public threshold become levels, the rest is `other`; rows of these
columns are drawn independently. Source: `dpiw.privacy.events`, docs/method.md section 19.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.schema.columns import Column
from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.levels import NOISY_COUNT, guarded, level_file
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.base import CriticKind, StatedNoise, check_effort
from dpiw.methods.generators.base import CalibratedNoise, Synthesizer, ready_for
from dpiw.methods.generators.bayesian_network import NetworkModel
from dpiw.methods.generators.counting import noisy_marginal
from dpiw.methods.generators.marginal_noise import marginal_multiplier, noise_scale, released_counts
from dpiw.privacy.events import GaussianEvent, PrivacyEvent, ThresholdEvent, level_threshold
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit, float_below

_SHARE = Decimal("0.5")
"""Share of delta for thresholds."""

OTHER = "other"
"""Name of the bucket of a column that declares no `other`."""


@dataclass(frozen=True, kw_only=True)
class LevelNoise(CalibratedNoise):
    """Calibrated constants; scale and threshold (least published noisy count) in rows."""

    multiplier: float
    scale: float
    threshold: float
    delta: float
    nominal_rows: int


@dataclass(frozen=True, kw_only=True)
class UnseenLevels(Synthesizer):
    """Partition selection before it has seen data; `within` sets the release's total `delta`."""

    delta: Decimal | None = None
    calibrated: LevelNoise | None = None

    method: ClassVar[str] = "levels"
    set_later: ClassVar[frozenset[str]] = frozenset({"calibrated", "delta"})
    needs_delta: ClassVar[str] = "it pays for what nobody listed"
    private: ClassVar[bool] = True
    critic: ClassVar[CriticKind] = CriticKind.NONE
    caveats: ClassVar[tuple[str, ...]] = (
        "Rows of this release are drawn column by column, from noisy counts of the levels shown;"
        " the bucket of all other texts has what these leave of nominal_rows, a guess.",
    )

    def within(self, delta: Decimal) -> Self:
        """As `FindsLevels.within`: half goes to thresholds, evenly over the columns."""
        return replace(self, delta=delta)

    def parameters(self) -> Mapping[str, Any]:
        """Threshold and noise, JSON values, for the plan and the certificate."""
        if (ready := self.calibrated) is None:
            return {}
        names = [column.name for column in _unseen(ready.schema)]
        numbers = {name: getattr(ready, name) for name in ("multiplier", "scale", "threshold")}
        return {"columns": names, "threshold_delta": ready.delta, **numbers}

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort evenly over the unseen columns; UncalibratedError before `within`."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        columns = len(_unseen(schema))
        if self.delta is None or columns == 0:
            allowed = "`within(delta)` before `calibrate`, and a schema with `unseen` columns"
            raise UncalibratedError(field="levels", allowed=allowed)
        multiplier = marginal_multiplier(NoiseKind.GAUSSIAN, rho=rho, share=1.0, count=columns)
        scale = noise_scale(NoiseKind.GAUSSIAN, multiplier=multiplier, unit=unit)
        delta = float_below(self.delta * _SHARE / columns)
        ready = LevelNoise(
            multiplier=multiplier,
            scale=scale,
            threshold=level_threshold(scale=scale, rows=unit.max_rows, delta=delta),
            delta=delta,
            nominal_rows=nominal_rows,
            schema=schema,
            unit=unit,
        )
        return replace(self, calibrated=ready)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One marginal of noisy counts and one threshold for each unseen column."""
        ready, columns = ready_for(self.calibrated, schema, unit, method="levels"), _unseen(schema)
        return (
            GaussianEvent(noise_multiplier=ready.multiplier, count=len(columns)),
            ThresholdEvent(delta=ready.delta, count=len(columns)),
        )

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Noise of every text's count."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        kind, multiplier = NoiseKind.GAUSSIAN, ready.multiplier
        return (released_counts(self.method, kind, multiplier=multiplier, unit=unit, event=0),)

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Draw a noisy count of each text that occurs, and keep those that reach the threshold.

        Always keeps the count of empty cells. Does not count inadmissible texts
        (`dpiw.data.schema.columns.Column.unlisted_level`).

        Privacy:
            Unit: `calibrated.unit`. A column's counts have L2 = k = max_rows under add/remove,
                sqrt(2) k under replace-one. Only texts that occur get noise; the threshold's delta
                pays for that.
            Event: `events`, both for each column.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        levels: list[list[str]] = []
        arrays: dict[str, NDArray[np.float64]] = {}
        columns = table.confidential().columns
        for place, column in enumerate(_unseen(table.schema)):
            shown_levels, counts, missing = _frequent_levels(
                columns[column.name], ready=ready, noise=noise
            )
            levels.append(shown_levels)
            arrays |= {f"counts_{place}": counts, f"missing_{place}": missing}
        return Measurement(
            kind=self.method,
            arrays=arrays,
            facts={
                "columns": [column.name for column in _unseen(table.schema)],
                "levels": levels,
                "noise": NoiseKind.GAUSSIAN.value,
                "scale": ready.scale,
            },
            publishable=noise.publishable,
            noise=self.released_noise(schema=table.schema, unit=ready.unit),
            threshold=ready.threshold,
        )

    def found_schema(
        self, measurement: Measurement, *, schema: PublicSchema, provenance: str
    ) -> PublicSchema:
        """As `FindsLevels.found_schema`; levels and the bucket in alphabetical order."""
        columns = _measured(measurement, schema)
        column_levels = zip(columns, measurement.facts["levels"], strict=True)
        return PublicSchema(
            name=schema.name,
            columns=tuple(_listed(column, levels, provenance) for column, levels in column_levels),
        )

    def level_files(self, measurement: Measurement) -> Mapping[str, bytes]:
        """As `FindsLevels.level_files`, without the bucket; `guarded` against spreadsheets."""
        files = {}
        for place, name in enumerate(measurement.facts["columns"]):
            text = io.StringIO(newline="")
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow([guarded(name), NOISY_COUNT])
            counts = measurement.arrays[f"counts_{place}"]
            pairs = zip(measurement.facts["levels"][place], counts, strict=True)
            writer.writerows([guarded(level), f"{count:.2f}"] for level, count in pairs)
            files[level_file(place + 1)] = text.getvalue().encode()
        return files

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> NetworkModel:
        """Independent columns of the found schema, by their noisy counts."""
        listed_schema = self.found_schema(measurement, schema=schema, provenance="")
        ready = ready_for(self.calibrated, schema, method=self.method)
        laws = [
            _law(column, place, measurement, total=ready.nominal_rows)
            for place, column in enumerate(listed_schema.released)
        ]
        return NetworkModel.independent(Domain.from_schema(listed_schema, bins=1), laws, None)


def _unseen(schema: PublicSchema) -> list[Column]:
    return [column for column in schema.released if column.unseen]


def _frequent_levels(
    texts: NDArray[Any], *, ready: LevelNoise, noise: NoiseSource
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Return levels that reach the threshold, their noisy counts, and that of missing cells."""
    exact = pd.Series(texts, dtype=object).value_counts(dropna=True)
    missing = int(exact.pop("")) if "" in exact.index else 0
    exact = exact.sort_index()
    counts = np.array([missing, *exact], dtype=np.int64)
    noisy = noisy_marginal(counts, kind=NoiseKind.GAUSSIAN, scale=ready.scale, noise=noise)
    passed = noisy[1:] >= ready.threshold
    return [*exact.index[passed]], noisy[1:][passed], noisy[:1]


def _measured(measurement: Measurement, schema: PublicSchema) -> list[Column]:
    columns = _unseen(schema)
    names = [column.name for column in columns]
    if measurement.kind != UnseenLevels.method or measurement.facts.get("columns") != names:
        raise SpecError(
            field="levels",
            allowed=f"a measurement of {UnseenLevels.method} for this schema's columns;"
            " found a measurement of another method or schema",
        )
    return columns


def _listed(column: Column, levels: list[str], provenance: str) -> Column:
    bucket = column.other or OTHER
    listed = tuple(sorted({*levels, bucket}))
    return replace(column, unseen=False, levels=listed, other=bucket, provenance=provenance)


def _law(
    column: Column, place: int, measurement: Measurement, *, total: int
) -> NDArray[np.float64]:
    """Masses of a found column's levels, and of missing cells if nullable; not all zero."""
    counts, levels = measurement.arrays[f"counts_{place}"], measurement.facts["levels"][place]
    missing = max(0.0, float(measurement.arrays[f"missing_{place}"][0]))
    law = np.zeros(column.cardinality + int(column.nullable))
    law[[column.levels.index(level) for level in levels]] = counts
    if column.nullable:
        law[-1] = missing
    law[column.levels.index(str(column.other))] += max(0.0, total - law.sum())
    return law
