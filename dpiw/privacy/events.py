"""Privacy events: what a mechanism did, and what each kind costs under every accountant.

A kind is one class and its line in `EVENT_TYPES`. No other code asks for the kind, except for the
closed form of Gaussian noise and the blocks of `dpiw.privacy.gaussian`.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.privacy.gaussian import FloatArray, block_curve, selection_curve
from dpiw.privacy.units import NoiseKind


class EventKind(ABC):
    """Base of every kind; properties are of one of its `count` mechanisms unless stated."""

    count: int
    exact = True
    """Whether the PLD's curve is the mechanism's own; if not, it bounds it from above."""

    strength: ClassVar[str]
    """Field of its noise multiplier, epsilon or delta; must be finite and positive."""

    @property
    def pure(self) -> float:
        """Epsilon of all `count` at delta = 0; infinite if there is none."""
        return math.inf

    def check(self) -> None:
        """Raise as `check_event` does."""
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise PrivacyError(field="privacy event", allowed="a whole count >= 1")
        strength = getattr(self, self.strength)
        if not (math.isfinite(strength) and strength > 0):
            raise UncalibratedError(
                field=type(self).__name__, allowed="a multiplier or epsilon > 0: calibrate first"
            )

    @abstractmethod
    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Return an upper bound of the Renyi divergence at `order` > 1, in caller's decimals."""

    @abstractmethod
    def dp_event(self) -> Any:
        """Return the form in `dp_accounting`."""

    @abstractmethod
    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the `dp_accounting` PLD on a grid, rounded up, or `down` if `exact`."""


class NoiseEvent(EventKind):
    """Kinds whose cost is that of noise with a `noise_multiplier`."""

    noise_multiplier: float
    strength = "noise_multiplier"
    laws: ClassVar[frozenset[NoiseKind]]
    """Laws of noise that the kind accounts for."""


def library() -> Any:
    """Import `dp_accounting` when the first event needs it."""
    import dp_accounting

    return dp_accounting


def pld_library() -> Any:
    """Import its privacy loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def rounding(grid: float, down: bool) -> dict[str, Any]:
    """Return the library's arguments for putting a PLD on a grid."""
    return {
        "value_discretization_interval": grid,
        "pessimistic_estimate": not down,
        "use_connect_dots": not down,
    }


def bounded_pld(grid: float, largest: float, curve: Callable[[FloatArray], FloatArray]) -> Any:
    """Return the PLD of a curve above a mechanism's own, for losses of at most `largest`."""
    from dp_accounting.pld import pld_pmf

    reach = math.ceil(largest / grid)
    support = np.arange(-reach, reach + 1)
    above = np.clip(curve((support * grid).astype(np.float64)), 0.0, 1.0)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(grid, support, above)
    return pld_library().PrivacyLossDistribution(pmf)


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(NoiseEvent):
    """`count` Gaussian mechanisms of standard deviation / L2 sensitivity `noise_multiplier`."""

    noise_multiplier: float
    count: int = 1
    laws = frozenset({NoiseKind.GAUSSIAN})

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Order / (2 m^2)."""
        return order / (2 * Decimal(self.noise_multiplier) ** 2)

    def dp_event(self) -> Any:
        """Return the same event there."""
        return library().GaussianDpEvent(self.noise_multiplier)

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the library's PLD."""
        return pld_library().from_gaussian_mechanism(self.noise_multiplier, **rounding(grid, down))


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(NoiseEvent):
    """`count` Laplace mechanisms of scale / L1 sensitivity `noise_multiplier`.

    It also dominates spherical noise of scale / L2 sensitivity (docs/method.md section 4).
    """

    noise_multiplier: float
    count: int = 1
    laws = frozenset({NoiseKind.LAPLACE, NoiseKind.SPHERICAL})

    @property
    def pure(self) -> float:
        """1 / m each."""
        return self.count / self.noise_multiplier

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Mironov (2017), proposition 6; vectors of the same L1 shift have less: it is convex."""
        a, shift = order, 1 / Decimal(self.noise_multiplier)
        near = a / (2 * a - 1) * ((a - 1) * shift).exp()
        far = (a - 1) / (2 * a - 1) * (-a * shift).exp()
        return (near + far).ln() / (a - 1)

    def dp_event(self) -> Any:
        """Return the same event there."""
        return library().LaplaceDpEvent(self.noise_multiplier)

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the library's PLD."""
        return pld_library().from_laplace_mechanism(self.noise_multiplier, **rounding(grid, down))


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanismEvent(EventKind):
    """`count` exponential mechanisms, each epsilon-DP and of privacy-loss range epsilon.

    With scores of sensitivity S and probabilities proportional to exp(score * epsilon / (2 S)).
    """

    epsilon: float
    count: int = 1
    exact = False
    strength = "epsilon"

    @property
    def pure(self) -> float:
        """Epsilon each."""
        return self.count * self.epsilon

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Privacy-loss range epsilon: epsilon^2/8-zCDP (Cesar & Rogers 2021, lemma 3.2)."""
        epsilon = Decimal(self.epsilon)
        return min(epsilon, order * epsilon**2 / 8)

    def dp_event(self) -> Any:
        """Return the weaker zCDP statement: version 0.6 has no such event, and RDP reads zCDP."""
        return library().ZCDpEvent(rho=self.epsilon**2 / 8)

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the PLD of one selection's curve, a bound: nothing to round down."""
        assert not down
        return bounded_pld(grid, self.epsilon, partial(selection_curve, self.epsilon))

    def block_privacy_loss(self, grid: float) -> Any:
        """Return the PLD of all `count` together, as one block of `dpiw.privacy.gaussian`."""
        # A block's lattice covers a range of epsilon times at most 1 + 1/16.
        largest = self.epsilon * (1.07 * self.count)
        return bounded_pld(grid, largest, partial(block_curve, self.epsilon, self.count))


