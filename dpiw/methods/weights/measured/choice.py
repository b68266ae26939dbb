"""A private choice of the blocks of features that the sum measures, before it is drawn.

A block is the table of two columns, or a bundle of random frequencies; its features have norm at
most one. Its score is how far the private rows are from the generator's in it, in rows, beyond the
noise of measuring it: ||sum_i (phi(x_i) - m)||_2 / (1 + ||m||_2), m the generator's mean, less
the noise's expected norm. The exponential mechanism chooses without replacement. Source: McKenna
et al. (2022), AIM; docs/method.md section 14.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import CodeTable, Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import ReleaseError
from dpiw.methods.base import TABLE_ROW_SECONDS, TABLE_SECONDS, Running
from dpiw.methods.weights.measured.constants import MOST_FITTED
from dpiw.methods.weights.measured.fourier import UNIT, Waves
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.questions import BINS, OWN, Term
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

Array = NDArray[np.float64]

MOST_BINS = 16
"""Bins of a number that declares neither `bins` nor `cuts`."""

MOST_CELLS = 512
"""Most cells of a table."""

FREQUENCIES = 128
"""Random frequencies of a bundle, two features each."""

SCALES, BUNDLES = (1.5, 2.0, 3.0, 4.0), 6
"""Scales of frequencies, in public scales (`fourier.public_scale`), and bundles of each scale."""

MOST_CHOSEN = 1536
"""Most features of all chosen blocks."""

MOST_COUNTED = 2**22
"""Most features of all that may be chosen: dpiw holds three numbers for each, and counts each."""

_WAVE_SECONDS = 4.5e-9
"""Seconds per row and feature of a bundle, whose sums no weights follow (`SCORED` in
tests/dpiw/plan/test_running.py)."""

_NORMS = "cube_root_of_width"
"""How blocks share their norm (`Chosen.norms`), as measurements state it."""

Table = tuple[str, str]
Bundle = tuple[float, int]
"""The scale of some frequencies, and which of the bundles of that scale."""

EFFORT = 0.05
"""Share of the weights' effort for all choices. A tenth scored no better on NIST's ten columns."""

_SLACK = 2.0**-10
"""Rows by which the rounding of one row, and doubles, may move a score: far more than they do."""

_MOST_SCORE = 2.0**30
"""Scores are cut there, in rows and in sensitivities over epsilon: no two move further apart, and
all are on the lattice of `mechanisms.select`, whatever the rows."""


def table_domain(schema: PublicSchema) -> Domain:
    """The codes of every released column in a table."""
    return Domain.from_schema(schema, bins=MOST_BINS)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Blocks of features: tables of two columns, in the schema's order, and bundles."""

    tables: tuple[Table, ...] = ()
    bundles: tuple[Bundle, ...] = ()

    @classmethod
    def candidates(cls, schema: PublicSchema, *, tables: bool = True, bundles: bool = True) -> Self:
        """All that may be chosen."""
        sizes = dict(zip(names_of(schema), table_domain(schema).sizes, strict=True))
        pairs = itertools.combinations([name for name, size in sizes.items() if size > 1], 2)
        small = tuple((a, b) for a, b in pairs if sizes[a] * sizes[b] <= MOST_CELLS)
        every = tuple(itertools.product(SCALES, range(BUNDLES)))
        return cls(tables=small if tables else (), bundles=every if bundles else ())

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.tables) + len(self.bundles)

    def widths(self, schema: PublicSchema) -> list[int]:
        """Number of features of each block, tables first."""
        sizes = dict(zip(names_of(schema), table_domain(schema).sizes, strict=True))
        return [*(sizes[a] * sizes[b] for a, b in self.tables)] + [2 * FREQUENCIES] * len(
            self.bundles
        )

    def norms(self, schema: PublicSchema) -> Array:
        """Norm of each block, shape (count,), in the order of `widths`; together at most one.

        In proportion to the cube root of a block's width: given the norm of all, noise then moves
        the cells of all blocks by the least sum of absolute errors.
        """
        roots = np.cbrt(np.array(self.widths(schema), dtype=np.float64))
        return np.asarray(roots / max(1.0, float(np.linalg.norm(roots))))

    def scoring(self, schema: PublicSchema, *, rows: int) -> Running:
        """Time and memory of all blocks' sums over so many rows."""
        waves = 2 * FREQUENCIES * len(self.bundles)
        row = TABLE_ROW_SECONDS * len(self.tables) + _WAVE_SECONDS * waves
        return Running(
            seconds=TABLE_SECONDS * len(self.tables) + row * rows,
            held_bytes=24 * sum(self.widths(schema)),
        )

    def taken(self, indices: Iterable[int]) -> Self:
        """Some of the blocks, by index, tables first; in this order."""
        of_tables, places = len(self.tables), sorted(indices)
        return type(self)(
            tables=tuple(self.tables[j] for j in places if j < of_tables),
            bundles=tuple(self.bundles[j - of_tables] for j in places if j >= of_tables),
        )

    @staticmethod
    def term(table: Table, schema: PublicSchema) -> Term:
        """The products of both columns' centred indicators."""
        forms = [BINS if schema.column(name).is_numeric else OWN for name in table]
        return Term(factors=tuple(zip(table, forms, strict=True)))

    def seeds(self, omega_seed: int) -> tuple[int, ...]:
        """A public seed of each bundle's frequencies."""
        places = (BUNDLES * SCALES.index(scale) + number for scale, number in self.bundles)
        return tuple((omega_seed + 1 + place) % 2**64 for place in places)

    def to_json(self) -> dict[str, Any]:
        """JSON values for measurements and certificates."""
        if not self.count:
            return {}
        tables, bundles = ([[*block] for block in kind] for kind in (self.tables, self.bundles))
        return {"chosen": {"tables": tables, "bundles": bundles, "norms": _NORMS}}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], schema: PublicSchema) -> Self:
        """Read what `to_json` wrote; ReleaseError unless they are candidates of this schema."""
        if "chosen" not in facts:
            return cls()
        stated, every = facts["chosen"], cls.candidates(schema)
        try:
            found = cls(
                tables=tuple((a, b) for a, b in stated["tables"]),
                bundles=tuple((float(scale), index(number)) for scale, number in stated["bundles"]),
            )
            good = {*found.tables} <= {*every.tables} and {*found.bundles} <= {*every.bundles}
            good = good and len({*found.tables, *found.bundles}) == found.count
            good = good and sum(found.widths(schema)) <= MOST_CHOSEN and stated["norms"] == _NORMS
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            good = False
        if not good:
            raise ReleaseError(
                field="chosen",
                allowed=f"pairs of the schema's columns, and bundles, each once, of at"
                f" most {MOST_CHOSEN} features, with norms by {_NORMS}",
            )
        return found


