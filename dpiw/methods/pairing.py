"""Which weights ask the generator's discriminator, and which generator they ask.

Generators and weights do not know each other; this module knows both.
"""

from __future__ import annotations

from dataclasses import replace

from dpiw.errors import SpecError
from dpiw.methods.generators.base import GenerativeModel, Synthesizer
from dpiw.methods.generators.dpgan import DPGAN
from dpiw.methods.generators.gan_model import GANModel
from dpiw.methods.generators.pategan import PATEGAN
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.beta import BetaRegression
from dpiw.methods.weights.critic_features import Critic
from dpiw.methods.weights.discriminator import DiscriminatorWeights

CRITIC = "critic"


def needs_critic(weights: WeightEstimator | None) -> bool:
    """Whether weights ask the fitted generator's discriminator."""
    if isinstance(weights, BetaRegression):
        return weights.features == CRITIC
    return isinstance(weights, DiscriminatorWeights)


def check_pairing(generator: Synthesizer, weights: WeightEstimator | None) -> None:
    """Refuse weights that ask a discriminator which the generator has not. Public.

    Raises:
        SpecError: names the field and the generators that would do.
    """
    if not needs_critic(weights):
        return
    if isinstance(weights, DiscriminatorWeights):
        if not (isinstance(generator, DPGAN) and generator.loss == "logistic"):
            raise SpecError(
                "weights.method=discriminator: expected generator.method dpgan or dpcgan with"
                " loss: logistic; other critics are no ratios (use beta_*, features: critic)"
            )
    elif not isinstance(generator, DPGAN | PATEGAN):
        raise SpecError(
            "weights.settings.features=critic: expected generator.method dpgan, dpcgan or pategan"
        )


def informed(weights: WeightEstimator, model: GenerativeModel) -> WeightEstimator:
    """The weights with the fitted generator, where they ask it; free, and the same every time."""
    if not needs_critic(weights) or not isinstance(model, GANModel):
        return weights
    if isinstance(weights, DiscriminatorWeights):
        return weights.informed(model)
    assert isinstance(weights, BetaRegression)  # `needs_critic` says so
    return replace(weights, critic=Critic.of(model))
