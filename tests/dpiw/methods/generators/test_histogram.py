"""The perturbed histogram: its noise is the declared one, its samples have the right marginals."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpiw.data.discretisation import Domain
from dpiw.data.schema import Column, ColumnKind, PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.histogram import Histogram
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit

LEVELS = tuple(f"v{j}" for j in range(400))
SCHEMA = PublicSchema(
    name="wide",
    columns=tuple(
        Column(name=f"c{j}", kind=ColumnKind.CATEGORICAL, levels=LEVELS) for j in range(5)
    ),
)


def _table(rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{j}": rng.choice(LEVELS, rows) for j in range(5)})
    return PrivateTable(schema=SCHEMA, scaled=SCHEMA.scale(frame))


@pytest.mark.parametrize("noise", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
@pytest.mark.parametrize("relation", list(NeighbouringRelation))
@pytest.mark.parametrize("rows", [1, 3])
def test_the_declared_event_is_the_noise_drawn(noise, relation, rows):
    """2,000 residuals; Kolmogorov-Smirnov level 1e-6 per case.

    The event's multiplier times the unit's sensitivity is accepted; 2/3 and 3/2 are rejected.
    """
    unit = PrivacyUnit(relation=relation, max_rows=rows, id_column="id")
    table = _table(1000)
    ready = Histogram(noise=noise).calibrate(rho=0.01, schema=SCHEMA, unit=unit, nominal_rows=1000)
    (event,) = ready.events(schema=SCHEMA, unit=unit)
    norms = {  # written out anew, not taken from the code under test
        (NoiseKind.GAUSSIAN, NeighbouringRelation.ADD_OR_REMOVE_ONE): 1.0,
        (NoiseKind.LAPLACE, NeighbouringRelation.ADD_OR_REMOVE_ONE): 1.0,
        (NoiseKind.GAUSSIAN, NeighbouringRelation.REPLACE_ONE): 2**0.5,
        (NoiseKind.LAPLACE, NeighbouringRelation.REPLACE_ONE): 2.0,
    }
    scale = event.noise_multiplier * norms[noise, relation] * rows
    measurement = ready.measure(table, noise=SeededNoise(7))
    codes = Domain.from_schema(SCHEMA, bins=2).codes(table.confidential())
    residuals = np.concatenate(
        [
            measurement.arrays[f"one_way_{j}"] - np.bincount(codes[:, j], minlength=400)
            for j in range(5)
        ]
    )
    law = stats.laplace if noise is NoiseKind.LAPLACE else stats.norm
    assert stats.kstest(residuals, law(scale=scale).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(residuals, law(scale=wrong * scale).cdf).pvalue < 1e-6


def test_without_much_noise_margins_are_learnt_and_dependence_is_not():
    schema = PublicSchema(
        name="pair",
        columns=tuple(
            Column(name=name, kind=ColumnKind.CATEGORICAL, levels=("x", "y", "z")) for name in "ab"
        ),
    )
    values = np.random.default_rng(1).choice(["x", "y", "z"], 5000, p=[0.7, 0.3, 0.0])
    table = PrivateTable(
        schema=schema, scaled=schema.scale(pd.DataFrame({"a": values, "b": values}))
    )
    unit = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
    ready = Histogram().calibrate(rho=100.0, schema=schema, unit=unit, nominal_rows=5000)
    model = ready.model(ready.measure(table, noise=SeededNoise(1)), schema=schema)
    frame = model.sample(20_000, rng=np.random.default_rng(2)).frame()
    share = np.mean(values == "x")
    # Standard error 0.0033; five of them.
    assert np.mean(frame["a"] == "x") == pytest.approx(share, abs=0.0165)
    assert np.mean((frame["a"] == "x") & (frame["b"] == "x")) == pytest.approx(share**2, abs=0.0165)
    assert not (frame["a"] == "z").any()
