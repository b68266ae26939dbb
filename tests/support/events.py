"""Privacy events in few words."""

from dpiw.privacy.events import (
    DeclaredEvent,
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
)


def gaussian(multiplier: float, count: int = 1) -> GaussianEvent:
    return GaussianEvent(noise_multiplier=multiplier, count=count)


def laplace(multiplier: float, count: int = 1) -> LaplaceEvent:
    return LaplaceEvent(noise_multiplier=multiplier, count=count)


def selection(of: float, count: int = 1) -> ExponentialMechanismEvent:
    return ExponentialMechanismEvent(epsilon=of, count=count)


def declared(of: float, delta: float = 0.0) -> DeclaredEvent:
    return DeclaredEvent(epsilon=of, delta=delta)


def sgd(multiplier: float, count: int, probability: float = 0.01) -> PoissonSampledGaussianEvent:
    return PoissonSampledGaussianEvent(
        sampling_probability=probability, noise_multiplier=multiplier, count=count
    )
