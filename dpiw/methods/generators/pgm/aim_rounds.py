"""What AIM does between its draws: candidates, scores, prices of rounds, drawn marginals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, pi, prod, sqrt
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.bayesian_network import MOST_CELLS, score_sensitivity
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import NoisyMarginal, one_way_tables, pooled
from dpiw.methods.generators.marginal_noise import noise_scale
from dpiw.methods.generators.pgm.inference import (
    FittedModel,
    families_of,
    fit,
    pairs_cells,
    rows_of,
)
from dpiw.methods.generators.pgm.pairs import UNIT, admissible_pairs, distance
from dpiw.privacy import mechanisms
from dpiw.privacy.gaussian import gaussian_multiplier
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit

Columns = tuple[int, ...]

SELECTION = 0.1
"""Share of a round that its selection gets. Source: AIM, algorithm 2."""

PARTS = 16
"""Parts of the effort per column: one for its marginal, the rest for rounds (AIM, algorithm 2)."""


MOST_BYTES = 2 << 30
"""Memory of rounds besides the table: half of the least `max_memory_bytes` of a spec."""


MOST_MEMBERS = 32
"""Most columns of one table: NumPy arrays have no more axes everywhere."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """Price (`parts` >= 1) and noise of a round; `part` is the multiplier that costs one part."""

    part: float
    parts: int

    @property
    def multiplier(self) -> float:
        """Noise multiplier of the round's marginal."""
        return self.part / sqrt((1 - SELECTION) * self.parts)

    @property
    def epsilon(self) -> float:
        """Of the round's selection, which a Gaussian mechanism of its share dominates."""
        # `gaussian_multiplier` is proportional to 1/epsilon.
        return gaussian_multiplier(1.0) * sqrt(SELECTION * self.parts) / self.part

    def next(self, *, left: int, most: int, taught: bool) -> Round:
        """Return the next round; `left` parts remain, `taught` if the model moved beyond noise."""
        parts = min(self.parts if taught else 4 * self.parts, most)
        if left < 2 * parts:
            parts = min(left, most)
        return Round(part=self.part, parts=min(parts, left))


@dataclass(frozen=True, kw_only=True)
class Workload:
    """All admissible pairs of columns, and their candidate marginals; limits are in cells."""

    sizes: tuple[int, ...]
    max_cells: int
    max_model_cells: int

    def weights(self) -> dict[Columns, int]:
        """Weight of every candidate: columns that it shares with the workload's pairs, summed."""
        pairs = self._pairs()
        single = [sum(j in pair for pair in pairs) for j in range(len(self.sizes))]
        weights: dict[Columns, int] = {(j,): max(1, weight) for j, weight in enumerate(single)}
        return weights | {(a, b): single[a] + single[b] for a, b in pairs}

    def held_bytes(self) -> int:
        """Public bound on the memory of rounds besides the table.

        Counts models before and after and two of a fit, one column's answers, and all counts.
        """
        sizes = self.sizes
        largest = min(MOST_CELLS, prod(sizes))
        model = min(self.max_model_cells, len(sizes) * largest)
        most_cells = max([*sizes, *(sizes[a] * sizes[b] for a, b in self._pairs())])
        rounds = 1 + (PARTS - 1) * len(sizes)
        answers = (len(sizes) - 1) * most_cells
        return 8 * (4 * model + pairs_cells(model, largest) + answers + 8 * rounds * most_cells)

    def _pairs(self) -> list[tuple[int, int]]:
        return list(admissible_pairs(self.sizes, self.max_cells))

    def affordable(self, cliques: Sequence[Columns], *, share: float) -> Iterator[Columns]:
        """Return candidates whose model, with measured cliques, fits this share of the effort."""
        inside = [set(family.members) for family in families_of(self.sizes, cliques)]
        for columns in self.weights():
            if any(family.issuperset(columns) for family in inside):
                yield columns
                continue
            families = families_of(self.sizes, [*cliques, columns])
            cells = [prod(self.sizes[j] for j in family.members) for family in families]
            if (
                sum(cells) <= share * self.max_model_cells
                and max(cells) <= MOST_CELLS
                and max(len(family.members) for family in families) <= MOST_MEMBERS
            ):
                yield columns


def score(
    counts: NDArray[np.int64], expected: NDArray[np.float64], *, weight: int, stddev: float
) -> float:
    """AIM's quality of a candidate: the model's distance beyond the noise of measuring it.

    Privacy:
        Exact, hence confidential; one row moves it by at most `weight`. Only for
        `mechanisms.select`.

    Source: McKenna et al. (2022), equation 1.
    """
    penalty = floor(noise_length(counts.size, stddev) * UNIT)
    return weight * (distance(counts, expected) - penalty) / UNIT