@dataclass(frozen=True, kw_only=True)
class PoissonSampledGaussianEvent(NoiseEvent):
    """`count` steps of a Gaussian mechanism on a Poisson sample (DP-SGD)."""

    sampling_probability: float
    noise_multiplier: float
    count: int = 1
    laws = frozenset({NoiseKind.GAUSSIAN})

    def check(self) -> None:
        """Also check the sampling probability."""
        super().check()
        if not 0 < self.sampling_probability <= 1:
            raise PrivacyError(field="privacy event", allowed="a sampling probability in (0, 1]")

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Mironov, Talwar & Zhang (2019), 3.3, both directions; the next whole order is no less."""
        whole, probability = math.ceil(order), Decimal(self.sampling_probability)
        multiplier, total = Decimal(self.noise_multiplier), Decimal(0)
        for k in range(whole + 1):
            weight = math.comb(whole, k) * (1 - probability) ** (whole - k) * probability**k
            total += weight * (Decimal(k * k - k) / (2 * multiplier**2)).exp()
        return total.ln() / (whole - 1)

    def dp_event(self) -> Any:
        """Return a sampled Gaussian event."""
        noise = library().GaussianDpEvent(self.noise_multiplier)
        return library().PoissonSampledDpEvent(self.sampling_probability, noise)

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the library's PLD."""
        noise, probability = self.noise_multiplier, self.sampling_probability
        grids = rounding(grid, down)
        return pld_library().from_gaussian_mechanism(noise, sampling_prob=probability, **grids)


@dataclass(frozen=True, kw_only=True)
class DeclaredEvent(EventKind):
    """`count` foreign mechanisms, each declared (epsilon, delta)-DP.

    Accounted as the worst one: shows the table with probability delta, else randomised response
    (Kairouz et al. 2015; docs/method.md section 10).
    """

    epsilon: float
    delta: float = 0.0
    count: int = 1
    exact = False
    strength = "epsilon"

    @property
    def pure(self) -> float:
        """Epsilon each; infinite with a delta."""
        return self.count * self.epsilon if self.delta == 0 else math.inf

    def check(self) -> None:
        """Also check delta."""
        super().check()
        if not 0 <= self.delta < 1:
            raise PrivacyError(field="privacy event", allowed="a delta in [0, 1)")

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """min(epsilon, a epsilon^2/2), Bun & Steinke (2016), 3.3; infinite with a delta."""
        if self.delta:
            return Decimal("Infinity")
        epsilon = Decimal(self.epsilon)
        return min(epsilon, order * epsilon**2 / 2)

    def dp_event(self) -> Any:
        """Return the zCDP statement of a pure one, which RDP accounting reads."""
        return library().ZCDpEvent(rho=self.epsilon**2 / 2)

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the library's PLD of a pure epsilon, rounded up only."""
        assert not down
        from dp_accounting.pld.common import DifferentialPrivacyParameters

        pure = DifferentialPrivacyParameters(self.epsilon)
        return pld_library().from_privacy_parameters(pure, value_discretization_interval=grid)


@dataclass(frozen=True, kw_only=True)
class ThresholdEvent(EventKind):
    """`count` columns of noisy counts: only those above a threshold are shown.

    With probability at most `delta` each shows a level that one unit alone holds; the event of the
    counts' noise pays for all else. The total's delta is the sum.
    """

    delta: float
    count: int = 1
    exact = False
    strength = "delta"

    def check(self) -> None:
        """Also check delta."""
        super().check()
        if self.delta >= 1:
            raise PrivacyError(field="privacy event", allowed="a delta in (0, 1)")

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Infinite: a level shown has probability zero without the unit."""
        return Decimal("Infinity")

    def dp_event(self) -> Any:
        """Return no operation: its delta covers everything."""
        return library().NoOpDpEvent()

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Return the PLD of no operation."""
        assert not down
        return pld_library().identity(grid)


