"""pategan: disjoint teachers, exact sensitivity, a student who sees synthetic rows alone."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpiw.methods.generators.gan import teachers as parties
from dpiw.methods.generators.gan.pategan import vote_sensitivity
from dpiw.methods.generators.gan.teachers import Teachers, deal
from dpiw.methods.neural.networks import Network
from dpiw.privacy import mechanisms
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.dpiw.methods.generators.neural_world import (
    REPLACE,
    SCHEMA,
    UNIT,
    settle_on_few_rows,
    table,
)
from tests.dpiw.methods.generators.pate_world import (
    ROWS,
    check_teachers_are_disjoint,
    coupled,
    largest_move,
    numbered,
    ready,
    school,
    votes,
)
from tests.dpiw.methods.neural.settings import gradient
from tests.support.around import around
from tests.support.draws import drawn
from tests.support.training_watch import KilledError, Recorder
from tests.support.worlds import ADD, unit_of

unit = partial(unit_of, ADD)


@pytest.mark.nightly_cases("persons1")
@pytest.mark.parametrize(
    ("persons", "rows"), [([0, 1, 2, 3], 1), ([0, 0, 1, 1], 2), ([0, 0, 0, 1], 3)]
)
@pytest.mark.slow
def test_no_query_moves_by_more_than_the_sensitivity(persons, rows):
    """Every deal of four rows among three teachers, every person; the bound is attained."""
    assert largest_move(persons, coupled) == vote_sensitivity(unit(rows), 3) == rows


def test_a_deal_by_place_in_the_table_is_found():
    """The planted bug: row i to teacher i mod k. A row that leaves moves all later ones."""
    dealt, rows = np.arange(5) % 3, ROWS
    whole = votes(rows, dealt)
    changes = [
        int(np.abs(whole - votes(np.delete(rows, row, axis=0), np.arange(4) % 3)).max())
        for row in range(5)
    ]
    assert max(changes) > vote_sensitivity(UNIT, 3)


def test_sensitivities_are_bounded_by_the_teachers():
    several = unit_of(REPLACE.relation, 4)
    assert [vote_sensitivity(u, 5) for u in (UNIT, unit(3), unit(9), REPLACE, several)] == [
        1, 3, 5, 1, 5,
    ]  # fmt: skip
    assert vote_sensitivity(several, 50) == 8


def test_a_teacher_without_rows_reads_no_other_teacher():
    dealt = np.array([0, 2])
    finite, odd = np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 0.0], [np.inf, np.nan]])
    lots = [school(rows, dealt, 3)._lot(4)[0] for rows in (finite, odd)]
    assert np.array_equal(lots[0][:2], lots[1][:2])
    assert not lots[0][1].any()


@pytest.mark.parametrize("rows", [0, 1, 3, 40])
def test_teachers_are_disjoint(rows):
    dealt = deal(rows, 6, noise=SeededNoise(rows))
    check_teachers_are_disjoint(numbered(6, dealt), dealt)


def test_teachers_learn_the_logistic_loss():
    """The stacked gradient is that of the network, teacher by teacher."""
    rng = np.random.default_rng(6)
    dealt, rows = np.repeat(np.arange(3), 4), rng.normal(size=(12, 2))
    teachers = school(rows, dealt, 3)
    lots, weights = teachers._lot(4)
    gradients = teachers._gradient(lots, weights, label=1)
    architecture = parties.Architecture(widths=(2, 2, 1), activation="tanh")
    for number in range(3):
        network = Network(architecture=architecture, parameters=teachers.parameters[number])
        lot = network.backend.array(lots[number])
        slopes = parties.Logistic(label=1).slopes(network.outputs(lot))
        wanted = gradient(network, lot, slopes) / 4
        np.testing.assert_allclose(gradients[number], wanted, atol=1e-12)


def test_deals_are_uniform_and_independent():
    """Chi-square at 1e-9 of single rows and of pairs; a deal by place is rejected there."""
    dealt = deal(30_000, 5, noise=SecureNoise())
    assert stats.chisquare(np.bincount(dealt, minlength=5)).pvalue > 1e-9
    pairs = np.bincount(dealt[::2] * 5 + dealt[1::2], minlength=25)
    assert stats.chisquare(pairs).pvalue > 1e-9
    place = np.arange(30_000) % 5
    assert stats.chisquare(np.bincount(place[::2] * 5 + place[1::2], minlength=25)).pvalue < 1e-9


@pytest.mark.parametrize("noise", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_as_many_counts_as_accounted(noise, rows):
    generator, released = ready(noise=noise, unit=unit(2)), []
    laws, _ = drawn(lambda source: released.append(generator.measure(table(rows), noise=source)))
    (event,) = generator.events(schema=SCHEMA, unit=unit(2))
    assert isinstance(event, LaplaceEvent if noise is NoiseKind.LAPLACE else GaussianEvent)
    assert [(law.kind, law.dimension) for law in laws] == [(noise, 3)] * 4
    assert event.count == 15  # with the round that one resume may repeat
    for law in laws:
        assert law.scale == pytest.approx(2 * event.noise_multiplier, rel=1e-12)
        assert law.scale >= 2 * event.noise_multiplier
    assert released[0].facts["votes_scale"] == laws[0].scale


@pytest.mark.parametrize("turn", [0, 1, 3, 4])
@pytest.mark.parametrize("histograms", [0, len(SCHEMA.released)])
def test_a_resumed_run_goes_on_where_student_and_generator_stood(monkeypatch, histograms, turn):
    """With the same noisy votes, bit for bit; known marginals are drawn before the first."""
    queried = []

    def votes(counts, *, law, noise):
        queried.append(counts)
        return np.random.default_rng(len(queried)).integers(1, 6, counts.shape)

    monkeypatch.setattr(mechanisms, "noisy_counts", votes)
    settle_on_few_rows(monkeypatch)
    generator = ready(marginals_share=0.4 if histograms else 0.0)
    whole = generator.measure(table(30), noise=SeededNoise(1))
    assert len(queried) == histograms + 4
    queried.clear()
    killed = Recorder(dies_at=turn * 3)
    with pytest.raises(KilledError):
        generator.measure(table(30), noise=SeededNoise(2), watch=killed)
    assert len(queried) == histograms + turn
    resumed = Recorder(resumed=killed.saved[turn * 3])
    measurement = generator.measure(table(30), noise=SeededNoise(3), watch=resumed)
    assert measurement.to_bytes() == whole.to_bytes()
    assert len(queried) == histograms + 4
    assert resumed.steps == [(queries, 12) for queries in range(turn * 3 + 3, 13, 3)]


def test_a_checkpoint_holds_nothing_of_the_teachers(monkeypatch):
    """Votes that no data decides: checkpoints of two tables are the same bytes."""
    monkeypatch.setattr(mechanisms, "noisy_counts", lambda c, *, law, noise: np.arange(c.size))
    checkpoints = []
    for rows in (3, 30):
        watch = Recorder()
        ready().measure(table(rows), noise=SeededNoise(rows), watch=watch)
        checkpoints.append(watch.saved)
    assert checkpoints[0] == checkpoints[1]
    assert len(checkpoints[0]) == 5


def test_a_resumed_run_teaches_new_teachers_before_it_asks(monkeypatch):
    taught, recorded = [], lambda self, made, **_: taught.append((self.step, len(made)))
    generator, watch = ready(), Recorder()
    generator.measure(table(30), noise=SeededNoise(1), watch=watch)
    around(Teachers, "taught", before=recorded, replace=monkeypatch.setattr)
    generator.measure(table(30), noise=SeededNoise(2), watch=Recorder(resumed=watch.saved[9]))
    assert [step for step, _ in taught] == [generator.teacher_steps * n for n in range(4)]
    assert [rows for _, rows in taught] == [generator.queries] * 3 + [generator.batch]


def test_the_student_is_no_ratio_and_teachers_stay():
    generator = ready()
    measurement = generator.measure(table(40), noise=SeededNoise(0))
    assert set(measurement.arrays) == {"generator", "discriminator", "proportions"}
    assert not generator.model(measurement, schema=SCHEMA).ratio
    sizes = {name: values.size for name, values in measurement.arrays.items()}
    design = generator.design(SCHEMA)
    assert sizes["discriminator"] == design.discriminator_architecture.size
    assert sizes["generator"] == design.generator_architecture.size
