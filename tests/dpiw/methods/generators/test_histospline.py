"""Where rows lie inside their bins: as the neighbouring bins tell, and never elsewhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from dpiw.data.schema.discretisation import Bins, Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.generators.bayesian_network import Conditional, Family, NetworkModel
from dpiw.methods.generators.histospline import Histospline, _told, fill, histosplines
from dpiw.methods.one_way import OneWayMarginals
from tests.support import columns

COLUMNS = tuple(column for column in columns.COLUMNS if not column.name.startswith("constant"))
SCHEMA = PublicSchema(name="all", columns=COLUMNS)
DOMAIN = Domain.from_schema(SCHEMA, bins=6)
EVEN = Bins(edges=np.linspace(0.0, 1.0, 9), values=8, span=0, nullable=False)


def marginals(seed=0, variance=1.0):
    laws = columns.uneven_laws(DOMAIN, seed)
    counts = [law * 1000 / law.sum() for law in laws]
    return OneWayMarginals.of(
        DOMAIN, bins=6, marginals=counts, variances=[variance] * len(counts), total_variance=1.0
    )


@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_every_cell_keeps_its_code(seed):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(size, size=50) for size in DOMAIN.sizes], axis=1)
    codes = codes.astype(np.int32)
    filled = fill(DOMAIN, codes, histosplines(DOMAIN, marginals(seed)), rng=rng)
    assert (DOMAIN.codes(filled) == codes).all()


def test_the_spline_is_the_monotone_cubic_through_the_distribution_function():
    """Rows against SciPy's own interpolant, by Kolmogorov and Smirnov."""
    from scipy.interpolate import PchipInterpolator

    counts = np.array([5.0, 40, 90, 60, 20, 0, 3, 30])
    spline = Histospline.through(counts, EVEN, variance=0)
    reached = np.concatenate([[0.0], np.cumsum(counts / counts.sum())])
    curve = PchipInterpolator(EVEN.edges, reached)
    rng = np.random.default_rng(1)
    codes = rng.choice(8, 20_000, p=counts / counts.sum()).astype(np.int32)
    # Rows at chance 0.001 of a false alarm; spread evenly they would be rejected (below).
    assert kstest(spline.draw(codes, rng=rng), curve).pvalue > 1e-3
    evenly = (codes + rng.random(len(codes))) / 8
    assert kstest(evenly, curve).pvalue < 1e-6


WHOLE = Bins(
    edges=np.array([0.0, 1, 11, 21, 31, 32, 42, 52, 62]), values=8, span=61, nullable=False
)
DECIMALS = Bins(edges=np.array([0.0, 1e-6, 0.2, 0.4, 0.6, 1.0]), values=5, span=0, nullable=False)


@pytest.mark.parametrize(
    ("bins", "counts", "spikes"),
    [
        (WHOLE, [50, 10, 20, 30, 400, 5, 9, 2], [0, 4]),
        (DECIMALS, [4000, 900, 1000, 1000, 1200], [0]),
    ],
    ids=["one whole number", "a declared spike"],
)
def test_a_spike_tells_nothing_of_its_neighbours(bins, counts, spikes):
    louder = np.array(counts, dtype=float)
    louder[spikes] *= 7
    plain, raised = (
        Histospline.through(np.asarray(own, dtype=float), bins, variance=0)
        for own in (counts, louder)
    )
    assert np.array_equal(plain.places, raised.places)


def test_nothing_to_tell_is_spread_evenly():
    assert Histospline.through(np.zeros(8), EVEN, variance=0) is None
    levels = Bins(edges=None, values=3, span=0, nullable=False)
    assert Histospline.through(np.ones(3), levels, variance=0) is None
    two = Bins(edges=np.array([0.0, 0.2, 1.0]), values=2, span=0, nullable=True)
    assert Histospline.through(np.ones(3), two, variance=0) is None
    assert histosplines(DOMAIN, None) == {}
    codes = np.zeros((40, len(DOMAIN.sizes)), dtype=np.int32)
    plain = DOMAIN.fill(codes, rng=np.random.default_rng(3))
    same = fill(DOMAIN, codes, {}, rng=np.random.default_rng(3))
    assert all(
        np.array_equal(plain.columns[name], same.columns[name], equal_nan=True)
        for name in plain.columns
    )


@pytest.mark.parametrize(("variance", "told"), [(0.0, 1.0), (25.0, 0.5), (50.0, 0.0), (1e6, 0.0)])
def test_what_may_be_noise_is_not_leant_on(variance, told):
    """Of eight bins whose squared distance from even ones is 350: seven times 50."""
    apart = np.array([1.0, -1, 1, -1, 1, -1, 1, -1]) * np.sqrt(350 / 8)
    counts = 100 + apart
    sure = Histospline.through(counts, EVEN, variance=0)
    spline = Histospline.through(counts, EVEN, variance=variance)
    even = np.linspace(0, 1, sure.places.shape[1])
    assert np.abs(sure.places - even).max() > 1e-3
    if told in (0.0, 1.0):
        wanted = sure.places if told else np.broadcast_to(even, sure.places.shape)
        assert spline.places == pytest.approx(wanted, abs=1e-9)
    else:
        between = np.abs(spline.places - even).max() / np.abs(sure.places - even).max()
        assert between == pytest.approx(told, abs=0.05)


