"""Privacy events: what a mechanism did, checked, merged, and to and from other forms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpiw.errors import PrivacyError, UncalibratedError


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """`count` Gaussian mechanisms of standard deviation / L2 sensitivity `noise_multiplier`."""

    noise_multiplier: float
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent:
    """`count` Laplace mechanisms of scale / L1 sensitivity `noise_multiplier`.

    Spherical Laplace noise of scale / L2 sensitivity `noise_multiplier` is dominated by this same
    event (docs/method.md section 10).
    """

    noise_multiplier: float
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanismEvent:
    """`count` exponential mechanisms, each epsilon-DP and of privacy-loss range epsilon.

    With scores of sensitivity S and probabilities proportional to exp(score * epsilon / (2 S)).
    """

    epsilon: float
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class PoissonSampledGaussianEvent:
    """`count` steps of a Gaussian mechanism on a Poisson sample (DP-SGD)."""

    sampling_probability: float
    noise_multiplier: float
    count: int = 1


PrivacyEvent = (
    GaussianEvent | LaplaceEvent | ExponentialMechanismEvent | PoissonSampledGaussianEvent
)
"""What a mechanism did to the data, in terms an accountant understands."""

EVENT_TYPES: Mapping[str, type[PrivacyEvent]] = {
    "gaussian": GaussianEvent,
    "laplace": LaplaceEvent,
    "exponential_mechanism": ExponentialMechanismEvent,
    "poisson_sampled_gaussian": PoissonSampledGaussianEvent,
}
"""Every event by its name in a manifest; nothing else is read back."""


def check_event(event: PrivacyEvent) -> None:
    """Refuse an event no accountant could mean.

    Raises:
        UncalibratedError: a noise multiplier or an epsilon is zero, negative or not finite.
        PrivacyError: an unknown type, a count below 1, or a sampling probability outside (0, 1].
    """
    if type(event) not in EVENT_TYPES.values():
        raise PrivacyError(f"privacy event of unknown type {type(event).__name__}")
    if isinstance(event.count, bool) or not isinstance(event.count, int) or event.count < 1:
        raise PrivacyError("privacy event: expected a whole count >= 1")
    if isinstance(event, ExponentialMechanismEvent):
        strength = event.epsilon
    else:
        strength = event.noise_multiplier
    if not (math.isfinite(strength) and strength > 0):
        raise UncalibratedError(
            f"{type(event).__name__}: expected a finite noise multiplier or epsilon > 0"
        )
    if isinstance(event, PoissonSampledGaussianEvent) and not 0 < event.sampling_probability <= 1:
        raise PrivacyError("privacy event: expected a sampling probability in (0, 1]")


def merge_events(events: Iterable[PrivacyEvent]) -> tuple[PrivacyEvent, ...]:
    """The same total with fewer parts, in a fixed order.

    Gaussian events become one, exactly: k mechanisms of multipliers m_i compose to one of
    multiplier (sum 1/m_i^2)^(-1/2), also adaptively. Equal events of the other kinds add counts.
    The result is the same to the last bit however the events are ordered and counts split.
    """
    gaussian: dict[float, int] = {}
    counts: dict[PrivacyEvent, int] = {}
    for event in events:
        check_event(event)
        if isinstance(event, PoissonSampledGaussianEvent) and event.sampling_probability == 1:
            event = GaussianEvent(noise_multiplier=event.noise_multiplier, count=event.count)
        if isinstance(event, GaussianEvent):
            multiplier = event.noise_multiplier
            gaussian[multiplier] = gaussian.get(multiplier, 0) + event.count
        else:
            single = dataclasses.replace(event, count=1)
            counts[single] = counts.get(single, 0) + event.count
    merged = [dataclasses.replace(single, count=count) for single, count in counts.items()]
    if gaussian:  # `fsum` rounds once, whatever the order
        inverse_squares = math.fsum(count / m**2 for m, count in gaussian.items())
        merged.append(GaussianEvent(noise_multiplier=inverse_squares**-0.5))
    return tuple(sorted(merged, key=repr))


def event_to_json(event: PrivacyEvent) -> dict[str, Any]:
    """A JSON-able mapping with a `type` of `EVENT_TYPES`."""
    check_event(event)
    name = next(name for name, kind in EVENT_TYPES.items() if kind is type(event))
    fields = dataclasses.asdict(event)
    count = fields.pop("count")
    return {"type": name, **{key: float(value) for key, value in fields.items()}, "count": count}


def event_from_json(data: Mapping[str, Any]) -> PrivacyEvent:
    """Read what `event_to_json` wrote.

    Raises:
        PrivacyError: an unknown type, or other fields than the type has.
    """
    kind = EVENT_TYPES.get(str(data.get("type")))
    if kind is None:
        raise PrivacyError(f"privacy event: type must be one of {', '.join(sorted(EVENT_TYPES))}")
    fields = {key: value for key, value in data.items() if key != "type"}
    if set(fields) != {field.name for field in dataclasses.fields(kind)}:
        raise PrivacyError(f"privacy event: fields are not those of {kind.__name__}")
    for value in fields.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PrivacyError("privacy event: expected numbers")
    event = kind(**fields)
    check_event(event)
    return event


def stored_event(data: Mapping[str, Any]) -> PrivacyEvent:
    """Read an event as the ledger stores it: its floats are shortest exact decimal texts.

    Raises:
        PrivacyError: as `event_from_json`, or a text that is not a number.
    """
    try:
        numbers = {
            key: float(value) if key != "type" and isinstance(value, str) else value
            for key, value in data.items()
        }
    except ValueError:
        raise PrivacyError("privacy event: expected numbers") from None
    return event_from_json(numbers)


def to_dp_event(event: PrivacyEvent) -> Any:
    """The `dp_accounting` form of an event, `count` included.

    The exponential mechanism has none in dp_accounting 0.6; it is given as the weaker zCDP
    statement rho = epsilon^2/8 per selection (Cesar & Rogers 2021), which RDP accounting reads.
    """
    import dp_accounting

    check_event(event)
    if isinstance(event, GaussianEvent):
        single: Any = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    elif isinstance(event, LaplaceEvent):
        single = dp_accounting.LaplaceDpEvent(event.noise_multiplier)
    elif isinstance(event, ExponentialMechanismEvent):
        single = dp_accounting.ZCDpEvent(rho=event.epsilon**2 / 8)
    else:
        single = dp_accounting.PoissonSampledDpEvent(
            event.sampling_probability, dp_accounting.GaussianDpEvent(event.noise_multiplier)
        )
    return dp_accounting.SelfComposedDpEvent(single, event.count)


def pure_epsilon(events: Sequence[PrivacyEvent]) -> float:
    """Exact sum of the epsilons of pure events, rounded up; infinite if one is not pure."""
    total = 0.0
    for event in events:
        if isinstance(event, LaplaceEvent):
            part = event.count / event.noise_multiplier
        elif isinstance(event, ExponentialMechanismEvent):
            part = event.count * event.epsilon
        else:
            return math.inf
        total = math.nextafter(total + part, math.inf)
    return total
