import pytest

from dpiw.errors import SpecError
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.output import OutputNoised
from dpiw.methods.weights.registry import make_weights
from dpiw.privacy.units import NoiseKind


def test_output_noised_knows_the_published_rows():
    assert make_weights("output_noised", {}, rows=4) == OutputNoised(rows=4)
    assert make_weights("output_noised", {"rows": 4}, rows=4) == OutputNoised(rows=4)
    assert make_weights("beta_debiased", {}, rows=4) == BetaDebiased()
    pure = make_weights("output_noised", {}, rows=4, pure=True)
    assert pure == OutputNoised(rows=4, noise=NoiseKind.SPHERICAL)
    with pytest.raises(
        SpecError, match=r"settings\.rows: expected 5, the release's synthetic_rows"
    ):
        make_weights("output_noised", {"rows": 4}, rows=5)
    with pytest.raises(SpecError, match=r"settings\.published: unknown"):
        make_weights("output_noised", {"published": 1}, rows=5)


def test_pure_releases_get_pure_noise():
    assert make_weights("beta_debiased", {}, pure=True) == BetaDebiased(noise=NoiseKind.SPHERICAL)
    laplace = make_weights("beta_debiased", {"noise": "laplace"}, pure=True)
    assert laplace == BetaDebiased(noise=NoiseKind.LAPLACE)
    assert make_weights("none", {}, pure=True) is None
    with pytest.raises(SpecError, match="noise=gaussian: expected spherical or laplace"):
        make_weights("beta_debiased", {"noise": "gaussian"}, pure=True)


@pytest.mark.parametrize(
    ("method", "settings", "name"),
    [("magic", {}, "weights.method"), ("selected", {}, "weights.method"),
     ("beta_debiased", {"lambda": 1}, "settings.lambda"), ("none", {"tau": 1}, "settings.tau"),
     ("beta_debiased", {"calibrated": None}, "settings.calibrated")],
)  # fmt: skip
def test_unknown_names_are_refused(method, settings, name):
    with pytest.raises(SpecError, match=name):
        make_weights(method, settings)
