"""E5, second half: bugs of teachers and of the pipeline, and the list of those planted elsewhere.

See `test_planted_bugs.py`; the bugs of DP-SGD itself are planted in
tests/dpiw/methods/neural/test_planted_bugs.py, and named here with where they are known from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.ledger import Ledger, StageState
from dpiw.methods.generators.gan.pategan import PATEGAN, vote_sensitivity
from dpiw.methods.generators.gan.teachers import Teachers, deal
from dpiw.methods.neural.backend import CPU
from dpiw.privacy.randomness import SeededNoise
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.dpiw.methods.generators import pate_world as pate
from tests.dpiw.methods.generators.neural_world import SCHEMA, UNIT, table
from tests.dpiw.methods.neural import mutants as neural
from tests.hostile.leaks import neighbours as leaks
from tests.proof import blind as noninterference
from tests.proof import bugs as panel
from tests.proof import bugs_of_weights as weights
from tests.proof.figures import tiers
from tests.support.draws import drawn

Patch = pytest.MonkeyPatch


class Watched(SeededNoise):
    """Seeded noise that asks, at each draw, whether the stage is armed in the ledger."""

    def __init__(self, run: ReleaseRun) -> None:
        super().__init__(1)
        self._run, self.early = run, 0

    def discrete_gaussian(self, *, scale: float, size: int) -> Any:
        stage = self._run.open_ledger().run(self._run.key).stages["fit_generator"]
        self.early += stage.state is not StageState.ARMED
        return super().discrete_gaussian(scale=scale, size=size)


# Checks; they are given the template of a workplace


def check_teachers_see_their_own_rows(_):
    dealt = deal(20, 3, noise=SeededNoise(2))
    pate.check_teachers_are_disjoint(pate.numbered(3, dealt), dealt)


def check_a_person_moves_one_vote(_):
    assert pate.largest_move([0, 1, 2], pate.coupled) <= vote_sensitivity(UNIT, 3)


def check_every_vote_is_an_event(_):
    generator = pate.ready(resumes=0)
    laws, _none = drawn(lambda noise: generator.measure(table(20), noise=noise))
    (event,) = generator.events(schema=SCHEMA, unit=UNIT)
    assert 12 == sum(law.dimension for law in laws) == event.count
    np.testing.assert_allclose([law.scale for law in laws], event.noise_multiplier, rtol=1e-9)


def check_nothing_is_drawn_before_it_is_charged(template: Any) -> None:
    root = template.world(int(np.random.default_rng().integers(10**6, 10**9)), leaks.table(3))
    run = ReleaseRun.prepare(root / "release.yaml", period=None)
    steps.reserve(run)
    steps.ingest(run)
    noise = Watched(run)
    EARLY.append(noise)
    steps.fit_generator(run, noise=noise)
    EARLY.clear()
    assert noise.early == 0


EARLY: list[Watched] = []
"""The source of the run in progress, for the bug that draws from it too early."""

CHECKS = [
    check_teachers_see_their_own_rows, check_a_person_moves_one_vote, check_every_vote_is_an_event,
    check_nothing_is_drawn_before_it_is_charged,
]  # fmt: skip


# Bugs


def every_teacher_sees_all(patch):
    """A fresh sample of the whole table for every teacher and step."""
    real = Teachers._lot

    def lot(self, size):
        _, weights = real(self, size)
        rng = np.random.default_rng(self.step)
        return self.rows[rng.integers(0, len(self.rows), (len(self.sizes), size))], weights

    patch.setattr(Teachers, "_lot", lot)


def the_first_part_for_all(patch):
    """An index that does not advance: every teacher reads the first part."""
    real = Teachers.start.__func__  # type: ignore[attr-defined]

    def start(cls, *given, **named):
        teachers = real(cls, *given, **named)
        return dataclasses.replace(teachers, starts=np.zeros_like(teachers.starts))

    patch.setattr(Teachers, "start", classmethod(start))


def votes_without_a_clamp(patch):
    """Teachers add their logits instead of one vote each."""

    def votes(self, asked):
        outputs = CPU.to_numpy(self._outputs(CPU.array(self.parameters), CPU.array(asked)))
        return np.rint(10 * outputs[:, :, 0].sum(axis=0)).astype(np.int64)

    patch.setattr(Teachers, "votes", votes)


def one_event_a_round(patch):
    real = PATEGAN.events

    def events(self, **given):
        return tuple(dataclasses.replace(e, count=self.rounds) for e in real(self, **given))

    patch.setattr(PATEGAN, "events", events)


def charged_after_the_draw(patch):
    real = Ledger.arm

    def late(self, *given, **named):
        EARLY[-1].discrete_gaussian(scale=1.0, size=1)
        return real(self, *given, **named)

    patch.setattr(Ledger, "arm", late)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bug:
    """As `bugs.Bug`, with a check that is given the template."""

    plant: Callable[[Patch], None]
    known: str
    check: Callable[[Any], None]


BUGS = {
    "every teacher samples all rows": Bug(
        plant=every_teacher_sees_all, check=check_teachers_see_their_own_rows,
        known="vanderschaarlab/synthcity#275; arXiv 2406.13985"),
    "every teacher reads the first part": Bug(
        plant=the_first_part_for_all, check=check_teachers_see_their_own_rows,
        known="vanderschaarlab/mlforhealthlabpub#29; arXiv 2406.13985"),
    "votes without a clamp": Bug(
        plant=votes_without_a_clamp, check=check_a_person_moves_one_vote, known="known class"),
    "votes accounted by the round": Bug(
        plant=one_event_a_round, check=check_every_vote_is_an_event,
        known="vanderschaarlab/synthcity#276 (its accountant counts too little)"),
    "charged after the draw": Bug(
        plant=charged_after_the_draw, check=check_nothing_is_drawn_before_it_is_charged,
        known="known class: opendp/smartnoise-sdk#424 (checked before, tallied after)"),
}  # fmt: skip

NEURAL = {
    "noise missing on empty lots": "meta-pytorch/opacus#161 (resample an empty batch)",
    "noise per private row": "arXiv 2108.10934, Algorithm 1 (docs/method.md section 12)",
    "one more step than accounted": "opendp/smartnoise-sdk#424 (off by one)",
    "divisor from data": "meta-pytorch/opacus#571, #819",
    "seed reuse": "known class",
    "shuffled batches": "meta-pytorch/opacus#80, #128; lxuechen/private-transformers#7",
    "batch statistics": "meta-pytorch/opacus#319",
    "the sum clipped, not its rows": "known class",
}
"""Planted by methods/neural/test_planted_bugs.py, by their names there; where known from."""

LEAKS = {
    noninterference.in_the_number_of_rows: "known class: as many synthetic rows as private ones",
    noninterference.in_the_report: "known class: the row count in a public file",
    noninterference.in_how_a_step_ends: "known class: a check of values that stops a run",
    noninterference.in_a_fact: "known class: an exact total beside noisy counts",
    noninterference.in_the_credit: "known class: a tuning constant from exact private statistics",
}
"""Planted by tests/proof/test_noninterference.py::test_a_planted_leak_is_seen."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return leaks.template_of(tmp_path_factory)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_passes(check, template):
    check(template)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name, template, monkeypatch):
    bug = BUGS[name]
    assert bug.check in CHECKS
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError):
        bug.check(template)


@tiers("least", fast=44, full=44)
def test_the_panel_is_complete(least, prove):
    """What is planted elsewhere is planted there, under these names."""
    planted = {name for name, *_ in neural.MUTANTS}
    assert set(NEURAL) <= planted
    assert set(LEAKS) == set(noninterference.PLANTS)
    bugs = [*panel.BUGS, *weights.BUGS, *BUGS, *NEURAL, *LEAKS]
    assert len(bugs) == len(set(bugs))
    known = [b.known for b in (*panel.BUGS.values(), *weights.BUGS.values(), *BUGS.values())]
    known += [*NEURAL.values(), *LEAKS.values()]
    named = sum(not text.startswith("known class") for text in known)
    prove(
        "E5: panel of planted bugs",
        f"{len(bugs)} bugs, {named} of them reported of public packages or papers",
    )
    assert len(bugs) >= least
