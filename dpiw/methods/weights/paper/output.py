"""`output_noised`: noise on the log weights themselves, one vector release (the paper's A.1).

The paper's sensitivity, corrected (docs/method.md section 12). For comparison: noise grows by about
sqrt(rows).
"""

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError, setting_error
from dpiw.methods.base import StatedNoise, whole
from dpiw.methods.weights.base import one_draw
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.ratio import DensityRatio
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.methods.weights.paper.steps import Scored
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.mechanisms import calibrated_law, noisy_vector
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit

Array = NDArray[np.float64]

MOST_ROWS = 1024
"""Limit even with `allow_more_rows`: diagnostics handle the noise as one coordinate per row."""

REASON = (
    "noise on the log weights has about sqrt(rows) times the standard deviation of noise on the"
    " coefficients, and averaging over rows does not win it back (docs/method.md section 12)"
)


def rows_digest(synthetic: SyntheticTable) -> str:
    """SHA-256 of the published rows' scaled values, hexadecimal."""
    digest = hashlib.sha256(b"dpiw-rows-v1")
    for column in synthetic.schema.released:
        values = np.ascontiguousarray(synthetic.scaled.columns[column.name])
        digest.update(f"{column.name}:{values.dtype.str}:{values.size}\n".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class OutputRatio(DensityRatio):
    """Noisy log ratios, shape (rows,), of the published rows of a digest."""

    law: NoiseLaw
    coefficients: Array
    digest: str

    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The released vector, row i its coordinate i; WeightError for other rows."""
        if rows_digest(synthetic) != self.digest:
            raise WeightError(
                "these are not the rows whose weights were released", field="output_noised"
            )
        identity = np.eye(self.coefficients.size)
        return Scored(log_ratio=self.coefficients, features=identity, law=self.law)


@dataclass(frozen=True, kw_only=True)
class OutputNoised(BetaDebiased):
    """Settings of output-noised weights: those of the regression, and the published rows.

    Attributes:
        rows: number of published rows; public, and needed before data is read.
        allow_more_rows: allow more than d' rows in spite of `REASON`.
    """

    rows: int | None = None
    allow_more_rows: bool = False
    published: SyntheticTable | None = field(default=None, repr=False, compare=False)

    method: ClassVar[str] = "output_noised"
    kind: ClassVar[str] = "output"
    bound_to_rows: ClassVar[bool] = True
    known_everywhere: ClassVar[bool] = False
    set_later: ClassVar[frozenset[str]] = BetaDebiased.set_later | {"published"}

    @classmethod
    def _completed(
        cls, settings: dict[str, Any], *, pure: bool, rows: int | None
    ) -> dict[str, Any]:
        completed = super()._completed(settings, pure=pure, rows=rows)
        if rows is not None and completed.setdefault("rows", rows) != rows:
            raise SpecError(
                field="weights.settings.rows", allowed=f"{rows}, the release's synthetic_rows"
            )
        return completed

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise is NoiseKind.LAPLACE:
            raise SpecError(field="weights.settings.noise=laplace", allowed="gaussian or spherical")
        if self.rows is not None:
            whole("weights.settings.rows", self.rows, low=1, high=MOST_ROWS)
        if not isinstance(self.allow_more_rows, bool):
            raise setting_error(self, "weights.settings.allow_more_rows", "true or false")

    def _level(self, schema: PublicSchema) -> tuple[NoiseKind, float]:
        """K grows by sqrt(rows), and by the deviation of one coordinate of spherical noise."""
        rows = self._check_rows(schema)
        spherical = math.sqrt(rows + 1) if self.noise is NoiseKind.SPHERICAL else 1.0
        return NoiseKind.GAUSSIAN, math.sqrt(rows) * spherical

    def _check_rows(self, schema: PublicSchema) -> int:
        if self.rows is None:
            raise setting_error(self, "weights.settings.rows", "the number of published rows")
        dimension = LinearMap(schema).bounds.dimension
        if self.rows > dimension and not self.allow_more_rows:
            raise setting_error(
                self,
                "weights.settings.rows",
                f"at most {dimension}, the number of coefficients: {REASON}. Use"
                " beta_debiased, or say allow_more_rows: true",
            )
        return self.rows

    def check(self, *, schema: PublicSchema) -> None:
        """Refuse spherical noise of scale >= 1/2, by `_reach`."""
        ready = self._ready()
        scale = ready.multiplier * ready.sensitivity * self._reach(schema)
        if self.noise is NoiseKind.SPHERICAL and 2 * scale >= 1:
            raise SpecError(
                f"debiased weights may have no variance: the scale may reach {scale:.3g} (expected"
                " < 0.5); raise epsilon, nominal_rows or penalty, or use gaussian noise",
                field="weights.settings.noise=spherical",
            )

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Those of the regression, and the reason against more than d' rows."""
        texts = super().warnings(schema=schema, nominal_rows=nominal_rows)
        if self._check_rows(schema) > self._ready().bounds.dimension:
            texts = (*texts, f"weights: output_noised on more rows than coefficients: {REASON}")
        return texts

    def parameters(self) -> dict[str, Any]:
        """Public settings and the numbers known before the rows exist; JSON values."""
        known = super().parameters()
        known |= {"rows": self.rows, "allow_more_rows": self.allow_more_rows}
        known.pop("scale", None)
        if "sensitivity" in known:
            known["coefficient_sensitivity"] = known.pop("sensitivity")
        return known

    def for_rows(self, published: SyntheticTable) -> Self:
        """These settings for the published rows; WeightError if their number differs."""
        if published.rows != self.rows:
            raise WeightError(field="output_noised", allowed=f"the planned {self.rows} rows")
        return replace(self, published=published)

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """The noise of the published rows' log ratios; an upper bound before `for_rows`."""
        _, sensitivity, law = self._noise(schema)
        return one_draw(self.method, law, sensitivity=sensitivity)

    def _reach(self, schema: PublicSchema) -> float:
        """Bound on the spectral norm of any published rows: sigma_max(X) <= R sqrt(rows)."""
        return self._ready().bounds.norm * math.sqrt(self._check_rows(schema))

    def _noise(self, schema: PublicSchema) -> tuple[float, float, NoiseLaw]:
        """Spectral norm of the published rows, or its bound; sensitivity and noise of the draw."""
        ready, spectral = self._ready(), self._reach(schema)
        if self.published is not None:
            x = LinearMap(schema).matrix(self.published.scaled)
            spectral = float(np.linalg.norm(x, 2)) * (1 + 1e-9)
        sensitivity = spectral * ready.sensitivity
        law = calibrated_law(
            kind=self.noise,
            noise_multiplier=ready.multiplier,
            sensitivity=sensitivity,
            dimension=self._check_rows(schema),
        )
        return spectral, sensitivity, law

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Fit, and draw the published rows' noisy log ratios; UncalibratedError before `for_rows`.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. Sensitivity: sigma_max(X)
            times that of the exact minimiser plus the solver's error (docs/method.md sections 3 and
            12), X the published rows' public features, plus the lattice's slack. Event:
            `GaussianEvent(scale / sensitivity)`; spherical `LaplaceEvent(scale / sensitivity)`.
        """
        schema, published = table.schema, self.published
        if published is None or published.schema != schema:
            raise UncalibratedError(
                "give the published rows by `for_rows` first", field="output_noised"
            )
        spectral, sensitivity, law = self._noise(schema)
        x = LinearMap(schema).matrix(published.scaled)
        exact = x @ self.solution(self.regression(table, synthetic))
        return Measurement(
            kind=self.kind,
            arrays={"log_ratio": noisy_vector(exact, law=law, noise=noise)},
            facts={
                **self._facts(),
                "schema": schema.name,
                "synthetic_rows": synthetic.rows,
                "published_rows": rows_digest(published),
                "spectral_norm": spectral,
                "sensitivity": sensitivity,
                "scale": law.scale,
            },
            publishable=noise.publishable,
            noise=self.released_noise(schema=schema, unit=self._ready().unit),
        )

    def ratio(  # type: ignore[override]
        self, measurement: Measurement, *, schema: PublicSchema
    ) -> OutputRatio:
        """The released log ratios and their rows; WeightError if they do not fit these settings."""
        facts = measurement.facts
        released = self.released(measurement, "log_ratio", self._check_rows(schema))
        law = NoiseLaw(kind=self.noise, scale=facts["scale"], dimension=released.size)
        return OutputRatio(law=law, coefficients=released, digest=facts["published_rows"])
