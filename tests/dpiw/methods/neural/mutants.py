"""Bugs of DP-SGD, and the checks that must find them."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from dpiw.methods.neural import clipping, dp_sgd
from dpiw.methods.neural.backend import CPU
from dpiw.methods.neural.clipping import ClipRule, Logistic, clipped_sum
from dpiw.methods.neural.dp_sgd import PrivateTraining
from dpiw.methods.neural.networks import Network
from dpiw.privacy.mechanisms import noisy_sum
from tests.dpiw.methods.neural.settings import gradient

FALSE_ALARM = 1e-9


def run(world, noise, **changes):
    training = dataclasses.replace(world.training, **changes)
    return training.train(world.settings.start(training, noise), world.lots, noise=noise)


def updates(world, noise, count):
    """The noisy sums of `count` steps, shape (count, p), for plain descent of rate 1."""
    state, sums = world.settings.start(world.training, noise), []
    for _ in range(count):
        moved = world.training.private_step(state, world.lots, noise=noise)
        sums.append((state.parameters - moved.parameters) * world.training.divisor)
        state = moved
    return np.array(sums)


def check_one_draw_per_lot(world):
    """As many draws as the event counts, of its noise, for a full and for an empty table."""
    empty = dataclasses.replace(world.lots, rows=world.lots.rows[:0])
    (event,) = world.training.events()
    for lots in (world.lots, empty):
        world.lots, before = lots, len(world.counting.scales)
        run(world, world.counting)
        assert len(world.counting.scales) - before == event.count
    scale = event.noise_multiplier * world.training.clip * world.training.unit.max_rows
    np.testing.assert_allclose(world.counting.scales, scale)


def check_noise_has_the_accounted_scale(world):
    """Two-sided: the sums of an empty table have the stated variance, by a chi-square test."""
    world.lots = dataclasses.replace(world.lots, rows=world.lots.rows[:0])
    (event,) = world.training.events()
    scale = event.noise_multiplier * world.training.clip * world.training.unit.max_rows
    noise = updates(world, world.counting, 100) / scale
    law = stats.chi2(noise.size)
    tail = min(law.cdf((noise**2).sum()), law.sf((noise**2).sum()))
    assert 2 * tail > FALSE_ALARM


def check_noise_is_fresh(world):
    """No two lots share noise: their correlations are those of independent normals."""
    world.lots = dataclasses.replace(world.lots, rows=world.lots.rows[:0])
    noise = updates(world, world.counting, 60)
    correlation = np.corrcoef(noise)[np.triu_indices(60, 1)]
    # 26 coordinates, 1770 pairs: |r| > 0.94 has probability 1770 * 2e-12 for independent ones.
    assert np.abs(correlation).max() < 0.94


def check_lots_are_poisson(world):
    """Two-sided: lot sizes have the binomial mean and variance; rows are drawn independently."""
    (event,) = world.training.events()
    rows, q = len(world.lots.rows), event.sampling_probability
    sizes = []

    class Recording:
        def slopes(self, outputs):
            sizes.append(len(outputs))
            return Logistic(label=1).slopes(outputs)

    world.lots = dataclasses.replace(world.lots, loss=Recording())
    run(world, world.counting)
    spread = np.array(sizes) - rows * q
    normal = stats.norm.sf(abs(spread.sum()) / np.sqrt(len(sizes) * rows * q * (1 - q)))
    law, value = stats.chi2(len(sizes)), (spread**2).sum() / (rows * q * (1 - q))
    assert 2 * min(normal, law.cdf(value), law.sf(value)) > FALSE_ALARM


def check_the_divisor_is_public(world):
    """Without noise, twice the table moves the parameters twice as far."""
    moved = []
    for copies in (1, 2):
        world.lots = dataclasses.replace(
            world.lots, rows=np.repeat(world.settings.values(8), copies, axis=0)
        )
        training = dataclasses.replace(world.training, sampling_rate=1.0, steps=1)
        start = world.settings.start(training, world.no_noise)
        end = training.private_step(start, world.lots, noise=world.no_noise)
        moved.append(end.parameters - start.parameters)
    step = 2**-9 * world.training.scale / world.training.divisor
    np.testing.assert_allclose(moved[1], 2 * moved[0], atol=2 * step)


def check_no_row_sees_another(world):
    """The exact sum adds over any split of the lot."""
    network = world.settings.network(3, 5, 1)
    rows = world.settings.rows(world.lots.rows)
    arguments = {"clip": 0.4, "rule": ClipRule.LOSS}
    whole, first, second = (
        clipping.clipped_sum(network, part, Logistic(label=1), **arguments)
        for part in (rows, rows[:150], rows[150:])
    )
    np.testing.assert_allclose(whole, first + second, atol=1e-12)


def check_one_row_moves_the_sum_by_at_most_the_bound(world):
    """Neighbours' sums, for ordinary and for enormous rows."""
    network, clip = world.settings.network(3, 5, 1), world.training.clip
    for size in (1e-3, 1.0, 1e6):
        values = np.vstack([world.settings.values(40), np.full((1, 3), size)])
        whole, fewer = (
            clipping.clipped_sum(
                network, world.settings.rows(rows), Logistic(label=0), clip=clip, rule=ClipRule.LOSS
            )
            for rows in (values, values[:-1])
        )
        assert np.linalg.norm(whole - fewer) <= clip * (1 + 1e-9)
    enormous = dataclasses.replace(world.lots, rows=1e6 * world.settings.values(1))
    training = dataclasses.replace(world.training, sampling_rate=1.0)
    start = world.settings.start(training, world.no_noise)
    end = training.private_step(start, enormous, noise=world.no_noise)
    moved = np.linalg.norm(end.parameters - start.parameters) * training.divisor
    assert moved == pytest.approx(clip, rel=1e-2)  # the lattice rounds


