"""E5: known bugs of public packages and papers, planted in our code, and the check that finds each.

A check is a function that passes on the code as it is (`test_the_code_passes`) and must fail with
the bug (`test_a_planted_bug_is_found`). `bugs.py` has those of generators, plans and samplers,
`bugs_of_weights.py` those of the weights; of training, teachers and the pipeline, and a list of
those that other files plant: `test_planted_bugs_training.py`.

"Known" names a public thread or paper where the bug, or one of its kind, is reported. The threads
are other people's reports, cited as such.
"""

from __future__ import annotations

import pytest

from tests.proof import bugs, bugs_of_weights

BUGS = bugs.BUGS | bugs_of_weights.BUGS
CHECKS = [*bugs.CHECKS, *bugs_of_weights.CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_passes(check):
    check()


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name, monkeypatch):
    bug = BUGS[name]
    assert bug.check in CHECKS
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError):
        bug.check()
