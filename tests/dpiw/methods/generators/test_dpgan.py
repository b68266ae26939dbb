"""dpgan and dpcgan, of rows and of images: what is drawn is what was accounted."""

import dataclasses

import numpy as np
import pytest

from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.marginals import LEAST, MOST, share_of
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.gan.training import make_batch
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.dpiw.methods.generators import image_world
from tests.dpiw.methods.generators.image_world import PIXELS, PLAIN, SIDE, STANDS
from tests.dpiw.methods.generators.neural_world import (
    REPLACE,
    SCHEMA,
    UNIT,
    Counting,
    ready,
    table,
    with_marginals,
)
from tests.support.draws import drawn
from tests.support.small import SMALL
from tests.support.training_watch import KilledError, Recorder
from tests.support.worlds import ADD, unit_of

COLUMNS = len(SCHEMA.released)
KINDS = [DPGAN, DPCGAN, PATEGAN]
THREE_ROWS = unit_of(ADD, 3)


def test_the_histogram_of_labels_is_drawn_once_with_the_accounted_noise():
    """Of persons with three rows; each lot's noise is three times as large as well."""
    generator, noise, released = ready(DPCGAN, rho=1e6, unit=THREE_ROWS), Counting(), []
    (law,), _ = drawn(lambda _: released.append(generator.measure(table(40), noise=noise)))
    histogram, steps = generator.events(schema=SCHEMA, unit=THREE_ROWS)
    assert isinstance(histogram, GaussianEvent)
    assert law.scale == pytest.approx(3 * histogram.noise_multiplier)
    assert released[0].facts["histogram_scale"] == law.scale
    shares = np.bincount(table(40).confidential().columns["sick"]) / 40
    np.testing.assert_allclose(released[0].arrays["proportions"], shares, atol=0.01)
    assert steps.sampling_probability == pytest.approx(1 - 0.75**3)
    np.testing.assert_allclose(noise.scales, 3 * generator.clip * steps.noise_multiplier)


def test_public_proportions_cost_nothing_and_are_kept():
    generator = ready(DPCGAN, proportions=(3, 1))
    assert len(generator.events(schema=SCHEMA, unit=UNIT)) == 1
    measurement = generator.measure(table(40), noise=SeededNoise(0))
    np.testing.assert_array_equal(measurement.arrays["proportions"], [0.75, 0.25])
    assert "histogram_scale" not in measurement.facts


@pytest.mark.parametrize(
    "settings", [{"proportions": [1, 2]}, {"proportions": []}, {"proportions_share": 0.05}]
)
def test_settings_of_the_label_are_dpcgan_s_alone(settings):
    """One class, two names: what `dpgan` has no use for is refused, and is not in its facts."""
    with pytest.raises(SpecError, match=r"expected generator\.method: dpcgan"):
        make_generator("dpgan", settings, pure=False)
    assert not set(settings) & set(make_generator("dpgan", {}, pure=False).parameters())
    label = make_generator("dpcgan", settings, pure=False).parameters()
    assert set(settings) <= set(label)
    assert set(label) - set(DPGAN().parameters()) == {"proportions", "proportions_share"}


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


def test_retired_settings_at_their_old_defaults_say_nothing():
    """They are still in the public facts, from which public randomness follows."""
    retired = {name: old for name, (old,) in DPGAN.retired.items()}
    plain, said = (make_generator("dpgan", settings, pure=False) for settings in ({}, retired))
    assert plain == said
    assert retired.items() <= dict(said.parameters()).items()


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


@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize(
    ("kind", "unit", "noise", "reach"),
    [*((kind, THREE_ROWS, {}, 3.0) for kind in KINDS), (PATEGAN, REPLACE, {}, np.sqrt(2.0)),
     (PATEGAN, REPLACE, {"noise": NoiseKind.LAPLACE}, 2.0)],
)  # fmt: skip
def test_one_histogram_per_column_is_drawn_with_the_accounted_noise(kind, unit, noise, reach, rows):
    """A row that is replaced leaves one cell for another, and one teacher's vote may turn."""
    generator, released = with_marginals(kind, unit=unit, **noise), []
    laws, _ = drawn(lambda noise: released.append(generator.measure(table(rows), noise=noise)))
    *columns, training = generator.events(schema=SCHEMA, unit=unit)
    assert [event.count for event in columns] == [1] * COLUMNS
    assert training.count > 1
    for event, law in zip(columns, laws[:COLUMNS], strict=True):
        assert law.scale == pytest.approx(reach * event.noise_multiplier, rel=1e-12)
        assert law.scale >= reach * event.noise_multiplier
    assert {law.kind for law in laws} == {noise.get("noise", NoiseKind.GAUSSIAN)}
    assert len(laws) == COLUMNS + (generator.rounds if kind is PATEGAN else 0)
    moved = 3 if unit is THREE_ROWS else 1
    for law in laws[COLUMNS:]:
        assert law.scale == moved * training.noise_multiplier * (1 + 1e-15)
    assert released[0].facts["marginals_scale"] == laws[0].scale


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_is_the_histogram_s(kind):
    """Its effort is the share of the whole; the training has what is left."""
    shared, unshared = with_marginals(kind), with_marginals(kind, marginals_share=0.0, rho=0.3)
    columns = shared.events(schema=SCHEMA, unit=UNIT)[:COLUMNS]
    spent = sum(1 / (2 * event.noise_multiplier**2) for event in columns)
    assert spent == pytest.approx(0.4 * 0.5, rel=1e-12)
    if kind is not DPCGAN:  # without known marginals it pays for a histogram of its labels
        training, alone = (x.events(schema=SCHEMA, unit=UNIT)[-1] for x in (shared, unshared))
        assert training.noise_multiplier == pytest.approx(alone.noise_multiplier, rel=1e-9)


