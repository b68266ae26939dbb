"""What is told of a run whose stage was killed is what `reserve` then does."""

from typing import Any

import pytest

from dpiw.errors import GrantSpentError
from dpiw.ledger import Ledger
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import steps
from dpiw.run.continuation import goes_on
from dpiw.run.run import ReleaseRun
from tests.support.whole_runs import prepared, spent

SAME = "next: the same command goes on"


class Killed(BaseException):
    """Instead of a signal, which no handler of ours catches."""


class Cut(SecureNoise):
    def discrete_gaussian(self, **_: Any) -> Any:
        raise Killed


def begun(place: Any, attempts: int = 1) -> ReleaseRun:
    text = place.spec.read_text()
    assert "max_attempts: 1" in text
    place.spec.write_text(text.replace("max_attempts: 1", f"max_attempts: {attempts}"))
    run = prepared(place)
    steps.reserve(run)
    return run


def cut_off(run: ReleaseRun) -> None:
    with pytest.raises(Killed):
        steps.fit_generator(run, noise=Cut())


def test_before_a_draw_nothing_is_paid(workplace):
    run = begun(workplace)
    before = spent(workplace).epsilon
    for stage in ("ingest", "fit_generator"):
        assert goes_on(run, stage).startswith(f"{SAME}: this stage drew nothing")
    steps.reserve(run)
    assert spent(workplace).epsilon == before


def test_a_draw_on_record_is_not_paid_twice(workplace, monkeypatch):
    run = begun(workplace)
    steps.ingest(run)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):  # its output is durable, and the ledger does not know yet
            steps.fit_generator(run, noise=SecureNoise())
    before = spent(workplace).epsilon
    assert goes_on(run, "fit_generator").startswith(f"{SAME}: what this stage drew is on record")
    steps.reserve(run, told=pytest.fail)  # nothing is paid
    assert goes_on(run, "fit_generator").startswith(f"{SAME}: what this stage drew is on record")
    assert spent(workplace).epsilon == before


def test_a_draw_that_was_cut_off_is_paid_again_where_attempts_are_left(workplace):
    run = begun(workplace, attempts=2)
    steps.ingest(run)
    cut_off(run)
    before = spent(workplace).epsilon
    told = goes_on(run, "fit_generator")
    assert told.startswith(f"{SAME}, and pays again where the budget allows it: ")
    assert told.endswith("at most 1 more of max_attempts 2")
    lines: list[tuple[str, Any]] = []
    steps.reserve(run, told=lambda line: lines.append((line, spent(workplace).epsilon)))
    paid = spent(workplace).epsilon - before
    assert paid > 0
    ((line, spent_then),) = lines
    assert spent_then == before  # it was told before it was paid
    assert line.startswith("the draw of fit_generator was cut off and stays charged: ")
    assert f"is paid once more, epsilon={paid:.11f}, delta=" in line


def test_without_attempts_it_does_not_go_on(workplace):
    run = begun(workplace)
    steps.ingest(run)
    cut_off(run)
    told = goes_on(run, "fit_generator")
    assert told.startswith("next: the draw was cut off and stays charged; this run cannot draw")
    lines: list[str] = []
    with pytest.raises(GrantSpentError, match="max_attempts"):
        steps.reserve(run, told=lines.append)
    assert lines == []
