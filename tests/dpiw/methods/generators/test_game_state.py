"""Checkpoints of games and of PATE: a training goes on from those of its own settings alone."""

import dataclasses

import numpy as np
import pytest

from dpiw.errors import PrivacyError
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.histogram import Histogram
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.generators.neural_world import SCHEMA, UNIT, table
from tests.support.training_watch import Recorder

GAME = {"steps": 8, "lot": 10, "batch": 6, "discriminator": (4,), "latent": 2, "settle": 0.5}
PATE = {"rounds": 8, "queries": 3, "teachers": 5, "batch": 6, "student": (4,), "latent": 2}
KINDS = {DPGAN: GAME, DPCGAN: GAME, PATEGAN: PATE}


def ready(kind=DPGAN, **settings):
    own = KINDS[kind] | {"marginals_share": 0.4} | settings
    return kind(**own).calibrate(rho=0.5, schema=SCHEMA, unit=UNIT, nominal_rows=40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "other",
    [{"batch": 5}, {"latent": 3}, {"learning_rate": 0.02}, {"marginals_share": 0.0}, {"start": 1}],
)
def test_a_checkpoint_of_other_settings_is_refused(kind, at, other):
    """Whether steps are left to take or not; and before a resume is used up."""
    watch, one = Recorder(), ready(kind)
    ready(kind, **other).measure(table(40), noise=SeededNoise(1), watch=watch)
    data = watch.saved[(0, max(watch.saved))[at]]
    with pytest.raises(PrivacyError, match="other settings"):
        one.measure(table(40), noise=SeededNoise(1), watch=Recorder(resumed=data))
    with pytest.raises(PrivacyError, match="other settings"):
        one.resumed_state(data, schema=SCHEMA)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_checkpoint_with_a_histogram_too_many_or_too_few_is_refused(kind, share):
    one, watch = ready(kind, marginals_share=share), Recorder()
    one.measure(table(40), noise=SeededNoise(1), watch=watch)
    data = watch.saved[0]
    one.resumed_state(data, schema=SCHEMA)
    stored = Measurement.from_bytes(data)
    arrays = {"marginals": np.zeros(3, dtype=np.uint8)} | dict(stored.arrays)
    if share:
        del arrays["marginals"]
    else:
        counts = Histogram(bins=4).calibrate(rho=1, schema=SCHEMA, unit=UNIT, nominal_rows=40)
        drawn = counts.measure(table(40), noise=SeededNoise(1)).to_bytes()
        arrays["marginals"] = np.frombuffer(drawn, dtype=np.uint8)
    forged = dataclasses.replace(stored, arrays=arrays).to_bytes()
    with pytest.raises(PrivacyError, match="other settings"):
        one.resumed_state(forged, schema=SCHEMA)


def test_a_checkpoint_that_names_no_settings_is_refused():
    """As games of earlier versions kept them."""
    one, watch = ready(), Recorder()
    one.measure(table(40), noise=SeededNoise(1), watch=watch)
    stored = Measurement.from_bytes(watch.saved[4])
    facts = {name: fact for name, fact in stored.facts.items() if name != "settings"}
    with pytest.raises(PrivacyError, match="other settings"):
        one.resumed_state(dataclasses.replace(stored, facts=facts).to_bytes(), schema=SCHEMA)