def test_the_rule_of_the_share_is_of_public_facts():
    def share(rho, rows, unit=UNIT):
        return share_of(rho, schema=SCHEMA, unit=unit, nominal_rows=rows)

    assert share(0.02, 100_000) == LEAST
    assert share(0.02, 20) == MOST
    middle = share(0.02, 300)
    assert LEAST < middle < MOST
    assert share(0.04, 300) == pytest.approx(max(LEAST, middle / 2))
    assert share(0.02, 300, unit_of(ADD, 2)) > middle


def test_images_have_no_known_marginals():
    assert DPGAN(image=(4, 4), generator=(2,)).marginals_share == 0
    with pytest.raises(SpecError, match=r"marginals_share: found 0\.2"):
        DPGAN(image=(4, 4), generator=(2,), marginals_share=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_histogram_s_margins(kind):
    """With faint noise, those of the table: 40,000 rows, twenty thousandths allowed."""
    generator = with_marginals(kind, rho=1e6)
    measurement = generator.measure(table(400), noise=SeededNoise(0))
    model = generator.model(measurement, schema=SCHEMA)
    rows, truth = model.sample(40_000, rng=np.random.default_rng(0)).frame(), table(400)
    shares = np.bincount(truth.confidential().columns["sick"], minlength=2) / 400
    assert rows["sick"].mean() == pytest.approx(shares[1], abs=0.02)
    missing = np.mean(truth.confidential().columns["job"] < 0)
    assert rows["job"].isna().mean() == pytest.approx(missing, abs=0.02)
    assert model.one_way.law.columns == (0, 1, 2)


def test_what_is_known_of_rows_is_not_the_label_s_where_its_shares_are_public():
    """Rows follow the shares of the spec, which measured nothing: weights keep to the others."""
    measured, public = with_marginals(DPCGAN), with_marginals(DPCGAN, proportions=(3, 1))
    models = []
    for generator in (measured, public):
        measurement = dataclasses.replace(
            generator.measure(table(40), noise=SeededNoise(0)), publishable=True
        )
        measurement = Measurement.from_bytes(measurement.to_bytes())
        models.append(generator.model(measurement, schema=SCHEMA))
    names = [column.name for column in SCHEMA.released]
    whole, left = (model.one_way for model in models)
    label = names.index("sick")
    assert whole.law.columns == tuple(range(len(names)))
    assert left.law.columns == tuple(j for j in whole.law.columns if j != label)
    assert left.shares.size == left.law.dimension == whole.law.dimension - 1
    rows = models[1].sample(20_000, rng=np.random.default_rng(0))
    assert rows.frame()["sick"].mean() == pytest.approx(0.25, abs=0.015)
    shares = left.law.matrix(rows.scaled).mean(axis=0)
    assert np.abs(shares - left.shares).max() < 0.03  # its rows have what it says they have


@pytest.mark.parametrize(
    "settings",
    [{"image": [8]}, {"image": [8, 0]}, {"image": [7, 8]}, {"generator": []},
     {"image": [4, 16], "generator": [2, 2, 2]}],
)  # fmt: skip
def test_what_is_no_image_is_refused(settings):
    with pytest.raises(SpecError, match=r"settings\.image"):
        image_world.ready(**settings)


def test_other_columns_are_refused():
    hidden = Column(name="p0", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True)
    flags = tuple(dataclasses.replace(pixel, nullable=True) for pixel in PIXELS[: SIDE**2 // 2])
    for kind, columns in (
        (DPCGAN, (hidden, *PIXELS[1:], STANDS)), (DPCGAN, (*PIXELS[1:], STANDS)),
        (DPGAN, image_world.SCHEMA.columns), (DPGAN, flags),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=r"settings\.image"):
            image_world.ready(kind, schema=PublicSchema(name="bars", columns=columns))


@pytest.mark.parametrize("kind", [DPGAN, DPCGAN])
def test_networks_of_another_order_of_parameters_are_refused(kind, monkeypatch):
    """They have the same size: of a checkpoint as of a measurement, a number tells them apart."""
    schema = PLAIN if kind is DPGAN else image_world.SCHEMA
    generator, private = (
        image_world.ready(kind, schema=schema),
        image_world.table(40, schema=schema),
    )
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
