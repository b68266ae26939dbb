from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate

from dpiw.errors import WeightError
from dpiw.methods.weights.base import Normalisation
from dpiw.methods.weights.paper.ratio import (
    debiased,
    log_debias,
    log_noise_mean,
    log_weight_noise,
    weighted_centre,
)
from dpiw.methods.weights.weigh import normalised
from dpiw.privacy.units import NoiseKind, NoiseLaw

GOLDEN = json.loads((Path(__file__).parents[4] / "golden" / "weights.json").read_text())
KINDS = {"a": NoiseKind.LAPLACE, "b": NoiseKind.SPHERICAL, "c": NoiseKind.GAUSSIAN}


def cross_term(law, features, others):
    """Cov[b(x) exp(z.x), b(x') exp(z.x')] row by row, shape (n,): b(x) b(x') / b(x+x') - 1.

    Infinite where it does not exist. It does not vanish as synthetic rows are added: they share one
    draw of z. Of a row with itself: its relative variance. Source: docs/method.md section 4.
    """
    joint = log_noise_mean(law, features + others)
    apart = log_noise_mean(law, features) + log_noise_mean(law, others)
    exists = np.isfinite(joint) & np.isfinite(apart)
    safe = np.where(exists, joint, 0.0) - np.where(exists, apart, 0.0)
    with np.errstate(over="ignore"):
        return np.where(exists, np.expm1(safe), np.inf)


def law(kind, scale, dimension):
    return NoiseLaw(kind=kind, scale=scale, dimension=dimension)


@pytest.mark.parametrize("row", GOLDEN["inverse_spherical_factor"]["rows"])
def test_spherical_factor_golden(row):
    dimension = row["dimension"]
    x = np.full((1, dimension), row["scale_times_norm"] / math.sqrt(dimension))
    factor = np.exp(-log_debias(law(NoiseKind.SPHERICAL, 1.0, dimension), x))
    assert factor[0] == pytest.approx(row["value"], rel=1e-8)


def test_spherical_mean_by_quadrature():
    # E exp(z.x) with norm(z) ~ Gamma(d', 1), direction uniform: an independent route.
    dimension, reach = 5, 0.4

    def integrand(cosine, radius):
        angle = (1 - cosine**2) ** ((dimension - 3) / 2)
        radial = radius ** (dimension - 1) * np.exp(-radius) / math.gamma(dimension)
        return angle * radial * np.exp(reach * radius * cosine)

    total = integrate.dblquad(integrand, 0, 120, -1, 1, epsabs=1e-12)[0]
    area = integrate.quad(lambda c: (1 - c**2) ** ((dimension - 3) / 2), -1, 1)[0]
    x = np.array([[reach, 0, 0, 0, 0]])
    mean = np.exp(log_noise_mean(law(NoiseKind.SPHERICAL, 1.0, dimension), x))[0]
    assert mean == pytest.approx(total / area, rel=1e-8)


def test_output_noise_variance_golden():
    facts = GOLDEN["output_noise_variance"]
    unit = np.ones((1, 1))
    laplace = cross_term(law(NoiseKind.LAPLACE, 0.2, 1), unit, unit)[0]
    gaussian = cross_term(law(NoiseKind.GAUSSIAN, 1.0, 1), unit, unit)[0]
    assert laplace == pytest.approx(facts["laplace_scale_0.2"], rel=1e-4)
    assert gaussian == pytest.approx(facts["gaussian_scale_1"], rel=1e-4)
    spherical = cross_term(law(NoiseKind.SPHERICAL, 0.2, 1), unit, unit)[0]
    assert spherical == pytest.approx(laplace)  # in one dimension the two laws are the same


def _table_law(letter, d, epsilon, rows):
    """Centred box, add/remove, Lam = 0.1 * 2 N_D."""
    penalty, kappa = 0.2 * rows, GOLDEN["table_2a"]["kappa"][epsilon]
    l2, l1 = math.sqrt(d + 1) / 2 / penalty, (d + 1) / 2 / penalty
    scale = {"a": l1 / float(epsilon), "b": l2 / float(epsilon), "c": kappa * l2}[letter]
    return law(KINDS[letter], scale, d + 1)


def _agrees(value, printed, tolerance):
    if printed == ">1e6":
        return value > 1e6 and math.isfinite(value)
    if isinstance(printed, str):
        return math.isinf(value)
    return value == pytest.approx(printed, rel=tolerance)


@pytest.mark.parametrize("letter", "abc")
@pytest.mark.parametrize("row", GOLDEN["table_2a"]["rows"], ids=lambda r: f"d{r[0]}-eps{r[1]}")
def test_table_2a(row, letter):
    facts = dict(zip(GOLDEN["table_2a"]["columns"], row, strict=True))
    d = facts["d"]
    noise = _table_law(letter, d, facts["epsilon"], facts["rows"])
    reference = np.array([[math.sqrt(1 / 12)] * d + [0.5]])
    corner = np.full((1, d + 1), 0.5)
    assert log_weight_noise(noise, reference)[0] == pytest.approx(
        facts[f"sd_{letter}"], rel=GOLDEN["table_2a"]["relative_tolerance_noise"]
    )
    tolerance = GOLDEN["table_2a"]["relative_tolerance_variance"]
    assert _agrees(cross_term(noise, reference, reference)[0], facts[f"ref_{letter}"], tolerance)
    assert _agrees(cross_term(noise, corner, corner)[0], facts[f"corner_{letter}"], tolerance)


