"""gan and cgan: what a private GAN is compared with, and no release can hold."""

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable
from dpiw.errors import UncalibratedError
from dpiw.privacy.randomness import SecureNoise
from tests.benchmarks.scripts import load, rows, schema
from tests.support.worlds import UNIT

EXACT = load("exact_gan").EXACT
SMALL = {"steps": 5, "lot": 10, "batch": 6, "generator": (4,), "discriminator": (4,)}


def table(rng, size):
    return PrivateTable(schema=schema(), scaled=rows(rng, size))


@pytest.mark.nightly_cases(  # the others hold every pair of method, loss and size
    "[40-logistic-gan", "[0-wasserstein-gan", "[0-logistic-cgan", "[40-wasserstein-cgan"
)
@pytest.mark.parametrize("method", ["gan", "cgan"])
@pytest.mark.parametrize("loss", ["logistic", "wasserstein"])
@pytest.mark.parametrize("size", [0, 40])
@pytest.mark.slow
def test_what_they_measure_is_not_publishable(rng, method, loss, size):
    generator = EXACT[method](**SMALL, loss=loss)
    assert not generator.private
    assert generator.events(schema=schema(), unit=UNIT) == ()
    with pytest.raises(UncalibratedError):
        generator.measure(table(rng, size), noise=SecureNoise())
    ready = generator.calibrate(rho=1.0, schema=schema(), unit=UNIT, nominal_rows=40)
    measurement = ready.measure(table(rng, size), noise=SecureNoise())
    assert not measurement.publishable
    model = ready.model(measurement, schema=schema())
    drawn = model.sample(70_000, rng=np.random.default_rng(0))
    assert drawn.rows == 70_000
    assert model.critic(drawn.scaled).shape == (70_000,)
    assert dict(ready.parameters())["loss"] == loss


def test_a_conditional_one_keeps_the_shares_of_labels(rng):
    ready = EXACT["cgan"](**SMALL).calibrate(rho=1.0, schema=schema(), unit=UNIT, nominal_rows=40)
    private = table(rng, 200)
    share = float(private.confidential().columns["label"].mean())
    model = ready.model(ready.measure(private, noise=SecureNoise()), schema=schema())
    sick = model.sample(10_000, rng=np.random.default_rng(0)).frame()["label"]
    # Standard error 0.0046; six of them.
    assert sick.mean() == pytest.approx(share, abs=0.028)
