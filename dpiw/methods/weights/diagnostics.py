"""Whether weights may be used: effective sample size, k-hat, and a verdict with its public rule.

Free for released weights; from non-private ones it would leak (docs/method.md section 11).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError

Array = NDArray[np.float64]

MIN_ROWS = 25
"""Fewest rows for a k-hat: a tail needs five, a fifth of them."""

ESS_SHARE_USE, ESS_SHARE_CARE = 0.3, 0.05
ESS_CARE = 50.0
K_HAT_USE, K_HAT_CARE = 0.7, 1.0
STANDS_OUT = 0.25
"""Least share of the sum of squared weights by which the five largest exceed the others for a large
k-hat to count. Pareto weights of shape >= 0.7 nearly always reach it; nearly tied or two-valued
weights, whose k-hat may be 10, do not from 500 rows on."""

RULE = (
    "use: k-hat < min(1 - 1/log10(rows), 0.7), effective sample size >= 30% of the rows, and at"
    " least 25 rows. "
    "use with care: k-hat < 1, effective sample size >= 5% of the rows and >= 50 (or 99.9% of the"
    " rows). do not use: otherwise. k-hat: shape of a generalised Pareto law fitted to the largest"
    " weights; none when they are all equal, or when it is too large and the five largest exceed"
    " the others by less than a quarter of the sum of squared weights, which passes."
)
"""The verdict's rule, with the constants of this module."""


class Verdict(enum.Enum):
    """Whether the weights may be used."""

    USE = "use"
    CARE = "use with care"
    DO_NOT_USE = "do not use"


class Objection(NamedTuple):
    """What keeps a value from `use`: the best verdict that remains, and the reason."""

    leaves: Verdict
    reason: str


def objection(care: bool, not_at_all: bool, reason: str) -> list[Objection]:
    """One that leaves `do not use` if `not_at_all`, else `use with care` if `care`; or none."""
    leaves = Verdict.DO_NOT_USE if not_at_all else Verdict.CARE
    return [Objection(leaves, reason)] if care or not_at_all else []


def worst(objections: Iterable[Objection]) -> Verdict:
    """The worst verdict of these objections; `use` where there are none."""
    order = tuple(Verdict)
    return max((objection.leaves for objection in objections), key=order.index, default=Verdict.USE)


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """Public diagnostics of one weight vector.

    Attributes:
        effective_sample_size: Kish: (sum w)^2 / sum w^2, without the privacy noise.
        k_hat: Pareto shape of the tail; None if constant, too short, or no tail (`STANDS_OUT`).
        noise: standard deviation of the privacy noise in a log weight; None when not given.
    """

    rows: int
    effective_sample_size: float
    design_effect: float
    k_hat: float | None
    verdict: Verdict
    reasons: tuple[str, ...]
    noise: float | None = None
    rule: str = RULE

    def to_json(self) -> dict[str, Any]:
        """JSON values for certificate and report."""
        return asdict(self) | {"verdict": self.verdict.value, "reasons": list(self.reasons)}

    def judged_with(self, findings: Sequence[Objection], *, rule: str) -> Self:
        """With further findings, and `rule` appended to the public rule."""
        return replace(
            self,
            verdict=worst([Objection(self.verdict, ""), *findings]),
            reasons=(*self.reasons, *(finding.reason for finding in findings)),
            rule=self.rule + rule,
        )


def relative_weights(log_weights: Array) -> Array:
    """Weights over the largest one, shape (n,), or WeightError."""
    if log_weights.ndim != 1 or log_weights.size == 0 or not np.all(np.isfinite(log_weights)):
        raise WeightError(
            field="weights", allowed="a vector of finite log weights, at least one row"
        )
    return np.asarray(np.exp(log_weights - log_weights.max()))


def effective_sample_size(log_weights: Array) -> float:
    """Kish's (sum w)^2 / sum w^2, between 1 and the number of rows; free of the weights' scale."""
    weights = relative_weights(log_weights)
    return float(weights.sum() ** 2 / (weights**2).sum())


