"""Bayesian synthesis: its grids are laws, its draws have the stated one, units change nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError
from dpiw.methods.generators.bayes import Bayes
from dpiw.methods.generators.pseudo_posterior import column_law
from dpiw.privacy.randomness import SeededNoise
from tests.support.worlds import UNIT

LEVELS = tuple("abcde")
SCHEMA = PublicSchema(
    name="three",
    columns=(
        Column(name="pay", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=200_000.0, nullable=True),
        Column(name="job", kind=ColumnKind.CATEGORICAL, levels=LEVELS),
        Column(name="sick", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET),
    ),
)


def frame(rows):
    rng = np.random.default_rng(3)
    sick = rng.random(rows) < 0.25
    pay = np.where(sick, rng.normal(40e3, 15e3, rows), rng.normal(90e3, 25e3, rows))
    missing = rng.random(rows) < 0.1
    job = np.where(sick, rng.choice(LEVELS[:2], rows), rng.choice(LEVELS, rows))
    return pd.DataFrame({"pay": np.where(missing, np.nan, pay), "job": job, "sick": sick})


def measured(schema, rows, *, rho, **settings):
    ready = Bayes(**settings).calibrate(rho=rho, schema=schema, unit=UNIT, nominal_rows=5000)
    table = PrivateTable(schema=schema, scaled=schema.scale(rows))
    return ready, ready.measure(table, noise=SeededNoise(8))


def law_of(column, *, shaped=False):
    schema = PublicSchema(name="one", columns=(column,))
    (bins,) = Domain.from_schema(schema, bins=7).columns
    return column_law(bins, shaped=shaped, prior=2.0, smallest=0.01)


# Laws on grids
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 33])
def test_splits_are_a_law_of_the_codes(size):
    """At any points: non-negative, of sum one, and the product of the code's own splits."""
    levels = tuple(f"v{j}" for j in range(size))
    law = law_of(Column(name="x", kind=ColumnKind.CATEGORICAL, levels=levels))
    points = np.random.default_rng(0).integers(len(law.parts[0].log_pmf), size=len(law.parts))
    pmf = law.pmf(points.tolist())
    assert pmf.sum() == pytest.approx(1.0, abs=1e-12)
    naive, met = np.ones(size), np.zeros(size, dtype=int)
    for part, point in zip(law.parts, points.tolist(), strict=True):
        for outcome in range(part.log_pmf.shape[1]):
            inside = slice(part.starts[outcome], part.starts[outcome + 1])
            naive[inside] *= np.exp(part.log_pmf[point, outcome])
            met[inside] += 1
    np.testing.assert_allclose(pmf, naive, rtol=1e-12)
    assert met.max() == law.depth


@pytest.mark.parametrize("nullable", [False, True])
def test_a_shape_is_a_normal_law_within_the_bounds(nullable):
    column = Column(name="x", kind=ColumnKind.INTEGER, lower=0, upper=69, nullable=nullable)
    law = law_of(column, shaped=True)
    assert law.depth == len(law.parts) == 1 + nullable
    shape = law.parts[-1]
    np.testing.assert_allclose(np.exp(shape.log_pmf).sum(axis=1), 1.0, rtol=1e-12)
    wanted = np.diff(stats.truncnorm(-1, 1, loc=0.5, scale=0.5).cdf(np.linspace(0, 1, 8)))
    nearest = np.abs(np.exp(shape.log_pmf) - (0.01 / 7 + 0.99 * wanted)).max(axis=1).min()
    assert nearest < 0.01
    points = [64] * len(law.parts)
    assert law.pmf(points).sum() == pytest.approx(1.0, abs=1e-12)
    assert law.pmf(points).size == 7 + nullable


# The draw
def naive_posterior(law, counts, *, width):
    """Log posterior of a law of one part, written out anew, in doubles."""
    (part,) = law.parts
    swing = np.ptp(part.log_pmf, axis=0)
    score = part.log_prior.copy()
    for outcome, count in enumerate(counts):
        alpha = min(1.0, width / swing[outcome])
        below = alpha * (part.log_pmf[:, outcome].max() - part.log_pmf[:, outcome])
        score -= count * np.minimum(below, width)
    return score - logsumexp(score)


