"""A function of many items in threads: all of them, in order, and few at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest

from dpiw.data import threads
from dpiw.data.threads import in_threads


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 50])
def test_every_item_once_and_in_order(count: int) -> None:
    def slower_at_first(item: int) -> int:
        time.sleep(0.002 if item % 3 == 0 else 0)
        return item**2

    assert [*in_threads(slower_at_first, iter(range(count)))] == [i**2 for i in range(count)]


def test_items_are_asked_for_as_they_are_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the caller's thread: a file may be read so, and no more of it is held."""
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 3)
    asked: list[int] = []
    askers = set[int]()

    def items() -> Iterator[int]:
        for item in range(40):
            asked.append(item)
            askers.add(threading.get_ident())
            yield item

    workers = set[int]()

    def work(item: int) -> int:
        workers.add(threading.get_ident())
        return item

    for found in in_threads(work, items()):
        assert len(asked) <= found + 8
    assert askers == {threading.get_ident()}
    assert threading.get_ident() not in workers
    assert len(asked) == 40


def test_one_item_needs_no_thread() -> None:
    assert [*in_threads(lambda _: threading.get_ident(), [1])] == [threading.get_ident()]


def test_an_error_comes_out_and_nobody_is_left_working() -> None:
    def failing(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    before = set(threading.enumerate())
    found = in_threads(failing, range(100))
    with pytest.raises(ValueError, match="three"):
        deque(found, maxlen=0)
    assert set(threading.enumerate()) <= before
    stopped = in_threads(failing, range(3))
    assert next(stopped) == 0
    stopped.close()
    assert set(threading.enumerate()) <= before
