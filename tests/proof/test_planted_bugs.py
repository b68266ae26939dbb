"""E5: known bugs of public packages and papers, planted in our code, and the check that finds each.

"Known" names a public thread or paper where the bug, or one of its kind, is reported; threads are
other people's reports. Bugs of DP-SGD are planted in tests/dpiw/methods/neural, leaks in whole
releases in test_noninterference.py.
"""

import pytest

from tests.dpiw.methods.neural import mutants as neural
from tests.proof import blind, bugs, bugs_of_weights
from tests.proof.figures import tiers

BUGS = bugs.BUGS | bugs_of_weights.BUGS
CHECKS = dict.fromkeys(check for _, check, _ in BUGS.values())

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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_passes(check):
    check()


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name, monkeypatch):
    plant, check, _ = BUGS[name]
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


@tiers("least", fast=45, full=45)
def test_the_panel_is_complete(least, prove):
    """What is planted elsewhere is planted there, under these names."""
    assert set(NEURAL) <= {name for name, *_ in neural.MUTANTS}
    known = [bug[-1] for bug in (*BUGS.values(), *blind.LEAKS.values())] + [*NEURAL.values()]
    named = sum(not text.startswith("known class") for text in known)
    prove("E5: panel of planted bugs", f"{len(known)} bugs, {named} of them reported in public")
    assert len(known) >= least