def names_of(schema: PublicSchema) -> list[str]:
    """Names of the released columns."""
    return [column.name for column in schema.released]


def epsilon_of(*, rho: float, count: int) -> float:
    """Of each choice: `count` of them cost rho, as each is epsilon^2/8-zCDP."""
    return math.sqrt(8 * rho / count)


def score_sensitivity(unit: PrivacyUnit) -> float:
    """Most that a unit changes a score, doubles' errors included.

    A row that is added or removed moves it by at most one, as phi - m is no longer than 1 + ||m||,
    and one that is replaced by at most two.
    """
    replaced = unit.relation is NeighbouringRelation.REPLACE_ONE
    return unit.max_rows * ((2 if replaced else 1) + _SLACK)


def chosen_blocks(
    every: Chosen,
    table: PrivateTable,
    synthetic: SyntheticTable,
    *,
    ranges: Ranges,
    omega_seed: int,
    count: int,
    epsilon: float,
    scale: float,
    unit: PrivacyUnit,
    noise: NoiseSource,
) -> Chosen:
    """Choose at most `count` blocks of `every`, of at most `MOST_CHOSEN` features together.

    Privacy:
        Unit: `unit`. At most `count` events of `mechanisms.select`, each with `epsilon`, of scores
        of `score_sensitivity`. `synthetic` is public, and so is `scale`, of the noise of a block
        that has all the norm. What has room depends on earlier choices and on public widths alone.
    """
    waves = Waves(
        schema=table.schema, frequencies=FREQUENCIES * len(every.bundles), omega_seed=omega_seed,
        scales=tuple(scale for scale, _ in every.bundles), bundles=every.seeds(omega_seed),
    )  # fmt: skip
    known, public_rows = _summed(every, waves, ranges, synthetic.first(MOST_FITTED))
    sums, rows = _summed(every, waves, ranges, table)
    scores, widths = np.zeros(every.count), every.widths(table.schema)
    sensitivity = score_sensitivity(unit)
    most = _MOST_SCORE * min(1.0, sensitivity / epsilon)
    noises = scale / (every.norms(table.schema) * math.sqrt(every.count / count))
    for j, (total, own) in enumerate(zip(sums, known, strict=True)):
        mean = own / public_rows
        away = float(np.linalg.norm(total - rows * mean)) / (1 + float(np.linalg.norm(mean)))
        scores[j] = min(away, most) - noises[j] * math.sqrt(mean.size)
    chosen: list[int] = []
    for _ in range(count):
        room = MOST_CHOSEN - sum(widths[j] for j in chosen)
        left = [j for j in range(len(widths)) if j not in chosen and widths[j] <= room]
        if not left:
            break
        picked = mechanisms.select(
            scores[left], epsilon=epsilon, sensitivity=sensitivity, noise=noise
        )
        chosen.append(left[picked])
    return every.taken(chosen)


