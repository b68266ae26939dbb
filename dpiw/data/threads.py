"""A function of many items, worked on by as many threads as there are cores; in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

_MOST = 4


def in_threads(function: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """What a function makes of each item, in the order of the items.

    Worth it where the function spends its time outside of Python, on blocks so large that threads
    seldom wait for one another's calls. Items are asked for in the caller's thread, and not many
    more than are worked on: so few items and answers are held. A single item needs no thread.
    """
    coming_items = iter(items)
    first = [*islice(coming_items, 2)]
    if len(first) < 2:
        yield from map(function, first)
        return
    workers = min(_MOST, os.cpu_count() or 1)
    coming: deque[Future[Found]] = deque()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for item in chain(first, coming_items):
            coming.append(pool.submit(function, item))
            if len(coming) > 2 * workers:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
