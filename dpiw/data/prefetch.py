"""Making the next batch in a thread while this one is worked on: order and content stay."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
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
