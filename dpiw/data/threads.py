"""Work in threads: make the next batch ahead, or map a function over many items, in order."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Batch = TypeVar("Batch")


def prefetched(batches: Iterable[Batch]) -> Generator[Batch]:
    """Yield the same batches in order, making each while the one before it is processed.

    At most one batch is ahead, and none is None. Closing the generator waits for the batch in the
    making, so that its source may be closed (nested: only in the main thread).
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
    """Yield results in order, computed in threads; items are requested in the caller's thread.

    At most twice as many as run at once are held; fewer if results are large.
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
        while first:  # and hold no item
            coming.append(pool.submit(function, first.popleft()))
        for item in left:
            if len(coming) >= ahead:
                yield coming.popleft().result()
            coming.append(pool.submit(function, item))
        while coming:
            yield coming.popleft().result()
