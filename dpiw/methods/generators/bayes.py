"""Bayesian synthesis: parameters drawn from a censored pseudo posterior on a public grid.

Models the target, and other columns given the target. A draw is an exact exponential mechanism
(`pseudo_posterior`), so epsilon is strict; a Markov chain's is not (docs/method.md section 16).
"""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import ColumnRole, PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import LedgerConflictError, SpecError, one_of, setting_error
from dpiw.methods.base import DRAW_SECONDS, FEWER_LEVELS, Running, StatedNoise, check_effort
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.bayesian_network import MOST_CELLS, Conditional, Family, NetworkModel
from dpiw.methods.generators.counted import CountedColumns, CountedNoise, counting_seconds
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.estimation import measured_domain
from dpiw.methods.generators.marginal_noise import selection_epsilon, useful_bins
from dpiw.methods.generators.pseudo_posterior import (
    SMALLEST_WIDTH,
    ColumnLaw,
    GridLaw,
    Part,
    Window,
    column_law,
    contributions,
    grid_part,
    pilot_weights,
    posterior_scores,
    public_weights,
)
from dpiw.privacy.events import ExponentialMechanismEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class BayesDesign:
    """The public structure of the model."""

    domain: Domain
    settings: Bayes

    @property
    def root(self) -> int | None:
        """The target, if columns are given it and the schema has one."""
        roles = [column.role for column in self.domain.schema.released]
        if self.settings.given != "target" or ColumnRole.TARGET not in roles:
            return None
        return roles.index(ColumnRole.TARGET)

    def family(self, column: int) -> Family:
        """The column and what it is given."""
        root = self.root
        return Family(child=column, parents=() if root is None or root == column else (root,))

    def law(self, column: int) -> ColumnLaw:
        """The column's grid."""
        settings, bins = self.settings, self.domain.columns[column]
        if settings.calibrated is not None and column in settings.calibrated.own:
            return ColumnLaw(parts=[settings.calibrated.own[column]], size=bins.size, depth=1)
        shaped = settings.numeric == "shape"
        return column_law(bins, shaped=shaped, prior=settings.prior, smallest=settings.smallest)

    def network(self, points: Mapping[int, NDArray[np.int64]]) -> NetworkModel:
        """Return the joint law at chosen points, by column, (codes of its parent or 1, parts)."""
        order = sorted(range(len(self.domain.sizes)), key=lambda column: column != self.root)
        conditionals = []
        for column in order:
            law = self.law(column)
            table = np.array([law.pmf(chosen) for chosen in points[column].tolist()])
            family = self.family(column)
            conditionals.append(Conditional.from_table(family, table, table.mean(axis=0)))
        return NetworkModel(domain=self.domain, conditionals=tuple(conditionals), one_way=None)


@dataclass(frozen=True, kw_only=True)
class BayesModel:
    """A mixture of networks in equal parts, one for each draw of the parameters."""

    networks: Sequence[NetworkModel]

    one_way: ClassVar[None] = None
    judge: ClassVar[None] = None
    at_hand: ClassVar[None] = None

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent synthetic rows; the same `rng` state gives the same rows."""
        domain = self.networks[0].domain
        draw_of_row = rng.integers(len(self.networks), size=rows)
        codes = np.zeros((rows, len(domain.sizes)), dtype=np.int32, order="F")
        for draw, network in enumerate(self.networks):
            row_mask = draw_of_row == draw
            codes[row_mask] = network.sample_codes(int(row_mask.sum()), rng=rng)
        return SyntheticTable(schema=domain.schema, scaled=domain.fill(codes, rng=rng))


MOST_CHOICES = 50_000
"""Most parameters drawn: the plan refuses more, which take minutes."""

_WORDS = {
    "numeric": ("shape", "splits"),
    "given": ("target", "nothing"),
    "weights": ("public", "two_stage"),
    "sampler": ("grid",),  # a Markov chain draws approximately: its epsilon is not strict
}
"""Admissible words of the settings that are words."""


_HALVES = math.nextafter(1e-6, 0.0), math.nextafter(0.5, 0.0)
"""`smallest` is from 1e-6 to below 0.5."""


@dataclass(frozen=True, kw_only=True)
class BayesNoise(CountedNoise):
    """Calibrated window; laws of one's own, by column."""

    window: Window
    own: Mapping[int, Part]


