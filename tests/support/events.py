"""Privacy events in few words."""

from dpiw.privacy import events


def gaussian(multiplier: float, count: int = 1) -> events.GaussianEvent:
    return events.GaussianEvent(noise_multiplier=multiplier, count=count)


def laplace(multiplier: float, count: int = 1) -> events.LaplaceEvent:
    return events.LaplaceEvent(noise_multiplier=multiplier, count=count)


def selection(of: float, count: int = 1) -> events.ExponentialMechanismEvent:
    return events.ExponentialMechanismEvent(epsilon=of, count=count)


def declared(of: float, delta: float = 0.0) -> events.DeclaredEvent:
    return events.DeclaredEvent(epsilon=of, delta=delta)


def sgd(
    multiplier: float, count: int, probability: float = 0.01
) -> events.PoissonSampledGaussianEvent:
    return events.PoissonSampledGaussianEvent(
        sampling_probability=probability, noise_multiplier=multiplier, count=count
    )
