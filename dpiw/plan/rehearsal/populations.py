"""Stand-in populations: random laws on a public schema, or public rows resampled.

Nothing is computed from confidential rows. Nobody may look up how strong the confidential table's
dependence is, so several kinds are reported. Seeds are for simulation: no privacy noise is drawn.
"""

import math
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.release import UnreliableWeightsWarning, load_release
from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.data.source.batches import read_csv
from dpiw.data.source.copy import copy_source
from dpiw.errors import ReleaseError, SourceError, SpecError
from dpiw.methods.admission import admitted
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.plan.spec import ReleaseSpec

Array = NDArray[np.float64]

TRUTH_ROWS = 50_000
"""Rows that represent the truth of a random law."""

_FACTORS = 2
_KNOTS = np.linspace(0.0, 1.0, 513)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A random law: largest correlation of two latent normals, in [0, 1), and number of classes."""

    correlation: float = 0.0
    clusters: int = 1


KINDS: Mapping[str, Kind] = {
    "independent": Kind(),
    "weak": Kind(correlation=0.3),
    "strong": Kind(correlation=0.8),
    "clusters": Kind(clusters=4),
}
"""Independent columns; Gaussian copulas; and hidden classes, whose dependence is not monotone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedRows:
    """Scaled rows with weights, shape (rows,), that sum to one: a population's truth.

    Public rows are a population of their own, redrawn in proportion to their weights. `credit`: of
    an earlier release's generator, by the noisy means, over its people; None: unknown.
    """

    scaled: ScaledTable
    weights: Array
    credit: float | None = None

    @classmethod
    def even(cls, scaled: ScaledTable) -> Self:
        """Return rows of equal weights."""
        return cls(scaled=scaled, weights=np.full(scaled.rows, 1 / scaled.rows))

    def draw(self, rows: int, *, rng: np.random.Generator) -> ScaledTable:
        """Draw rows with replacement."""
        return self.scaled.take(rng.choice(self.scaled.rows, size=rows, p=self.weights))


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginal:
    """The law of one column in one class, as a function of a uniform.

    Attributes:
        values: shape (levels,): level codes in latent order, or increasing scaled values at
            `places`.
        places: cumulative probabilities: of the end of each level, or of each value.
        missing: probability of a missing cell.
    """

    values: NDArray[Any]
    places: Array
    missing: float

    def cells(self, uniform: Array, gap: Array) -> NDArray[Any]:
        """Return scaled cells, shape (rows,), from uniforms of the value and of its absence."""
        if self.values.dtype.kind == "i":
            index = np.minimum(np.searchsorted(self.places, uniform), len(self.values) - 1)
            return np.where(gap < self.missing, np.int32(-1), self.values[index]).astype(np.int32)
        numbers = np.interp(uniform, self.places, self.values)
        return np.where(gap < self.missing, np.nan, numbers)


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomLaw:
    """A mixture of classes (`shares`, shape (classes,)) whose latent normals share two factors.

    Attributes:
        marginals: by class, then by released column.
        loadings: shape (2 columns, factors): a latent variable for a value, one for its absence.
    """

    schema: PublicSchema
    shares: Array
    marginals: tuple[tuple[Marginal, ...], ...]
    loadings: Array

    def draw(self, rows: int, *, rng: np.random.Generator) -> ScaledTable:
        """Draw independent rows that satisfy the dictionary's constraints."""
        return admitted(partial(self._drawn, rng=rng), rows, rules=self.schema.rules)[0]

    def _drawn(self, rows: int, *, rng: np.random.Generator) -> ScaledTable:
        from scipy.special import ndtr

        factors = rng.standard_normal((rows, self.loadings.shape[1]))
        unique_sd = np.sqrt(1 - (self.loadings**2).sum(axis=1))
        latent = factors @ self.loadings.T + unique_sd * rng.standard_normal((rows, len(unique_sd)))
        uniform = ndtr(latent)
        classes = rng.choice(len(self.shares), size=rows, p=self.shares)
        columns: dict[str, NDArray[Any]] = {}
        for place, column in enumerate(self.schema.released):
            value, gap = uniform[:, 2 * place], uniform[:, 2 * place + 1]
            cells = np.empty(rows, dtype=np.int32 if column.is_discrete else np.float64)
            for number, marginals in enumerate(self.marginals):
                mine = classes == number
                cells[mine] = marginals[place].cells(value[mine], gap[mine])
            columns[column.name] = cells
        return self.schema.project(ScaledTable(columns, rows))