def test_points_are_drawn_from_the_posterior_and_no_other():
    """4,000 draws, chi-square at 1e-6: the window's law fits, 2/3 and 3/2 of it do not."""
    schema = PublicSchema(name="one", columns=(Column(name="sick", kind=ColumnKind.BOOLEAN),))
    rows = pd.DataFrame({"sick": np.arange(40) < 10})
    table = PrivateTable(schema=schema, scaled=schema.scale(rows))
    ready = Bayes(draws=100).calibrate(rho=100.0, schema=schema, unit=UNIT, nominal_rows=40)
    noise = SeededNoise(5)
    points = np.concatenate(
        [ready.measure(table, noise=noise).arrays["points_0"].ravel() for _ in range(40)]
    )
    law, width = law_of(schema.columns[0]), ready.parameters()["window"]

    def p_value(factor):
        wanted = np.exp(naive_posterior(law, np.array([30, 10]), width=factor * width))
        cells = np.minimum((np.cumsum(wanted) * 20).astype(int), 19)
        seen = np.bincount(cells[points], minlength=20)
        expected = np.bincount(cells, weights=wanted, minlength=20) * len(points)
        positive = expected > 0
        statistic = ((seen - expected)[positive] ** 2 / expected[positive]).sum()
        return float(stats.chi2.sf(statistic, positive.sum() - 1))

    assert p_value(1.0) > 1e-6
    assert p_value(2 / 3) < 1e-6
    assert p_value(3 / 2) < 1e-6


@pytest.mark.parametrize("numeric", ["shape", "splits"])
def test_units_change_nothing(numeric):
    """Dollars or thousands of them, bounds along: the same points, bit for bit."""
    rows = frame(400)
    first, *rest = SCHEMA.columns
    thousands = Column(
        name=first.name, kind=first.kind, lower=0.0, upper=200.0, nullable=first.nullable
    )
    rescaled = PublicSchema(name="three", columns=(thousands, *rest))
    _, in_dollars = measured(SCHEMA, rows, rho=0.5, numeric=numeric)
    _, in_thousands = measured(rescaled, rows.assign(pay=rows.pay / 1000), rho=0.5, numeric=numeric)
    for name, points in in_dollars.arrays.items():
        assert np.array_equal(points, in_thousands.arrays[name]), name


@pytest.mark.parametrize("weights", ["public", "two_stage"])
def test_with_much_epsilon_the_model_is_the_datas(weights):
    """Distances of one-way laws, and the difference that the target makes."""
    rows = frame(4000)
    ready, drawn = measured(SCHEMA, rows, rho=1e4, weights=weights)
    synthetic = ready.model(drawn, schema=SCHEMA).sample(8000, rng=np.random.default_rng(1)).frame()
    assert abs(synthetic.sick.mean() - rows.sick.mean()) < 0.03
    for sick in (False, True):
        drawn_rows, true_rows = synthetic[synthetic.sick == sick], rows[rows.sick == sick]
        assert abs(drawn_rows.pay.mean() - true_rows.pay.mean()) < 6000
        assert abs(drawn_rows.pay.isna().mean() - true_rows.pay.isna().mean()) < 0.04
        shares = [
            f.job.value_counts(normalize=True).reindex(LEVELS).fillna(0)
            for f in (drawn_rows, true_rows)
        ]
        assert (shares[0] - shares[1]).abs().sum() / 2 < 0.06


def test_rows_have_the_drawn_law_and_no_other():
    """20,000 rows, chi-square at 1e-6, of two draws that differ: only the mixture fits."""
    ready, drawn = measured(SCHEMA, frame(50), rho=0.1, draws=2, given="nothing")
    codes = Domain.from_schema(SCHEMA, bins=drawn.facts["bins"]).codes(
        ready.model(drawn, schema=SCHEMA).sample(20_000, rng=np.random.default_rng(4)).scaled
    )
    law = law_of(SCHEMA.columns[1])
    laws = [law.pmf(points[0].tolist()) for points in drawn.arrays["points_1"]]
    seen = np.bincount(codes[:, 1], minlength=5)
    assert stats.chisquare(seen, 20_000 * (laws[0] + laws[1]) / 2).pvalue > 1e-6
    for pmf in laws:
        assert stats.chisquare(seen, 20_000 * pmf).pvalue < 1e-6


def test_what_cannot_be_drawn_is_refused_by_the_plan():
    def calibrate(columns, rho):
        schema = PublicSchema(name="wide", columns=columns)
        Bayes().calibrate(rho=rho, schema=schema, unit=UNIT, nominal_rows=100)

    levels = tuple(f"v{j}" for j in range(60_000))
    with pytest.raises(SpecError, match="about 60000 parameters to draw"):
        calibrate((Column(name="x", kind=ColumnKind.CATEGORICAL, levels=levels),), 1.0)
    with pytest.raises(SpecError, match="a larger epsilon"):
        calibrate(SCHEMA.columns, 1e-16)
