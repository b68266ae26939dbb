"""A function of many items, worked on by as many threads as there are cores; in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Batch = TypeVar("Batch")


def prefetched(batches: Iterable[Batch]) -> Generator[Batch]:
    """The same batches in order, each made while the one before it is worked on.

    Worth it where both sides spend their time outside of Python: in files, Arrow and NumPy. At most
    one batch is ahead, and none is None. Who stops early closes this, or lets go of it: that waits
    for the batch that is being made, so that what it is read from may be closed. (One prefetch
    within another is waited for in the main thread, where stages run, and not in every other.)

    Raises:
        Exception: what making a batch raised, when that batch is asked for.
    """
    source, user = iter(batches), threading.current_thread()
    thread = ThreadPoolExecutor(max_workers=1)
    coming = thread.submit(next, source, None)
    try:
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield batch
    finally:
        # Of an error it would hold the traceback, which holds this. Garbage may be collected in any
        # thread, also in one that this waits for.
        del coming
        thread.shutdown(wait=threading.current_thread() in (user, threading.main_thread()))


Item = TypeVar("Item")
Found = TypeVar("Found")

_MOST = 4


def in_threads(
    function: Callable[[Item], Found], items: Iterable[Item], *, is_large: bool = False
) -> Generator[Found]:
    """What a function makes of each item, in the order of the items.

    Worth it where the function spends its time outside of Python, on blocks so large that threads
    seldom wait for one another's calls. Items are asked for in the caller's thread, twice as many
    as are worked on at most: so few items and answers are held. A single item needs no thread.

    Args:
        function: of an item.
        items: in any number.
        is_large: the answers are: one item more is asked for than are worked on, at most.
    """
    left = iter(items)
    first = deque(islice(left, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    workers = min(_MOST, os.cpu_count() or 1)
    ahead = workers if is_large else 2 * workers
    coming: deque[Future[Found]] = deque()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        while first:  # and hold none of them
            coming.append(pool.submit(function, first.popleft()))
        for item in left:
            if len(coming) >= ahead:
                yield coming.popleft().result()
            coming.append(pool.submit(function, item))
        while coming:
            yield coming.popleft().result()
