"""Making the next batch in a thread while this one is worked on: order and content stay."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Batch = TypeVar("Batch")


def prefetched(batches: Iterable[Batch]) -> Generator[Batch]:
    """The same batches in order, each made while the one before it is worked on.

    Worth it where both sides spend their time outside of Python: in files, Arrow and NumPy. At most
    one batch is ahead. Who stops early closes this, or lets go of it: the thread ends with the
    batch that it is at. No batch is None.

    Raises:
        Exception: what making a batch raised, when that batch is asked for.
    """
    source = iter(batches)
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = thread.submit(next, source, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield batch
