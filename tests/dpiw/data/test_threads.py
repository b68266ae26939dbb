"""A function of many items in threads: all of them, in order, and few at a time."""

import contextlib
import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator

import pytest

from dpiw.data import threads
from dpiw.data.threads import in_threads, prefetched


@pytest.mark.parametrize("count", [0, 1, 2, 50])
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


def counted(made: list[int], most: int) -> Iterator[int]:
    for number in range(most):
        made.append(number)
        yield number


def test_order_and_content_stay_and_one_batch_is_ahead() -> None:
    made: list[int] = []
    seen = []
    for number in prefetched(counted(made, 20)):
        assert len(made) <= number + 2
        seen.append(number)
    assert seen == made == [*range(20)]


def test_who_stops_early_leaves_no_thread() -> None:
    before, closed = set(threading.enumerate()), []

    def batches() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    numbers = prefetched(batches())
    assert next(numbers) == 0
    numbers.close()
    assert set(threading.enumerate()) <= before
    assert closed


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.slow
def test_garbage_that_is_collected_in_a_thread_of_its_own_is_not_waited_for(nested: bool) -> None:
    """A generator in a cycle is closed wherever garbage is collected: here in what it waits for."""
    is_there = threading.Event()

    def batches() -> Iterator[int]:
        yield 0
        is_there.wait(60)
        gc.collect()
        yield 1

    def passed_on() -> Iterator[int]:
        yield from prefetched(batches())

    numbers = prefetched(passed_on() if nested else batches())
    assert next(numbers) == 0
    threads = {thread for thread in threading.enumerate() if "ThreadPool" in thread.name}
    cycle: list[object] = [numbers]
    cycle.append(cycle)
    del numbers, cycle
    is_there.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.slow
def test_an_error_holds_nothing_of_its_batch() -> None:
    """Its traceback would, through a frame that holds the thread's result, until collected."""

    class Cells:
        pass

    held: list[weakref.ref[Cells]] = []

    def batches() -> Iterator[int]:
        cells = Cells()
        held.append(weakref.ref(cells))
        yield 0
        raise ValueError(f"beside {type(cells).__name__}")

    gc.collect()
    gc.disable()
    try:
        numbers = prefetched(batches())
        assert next(numbers) == 0
        with contextlib.suppress(ValueError):
            next(numbers)
            raise AssertionError("the error comes where its batch would")
        assert held[0]() is None
    finally:
        gc.enable()