def _summed(
    every: Chosen, waves: Waves, ranges: Ranges, table: PrivateTable | SyntheticTable
) -> tuple[list[Array], int]:
    """By block, tables first: the sum of its features of norm one; and the number of rows.

    Privacy:
        Exact: of private rows it is confidential.
    """
    domain, names = table_domain(table.schema), names_of(table.schema)
    codes = CodeTable(domain=domain, columns=tuple(range(len(names))))
    pairs = [(names.index(a), names.index(b)) for a, b in every.tables]
    shapes = [(domain.sizes[a], domain.sizes[b]) for a, b in pairs]
    counts = [np.zeros(a * b, dtype=np.int64) for a, b in shapes]
    turns = np.zeros(2 * FREQUENCIES * len(every.bundles), dtype=np.int64)
    rows = 0
    for batch in table.batches():
        rows += batch.rows
        lines = codes.lines(batch) if pairs else np.zeros((0, 0), dtype=np.intp)
        for (a, b), total in zip(pairs, counts, strict=True):
            cells = lines[a] * domain.sizes[b] + lines[b]
            total += np.bincount(cells, minlength=total.size)
        if every.bundles:
            turns += waves.sum_in(ranges.within(batch), unit=UNIT, scale=1.0)
    tables = [_centred(each.reshape(shape)) for each, shape in zip(counts, shapes, strict=True)]
    return [*tables, *_by_bundle(turns * UNIT, len(every.bundles))], rows


def _centred(counts: NDArray[np.int64]) -> Array:
    """The sum of products of both columns' centred indicators, each row's of norm one."""
    a, b = counts.shape
    total = counts - counts.mean(axis=0) - counts.mean(axis=1)[:, None] + counts.mean()
    return np.asarray(total / math.sqrt((1 - 1 / a) * (1 - 1 / b))).reshape(-1)


def _by_bundle(turns: NDArray[np.floating[Any]], bundles: int) -> list[Array]:
    """Each bundle's sum, of norm one a row: all cosines come first, of norm one together."""
    parts = turns.reshape(2, bundles, FREQUENCIES).swapaxes(0, 1) * math.sqrt(bundles)
    return [np.asarray(part).reshape(-1) for part in parts]