def check_a_step_sees_its_own_lot(world):
    """Without noise, a lot of no rows moves nothing, whatever lots were before."""
    training = dataclasses.replace(world.training, sampling_rate=1.0, steps=2)
    state = world.settings.start(training, world.no_noise)
    state = training.private_step(state, world.lots, noise=world.no_noise)
    empty = dataclasses.replace(world.lots, rows=world.lots.rows[:0])
    end = training.private_step(state, empty, noise=world.no_noise)
    np.testing.assert_array_equal(end.parameters, state.parameters)


CHECKS = [
    check_one_draw_per_lot, check_noise_has_the_accounted_scale, check_noise_is_fresh,
    check_lots_are_poisson, check_the_divisor_is_public, check_no_row_sees_another,
    check_one_row_moves_the_sum_by_at_most_the_bound, check_a_step_sees_its_own_lot,
]  # fmt: skip


class Mutant(PrivateTraining):
    """The core's step, written out, with one bug by name."""

    bug = ""
    earlier: ClassVar[list] = []

    @property
    def scale(self):
        scale = super().scale
        return scale / self.clip if self.bug == "noise without the bound" else scale

    def private_step(self, state, lots, *, noise, public=None):
        if self.bug != "one more step":
            self._check(state, noise)
        network = lots.architecture.network(lots.backend.array(state.parameters))
        lot = noise.poisson_sample(rows=len(lots.rows), probability=self.sampling_rate)
        drawn = lots.backend.array(lots.rows[lot])
        exact = clipped_sum(network, drawn, lots.loss, clip=self.clip, rule=self.rule)
        exact = lots.backend.to_numpy(exact)
        if self.bug == "sums of earlier steps":
            self.earlier.append(exact)
            exact = np.sum(self.earlier, axis=0)
        if self.bug == "no noise on empty lots" and len(lot) == 0:
            total = exact
        elif self.bug == "noise per row":  # Algorithm 1 as printed
            total = exact
            for _ in lot:
                total = noisy_sum(total, scale=self.scale, noise=noise)
        elif self.bug == "noise divided twice":
            zeros = np.zeros(exact.size)
            total = exact + noisy_sum(zeros, scale=self.scale, noise=noise) / self.divisor
        else:
            total = noisy_sum(exact, scale=self.scale, noise=noise)
        return self._updated(
            state, total / (max(1, len(lot)) if self.bug == "divisor from data" else self.divisor)
        )

    def train(self, state, lots, *, noise, public=None):
        for _ in range(state.step, self.steps + (self.bug == "one more step")):
            state = self.private_step(state, lots, noise=noise)
        return state


def mutate_training(bug):
    def plant(world, monkeypatch):
        attributes = {"bug": bug, "earlier": []}
        kind = dataclasses.dataclass(frozen=True, kw_only=True)(type("M", (Mutant,), attributes))
        fields = dataclasses.fields(PrivateTraining)
        world.training = kind(**{f.name: getattr(world.training, f.name) for f in fields})

    return plant


