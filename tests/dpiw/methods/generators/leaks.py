"""Planted leaks of neural generators: what each sends past the mechanisms."""

import dataclasses

import numpy as np

from dpiw.methods.generators.gan import design
from dpiw.methods.generators.gan import pategan as module
from dpiw.methods.generators.gan import teachers as parties
from dpiw.methods.generators.gan.dpgan import DPCGAN
from dpiw.methods.generators.gan.heads import Heads
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.gan.teachers import Teachers
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.neural import dp_sgd
from dpiw.privacy import mechanisms


def exact_proportions(patch):
    """The labels' exact counts, as conditional GANs are usually trained."""
    patch.setattr(
        DPCGAN, "_proportions",
        lambda self, design, _, scaled, noise: design.given.encode(scaled).sum(axis=0) + 1,
    )  # fmt: skip


def divisor_from_data(patch):
    """The mean over the lot that was drawn."""
    step = dp_sgd.PrivateTraining.private_step

    def private_step(self, state, lots, *, noise, public=None):
        size = max(1, lots.rows.shape[0])
        moved = dataclasses.replace(self, divisor=float(size))
        state = dataclasses.replace(state, settings=moved.digest)
        after = step(moved, state, lots, noise=noise, public=public)
        return dataclasses.replace(after, settings=self.digest)

    patch.setattr(dp_sgd.PrivateTraining, "private_step", private_step)


def batch_by_size(patch):
    """As many synthetic rows as the table suggests."""
    measure = DPCGAN.measure

    def by_size(self, table, *, noise):
        rows = table.confidential().rows
        return measure(dataclasses.replace(self, batch=5 + rows % 5), table, noise=noise)

    patch.setattr(DPCGAN, "measure", by_size)


def real_rows_for_the_generator(patch):
    """Initial parameters that have seen the table."""
    encode = design.Design.encode

    def seen(self, scaled):
        rows = encode(self, scaled)
        object.__setattr__(self, "generator", (5 + len(rows) % 3,))
        self.__dict__.pop("generator_architecture", None)
        return rows

    patch.setattr(design.Design, "encode", seen)


def a_trace_of_the_exact_sums(patch):
    """The clipped sum itself, beside its noisy twin."""
    exact, update, seen = dp_sgd.clipped_sum, dp_sgd.PrivateTraining._updated, []

    def kept(*given, **named):
        seen.append(exact(*given, **named))
        return seen[-1]

    def updated(self, state, gradient):
        return update(self, state, gradient + 1e-9 * seen[-1].numpy())

    patch.setattr(dp_sgd, "clipped_sum", kept)
    patch.setattr(dp_sgd.PrivateTraining, "_updated", updated)


def exact_counts(patch):
    """ColumnDistributions of the exact histogram."""
    draw = Histogram.measure

    def exact(self, table, *, noise):
        measurement = draw(self, table, noise=noise)
        codes = table.confidential().columns["sick"]
        return dataclasses.replace(
            measurement,
            arrays={**measurement.arrays, "one_way_2": np.bincount(codes, minlength=2) + 0.0},
        )

    patch.setattr(Histogram, "measure", exact)


def levelled_on_the_table(patch):
    """Offsets that give the table's own shares of levels."""
    encode = Heads.encode

    def encoded(self, scaled):
        rows = encode(self, scaled)
        if self.distributions is not None:
            levels = slice(*self.groups[0])
            seen = self.distributions.shares[levels] + 1e-3 * rows[:, levels].sum(axis=0)
            self.distributions.shares[levels] = seen / seen.sum()
        return rows

    patch.setattr(Heads, "encode", encoded)


def exact_votes(patch):
    """Labels by the exact counts."""
    patch.setattr(mechanisms, "noisy_counts", lambda counts, *, law, noise: counts.astype(float))
    patch.setattr("tests.dpiw.methods.generators.neural_world.blind", lambda patch: None)


def teachers_by_size(patch):
    """As many teachers as the table has rows for."""
    start = Teachers.start.__func__

    def by_size(cls, rows, dealt, *, count, **facts):
        school = start(cls, rows, dealt, count=count, **facts)
        patch.setattr(module, "law_bias", len(rows), raising=False)
        return school

    patch.setattr(Teachers, "start", classmethod(by_size))
    play = PATEGAN._play
    patch.setattr(
        PATEGAN, "_play",
        lambda self, design, chance, ask, teachers, **where: play(
            self, design, chance, ask, 2 * (3 + module.law_bias % 5), **where
        ),
    )  # fmt: skip


def student_meets_real_rows(patch):
    """Real rows among those the student learns from."""
    start, met = Teachers.start.__func__, []

    def seen(cls, rows, dealt, **facts):
        met.append(rows[:1])
        return start(cls, rows, dealt, **facts)

    original = parties.Student.told
    patch.setattr(Teachers, "start", classmethod(seen))
    patch.setattr(
        parties.Student, "told",
        lambda self, rows, labels, *, memory: original(
            self, np.vstack([rows, *met[-1:]]), np.append(labels, [1.0] * len(met[-1])),
            memory=memory,
        ),
    )  # fmt: skip