def test_noise_in_bins_of_other_widths_is_told_from_what_there_is():
    """Squared distance from even that noise adds, simulated: its mean over 4,000 marginals is known
    to within 3%. At equal widths it is (k - 1) v; with one wide bin nearly twice as much."""
    rng = np.random.default_rng(7)
    for edges in (np.linspace(0, 1, 11), np.array([0.0, *np.linspace(0.01, 0.09, 9), 1.0])):
        widths = np.diff(edges)
        noise = rng.normal(0, 1, (4000, 10))
        added = ((noise - noise.sum(axis=1, keepdims=True) * widths) ** 2).sum(axis=1).mean()
        true = 1000 * widths + np.where(np.arange(10) % 2, 2.0, -2.0)
        apart = ((true - true.sum() * widths) ** 2).sum()
        assert 1 - _told(edges, true, 1.0) == pytest.approx(added / apart, rel=0.05)


def test_a_bin_without_people_is_even_whatever_its_sum_was_rounded_to():
    even = np.linspace(0, 1, 33)
    spline = Histospline.through(np.array([0.0, 0, 0, 10, 10, 10, 10, 0]), EVEN, variance=0)
    assert np.allclose(spline.places[0], even)
    for least in (0.0, 5e-13, 1e-11):
        counts = np.array([10.0, 30, 20, 12, 9, 5, 2, least])
        spline = Histospline.through(counts, EVEN, variance=0)
        assert spline.places[-1] == pytest.approx(even, abs=1e-9)


@pytest.mark.parametrize("narrow", [1e-12, 1e-103, 1e-310])
def test_cuts_that_nearly_touch_break_nothing(narrow):
    edges = np.array([0.0, narrow, 0.3, 0.6, 0.8, 1.0])
    bins = Bins(edges=edges, values=5, span=0, nullable=True)
    spline = Histospline.through(np.array([3.0, 5, 9, 2, 1, 4]), bins, variance=0.1)
    codes = np.repeat(np.arange(6), 200).astype(np.int32)
    numbers = spline.draw(codes, rng=np.random.default_rng(8))
    assert (np.isnan(numbers) == (codes == 5)).all()
    known = codes < 5
    places = np.searchsorted(edges[1:-1], numbers[known], side="right")
    assert (places == codes[known]).all()


def test_whole_numbers_follow_the_spline_within_their_bins():
    bins = Bins(edges=np.arange(0.0, 81, 10), values=8, span=79, nullable=False)
    spline = Histospline.through(np.array([800.0, 400, 200, 100, 50, 25, 12, 6]), bins, variance=0)
    whole = np.rint(spline.draw(np.zeros(4000, np.int32), rng=np.random.default_rng(9)) * 79)
    assert set(whole) == set(range(10))
    lower = np.mean(whole < 5)  # spread evenly: half, and 0.55 is six standard errors away
    assert lower == pytest.approx(np.interp(0.5, spline.places[0], np.linspace(0, 1, 33)), abs=0.04)
    assert lower > 0.55


def test_a_network_draws_its_numbers_by_the_splines_of_its_marginals():
    """Every column's rows follow their spline's law; chance of a false alarm 0.001 a column."""
    known = marginals(3)
    conditionals = tuple(
        Conditional.from_table(Family(child=j, parents=()), counts, counts)
        for j, counts, _ in known.counts()
    )
    model = NetworkModel(domain=DOMAIN, conditionals=conditionals, one_way=known)
    assert {j for j, _, _ in known.counts()} == set(range(len(COLUMNS)))
    rows = model.sample(4000, rng=np.random.default_rng(10)).scaled
    codes = DOMAIN.codes(rows)
    for j, spline in model.splines.items():
        bins, values = DOMAIN.columns[j], rows.columns[COLUMNS[j].name]
        here = codes[:, j] < bins.values
        cells = codes[here, j]
        offsets = values[here] * (bins.span or 1)
        within = (offsets - bins.edges[cells]) / np.diff(bins.edges)[cells]
        if not COLUMNS[j].name.startswith(("continuous", "datetime")):
            continue  # the others' numbers are rounded
        parts = np.linspace(0, 1, spline.places.shape[1])
        shares = [np.interp(w, spline.places[c], parts) for w, c in zip(within, cells, strict=True)]
        assert kstest(shares, "uniform").pvalue > 1e-3, COLUMNS[j].name
        assert kstest(within, "uniform").pvalue < 1e-3, COLUMNS[j].name


def test_splines_know_the_noise_of_their_marginals():
    quiet, loud = marginals(5), marginals(5, variance=1e9)
    splines = histosplines(DOMAIN, loud)
    even = np.linspace(0, 1, 33)
    assert all(np.allclose(spline.places, even, atol=1e-9) for spline in splines.values())
    assert not any(
        np.allclose(spline.places, even, atol=1e-3)
        for spline in histosplines(DOMAIN, quiet).values()
    )
