"""Attacks: how much of a mechanism's epsilon a distinguisher can prove by running it.

A score is computed from each of many outputs in two worlds, `without` and `with` one person. Half
of the outputs choose an event {score >= t} or {score < t}; the other half count it. The bound on
epsilon that follows is wrong, that is above the truth, with probability at most `ERROR`
(Clopper-Pearson, both counts), whatever the scores are: a bad score only makes it small.

Three kinds of claim, after what is claimed:

- `Pure`: ln(p/q), for events of a pure epsilon.
- `Gaussian`: the whole trade-off curve of a Gaussian mechanism of parameter mu is claimed, so one
  event bounds mu, and with it epsilon at the release's delta (Nasr et al. 2023, Zanella-Beguelin et
  al. 2023). A bound above the claimed mu refutes the claimed curve.
- `Approximate`: ln((p - delta)/q) at a delta large enough to be seen.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpiw.privacy import accounting
from dpiw.privacy.events import GaussianEvent, PoissonSampledGaussianEvent, PrivacyEvent
from dpiw.privacy.gaussian import gaussian_epsilon
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.support.draws import Still

Vector = NDArray[np.float64]

ERROR = 1e-8
"""Probability that a bound is above the truth. A hundred bounds: 1e-6 in all."""

DELTA = 1e-6
"""At which epsilons of Gaussian claims are stated."""

_CHOOSING = 0.5
_THRESHOLDS = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pure:
    """(epsilon, 0). `proved` is the least epsilon under which an event can be so (un)likely."""

    epsilon: float

    def proved(self, q: Any, p: Any) -> Any:
        return np.log(p / q)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Approximate:
    """(epsilon, delta) at one delta."""

    epsilon: float
    delta: float

    def proved(self, q: Any, p: Any) -> Any:
        return np.log(np.maximum(p - self.delta, 1e-300) / q)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian:
    """The curve of a Gaussian mechanism of parameter mu = sensitivity / standard deviation."""

    mu: float

    @property
    def epsilon(self) -> float:
        return gaussian_epsilon(1 / self.mu, DELTA)

    def proved(self, q: Any, p: Any) -> Any:
        mu = stats.norm.ppf(p) - stats.norm.ppf(q)
        if np.ndim(mu):
            return mu  # for choosing a threshold: epsilon increases in it
        return gaussian_epsilon(1 / mu, DELTA) if mu > 0 else 0.0


Claim = Pure | Approximate | Gaussian


def claim_of(events: Sequence[PrivacyEvent], *, delta: float = 0.2) -> Claim:
    """As the accountant has it; a claim neither pure nor all Gaussian is tested at `delta`."""
    squares = 0.0
    for event in events:
        whole = isinstance(event, PoissonSampledGaussianEvent) and event.sampling_probability == 1
        if not (isinstance(event, GaussianEvent) or whole):
            break
        squares += event.count / event.noise_multiplier**2
    else:
        return Gaussian(mu=math.sqrt(squares) * (1 + accounting.LATTICE_MARGIN))
    bounds = accounting.epsilon_bounds(events, delta=0.0)
    if math.isfinite(bounds.sum):
        return Pure(epsilon=bounds.sum)
    return Approximate(epsilon=accounting.epsilon(events, delta=delta), delta=delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """What an attack proved by `runs` outputs a world; wrong with probability `ERROR` at most."""

    lower: float
    claimed: float
    runs: int

    @property
    def share(self) -> float:
        """Proved epsilon over claimed epsilon; above 1 the claim is refuted."""
        return self.lower / self.claimed

    def __str__(self) -> str:
        return f"{self.lower:.3f} of {self.claimed:.3f} ({self.share:.2f}), n={self.runs}"


def lowest(hits: Any, runs: int) -> Any:
    """Clopper-Pearson bound from below on a probability."""
    bounds = stats.beta.ppf(ERROR / 2, hits, runs - np.asarray(hits) + 1)
    return np.where(np.asarray(hits) > 0, np.nan_to_num(bounds), 0.0)


def highest(hits: Any, runs: int) -> Any:
    """Clopper-Pearson bound from above on a probability."""
    return 1 - lowest(runs - np.asarray(hits), runs)


def _value(claim: Claim, quiet: Any, loud: Any, runs: int) -> Any:
    """What an event proves that `quiet` runs show where it is rarer, `loud` in the other world."""
    with np.errstate(all="ignore"):
        p, q = lowest(loud, runs), highest(quiet, runs)
        return np.where(p > q, claim.proved(q, p), 0.0) if np.ndim(p) else float(
            claim.proved(float(q), float(p)) if p > q else 0.0
        )  # fmt: skip


def proved(without: Sequence[float], within: Sequence[float], claim: Claim) -> Bound:
    """The bound that scores of two worlds prove, as many in each."""
    worlds = [np.asarray(world, dtype=np.float64) for world in (without, within)]
    runs = len(worlds[0])
    assert len(worlds[1]) == runs
    cut = int(_CHOOSING * runs)
    early, late = [w[:cut] for w in worlds], [w[cut:] for w in worlds]
    rest = runs - cut
    pooled = np.concatenate(early)
    thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, _THRESHOLDS)))
    # What each event would prove if the other half showed the same shares; smoothed, so that an
    # event that was never seen in one world is not taken for impossible there.
    shares = [(np.sort(w).searchsorted(thresholds) + 1) / (cut + 2) for w in early]  # {score < t}
    above = _value(claim, rest * (1 - shares[0]), rest * (1 - shares[1]), rest)
    below = _value(claim, rest * shares[1], rest * shares[0], rest)
    up = float(np.max(above)) >= float(np.max(below))
    threshold = thresholds[int(np.argmax(above if up else below))]
    hits = [int(np.sum(w >= threshold if up else w < threshold)) for w in late]
    quiet, loud = hits if up else reversed(hits)
    lower = _value(claim, quiet, loud, rest)
    return Bound(lower=max(0.0, float(lower)), claimed=claim.epsilon, runs=runs)


def log_likelihood_ratio(
    kind: NoiseKind, scale: float, output: Vector, without: Vector, within: Vector
) -> float:
    """Of an output of additive noise, the two exact values known: the strongest score there is."""
    far, near = (output - without).ravel(), (output - within).ravel()
    if kind is NoiseKind.GAUSSIAN:
        return float(far @ far - near @ near) / (2 * scale**2)
    if kind is NoiseKind.LAPLACE:
        return float(np.abs(far).sum() - np.abs(near).sum()) / scale
    return float(np.linalg.norm(far) - np.linalg.norm(near)) / scale


def _scaled(name: str) -> Callable[..., Any]:
    real = getattr(SeededNoise, name)

    def draw(self, *args, scale, **rest):
        return real(self, *args, scale=self.factor * scale, **rest)

    return draw


class Scaled(SeededNoise):
    """Seeded noise of `factor` times the scale it is asked for: 1/2 is the planted bug."""

    def __init__(self, seed: int, factor: float) -> None:
        super().__init__(seed)
        self.factor = factor

    discrete_gaussian = _scaled("discrete_gaussian")
    discrete_laplace = _scaled("discrete_laplace")
    spherical_laplace = _scaled("spherical_laplace")
    gaussian_vector = _scaled("gaussian_vector")
    noisy_argmax = _scaled("noisy_argmax")


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """A mechanism on two neighbouring tables, and an attack on it.

    `attack`: from (with the canary?, noise) to the score of one output. `tight`: least share of the
    claim that the full figures must reach. `few`: the share of the usual number of runs that is
    affordable. `faint`: the factor on the noise that the full figures must refute.
    """

    attack: Callable[[bool, Any], float]
    claim: Claim
    tight: float
    few: float = 1.0
    faint: float = 0.6


def additive(
    events: Sequence[PrivacyEvent], kind: NoiseKind, run: Callable[[bool, Any], Any], *,
    names: Sequence[str] = (), scale: str = "scale", **limits: Any,
) -> World:  # fmt: skip
    """Of the named arrays of `run`'s measurement (or all), scored by the exact likelihood ratio."""
    exact = [run(within, Still()).arrays for within in (False, True)]

    def attack(within, noise):
        released = run(within, noise)
        return sum(
            log_likelihood_ratio(
                kind, released.facts[scale], released.arrays[name], exact[0][name], exact[1][name]
            )
            for name in names or exact[0]
        )

    return World(attack=attack, claim=claim_of(events), **limits)


def assault(world: World, *, runs: int, noise: Any) -> Bound:
    """Run the attack `runs` times, or the affordable share of that, in each world."""
    count = round(world.few * runs)
    scores = [[world.attack(within, noise) for _ in range(count)] for within in (False, True)]
    return proved(scores[0], scores[1], world.claim)


def enough(world: World) -> int:
    """Runs with which an attack that always succeeds refutes the claim; fewer test nothing."""
    runs = 100
    while proved([0.0] * runs, [1.0] * runs, world.claim).lower <= world.claim.epsilon:
        runs += 20
    return math.ceil(runs / world.few)


def at_length(world: World, what: str, *, runs: int, prove: Callable[..., None]) -> None:
    """The full figures: no more than the claim, nearly the claim, and the planted bug refuted.

    The clean runs draw from the operating system, as releases do.
    """
    clean = assault(world, runs=runs, noise=SecureNoise())
    planted = assault(world, runs=runs, noise=Scaled(20_240_103, world.faint))
    prove(what, f"epsilon proved {clean}; {world.faint:g} of the noise: {planted}")
    assert world.tight <= clean.share <= 1
    assert planted.lower > planted.claimed