def mutate_noise(**methods):
    def plant(world, monkeypatch):
        for name, method in methods.items():
            monkeypatch.setattr(world.counting, name, method(world.counting))

    return plant


def repeated(noise):
    """Noise that starts again from its seed with every lot."""
    return lambda *, scale, size: np.random.default_rng(1).normal(scale=scale, size=size)


def shuffled(noise):
    """Batches of fixed size from a shuffled table, accounted as Poisson."""
    queue = []

    def sample(*, rows, probability):
        size = round(rows * probability)
        if len(queue) < size:
            queue[:] = np.random.default_rng(len(queue)).permutation(rows).tolist()
        return np.array([queue.pop() for _ in range(size)])

    return sample


def scaled(factor):
    def make(noise):
        draw = type(noise).gaussian_vector
        return lambda *, scale, size: draw(noise, scale=factor * scale, size=size)

    return make


def batch_statistics(world, monkeypatch):
    """Activations centred over the lot, as batch normalisation does."""
    exact = Network.outputs

    def outputs(self, rows, **watch):
        return exact(self, rows - rows.mean(axis=0) if len(rows) else rows, **watch)

    monkeypatch.setattr(Network, "outputs", outputs)


def clips_too_late(world, monkeypatch):
    """The lot's sum is clipped instead of each row."""

    def late(network, rows, loss, *, clip, rule):
        total = CPU.array(gradient(network, rows, loss.slopes(network.outputs(rows))))
        return total * min(1.0, len(rows) * clip / np.linalg.norm(total))

    for module in (clipping, dp_sgd):
        monkeypatch.setattr(module, "clipped_sum", late)


def clips_rows(parts):
    """Rows clipped by another norm than that of all parameters, by parts of the parameters."""

    def plant(world, monkeypatch):
        layers = parts(world.settings.layers(3, 5, 1))

        def clipped(network, rows, loss, *, clip, rule):
            total = np.zeros(network.architecture.size)
            for place in range(len(rows)):
                row = rows[place : place + 1]
                own = gradient(network, row, loss.slopes(network.outputs(row)))
                for scaled, measured in layers:
                    norm = np.linalg.norm(own[measured])
                    total[scaled] += own[scaled] * min(1.0, clip / norm)
            return world.settings.rows(total)

        for module in (clipping, dp_sgd):
            monkeypatch.setattr(module, "clipped_sum", clipped)

    return plant


def each_layer(layers):
    """Every layer to the whole bound."""
    pairs = [np.concatenate(pair) for pair in zip(layers[::2], layers[1::2], strict=True)]
    return [(pair, pair) for pair in pairs]


def without_biases(layers):
    """The norm leaves the biases out."""
    return [(np.concatenate(layers), np.concatenate(layers[::2]))]


MUTANTS = [
    ("noise missing on empty lots", mutate_training("no noise on empty lots"), "one_draw_per_lot"),
    ("noise per private row", mutate_training("noise per row"), "one_draw_per_lot"),
    ("one more step than accounted", mutate_training("one more step"), "one_draw_per_lot"),
    ("divisor from data", mutate_training("divisor from data"), "divisor_is_public"),
    ("seed reuse", mutate_noise(gaussian_vector=repeated), "noise_is_fresh"),
    ("shuffled batches", mutate_noise(poisson_sample=shuffled), "lots_are_poisson"),
    ("two thirds of the noise", mutate_noise(gaussian_vector=scaled(2 / 3)), "accounted_scale"),
    ("three halves of the noise", mutate_noise(gaussian_vector=scaled(3 / 2)), "accounted_scale"),
    ("batch statistics", batch_statistics, "no_row_sees_another"),
    ("the sum clipped, not its rows", clips_too_late, "at_most_the_bound"),
    ("each layer clipped by itself", clips_rows(each_layer), "at_most_the_bound"),
    ("biases left out of the norm", clips_rows(without_biases), "at_most_the_bound"),
    ("noise without the bound", mutate_training("noise without the bound"), "accounted_scale"),
    ("noise divided twice", mutate_training("noise divided twice"), "accounted_scale"),
    ("sums of earlier steps", mutate_training("sums of earlier steps"), "sees_its_own_lot"),
]
