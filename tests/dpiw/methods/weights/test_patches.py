"""Random convolutional features: what they are, and that measured weights see textures by them."""

import numpy as np
import pytest

from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError
from dpiw.methods.weights.measured.features import Stack
from dpiw.methods.weights.measured.fourier import PatchMap, public_normals
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.privacy.randomness import SeededNoise
from tests.support.worlds import numbers, uniform_rows

SIDE = 8


def patches_of(schema, frequencies=40):
    return PatchMap(schema=schema, frequencies=frequencies, scales=(1.0, 2.0), omega_seed=7)


def naive(features, image):
    """Part by part, patch by patch, filter by filter."""
    found, step = [], 2 if features.side >= 20 else 1
    bands = np.array_split(np.arange(0, features.side - 4, step), 4)
    for ys in bands:
        for xs in bands:
            patches = np.array([image[y : y + 5, x : x + 5] - 0.5 for y in ys for x in xs])
            angles = np.tensordot(patches, features._omega, axes=2)
            found += [np.cos(angles).mean(axis=0), np.sin(angles).mean(axis=0)]
    return np.concatenate(found) / np.sqrt(16 * features._omega.shape[2])


@pytest.mark.parametrize("side", [8, 21])
def test_features_are_means_of_random_filters_over_parts_of_the_image(side):
    features = patches_of(numbers(side**2))
    rows = uniform_rows(features.schema, 3, np.random.default_rng(1))
    images = np.column_stack([rows.columns[name] for name in features.pixels])
    expected = [naive(features, image.reshape(side, side)) for image in images]
    np.testing.assert_allclose(features.matrix(rows), expected, atol=1e-14)
    assert features.dimension == 2 * 16 * 2


def test_the_target_and_levels_are_no_pixels():
    digit = Column(name="digit", levels=("0", "1"), role=ColumnRole.TARGET)
    schema = PublicSchema(name="digits", columns=(*numbers(SIDE**2).columns, digit))
    assert patches_of(schema).side == SIDE
    assert patches_of(numbers(SIDE**2 + 1, target=True)).side == SIDE


@pytest.mark.parametrize("count", [16, 63])
def test_what_is_no_square_image_is_refused(count):
    with pytest.raises(SpecError, match=r"features\.patches: expected as many .* 5\^2 pixels"):
        Stack(schema=numbers(count), shares={"linear": 1.0, "patches": 1.0})
    hidden = Column(name="x0", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True)
    nullable = PublicSchema(name="n", columns=(hidden, *numbers(64).columns[1:]))
    with pytest.raises(SpecError, match=r"features\.patches"):
        Stack(schema=nullable, shares={"linear": 1.0, "patches": 1.0})


def test_filters_need_a_public_seed():
    with pytest.raises(SpecError, match="omega_seed"):
        Measured(features={"patches": 1.0})


def test_public_numbers_stay_what_they_are():
    """Golden, of 23 November 2026: a certificate names the seed alone."""
    own = [1.5147188938140126, 0.4639570164544394, 1.8249816080617016]
    np.testing.assert_allclose(public_normals(1, 3), own, rtol=1e-12)
    both = [public_normals(1, 4000, stream=stream) for stream in (0, 1)]
    assert abs(np.corrcoef(both)[0, 1]) < 0.1


def stripes(rows, share, seed):
    """Images of stripes at any phase, a share of them standing: the same mean at every pixel."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(SIDE) * np.pi / 2 + rng.uniform(0, 2 * np.pi, (rows, 1)))
    stands = rng.random(rows) < share
    images = np.repeat(0.5 + 0.4 * wave[:, None, :], SIDE, axis=1)
    images[~stands] = images[~stands].transpose(0, 2, 1)
    columns = {f"x{place}": images.reshape(rows, -1)[:, place] for place in range(SIDE**2)}
    return ScaledTable(columns, rows), stands


@pytest.mark.parametrize(("part", "is_told"), [("patches", True), ("linear", False)])
def test_measured_weights_tell_textures(unit, part, is_told):
    """Of private stripes 9 in 10 stand, of the generator's 5; no single pixel shows it."""
    schema = numbers(SIDE**2)
    private, _ = stripes(2000, 0.9, seed=1)
    base, stands = stripes(3000, 0.5, seed=2)
    ready = Measured(
        features={part: 1.0}, frequencies=64, omega_seed=3, scales=(1.0,), design_effect=4.0
    ).calibrate(rho=0.5, schema=schema, unit=unit, nominal_rows=2000)
    drawn = ready.measure(
        PrivateTable(schema=schema, scaled=private),
        SyntheticTable(schema=schema, scaled=base.take(np.arange(0))),
        noise=SeededNoise(1),
    )
    weights = weigh_measured(
        ready, drawn, SyntheticTable(schema=schema, scaled=base), rows=1000,
        rng=np.random.default_rng(4),
    )  # fmt: skip
    share = np.average(stands[weights.chosen], weights=np.exp(weights.log_weights))
    assert share == pytest.approx(0.9 if is_told else 0.5, abs=0.07)
