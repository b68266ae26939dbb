"""A generator's discriminator as free weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.ratio import weigh
from dpiw.methods.weights.registry import make_weights

TILT = 1.5


@dataclasses.dataclass(frozen=True)
class Tilted:
    """Synthetic rows are uniform; the critic is factor * (TILT x0 + shift) on [0, 1]."""

    schema: object
    factor: float = 1.0
    shift: float = 0.0
    ratio: bool = True

    def sample(self, rows, *, rng):
        columns = {c.name: rng.random(rows) for c in self.schema.released}
        return SyntheticTable(schema=self.schema, scaled=ScaledTable(columns, rows))

    def critic(self, scaled):
        return self.factor * (TILT * scaled.columns["x0"] + self.shift)


@pytest.fixture
def schema(numeric):
    return numeric(3)


def test_the_free_ratio_is_the_clamped_logit(schema):
    rows = Tilted(schema).sample(50, rng=np.random.default_rng(1))
    free = DiscriminatorWeights(limit=1.0).informed(Tilted(schema))
    ratio = free.ratio(None, schema=schema)
    wanted = np.minimum(TILT * rows.scaled.columns["x0"], 1.0)
    np.testing.assert_allclose(ratio.log_ratio(rows), wanted)
    assert (wanted == 1.0).any()
    broken = dataclasses.replace(free, judge=Tilted(schema, factor=np.nan))
    assert (broken.ratio(None, schema=schema).log_ratio(rows) == 0).all()


def test_free_weights_of_the_true_ratio_correct_the_mean(schema):
    """E[x0] is 0.620 under the real law, 0.5 under the synthetic one; standard error 0.006."""
    judge = Tilted(schema)
    rows = judge.sample(4000, rng=np.random.default_rng(2))
    ratio = DiscriminatorWeights().informed(judge).ratio(None, schema=schema)
    weights = weigh(ratio, rows, debias=False)
    value = np.average(rows.scaled.columns["x0"], weights=np.exp(weights.log_weights))
    assert value == pytest.approx(1 / -np.expm1(-TILT) - 1 / TILT, abs=0.03)
    assert (weights.noise == 0).all()
    assert weights.diagnostics.verdict is Verdict.CARE
    assert "neither signal nor noise was assessed" in weights.diagnostics.reasons


def test_a_critic_that_is_no_ratio_is_refused(schema):
    with pytest.raises(SpecError, match="critic is no log ratio"):
        DiscriminatorWeights().informed(Tilted(schema, ratio=False))
    with pytest.raises(UncalibratedError, match="expected a fitted generator"):
        DiscriminatorWeights().ratio(None, schema=schema)


@pytest.mark.parametrize("limit", [0, -1, 21, "wide", True])
def test_limits_out_of_range_are_refused(limit):
    with pytest.raises(SpecError, match=r"settings\.limit"):
        DiscriminatorWeights(limit=limit)


def test_no_spec_brings_a_critic_of_its_own():
    with pytest.raises(SpecError, match=r"settings\.judge: unknown"):
        make_weights("discriminator", {"judge": None})
