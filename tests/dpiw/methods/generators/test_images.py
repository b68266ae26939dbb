"""GANs of images: convolutions instead of perceptrons, the same game and the same promise."""

import dataclasses

import numpy as np
import pytest

from dpiw.data.schema import Column, ColumnKind, PublicSchema
from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.generators.image_world import (
    PIXELS,
    PLAIN,
    SCHEMA,
    SIDE,
    STANDS,
    ready,
    table,
)
from tests.support.training_watch import KilledError, Recorder


@pytest.mark.parametrize(
    "settings",
    [{"image": [8]}, {"image": [8, 0]}, {"image": [7, 8]}, {"generator": []},
     {"image": [4, 16], "generator": [2, 2, 2]}],
)  # fmt: skip
def test_what_is_no_image_is_refused(settings):
    with pytest.raises(SpecError, match=r"settings\.image"):
        ready(**settings)


def test_other_columns_are_refused():
    hidden = Column(name="p0", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True)
    flags = tuple(dataclasses.replace(pixel, nullable=True) for pixel in PIXELS[: SIDE**2 // 2])
    for kind, columns in (
        (DPCGAN, (hidden, *PIXELS[1:], STANDS)), (DPCGAN, (*PIXELS[1:], STANDS)),
        (DPGAN, SCHEMA.columns), (DPGAN, flags),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=r"settings\.image"):
            ready(kind, schema=PublicSchema(name="bars", columns=columns))


@pytest.mark.parametrize("kind", [DPGAN, DPCGAN])
def test_networks_of_another_order_of_parameters_are_refused(kind, monkeypatch):
    """They have the same size: of a checkpoint as of a measurement, a number tells them apart."""
    schema = PLAIN if kind is DPGAN else SCHEMA
    generator, private = ready(kind, schema=schema), table(40, schema=schema)
    with monkeypatch.context() as patch:
        for module in ("design", "dpgan"):
            patch.setattr(f"dpiw.methods.generators.gan.{module}.IMAGE_LAYOUT", 1)
        killed = Recorder(dies_at=4)
        with pytest.raises(KilledError):
            generator.measure(private, noise=SeededNoise(1), watch=killed)
        earlier = generator.measure(private, noise=SeededNoise(1))
    with pytest.raises(PrivacyError):
        generator.measure(private, noise=SeededNoise(1), watch=Recorder(resumed=killed.saved[4]))
    unnumbered = dict(earlier.facts["design"])
    del unnumbered["layout"]  # as it was written before there was a second order
    for design in (earlier.facts["design"], unnumbered):
        stored = dataclasses.replace(earlier, facts={**earlier.facts, "design": design})
        with pytest.raises(SpecError):
            generator.model(stored, schema=schema)


def test_bars_stand_and_lie_as_they_are_told():
    """At a generous epsilon, in 100 steps; a generator that knows nothing has a contrast of 0.

    The table's is 0.9; starts 0 to 2 and seeds 0 and 1 came to 0.85 to 0.98.
    """
    generator = ready(
        rho=20.0, nominal_rows=600, steps=100, lot=100, batch=32, generator=[8, 4],
        discriminator=[4, 8], learning_rate=5e-3, generator_steps=2, proportions=[1, 1],
    )  # fmt: skip
    measurement = generator.measure(table(600, seed=1), noise=SeededNoise(0))
    model = generator.model(measurement, schema=SCHEMA)
    frame = model.sample(200, rng=np.random.default_rng(2)).frame()
    images = frame[[column.name for column in PIXELS]].to_numpy().reshape(-1, SIDE, SIDE)
    stands = frame["stands"].to_numpy(dtype=bool)
    upright = images[:, :, 3:5].mean(axis=(1, 2)) - images[:, 3:5].mean(axis=(1, 2))
    assert 0.5 < upright[stands].mean() - upright[~stands].mean() < 1.3
