"""Passes over confidential rows: whole sums, with tally(a + b) = tally(a) + tally(b)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpiw import __version__
from dpiw.data.scaled import ScaledTable
from dpiw.data.snapshots import Snapshot, state_of
from dpiw.errors import PrivacyError

Totals: TypeAlias = tuple[NDArray[np.int64], ...]
Tally: TypeAlias = Callable[[Iterable[ScaledTable]], Totals]
Passes: TypeAlias = Callable[[Tally, Snapshot], Totals]


def in_process(tally: Tally, snapshot: Snapshot) -> Totals:
    """Make one pass in this process. Privacy: exact sums, as confidential as the rows."""
    return tally(snapshot.batches())


def checked(totals: Totals) -> Totals:
    """Return totals; PrivacyError unless whole: sums of floats depend on the other rows."""
    if any(total.dtype != np.int64 for total in totals):
        raise PrivacyError("a pass adds up whole numbers of 64 bits, and nothing else")
    return totals


def add_up(
    tally: Tally, parts: Sequence[Snapshot], arrived: Iterable[tuple[int, Totals | None]]
) -> Totals:
    """Return the totals of all parts, each counted once; counts here the parts that never arrive.

    `arrived`: totals by part number, in any order, perhaps repeated; None where a part failed.

    Privacy: exact sums, as confidential as the rows.
    """
    sums: list[NDArray[np.int64]] = []
    missing = dict(enumerate(parts))

    def add(number: int, totals: Totals) -> None:
        del missing[number]
        if sums:
            for total, addend in zip(sums, totals, strict=True):
                total += addend
        else:
            sums.extend(total.copy() for total in totals)

    for number, totals in arrived:
        if totals is not None and number in missing:
            add(number, totals)
    for number, part in [*missing.items()]:
        add(number, in_process(tally, part))
    return tuple(sums)


def tally_part(tally: Tally, part: Snapshot, here: tuple[str, str]) -> Totals | None:
    """Return a part's totals in another process, None where it cannot. Privacy: exact sums.

    Never raises: a cluster would log an error's text and place.
    """
    try:
        same = (arithmetic(), state_of(part.path)) == here
        return in_process(tally, part) if same else None
    except Exception:
        return None


@functools.cache
def arithmetic() -> str:
    """Return a digest of versions and a calculation: processes of one pass must round alike."""
    numbers = np.linspace(-30.0, 30.0, 1024 * 700).reshape(1024, 700)
    # A product so large that kinds of processor and numbers of threads add it in other orders.
    results = [np.cos(numbers), np.sin(numbers), np.exp(numbers), numbers @ numbers[:100].T]
    digest = hashlib.sha256(f"{__version__} {np.__version__}".encode())
    for bits in results:
        digest.update(np.ascontiguousarray(bits).tobytes())
    return digest.hexdigest()