PrivacyEvent = (
    GaussianEvent
    | LaplaceEvent
    | ExponentialMechanismEvent
    | PoissonSampledGaussianEvent
    | DeclaredEvent
    | ThresholdEvent
)
"""What a mechanism did to the data, in an accountant's terms."""

EVENT_TYPES: Mapping[str, type[PrivacyEvent]] = {
    "gaussian": GaussianEvent,
    "laplace": LaplaceEvent,
    "exponential_mechanism": ExponentialMechanismEvent,
    "poisson_sampled_gaussian": PoissonSampledGaussianEvent,
    "declared": DeclaredEvent,
    "threshold": ThresholdEvent,
}
"""Every event by its name in a manifest; nothing else is read back."""


def check_event(event: PrivacyEvent) -> None:
    """Raise UncalibratedError for a noise not finite and > 0, PrivacyError for other faults."""
    if type(event) not in EVENT_TYPES.values():
        found = f"privacy event of unknown type {type(event).__name__}"
        raise PrivacyError(found, allowed="an event of dpiw.privacy.events")
    event.check()


def merge_events(events: Iterable[PrivacyEvent]) -> tuple[PrivacyEvent, ...]:
    """Return the same total with fewer parts, the same to the last bit in any order and split.

    Gaussian events become one, exactly: multipliers m_i compose to (sum 1/m_i^2)^(-1/2), also
    adaptively. Equal events of the other kinds add counts.
    """
    gaussian, counts = Counter[float](), Counter[PrivacyEvent]()
    for event in events:
        check_event(event)
        if isinstance(event, PoissonSampledGaussianEvent) and event.sampling_probability == 1:
            event = GaussianEvent(noise_multiplier=event.noise_multiplier, count=event.count)
        if isinstance(event, GaussianEvent):
            gaussian[event.noise_multiplier] += event.count
        else:
            counts[dataclasses.replace(event, count=1)] += event.count
    merged = [dataclasses.replace(single, count=count) for single, count in counts.items()]
    if gaussian:  # `fsum` rounds once, whatever the order
        inverse_squares = math.fsum(count / m**2 for m, count in gaussian.items())
        merged.append(GaussianEvent(noise_multiplier=inverse_squares**-0.5))
    return tuple(sorted(merged, key=repr))


def to_dp_event(event: PrivacyEvent) -> Any:
    """Return the `dp_accounting` form of an event, `count` included."""
    check_event(event)
    return library().SelfComposedDpEvent(event.dp_event(), event.count)


def pure_epsilon(events: Sequence[PrivacyEvent]) -> float:
    """Return the exact sum of the epsilons of pure events, rounded up; else infinity."""
    total = 0.0
    for event in events:
        exact = total == 0 and isinstance(event, DeclaredEvent) and event.count == 1
        total += event.pure
        total = total if exact else math.nextafter(total, math.inf)
    return total


# Partition selection

_LATTICE = 2.0**-20
"""Largest lattice step, in noise scales; the tail is at most the continuous one a step nearer."""

_UP = 1 + 1e-9
"""Covers the error of the quantile."""


def level_threshold(*, scale: float, rows: int, delta: float) -> float:
    """Return the least noisy count at which a level is shown, in rows, rounded up.

    That a level occurs at all may differ between neighbours: `delta` pays for the chance that a
    level shows although one unit holds all its rows. Bound: max(q(rows), rows q(1)), where q(c) is
    the chance that noise takes a count c to the threshold (docs/method.md section 19).

    Args:
        scale: standard deviation of the noise on the lattice of `mechanisms.noisy_counts`, in rows.
        rows: most rows of one unit.
        delta: of the column, in (0, 1/2). UncalibratedError for another, no noise or no rows.

    Source: Desfontaines, Voss, Gipson & Mandayam (2022), "Differentially private partition
    selection"; with Gaussian noise Swanberg, Desfontaines & Haney (2023), "DP-SIPS".
    """
    from scipy.special import ndtri

    if not (math.isfinite(scale) and scale > 0 and rows >= 1 and 0 < delta < 0.5):
        raise UncalibratedError(field="threshold", allowed="scale > 0, rows > 0, 0 < delta < 1/2")
    whole, single = (-float(ndtri(part)) for part in (delta, delta / rows))
    return (max(rows + scale * whole, 1 + scale * single) + scale * _LATTICE) * _UP
