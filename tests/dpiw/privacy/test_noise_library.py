"""Noise of a library whose law is another than the accounted one is not drawn."""

import pytest

from dpiw.errors import PrivacyError
from dpiw.ledger import Ledger
from dpiw.privacy import randomness
from dpiw.privacy.randomness import SecureNoise, check_noise_library
from dpiw.run import steps
from dpiw.run.run import ReleaseRun


@pytest.fixture(params=["0.13.0", "0.14.1", "0.14.0a1"])
def old(request, monkeypatch):
    monkeypatch.setattr(randomness, "version", lambda _: request.param)
    return request.param


def test_an_old_library_draws_nothing(old):
    with pytest.raises(PrivacyError, match=r"expected 0\.14\.2 or later"):
        SecureNoise().discrete_gaussian(scale=4.0, size=3)
    with pytest.raises(PrivacyError, match="another law"):
        SecureNoise().discrete_laplace(scale=4.0, size=3)


def test_nor_is_anything_reserved_for_it(old, make_workplace):
    place = make_workplace()
    run = ReleaseRun.prepare(place.spec, period="2026-q4")
    with pytest.raises(PrivacyError, match="another law"):
        steps.reserve(run)
    assert Ledger.open(place.ledger).find_run(run.key) is None


def test_nor_is_a_stage_armed_for_it(make_workplace, monkeypatch):
    """The library may have been put back after the budget was reserved."""
    place = make_workplace()
    run = ReleaseRun.prepare(place.spec, period="2026-q4")
    steps.reserve(run)
    steps.ingest(run)
    before = Ledger.open(place.ledger).run(run.key)
    monkeypatch.setattr(randomness, "version", lambda _: "0.14.1")
    with pytest.raises(PrivacyError, match="another law"):
        steps.fit_generator(run, noise=SecureNoise())
    assert Ledger.open(place.ledger).run(run.key) == before


def test_later_ones_are_admitted(monkeypatch):
    for text in ("0.14.2", "0.15.0", "1.0.0", "0.14.10"):
        monkeypatch.setattr(randomness, "version", lambda _, text=text: text)
        check_noise_library()
