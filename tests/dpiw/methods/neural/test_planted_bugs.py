"""Every known way to break DP-SGD, planted, and the check that finds it.

A check is a function of a training, its lots and a maker of noise sources. It passes on the core
(`test_the_core_passes`) and must fail on its mutant (`test_a_planted_bug_is_found`); checks of laws
accept when p > 1e-9, on fixed seeds. Source of the list: docs/method.md section 12, issue 5.
"""

from types import SimpleNamespace

import pytest

from tests.dpiw.methods.neural import mutants, settings


@pytest.fixture
def world(counting, no_noise):
    """The core with either settings, and sources that count."""
    return SimpleNamespace(
        settings=settings, training=settings.training(steps=200), lots=settings.lots(400),
        counting=counting, no_noise=no_noise,
    )  # fmt: skip


@pytest.mark.parametrize("check", mutants.CHECKS, ids=lambda c: c.__name__)
def test_the_core_passes(world, check):
    check(world)


@pytest.mark.parametrize(
    ("bug", "plant", "name"), mutants.MUTANTS, ids=[m[0] for m in mutants.MUTANTS]
)
def test_a_planted_bug_is_found(world, monkeypatch, bug, plant, name):
    (check,) = [check for check in mutants.CHECKS if check.__name__.endswith(name)]
    plant(world, monkeypatch)
    with pytest.raises(AssertionError):
        check(world)


def test_a_mutant_without_a_bug_passes(world, monkeypatch):
    """So what is found above is the bug, not the way it was planted."""
    mutants.mutate_training("")(world, monkeypatch)
    for check in (mutants.check_one_draw_per_lot, mutants.check_the_divisor_is_public):
        check(world)