def fit_generalised_pareto(excesses: Array) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto law from positive excesses, shape (m,).

    Source: Zhang & Stephens (2009), with the prior of Vehtari et al. (2024), appendix G.
    """
    ordered = np.sort(excesses)
    count = ordered.size
    grid = 30 + math.floor(math.sqrt(count))
    quartile = ordered[math.floor(count / 4 + 0.5) - 1]
    steps = np.arange(1, grid + 1)
    theta = 1 / ordered[-1] + (1 - np.sqrt(grid / (steps - 0.5))) / (3 * quartile)
    theta[theta == 0] = 1e-12 / ordered[-1]  # of tied weights; there 0/0 has this limit
    shapes = np.array([np.log1p(-value * ordered).mean() for value in theta])
    profile = count * (np.log(-theta / shapes) - shapes - 1)
    posterior = np.exp(profile - profile.max())
    best = float(theta @ posterior / posterior.sum())
    raw = float(np.log1p(-best * ordered).mean())
    return (count * raw + 10 * 0.5) / (count + 10), -raw / best


def tail_length(rows: int) -> int:
    """ceil(min(rows/5, 3 sqrt(rows))): Vehtari et al. (2024), section 3."""
    return math.ceil(min(0.2 * rows, 3 * math.sqrt(rows)))


def k_hat(log_weights: Array) -> float | None:
    """Pareto shape of the largest weights; None when they are too few or all equal.

    Source: Vehtari et al. (2024), Pareto smoothed importance sampling, sections 2 and 3.
    """
    weights = relative_weights(log_weights)
    count = tail_length(weights.size)
    if weights.size < MIN_ROWS or count >= weights.size:
        return None
    weights = np.sort(np.partition(weights, -count - 1)[-count - 1 :])
    excesses = weights[1:] - weights[0]
    # Ties with the cutoff are no excesses; rounding makes spurious ones.
    excesses = excesses[excesses > 1e-12 * weights[-1]]
    if excesses.size < 5 or excesses[-1] - excesses[0] <= 1e-12 * weights[-1]:
        return None
    return fit_generalised_pareto(excesses)[0]


def k_hat_threshold(rows: int) -> float:
    """min(1 - 1/log10(rows), 0.7): above it the estimate's error is large for this many rows."""
    return min(1 - 1 / math.log10(max(rows, 2)), K_HAT_USE)


@dataclass(frozen=True, kw_only=True)
class Stability:
    """How much weights depend on few rows: the one rule of a release and of its intervals."""

    rows: int
    effective_sample_size: float
    k_hat: float | None

    @classmethod
    def of(cls, log_weights: Array, *, tail: Array | None = None) -> Stability:
        """Judge finite log weights, shape (n,), of any scale; k-hat is that of `tail`, if given."""
        size = effective_sample_size(log_weights)
        shape = _tail_shape(log_weights if tail is None else tail)
        return cls(rows=log_weights.size, effective_sample_size=size, k_hat=shape)

    @property
    def findings(self) -> list[Objection]:
        """What keeps the weights from `use`."""
        size, share = self.effective_sample_size, self.effective_sample_size / self.rows
        few = share < ESS_SHARE_CARE or (share < 0.999 and size < ESS_CARE)
        return [
            *objection(self.rows < MIN_ROWS, False, f"{self.rows} rows are too few for a tail fit"),
            *objection(
                share < ESS_SHARE_USE, few,
                f"effective sample size {size:.1f} ({share:.0%} of the rows)",
            ),
            *tail_findings(self.k_hat, k_hat_threshold(self.rows)),
        ]  # fmt: skip


def tail_findings(shape: float | None, most: float, *, whose: str = "") -> list[Objection]:
    """Objections to a k-hat of at least `most`; see `Stability`."""
    if shape is None:
        return []
    text = f"k-hat{whose} {shape:.2f} (expected < {most:.2f})"
    return objection(shape >= most, shape >= K_HAT_CARE, text)


def _tail_shape(log_weights: Array) -> float | None:
    shape = k_hat(log_weights)
    if shape is None or shape < k_hat_threshold(log_weights.size):
        return shape
    count = tail_length(log_weights.size)
    weights = relative_weights(log_weights)
    largest = np.sort(np.partition(weights, -count - 1)[-count - 1 :])
    beyond = float((largest[-5:] ** 2 - largest[0] ** 2).sum())
    return shape if beyond >= STANDS_OUT * float((weights**2).sum()) else None


def diagnose(log_weights: Array, *, raw: Array | None = None) -> Diagnostics:
    """Diagnose log weights, shape (n,), by `RULE`; `raw`: before smoothing and clipping, for k-hat.

    Raises:
        WeightError: no rows, or a log weight that is not finite.
    """
    stability = Stability.of(log_weights, tail=raw)
    effect = stability.rows / stability.effective_sample_size
    facts = Diagnostics(**vars(stability), design_effect=effect, verdict=Verdict.USE, reasons=())
    return facts.judged_with(stability.findings, rule="")


def unsupported(support: float, *, use: float, care: float) -> list[Objection]:
    """The objection to a support below `use`, if any."""
    if support >= use:
        return []
    if math.isnan(support):
        return objection(True, True, f"support not known (expected >= {use:g})")
    # Cut, not rounded: so that no message shows 0.85 where 0.85 was expected.
    text = f"support {math.floor(100 * support) / 100:.2f} (expected >= {use:g})"
    return objection(True, support < care, text)