def noise_length(cells: int, stddev: float) -> float:
    """Expected L1 norm of Gaussian noise."""
    return sqrt(2 / pi) * stddev * cells


def expected_counts(
    model: FittedModel, candidates: Iterable[Columns], rows: float
) -> Iterator[tuple[Columns, NDArray[np.float64]]]:
    """The model's counts of each candidate, in rows; holds those of one first column at once."""
    alone = {
        family.child: table.reshape(-1, table.shape[-1]).sum(axis=0)
        for family, table in zip(model.families, model.tables, strict=True)
    }
    for first, group in groupby(sorted(candidates), key=itemgetter(0)):
        cliques = list(group)
        pairs = model.pairs(first, [clique[1] for clique in cliques if len(clique) > 1])
        for clique in cliques:
            yield clique, rows * (alone[first] if len(clique) == 1 else pairs[clique[1]])


def drawn_marginals(drawn: Measurement) -> list[NoisyMarginal]:
    """Noisy marginals of a measurement or checkpoint, in the order drawn."""
    facts, sizes = drawn.facts, drawn.facts["sizes"]
    variance = facts["one_way_scale"] ** 2
    marginals = one_way_tables(drawn.arrays, len(sizes), variance=variance)
    start = 0
    for columns, _, scale in facts["network"]:
        shape = tuple(sizes[j] for j in columns)
        values = drawn.arrays["rounds"][start : start + prod(shape)].reshape(shape)
        marginals.append(NoisyMarginal(columns=tuple(columns), values=values, variance=scale**2))
        start += values.size
    return marginals


def spent(drawn: Measurement) -> int:
    """Parts that the rounds of a measurement or checkpoint have cost."""
    return sum(parts for _, parts, _ in drawn.facts["network"])


def fitted(drawn: Measurement) -> FittedModel:
    """Fit all that was drawn, of noisy counts alone."""
    marginals = pooled(drawn_marginals(drawn))
    return fit(marginals, drawn.facts["sizes"], total=rows_of(marginals))


def draw_round(
    counter: ContingencyCounter,
    drawn: Measurement,
    expected: Iterable[tuple[Columns, NDArray[np.float64]]],
    *,
    price: Round,
    weights: Mapping[Columns, int],
    unit: PrivacyUnit,
    noise: NoiseSource,
) -> Measurement:
    """Draw one selection and the noisy marginal that it chose, and append them to `drawn`.

    Privacy:
        Unit: `unit`. Selection: one row moves a score by at most its weight.
        Marginal: L2 of `dpiw.methods.generators.marginal_noise.marginal_sensitivity`.
        Event: together at most `price.parts` Gaussian mechanisms of multiplier `price.part`.
    """
    scale = noise_scale(NoiseKind.GAUSSIAN, multiplier=price.multiplier, unit=unit)
    scores: dict[Columns, float] = {}
    for _, group in groupby(expected, key=lambda item: item[0][0]):
        estimates = dict(group)  # of one first column: so many are held, and counted in one pass
        for clique, counts in zip(estimates, counter.each(estimates), strict=True):
            scores[clique] = score(counts, estimates[clique], weight=weights[clique], stddev=scale)
    candidates = list(scores)
    chosen = mechanisms.select(
        np.array(list(scores.values())),
        epsilon=price.epsilon,
        sensitivity=score_sensitivity(unit) * max(weights[clique] for clique in candidates),
        noise=noise,
    )
    columns = candidates[chosen]
    counts = counter.count(columns)
    values = noisy_marginal(counts, kind=NoiseKind.GAUSSIAN, scale=scale, noise=noise)
    network = [*drawn.facts["network"], [list(columns), price.parts, scale]]
    rounds = np.append(drawn.arrays["rounds"], values.ravel())
    return replace(
        drawn, arrays={**drawn.arrays, "rounds": rounds}, facts={**drawn.facts, "network": network}
    )


def taught(before: FittedModel, after: FittedModel, drawn: Measurement) -> bool:
    """Whether the last round moved the model by more than its noise. Source: AIM, algorithm 3."""
    columns, _, scale = drawn.facts["network"][-1]
    rows, same = rows_of(drawn_marginals(drawn)), tuple(columns)
    old, new = (dict(expected_counts(model, [same], rows))[same] for model in (before, after))
    return float(np.abs(new - old).sum()) > noise_length(old.size, scale)
