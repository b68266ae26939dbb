"""What is moved to the weekly suites exists, and so does what stands for it."""

from __future__ import annotations

import pytest

from tests.conftest import COLLECTED
from tests.lengths import MOVED, Moved, marker_of
from tests.support.named_tests import named_tests

each = pytest.mark.parametrize("moved", MOVED, ids=lambda moved: moved.test.split("::")[1])


@each
def test_what_is_moved_and_what_stays_are_there(moved: Moved) -> None:
    assert {moved.test, moved.stays} <= named_tests()
    assert moved.marker in ("crash", "nightly")
    if moved.stays == moved.test:
        assert moved.cases  # some cases stay
    else:
        assert marker_of(moved.stays) is None


@each
def test_every_case_is_there_and_one_stays(moved: Moved, pytestconfig: pytest.Config) -> None:
    """A case that no test has any more would be moved to nowhere."""
    nodes = [n for n in pytestconfig.stash[COLLECTED] if n.partition("[")[0] == moved.test]
    if not nodes:
        pytest.skip("its file was not collected: only a part of the suite is run")
    for part in moved.cases:
        assert any(part in node for node in nodes), part
    assert not moved.cases or any(marker_of(node) is None for node in nodes)