def test_no_mean_and_no_variance_are_told_apart():
    # Table 2a, d = 100, eps = 0.1, N_D = 1000: laplace has no mean, spherical no variance.
    x = np.array([[math.sqrt(1 / 12)] * 100 + [0.5]])
    assert math.isinf(log_noise_mean(_table_law("a", 100, "0.1", 1000), x)[0])
    assert math.isfinite(log_noise_mean(_table_law("b", 100, "0.1", 1000), x)[0])
    assert math.isinf(cross_term(_table_law("b", 100, "0.1", 1000), x, x)[0])


@pytest.mark.parametrize("kind", NoiseKind)
def test_moments_by_simulation(kind):
    """Mean, noise, relative variance and cross term, each within 4.5 standard errors."""
    rng = np.random.default_rng(21)
    draws, dimension, scale = 400_000, 3, 0.15
    if kind is NoiseKind.GAUSSIAN:
        z = scale * rng.standard_normal((draws, dimension))
    elif kind is NoiseKind.LAPLACE:
        z = rng.laplace(scale=scale, size=(draws, dimension))
    else:
        direction = rng.standard_normal((draws, dimension))
        direction /= np.linalg.norm(direction, axis=1)[:, None]
        z = direction * rng.gamma(dimension, scale, draws)[:, None]
    noise_law = law(kind, scale, dimension)
    x, y = np.array([[0.6, -0.8, 0.5]]), np.array([[-0.2, 0.7, 0.5]])

    def close(samples, expected):
        error = samples.std() / math.sqrt(draws)
        assert abs(samples.mean() - expected) < 4.5 * error

    at_x, at_y = z @ x[0], z @ y[0]
    close(np.exp(at_x), math.exp(log_noise_mean(noise_law, x)[0]))
    close(at_x**2, log_weight_noise(noise_law, x)[0] ** 2)
    unit_x, unit_y = (np.exp(v + log_debias(noise_law, w)[0]) for v, w in ((at_x, x), (at_y, y)))
    close((unit_x - 1) ** 2, cross_term(noise_law, x, x)[0])
    close((unit_x - 1) * (unit_y - 1), cross_term(noise_law, x, y)[0])


def test_factor_that_does_not_exist_is_refused():
    x = np.full((1, 4), 0.5)
    for kind, scale in ((NoiseKind.SPHERICAL, 1.0), (NoiseKind.LAPLACE, 2.0)):
        with pytest.raises(WeightError, match=f"{kind.value} noise .* no exponential mean"):
            log_debias(law(kind, scale, 4), x)
        assert np.isfinite(log_debias(law(kind, 0.99 * scale, 4), x)[0])


@pytest.mark.parametrize("kind", NoiseKind)
def test_no_noise_needs_no_factor(kind):
    x = np.full((3, 4), 50.0)
    assert np.all(log_debias(law(kind, 0.0, 4), x) == 0)
    assert np.all(log_weight_noise(law(kind, 0.0, 4), x) == 0)


def test_normalised_weights_have_mean_one():
    rng = np.random.default_rng(1)
    for shift in (-900.0, 0.0, 900.0):
        log_weights = normalised(3 * rng.standard_normal(200) + shift)
        assert np.exp(log_weights).mean() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("bad", [np.zeros(0), np.array([0.0, np.nan]), np.array([np.inf])])
def test_normalised_refuses_what_has_no_mean(bad):
    with pytest.raises(WeightError, match="finite log weights"):
        normalised(bad)


def test_weighted_centre_is_the_weighted_mean_of_the_features():
    x = np.array([[0.0, 1.0], [4.0, 1.0]])
    np.testing.assert_allclose(weighted_centre(np.log([3.0, 1.0]), x), [1.0, 1.0])


def test_self_normalised_debias_ignores_the_constant_and_uses_the_centre():
    rng = np.random.default_rng(2)
    x = np.c_[rng.random((50, 2)), np.full(50, 0.5)]
    ratio = x @ np.array([1.0, -2.0, 0.7])
    noise_law = law(NoiseKind.GAUSSIAN, 0.4, 3)
    own, centre = debiased(ratio, x, noise_law, Normalisation.SELF), weighted_centre(ratio, x)
    by_hand = ratio - 0.08 * ((x - centre) ** 2).sum(axis=1)
    np.testing.assert_allclose(np.exp(own), np.exp(by_hand) / np.exp(by_hand).mean())
    shifted = np.c_[x[:, :2], np.full(50, 9.0)]
    np.testing.assert_allclose(own, debiased(ratio, shifted, noise_law, Normalisation.SELF))
    raw = debiased(ratio, x, noise_law, Normalisation.UNNORMALISED)
    np.testing.assert_allclose(raw, ratio - 0.08 * (x**2).sum(axis=1))


def test_an_analyst_can_import_it_without_heavy_libraries():
    code = (
        "import sys, dpiw.methods.weights.paper.ratio, dpiw.methods.weights.diagnostics;"
        "import dpiw.analysis, dpiw.methods.weights.weigh;"
        "bad = {'scipy', 'sklearn', 'torch', 'opendp', 'dp_accounting', 'prefect', 'yaml'};"
        "sys.exit(', '.join(sorted(bad & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
