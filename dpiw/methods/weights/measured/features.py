"""Stacked public feature maps with one norm bound, and the ranges they work within.

A row's features depend on that row alone, to the last bit. `Ranges` come from the generator's
public rows and cut values to them, so norm bounds hold. Source: docs/method.md section 14.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Bins, value_codes, value_points
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError
from dpiw.methods.base import MOST_FEATURES
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.geometry import ColumnBlock, blocks
from dpiw.methods.weights.measured import choice, halves
from dpiw.methods.weights.measured.fourier import Waves
from dpiw.methods.weights.measured.halves import HALVINGS, LAST_HALVES, cuts_of
from dpiw.methods.weights.measured.ranges import MOST_ROWS, Ranges, cut_to, ends_of
from dpiw.methods.weights.questions import (
    BINS,
    HALVES,
    OWN,
    VALUES,
    Question,
    Term,
    shares_of,
)

_REACHES, _GUESSED = (3.0, 4.0, 6.0, 9.0), 20.0
"""Reaches beside the mean of a number that was asked for, in standard deviations: dpiw chooses one
of them. And how many times as large as its sampling variance the guess at a tail is."""

Array = NDArray[np.float64]

Line = tuple[str, str, tuple[str, ...]]
"""Column, form, and the columns without which all is zero; no column: whether rows are complete."""

PARTS = ("linear", "squares", "target", "numbers", "products", "fourier")
"""In the order of a stack."""

ROOM = "chosen"
"""The placeholder of blocks that are not chosen yet; no sum has this part."""

PRODUCTS = ("target", "numbers", "products")
"""Parts that are products of two columns."""

_BLOCK = 2000
"""Rows at once; no power of two, by which columns would push each other out of a cache."""

_ROUNDED = 1 - 2.0**-40
"""Factor on the shares of chosen blocks: rounding must not raise the norm of the placeholder."""

LINEAR, PAIRS = 0.3, 0.5
"""Shares of centred columns and of products, beside one of the Fourier features."""

FAINT = 0.002
"""Largest squared noise of a mean, over a feature's share of the squared norm, for products.

