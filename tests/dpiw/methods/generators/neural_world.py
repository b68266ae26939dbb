"""What the tests of the neural generators share: a schema, tables, and checks of non-interference.

A check of non-interference replaces every noisy value by one that no data decides. Two tables then
give the same bytes, or something of them went past the mechanisms.
"""

import numpy as np

from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.gan import training
from dpiw.methods.generators.gan.dpgan import DPGAN
from dpiw.methods.neural import dp_sgd
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import SeededNoise
from tests.support import worlds
from tests.support.worlds import UNIT, declared, unit_of

REPLACE = unit_of(worlds.REPLACE)
SCHEMA = declared(
    {"name": "x", "kind": "continuous", "lower": 0, "upper": 1},
    {"name": "job", "kind": "categorical", "levels": ["a", "b", "c"], "nullable": True},
    {"name": "sick", "kind": "boolean", "role": "target"},
    name="small",
)


class Counting(SeededNoise):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.scales, self.lots = [], []

    def gaussian_vector(self, *, scale, size):
        self.scales.append(scale)
        return super().gaussian_vector(scale=scale, size=size)

    def poisson_sample(self, *, rows, probability):
        found = super().poisson_sample(rows=rows, probability=probability)
        self.lots.append((probability, found))
        return found


class Turning(SeededNoise):
    """Seeded noise that starts again from another seed at its n-th lot."""

    def __init__(self, seed, *, at, then):
        super().__init__(seed)
        self._left, self._then = at, then

    def poisson_sample(self, *, rows, probability):
        if self._left == 0:
            self._generator = SeededNoise(self._then)._generator
        self._left -= 1
        return super().poisson_sample(rows=rows, probability=probability)


def table(rows, seed=0, schema=SCHEMA):
    scaled = worlds.uniform_rows(schema, rows, np.random.default_rng(seed))
    return PrivateTable(schema=schema, scaled=scaled)


def without(whole, row):
    scaled = whole.confidential()
    kept = np.delete(np.arange(scaled.rows), row)
    return PrivateTable(schema=whole.schema, scaled=scaled.take(kept))


def blind(monkeypatch):
    """Replace every noisy value by a public one."""
    calls = iter(range(10**9))

    def noisy_sum(total, *, scale, noise):
        return np.random.default_rng([1, next(calls)]).normal(scale=scale, size=total.size)

    def noisy_counts(counts, *, law, noise):
        draws = np.random.default_rng([2, next(calls)]).normal(size=law.dimension)
        return (5.0 + draws).reshape(counts.shape)

    monkeypatch.setattr(dp_sgd, "noisy_sum", noisy_sum)
    monkeypatch.setattr(mechanisms, "noisy_counts", noisy_counts)
    return calls


def bytes_of(ready, private, monkeypatch):
    with monkeypatch.context() as patch:
        blind(patch)
        return ready.measure(private, noise=SeededNoise(0)).to_bytes()


def assert_tables_do_not_interfere(ready, monkeypatch, *, table=table):
    """Neighbours, an empty table and an altogether different one."""
    tables = [table(40), without(table(40), 0), without(table(40), 25), table(0), table(90, seed=3)]
    found = {bytes_of(ready, private, monkeypatch) for private in tables}
    assert len(found) == 1


SMALL = {
    "steps": 8, "lot": 10, "batch": 6, "generator": (5,), "discriminator": (4,), "latent": 2,
    "marginals_share": 0.0,
}  # fmt: skip
"""Without known marginals, whose own tests are in `test_dpgan.py`."""


def ready(kind=DPGAN, *, rho=0.5, unit=UNIT, nominal_rows=40, **settings):
    return kind(**SMALL | settings).calibrate(
        rho=rho, schema=SCHEMA, unit=unit, nominal_rows=nominal_rows
    )


GAME = SMALL | {"settle": 0.5}
PATE = {
    "rounds": 8, "queries": 3, "teachers": 5, "batch": 6, "generator": (5,), "student": (4,),
    "latent": 2,
}  # fmt: skip


def with_marginals(kind=DPGAN, *, rho=0.5, unit=UNIT, **settings):
    own = (PATE if kind.method == "pategan" else GAME) | {"marginals_share": 0.4} | settings
    return kind(**own).calibrate(rho=rho, schema=SCHEMA, unit=unit, nominal_rows=40)


def settle_on_few_rows(monkeypatch):
    """Known marginals are met at the end over 65,536 rows, which is most of a small training."""
    monkeypatch.setattr(training, "SETTLING_ROWS", 2048)