@dataclass(frozen=True, kw_only=True)
class Bayes(CountedColumns):
    """Bayesian synthesis before it has seen data.

    Attributes:
        numeric: law of numeric columns: `shape`, a normal law within the bounds, or `splits`.
        given: what the other columns depend on: the `target`'s code, or `nothing`.
        weights: `public`, or `two_stage`: from parameters drawn first, which cost a draw more.
        prior: pseudo-rows in all, spread evenly over a column's codes.
        smallest: least probability of either side of a split.
        draws: of the parameters; each costs one event a column, and gives its share of the rows.

    Privacy: grids, windows, weights and draws are public, or (`two_stage`) follow from parameters
    already paid for. The number of rows is never read.
    """

    numeric: str = "shape"
    given: str = "target"
    weights: str = "public"
    prior: float = 2.0
    smallest: float = 0.01
    draws: int = 1
    sampler: str = "grid"
    pure: bool = False
    calibrated: BayesNoise | None = None

    method: ClassVar[str] = "bayes"
    shaped: ClassVar[str] = "Numeric columns"

    ranges = CountedColumns.ranges | {"draws": (1, 100)}
    bounds = CountedColumns.bounds | {"prior": (0, 1e4), "smallest": _HALVES}
    set_later: ClassVar[frozenset[str]] = frozenset({"calibrated", "pure"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                allowed = one_of(str(getattr(self, name)), words)
                raise setting_error(self, f"generator.settings.{name}", allowed)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`."""
        return cls(**settings, pure=pure)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats on its rows, for the certificate."""
        reach = (
            "through the target alone, if there is one" if self.given == "target" else "not at all"
        )
        sentences = [f"Columns of unweighted rows depend on each other {reach}."]
        if self.numeric == "shape":
            sentences.append(
                f"{self.shaped} of unweighted rows have a normal law within the bounds, whatever"
                " the people's is."
            )
        if self.draws == 1:
            sentences.append("One draw of the parameters does not show how uncertain they are.")
        return tuple(sentences)

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise, JSON values, for the plan and the certificate."""
        parameters: dict[str, Any] = self._settings()
        if self.calibrated is not None:
            parameters["draw_epsilon"] = self.calibrated.window.epsilon
            parameters["window"] = self.calibrated.window.width
        return parameters

    def _settings(self) -> dict[str, Any]:
        hidden = ("pure", "calibrated")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}

    @property
    def _events(self) -> int:
        return self.draws + (self.weights == "two_stage")

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort evenly over columns and draws; `nominal_rows` limits the bins."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        kind = NoiseKind.LAPLACE if self.pure else NoiseKind.GAUSSIAN
        count = len(schema.released) * self._events
        epsilon = selection_epsilon(kind, rho=rho, share=1.0, count=count)
        window = Window(epsilon=epsilon, unit=unit)
        if window.width < SMALLEST_WIDTH:
            raise SpecError(
                "its draws get too little of the budget",
                field=f"generator.method={self.method}",
                allowed="a larger epsilon, or fewer columns or draws",
            )
        bins = useful_bins(self.bins, nominal_rows)
        domain = Domain.from_schema(schema, bins=bins)
        choices = self._choices(domain)
        if choices > MOST_CHOICES or max(domain.sizes) * self._parents(domain) > MOST_CELLS:
            raise SpecError(
                f"about {choices} parameters to draw: the levels and bins of all columns, times the"
                " target's with given: target",
                field="generator.settings.given",
                allowed=f"at most {MOST_CHOICES}, and {MOST_CELLS} of a column: {FEWER_LEVELS},"
                " or write given: nothing",
            )
        own = self._own(domain)
        noise = BayesNoise(window=window, own=own, bins=bins, schema=schema, unit=unit)
        return replace(self, calibrated=noise)

    def _own(self, domain: Domain) -> dict[int, Part]:
        return {}

    def _parents(self, domain: Domain) -> int:
        root = BayesDesign(domain=domain, settings=self).root
        return 1 if root is None else domain.sizes[root]

    def _choices(self, domain: Domain) -> int:
        return sum(domain.sizes) * self._parents(domain) * self._events

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One draw per released column, as often as there are draws and pilots."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        count = len(schema.released) * self._events
        return (ExponentialMechanismEvent(epsilon=ready.window.epsilon, count=count),)

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Empty: parameters are drawn, and no noise is added."""
        return ()

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Every column is counted, then a parameter per code and parent is drawn."""
        ready = ready_for(self.calibrated, schema, method=self.method)
        domain = Domain.from_schema(schema, bins=ready.bins)
        counted = counting_seconds(len(domain.sizes), nominal_rows)
        return Running(seconds=counted + DRAW_SECONDS * self._choices(domain), held_bytes=32 << 20)

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Draw every column's parameters, as indices into the public grid.

        Privacy:
            Unit: `calibrated.unit`; k = max_rows rows change under add/remove, 2 k under
                replace-one. A row moves a column's log pseudo posterior within an interval of w at
                any grid point: it meets `depth` parts of one target code, each with w / depth.
            Event: `ExponentialMechanismEvent(epsilon = k w or 2 k w)` per draw of a column's parts.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        domain = Domain.from_schema(table.schema, bins=ready.bins)
        counter = ContingencyCounter.of(table, domain)
        design = BayesDesign(domain=domain, settings=self)
        arrays: dict[str, NDArray[np.int64]] = {}
        families = [design.family(column).members for column in range(len(domain.sizes))]
        for column, counts in enumerate(counter.each(families)):
            arrays[f"points_{column}"] = self._draw(
                counts.reshape(-1, domain.sizes[column]), design.law(column),
                window=ready.window, noise=noise,
            )  # fmt: skip
        return self.measurement(arrays, self.parameters(), domain=domain, noise=noise)

    def _draw(
        self, counts: NDArray[np.int64], law: ColumnLaw, *, window: Window, noise: NoiseSource
    ) -> NDArray[np.int64]:
        """Draw a column's points, (draws, codes of its parent or 1, parts), from exact counts."""
        units = window.units // law.depth
        width = units / window.per_nat
        points = np.zeros((self._events, len(counts), len(law.parts)), dtype=np.int64)
        for draw, code, place in np.ndindex(points.shape):
            part = law.parts[place]
            weights = (
                pilot_weights(part.log_pmf, points[0, code, place], width=width)
                if draw and self.weights == "two_stage"
                else public_weights(part.log_pmf, width=width)
            )
            entries = contributions(part.log_pmf, weights, units=units, per_nat=window.per_nat)
            tally = part.tally(counts[code])
            scores = posterior_scores(tally, entries, part.log_prior, per_nat=window.per_nat)
            points[draw, code, place] = window.draw(scores, noise=noise)
        return points[self._events - self.draws :]

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> BayesModel:
        """The laws at the drawn points."""
        domain = measured_domain(measurement, kind=self.method, schema=schema)
        drew = replace(self, **{name: measurement.facts[name] for name in self._settings()})
        design = BayesDesign(domain=domain, settings=drew)
        points = [measurement.arrays[f"points_{column}"] for column in range(len(domain.sizes))]
        return BayesModel(
            networks=tuple(
                design.network({column: point[draw] for column, point in enumerate(points)})
                for draw in range(drew.draws)
            )
        )


@dataclass(frozen=True, kw_only=True)
class GridBayes(Bayes):
    """`Bayes` with laws of one's own for some columns, which a subclass gives.

    Privacy: as of `Bayes`, whatever `laws` returns: dpiw copies, checks and censors its tables.
    """

    shaped: ClassVar[str] = "Other numeric columns"

    @abc.abstractmethod
    def laws(self, domain: Domain) -> Mapping[str, GridLaw]:
        """Return laws by column, from public facts alone; dpiw draws a point for each target code.

        An inadmissible law or another column's name is a SpecError of the plan.
        """

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats on its rows, for the certificate."""
        chosen = "The publisher states that it chose columns' laws without the table."
        return (chosen, *super().caveats)

    def parameters(self) -> Mapping[str, Any]:
        """As of `Bayes`, with a digest of the laws: other laws make another stage."""
        own, tables = {} if self.calibrated is None else self.calibrated.own, hashlib.sha256()
        for column, part in own.items():
            tables.update(repr((column, part.log_pmf.shape)).encode())
            tables.update(part.log_pmf.tobytes() + part.log_prior.tobytes())
        return {**super().parameters(), "laws": tables.hexdigest()}

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> BayesModel:
        """As `Bayes.model`; LedgerConflictError if the laws are not those of the draw."""
        if measurement.facts["laws"] != self.parameters()["laws"]:
            raise LedgerConflictError(field=f"laws of {self.method}", allowed="those of the draw")
        return super().model(measurement, schema=schema)

    def _own(self, domain: Domain) -> dict[int, Part]:
        names, own = [column.name for column in domain.schema.released], {}
        for name, law in sorted(self.laws(domain).items()):
            if name not in names:
                raise SpecError(field=f"law of {name}", allowed=one_of(name, names))
            place = names.index(name)
            own[place] = grid_part(law, domain.sizes[place], field=f"law of {name}")
        return own