def random_law(schema: PublicSchema, kind: Kind, *, rng: np.random.Generator) -> RandomLaw:
    """Return a random population on `schema`, with random marginals and dependence."""
    shares = rng.dirichlet(np.full(kind.clusters, 3.0))
    marginals = tuple(
        tuple(_marginal(column, kind, rng) for column in schema.released)
        for _ in range(kind.clusters)
    )
    directions = rng.standard_normal((2 * len(schema.released), _FACTORS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return RandomLaw(
        schema=schema,
        shares=shares,
        marginals=marginals,
        # Two latent variables correlate by correlation times the cosine of their directions.
        loadings=np.sqrt(kind.correlation) * directions,
    )


def _marginal(column: Column, kind: Kind, rng: np.random.Generator) -> Marginal:
    narrow = kind.clusters > 1
    missing = float(rng.uniform(0.02, 0.3)) if column.nullable else 0.0
    if column.is_discrete:
        shares = rng.dirichlet(np.full(column.cardinality, 0.5 if narrow else 1.5))
        codes = np.arange(column.cardinality, dtype=np.int32)
        if column.kind is ColumnKind.CATEGORICAL:
            codes = rng.permutation(codes)
        return Marginal(values=codes, places=np.cumsum(shares[codes]), missing=missing)
    if column.cuts:
        return _between_cuts(column, missing, rng)
    return _skewed(missing, narrow, rng)


def _between_cuts(column: Column, missing: float, rng: np.random.Generator) -> Marginal:
    low, span = column.lower_number, column.upper_number - column.lower_number
    edges = np.array([0.0, *[(cut - low) / span for cut in column.cut_numbers], 1.0])
    shares = rng.dirichlet(np.ones(len(edges) - 1))
    return Marginal(values=edges, places=np.append(0.0, np.cumsum(shares)), missing=missing)


def _skewed(missing: float, narrow: bool, rng: np.random.Generator) -> Marginal:
    """Return a beta law; one column in three has a spike at the lower bound."""
    from scipy.special import betaincinv

    mean = rng.uniform(0.08, 0.92)
    width = np.exp(rng.uniform(np.log(12.0), np.log(60.0)) if narrow else rng.uniform(0.7, 3.4))
    spike = rng.uniform(0.1, 0.5) if rng.random() < 1 / 3 else 0.0
    values = betaincinv(mean * width, (1 - mean) * width, _KNOTS)
    places = np.concatenate([[0.0], spike + (1 - spike) * _KNOTS])
    return Marginal(values=np.concatenate([[0.0], values]), places=places, missing=missing)


LEAST_ROWS = 50
"""Fewest rows that serve as a population."""


def public_rows(
    path: Path, spec: ReleaseSpec, schema: PublicSchema, *, declared_public: bool
) -> WeightedRows:
    """Read a public CSV file, UTF-8 with commas, of exactly the schema's released columns.

    `declared_public` is the curator's word. Without it, or for a confidential path, raises
    SpecError before anything is opened; SourceError for another structure or too few rows.
    """
    if not declared_public:
        raise SpecError(
            field="--public-rows",
            allowed="--i-declare-these-rows-public as well: only you know whether they are",
        )
    spec.confidential.refuse(path, field="--public-rows")
    scaled = _read(path, spec, schema)
    if scaled.rows < LEAST_ROWS:
        raise SourceError(f"{scaled.rows} rows", field="--public-rows", allowed=f">= {LEAST_ROWS}")
    return WeightedRows.even(scaled)


def labelled_rows(spec: ReleaseSpec, schema: PublicSchema) -> int:
    """Count public rows for the spec's calibration (0: none); SourceError if not as declared."""
    step = parse_post_processing(spec.weights.post_processing).calibrate
    if step is None:
        return 0
    return _read(Path(step.rows), spec, schema).rows


def _read(path: Path, spec: ReleaseSpec, schema: PublicSchema) -> ScaledTable:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "rows"
        copy_source(path, copy)
        names = [column.name for column in schema.released]
        limits = spec.source.limits
        raw = read_csv(copy, names, limits=limits, encoding="utf-8", delimiter=",")
    return schema.scale(raw)


def released_rows(folder: Path, schema: PublicSchema, *, public_key: Path | None) -> WeightedRows:
    """Read a verified release of the same schema (else ReleaseError), weighted if usable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        release = load_release(folder, public_key)
    if PublicSchema.from_mapping(release.schema).released != schema.released:
        raise ReleaseError(
            "the release has other columns, levels or bounds than the dictionary", field="--like"
        )
    weights = release.weights if release.certificate.usable else np.ones(len(release.table))
    return WeightedRows(
        scaled=schema.scale(release.table),
        weights=weights / weights.sum(),
        credit=credit_of(release.certificate.diagnostics.get("measured", {})),
    )


def credit_of(facts: Mapping[str, Any]) -> float | None:
    """Least credit over people, by what measured weights state; ReleaseError for no numbers > 0."""
    try:
        least, rows = (float(facts[name]) for name in ("least_credit", "rows"))
    except KeyError:  # other weights, or an older release
        return None
    except (TypeError, ValueError):
        least = rows = math.nan
    if not 0 < least / max(rows, 1.0) < math.inf or not rows >= 1:
        raise ReleaseError(field="certificate", allowed="`least_credit` and `rows` finite and > 0")
    return least / rows
