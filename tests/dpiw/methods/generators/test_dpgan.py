"""dpgan and dpcgan: what is drawn is what was accounted, and nothing else leaves."""

import numpy as np
import pytest

from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.training import make_batch
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy import mechanisms
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import PrivacyUnit
from tests.dpiw.methods.generators.neural_world import (
    REPLACE,
    SCHEMA,
    UNIT,
    Counting,
    ready,
    table,
)
from tests.support.small import SMALL


def test_a_unit_of_many_rows_is_accounted_as_one():
    unit = PrivacyUnit(relation=UNIT.relation, max_rows=3, id_column="id")
    generator, noise = ready(DPCGAN, unit=unit), Counting()
    measurement = generator.measure(table(40), noise=noise)
    histogram, steps = generator.events(schema=SCHEMA, unit=unit)
    assert steps.sampling_probability == pytest.approx(1 - 0.75**3)
    np.testing.assert_allclose(noise.scales, 3 * generator.clip * steps.noise_multiplier)
    assert measurement.facts["histogram_scale"] == pytest.approx(3 * histogram.noise_multiplier)


def test_the_histogram_of_labels_is_drawn_once_with_the_accounted_noise(monkeypatch):
    laws, exact = [], []
    draw = mechanisms.noisy_counts

    def recorded(counts, *, law, noise):
        laws.append(law)
        exact.append(counts)
        return draw(counts, law=law, noise=noise)

    monkeypatch.setattr(mechanisms, "noisy_counts", recorded)
    generator = ready(DPCGAN, rho=1e6)
    measurement = generator.measure(table(40), noise=SeededNoise(0))
    (law,), (counts,) = laws, exact
    event = generator.events(schema=SCHEMA, unit=UNIT)[0]
    assert isinstance(event, GaussianEvent)
    assert law.scale == pytest.approx(event.noise_multiplier)
    assert measurement.facts["histogram_scale"] == law.scale
    assert counts.tolist() == np.bincount(table(40).confidential().columns["sick"]).tolist()
    np.testing.assert_allclose(measurement.arrays["proportions"], counts / 40, atol=0.01)


def test_public_proportions_cost_nothing_and_are_kept():
    generator = ready(DPCGAN, proportions=(3, 1))
    assert len(generator.events(schema=SCHEMA, unit=UNIT)) == 1
    measurement = generator.measure(table(40), noise=SeededNoise(0))
    np.testing.assert_array_equal(measurement.arrays["proportions"], [0.75, 0.25])
    assert "histogram_scale" not in measurement.facts
    sick = generator.model(measurement, schema=SCHEMA).sample(4000, rng=np.random.default_rng(0))
    # Standard error 0.0068; six of them.
    assert sick.frame()["sick"].mean() == pytest.approx(0.25, abs=0.041)


def test_no_plan_depends_on_a_table():
    """Rate, steps, divisor and noise are there before any table is."""
    generator = ready(nominal_rows=400)
    training = generator.parameters()["training"]
    assert (training["sampling_rate"], training["steps"], training["divisor"]) == (0.025, 8, 10.0)
    before = dict(generator.parameters())
    generator.measure(table(33), noise=SeededNoise(0))
    assert dict(generator.parameters()) == before
    assert ready(nominal_rows=4).parameters()["training"]["sampling_rate"] == 1.0


def test_replace_one_is_refused():
    with pytest.raises(SpecError, match="add_or_remove_one"):
        ready(unit=REPLACE)


@pytest.mark.parametrize(
    "settings", [{"proportions": [1, 2]}, {"proportions": []}, {"proportions_share": 0.05}]
)
def test_settings_of_the_label_are_dpcgan_s_alone(settings):
    """One class, two names: what `dpgan` has no use for is refused, and is not in its facts."""
    with pytest.raises(SpecError, match=r"expected generator\.method dpcgan"):
        make_generator("dpgan", settings, pure=False)
    assert not set(settings) & set(make_generator("dpgan", {}, pure=False).parameters())
    label = make_generator("dpcgan", settings, pure=False).parameters()
    assert set(settings) <= set(label)
    assert set(label) - set(DPGAN().parameters()) == {"proportions", "proportions_share"}


def test_delta_zero_is_refused():
    with pytest.raises(SpecError, match="delta"):
        make_generator("dpgan", {}, pure=True)


NUMBER = Column(name="y", kind=ColumnKind.CONTINUOUS, role=ColumnRole.TARGET, lower=0.0, upper=1.0)


@pytest.mark.parametrize(
    "columns",
    [SCHEMA.columns[:2], SCHEMA.columns[2:], (NUMBER, SCHEMA.columns[1])],
    ids=["no target", "nothing but a target", "a number"],
)
def test_a_condition_needs_a_target_with_levels(columns):
    schema = PublicSchema(name="other", columns=columns)
    with pytest.raises(SpecError):
        DPCGAN().calibrate(rho=1.0, schema=schema, unit=UNIT, nominal_rows=10)


def test_a_wasserstein_critic_is_bounded_and_no_ratio():
    generator = ready(loss="wasserstein", weight_bound=0.05)
    measurement = generator.measure(table(40), noise=SeededNoise(0))
    assert np.abs(measurement.arrays["discriminator"]).max() == 0.05
    assert not generator.model(measurement, schema=SCHEMA).ratio
    logistic = ready()
    model = logistic.model(logistic.measure(table(40), noise=SeededNoise(0)), schema=SCHEMA)
    assert model.ratio


def test_a_scaled_label_is_what_the_discriminator_sees_and_no_row_holds():
    """Real and made rows carry the same scale; decoding, settings and measurement keep it."""
    plain, scaled = (
        make_generator("dpcgan", SMALL["dpcgan"] | {"label_scale": scale}, pure=False).design(
            SCHEMA
        )
        for scale in (1.0, 7.0)
    )
    real = table(30).confidential()
    middle = plain.made.width
    one, two = plain.encode(real), scaled.encode(real)
    np.testing.assert_array_equal(two[:, middle:], 7 * one[:, middle:])
    np.testing.assert_array_equal(two[:, :middle], one[:, :middle])
    assert scaled.decode(two).equals(plain.decode(one))
    parameters = plain.generator_architecture.initial(np.random.default_rng(0))
    shares = np.ones(plain.given.width)
    made, louder = (
        make_batch(design, parameters, shares, 20, np.random.default_rng(1)).rows
        for design in (plain, scaled)
    )
    np.testing.assert_array_equal(louder[:, middle:], 7 * made[:, middle:])
    np.testing.assert_array_equal(louder[:, :middle], made[:, :middle])
    assert Design.from_json(scaled.to_json(), schema=SCHEMA) == scaled