Below, products cost other features nothing on the populations of benchmarks/coverage.py."""

FEW_COLUMNS = 10
"""Most columns, mostly numbers, for which fine Fourier features hold every interaction."""


def public_shares(schema: PublicSchema) -> tuple[dict[str, float], tuple[float, ...]]:
    """Shares and scales by a rule of the columns, chosen on four tables at epsilon 1."""
    parts = blocks(schema)
    numbers = math.fsum(block.variances[0] for block in parts if block.numeric)
    total = math.fsum(block.reference_squared_norm for block in parts)
    with_products = {"fourier": 1.0, "target" if schema.target is not None else "linear": 0.5}
    if 2 * numbers < total:
        return with_products, (1.0,)
    if len(parts) > FEW_COLUMNS:
        return with_products, (2.0,)
    return {"fourier": 1.0}, (3.0,)


def with_first_moments(stack: Stack, *, noise: float) -> Stack:
    """The stack, with means and products of columns where the noise is faint enough.

    `noise` is that of a mean, over the norm of a row: public.
    """
    most = 2 * stack.frequencies
    pairs = "products" if stack.width("products") <= most else "numbers"
    shares = {"linear": LINEAR, pairs: PAIRS} if stack.width(pairs) <= most else {"linear": LINEAR}
    full_stack = replace(stack, shares={**shares, **stack.shares})
    faint = noise**2 * full_stack.dimension <= FAINT and full_stack.dimension <= MOST_FEATURES
    return full_stack if faint else stack


def with_questions(stack: Stack, questions: Sequence[Question]) -> Stack:
    """The stack, with the terms of declared questions beside its other features."""
    asked = shares_of(questions, stack.schema, norm=stack.norm)
    return replace(stack, shares={**stack.shares, **asked}) if asked else stack


def asked_ranges(
    ranges: Ranges, stack: Stack, rows: SyntheticTable, *, noise: float, nominal_rows: int
) -> Ranges:
    """With the range of each number that was asked for: least noise and guess of its tails.

    And with the cuts of those that are halved. By public rows. `noise` is that of a mean of a
    feature; `_GUESSED` counts the variance beyond the ends as a prior would.
    """
    first, found = rows.first(MOST_ROWS).scaled, {}
    for name in dict.fromkeys(name for name, form, _ in stack.own if name and form == OWN):
        if not stack.schema.column(name).is_numeric:
            continue
        cells = first.columns[name][~np.isnan(first.columns[name])]
        if cells.size < 2:
            continue
        alone = [key for key, term in stack.terms.items() if term.factors == ((name, OWN),)]
        share = max((stack.shares[key] for key in alone), default=1.0)

        def cost(ends: tuple[float, float], cells: Any = cells, share: float = share) -> float:
            beyond = cells - np.clip(cells, *ends)
            own = (noise * (ends[1] - ends[0]) / 2 / share) ** 2
            return own + _GUESSED / nominal_rows * float(beyond.var())

        choices = [ends_of(cells, reach) for reach in _REACHES]
        found[name] = min([(0.0, 1.0), *choices], key=cost)
    cuts = {name: cuts_of(first.columns[name]) for name in stack.halved}
    asked = {name: ends for name, ends in found.items() if ends != (0.0, 1.0)}
    return replace(ranges, asked=asked, cuts=cuts)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Feature maps side by side.

    Attributes:
        shares: norm bound by part; unnamed parts are absent. `linear`: centred columns; `squares`:
            of numeric columns; `target`: products of the target with every column; `numbers`: of
            all pairs of numeric columns; `products`: of all pairs; `fourier`: random cosines and
            sines; keys of `questions.Term`: what was asked or chosen; `ROOM`: of blocks that a
            private choice will name (`with_chosen`).
        scales: of the Fourier frequencies, in public scales (`fourier.public_scale`), in turn.
        frequencies: two Fourier features each.
        ranges: of numeric columns; None: the bounds.
        bundles: seeds of groups of frequencies, each of its own scale; none: one group.
        unasked: keys of terms that were chosen, and that no question needs.
    """

    schema: PublicSchema
    shares: Mapping[str, float]
    scales: tuple[float, ...] = (2.0,)
    frequencies: int = 300
    omega_seed: int = 0
    ranges: Ranges | None = None
    bundles: tuple[int, ...] = ()
    unasked: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.shares) - {*PARTS, ROOM} - self.terms.keys())
        if unknown or not self.shares or not self.parts:
            raise SpecError(
                field="weights.settings.features",
                allowed=f"parts among {', '.join(PARTS)}, found "
                f"{', '.join(unknown) or 'none that this schema has'}",
            )

    @cached_property
    def _blocks(self) -> tuple[ColumnBlock, ...]:
        return blocks(self.schema)

    @cached_property
    def terms(self) -> dict[str, Term]:
        """The terms of questions among the parts, by key, in order."""
        read = {key: Term.read(key, self.schema) for key in sorted(self.shares)}
        return {key: term for key, term in read.items() if term is not None}

    @cached_property
    def own(self) -> dict[Line, ColumnBlock]:
        """Lines that terms add, after those of the columns."""
        lines = {line for term in self.terms.values() for line in _lines(term)}
        columns, start = {c.name: c for c in self.schema.released}, self.schema.width
        own: dict[Line, ColumnBlock] = {}
        for name, form, complete in sorted(lines):
            if not name:
                block = ColumnBlock(start=start, numeric=True, levels=0)
            elif form == OWN:
                block = replace(self._by_name[name], start=start)
                block = replace(block, levels=0) if complete and block.numeric else block
            else:
                values = value_points(columns[name]).size + columns[name].nullable
                sizes = {HALVES: LAST_HALVES - 1, VALUES: values, BINS: self._bins[name].size}
                block = ColumnBlock(start=start, numeric=False, levels=sizes[form])
            if complete or columns[name].is_numeric:
                own[name, form, complete] = block
                start = block.stop
        return own

    @property
    def halved(self) -> set[str]:
        """Numbers whose quantiles were asked for."""
        return {name for name, form, _ in self.own if form == HALVES}

    @cached_property
    def _by_name(self) -> dict[str, ColumnBlock]:
        return dict(zip(choice.names_of(self.schema), self._blocks, strict=True))

    @cached_property
    def lines(self) -> int:
        """Number of coordinates that moments are made of: `lines_of`."""
        return max([self.schema.width, *(block.stop for block in self.own.values())])

    def lines_of(self, scaled: ScaledTable) -> Array:
        """Centred coordinates of rows, shape (rows, lines), Fortran order.

        Those of the schema on the ranges, then `own`; a missing number has zeros.
        """
        within = scaled if self.ranges is None else self.ranges.within(scaled)
        centred = self.schema.centred(within, order="F")
        if not self.own:
            return centred
        lines = np.zeros((scaled.rows, self.lines), order="F")
        lines[:, : self.schema.width] = centred
        for (name, form, complete), block in self.own.items():
            place = lines[:, block.start : block.stop]
            if complete:
                self._write_complete(scaled, centred, name, complete, place)
                continue
            if form == HALVES:
                self._write_halves(scaled, name, place)
                continue
            if form in (VALUES, BINS):  # a missing number is the last of them
                codes = self._codes(scaled.columns[name], name, form)
                place[:] = -math.sqrt(0.5) / block.levels
                place[np.arange(len(codes)), np.minimum(codes, block.levels - 1)] += math.sqrt(0.5)
                continue
            inside = self._inside(scaled, name)
            known = np.flatnonzero(~np.isnan(inside))
            place[known, 0] = inside[known] - 0.5
            place[:, 1:] = centred[:, self._by_name[name].start + 1 : self._by_name[name].stop]
        return lines

    def _write_halves(self, scaled: ScaledTable, name: str, place: Array) -> None:
        """Zeros for a missing number."""
        known = np.flatnonzero(~np.isnan(scaled.columns[name]))
        length = math.sqrt(self.own[name, HALVES, ()].squared_norm / HALVINGS)
        parts = self._parts(name, scaled)[known]
        place[known] = halves.features(parts, self._cuts(name), length=length)

    def _cuts(self, name: str) -> tuple[float, ...]:
        return halves.EVEN if self.ranges is None else self.ranges.cuts.get(name, halves.EVEN)

    def _write_complete(
        self,
        scaled: ScaledTable,
        centred: Array,
        name: str,
        complete: tuple[str, ...],
        place: Array,
    ) -> None:
        """Whether rows are complete, less a half; or a column's coordinates in those that are."""
        cells = [scaled.columns[each] for each in complete]
        is_complete = ~np.any([np.isnan(each) | (each < 0) for each in cells], axis=0)
        if not name:
            place[:, 0] = is_complete - 0.5
        elif self._by_name[name].numeric:
            place[is_complete, 0] = self._inside(scaled, name)[is_complete] - 0.5
        else:
            block = self._by_name[name]
            place[is_complete] = centred[is_complete, block.start : block.stop]

    def _codes(self, cells: Any, name: str, form: str) -> NDArray[np.integer[Any]]:
        """Which value of a number, or which bin, each cell is; a missing one the last."""
        if form == BINS:
            return self._bins[name].codes(cells)
        return value_codes(value_points(self.schema.column(name)), np.clip(cells, 0.0, 1.0))

    @cached_property
    def _bins(self) -> dict[str, Bins]:
        names, domain = choice.names_of(self.schema), choice.table_domain(self.schema)
        return dict(zip(names, domain.columns, strict=True))

    def _inside(self, scaled: ScaledTable, name: str) -> Array:
        """Cells of an asked number on its own range, in [0, 1] or NaN."""
        cells = np.asarray(scaled.columns[name], dtype=np.float64)
        if self.ranges is None:
            return np.asarray(np.clip(cells, 0.0, 1.0))
        return cut_to(cells, self.ranges.asked.get(name, (0.0, 1.0)))

    def halves_of(self, scaled: ScaledTable, off: Array) -> Iterator[tuple[str, NDArray[np.int32]]]:
        """Each number that is halved, and its rows' halves (`halves.known_halves`; `off`: (d,))."""
        for key, term in self.terms.items():
            if len(term.factors) == 1 and term.factors[0][1] == HALVES:
                name, present = term.factors[0][0], ~np.isnan(scaled.columns[term.factors[0][0]])
                parts = self._parts(name, scaled)
                yield name, halves.known_halves(parts, present, off[self.places(key)])

    def _parts(self, name: str, scaled: ScaledTable) -> NDArray[np.intp]:
        """In which of the last halves each number is; for a missing one, any. Shape (rows,)."""
        return np.searchsorted(self._cuts(name), scaled.columns[name], side="right")

    def blocks_of(self, part: str) -> list[tuple[ColumnBlock, ColumnBlock | None]]:
        """The blocks whose coordinates, or their products, are a part's features, in order."""
        if part == "linear":
            return [(block, None) for block in self._blocks]
        if part in PRODUCTS:
            return [*self.column_pairs[part]]
        term = self.terms[part]
        first, *second = [self.own.get(line) or self._by_name[line[0]] for line in _lines(term)]
        return [(first, second[0] if second else None)]

    def squares_of(self, part: str) -> list[int] | None:
        """Lines whose squares are a part's features; None for other parts."""
        if part == "squares":
            return [block.start for block in self._blocks if block.numeric]
        if part in self.terms and self.terms[part].is_square:
            return [self.blocks_of(part)[0][0].start]
        return None

    @cached_property
    def column_pairs(self) -> dict[str, list[tuple[ColumnBlock, ColumnBlock]]]:
        """The pairs of columns whose products are a part's features, in order."""
        columns = zip(self.schema.released, self._blocks, strict=True)
        target = [block for column, block in columns if column == self.schema.target]
        pairs = [*itertools.combinations(self._blocks, 2)]
        return {
            "target": [(a, b) for a, b in pairs if a in target or b in target],
            "numbers": [(a, b) for a, b in pairs if a.numeric and b.numeric],
            "products": pairs,
        }

    def with_chosen(self, chosen: choice.Chosen) -> Stack:
        """With chosen blocks in the room for them (`Chosen.norms`); the norm is no larger."""
        shares = {**self.shares}
        norms = _ROUNDED * shares.pop(ROOM) * chosen.norms(self.schema)
        keys = [chosen.term(table, self.schema).key for table in chosen.tables]
        found = zip(keys, norms.tolist(), strict=False)
        shares |= {key: math.hypot(shares.get(key, 0.0), norm) for key, norm in found}
        unasked, bundles = frozenset(keys) - self.shares.keys(), chosen.bundles
        if not bundles:
            return replace(self, shares=shares, unasked=unasked)
        shares["fourier"] = float(np.linalg.norm(norms[len(keys) :]))
        return replace(
            self, shares=shares, scales=tuple(scale for scale, _ in bundles), unasked=unasked,
            frequencies=choice.FREQUENCIES * len(bundles), bundles=chosen.seeds(self.omega_seed),
        )  # fmt: skip

    def _squared_norm(self, part: str) -> float:
        if part == ROOM:
            return 1.0
        if part == "fourier":
            return float(any(block.squared_norm > 0 for block in self._blocks))
        if (squares := self.squares_of(part)) is not None:
            return len(squares) / 64
        return math.fsum(
            a.squared_norm * (1.0 if b is None else b.squared_norm) for a, b in self.blocks_of(part)
        )

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts that have a feature on this schema."""
        return tuple(
            part
            for part in (*PARTS, *self.terms, ROOM)
            if self.shares.get(part, 0) > 0 and self._squared_norm(part) > 0
        )

    @property
    def norm(self) -> float:
        """Bound on the norm of a row's features."""
        return math.sqrt(math.fsum(self.shares[part] ** 2 for part in self.parts))

    @cached_property
    def dimension(self) -> int:
        """d, the number of features."""
        return sum(self.width(part) for part in self.parts)

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Indices of features that are products of two columns, ascending."""
        return self._all_places(PRODUCTS)

    @property
    def asked(self) -> NDArray[np.int64]:
        """Indices of features that questions declared, ascending."""
        return self._all_places(self.terms.keys() - self.unasked)

    def _all_places(self, parts: Container[str]) -> NDArray[np.int64]:
        indices = [self.places(part) for part in self.parts if part in parts]
        return np.concatenate([np.zeros(0, dtype=np.int64), *indices])

    def places(self, part: str) -> NDArray[np.int64]:
        """Indices of a part's features, ascending."""
        before = self.parts[: self.parts.index(part)]
        start = sum(self.width(other) for other in before)
        return np.arange(start, start + self.width(part))

    def width(self, part: str) -> int:
        """Number of a part's features."""
        if part in (ROOM, "fourier"):
            return choice.MOST_CHOSEN if part == ROOM else 2 * self.frequencies
        if (squares := self.squares_of(part)) is not None:
            return len(squares)
        return sum(
            (a.stop - a.start) * (1 if b is None else b.stop - b.start)
            for a, b in self.blocks_of(part)
        )

    def matrix(self, scaled: ScaledTable) -> Array:
        """Feature rows, shape (rows, d)."""
        features = np.empty((scaled.rows, self.dimension))
        self.write(scaled, features, self.parts)
        return features

    def write(self, scaled: ScaledTable, features: Array, parts: Sequence[str]) -> None:
        """Write some parts' features side by side into an array of shape (rows, their widths)."""
        within = scaled if self.ranges is None else self.ranges.within(scaled)
        centred: Array = np.zeros((scaled.rows, 0))
        if set(parts) != {"fourier"}:  # which are made of codes and cells
            centred = self.lines_of(scaled)
        start = 0
        for part in parts:
            stop = start + self.width(part)
            place = features[:, start:stop]
            if part == "fourier":
                self.waves.write(within, place, scale=self.scale(part))
            elif features.flags.f_contiguous:
                self._write_moments(part, centred, place)
            else:  # columns are short in memory: made one after the other, and then turned
                columns = np.empty(place.shape, order="F")
                self._write_moments(part, centred, columns)
                place[:] = columns
            start = stop

    def waves_sum(self, scaled: ScaledTable, *, unit: float) -> NDArray[np.int64]:
        """Sums over rows of the Fourier features, each rounded to whole units."""
        within = scaled if self.ranges is None else self.ranges.within(scaled)
        return self.waves.sum_in(within, unit=unit, scale=self.scale("fourier"))

    def scale(self, part: str) -> float:
        """Factor of a part's features."""
        return self.shares[part] / math.sqrt(self._squared_norm(part))

    def _write_moments(self, part: str, centred: Array, features: Array) -> None:
        if (squares := self.squares_of(part)) is not None:
            np.subtract(centred[:, squares] ** 2, 0.125, out=features)
        else:
            start = 0
            for a, b in self.blocks_of(part):
                if b is None:
                    stop = start + a.stop - a.start
                    features[:, start:stop] = centred[:, a.start : a.stop]
                    start = stop
                    continue
                widths = (a.stop - a.start, b.stop - b.start)
                stop = start + widths[0] * widths[1]
                np.multiply(
                    centred[:, a.start : a.stop, None],
                    centred[:, None, b.start : b.stop],
                    out=features[:, start:stop].reshape(len(centred), *widths),
                )
                start = stop
        features *= self.scale(part)

    @cached_property
    def waves(self) -> Waves:
        """The unscaled map of `fourier`."""
        return Waves(
            schema=self.schema, frequencies=self.frequencies, scales=self.scales,
            omega_seed=self.omega_seed, bundles=self.bundles,
        )  # fmt: skip


def _lines(term: Term) -> list[Line]:
    """The lines of a term's factors; that of complete rows if it has none."""
    return [(name, form, term.complete) for name, form in term.factors or (("", OWN),)]


def all_features(stack: Stack, known: OneWayLaw | None, scaled: ScaledTable) -> Array:
    """Measured features, then those of the known marginals, shape (n, d)."""
    width = stack.dimension + (0 if known is None else known.dimension)
    features = np.empty((scaled.rows, width))
    start = 0
    for block in scaled.batches(_BLOCK):
        place = features[start : start + block.rows]
        stack.write(block, place[:, : stack.dimension], stack.parts)
        if known is not None:
            place[:, stack.dimension :] = known.matrix(block)
        start += block.rows
    return features
