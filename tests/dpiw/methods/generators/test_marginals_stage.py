"""The histogram before a training: paid for, drawn once, and the only thing that marginals know."""

import dataclasses

import numpy as np
import pytest

from dpiw.errors import SpecError
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.marginals import LEAST, MOST, share_of
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.privacy import mechanisms
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, PrivacyUnit
from tests.dpiw.methods.generators.neural_world import (
    REPLACE,
    SCHEMA,
    UNIT,
    table,
    with_marginals,
)

COLUMNS = len(SCHEMA.released)
KINDS = [DPGAN, DPCGAN, PATEGAN]


def recorded(monkeypatch):
    """Laws of the noisy counts that are drawn."""
    laws, draw = [], mechanisms.noisy_counts

    def noisy_counts(counts, *, law, noise):
        laws.append(law)
        return draw(counts, law=law, noise=noise)

    monkeypatch.setattr(mechanisms, "noisy_counts", noisy_counts)
    return laws


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_one_histogram_per_column_is_drawn_with_the_accounted_noise(kind, rows, monkeypatch):
    laws = recorded(monkeypatch)
    unit = PrivacyUnit(relation=UNIT.relation, max_rows=3, id_column="id")
    generator = with_marginals(kind, unit=unit)
    measurement = generator.measure(table(rows), noise=SeededNoise(0))
    *columns, training = generator.events(schema=SCHEMA, unit=unit)
    assert len(columns) == COLUMNS
    assert training.count > 1
    scale = 3 * columns[0].noise_multiplier
    for event, law in zip(columns, laws[:COLUMNS], strict=True):
        assert isinstance(event, GaussianEvent)
        assert event.count == 1
        assert law.scale == pytest.approx(scale, rel=1e-12)
        assert law.scale >= scale
    assert len(laws) == COLUMNS + (generator.rounds if kind is PATEGAN else 0)
    assert measurement.facts["marginals_scale"] == laws[0].scale


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


def test_laplace_noise_shares_the_pure_epsilon():
    generator = with_marginals(PATEGAN, noise=NoiseKind.LAPLACE)
    events = generator.events(schema=SCHEMA, unit=UNIT)
    assert all(isinstance(event, LaplaceEvent) for event in events)
    assert sum(event.count / event.noise_multiplier for event in events) == pytest.approx(1.0)


def test_the_rule_of_the_share_is_of_public_facts():
    def share(rho, rows, unit=UNIT):
        return share_of(rho, schema=SCHEMA, unit=unit, nominal_rows=rows)

    assert share(0.02, 100_000) == LEAST
    assert share(0.02, 20) == MOST
    middle = share(0.02, 300)
    assert LEAST < middle < MOST
    assert share(0.04, 300) == pytest.approx(max(LEAST, middle / 2))
    assert share(0.02, 300, PrivacyUnit(relation=UNIT.relation, max_rows=2, id_column="i")) > middle


def test_images_have_no_known_marginals():
    assert DPGAN(image=(4, 4), generator=(2,)).marginals_share == 0
    with pytest.raises(SpecError, match="marginals_share: expected none with an image"):
        DPGAN(image=(4, 4), generator=(2,), marginals_share=0.2)


@pytest.mark.parametrize("noise", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
def test_under_replace_one_histogram_and_votes_have_the_accounted_noise(noise, monkeypatch):
    """A row that is replaced leaves one cell for another, and one teacher's vote may turn."""
    laws = recorded(monkeypatch)
    generator = with_marginals(PATEGAN, unit=REPLACE, noise=noise)
    generator.measure(table(40), noise=SeededNoise(0))
    *columns, votes = generator.events(schema=SCHEMA, unit=REPLACE)
    assert len(columns) == COLUMNS
    reach = 2.0 if noise is NoiseKind.LAPLACE else np.sqrt(2.0)
    for event, law in zip(columns, laws[:COLUMNS], strict=True):
        assert law.scale == pytest.approx(reach * event.noise_multiplier, rel=1e-12)
        assert law.scale >= reach * event.noise_multiplier
    assert {law.scale for law in laws[COLUMNS:]} == {votes.noise_multiplier * (1 + 1e-15)}
    assert {law.kind for law in laws} == {noise}


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
    assert model.one_way is not None
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
