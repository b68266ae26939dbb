"""Passes over confidential rows: whole numbers, the same whoever adds them up and in any order.

A tally is a pure function of rows and public parameters with tally(a + b) = tally(a) + tally(b).
Who adds up its parts is the deployment's choice: this process, or a cluster (`dpiw.run.cluster`).
"""

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
    """One pass in this process, a batch at a time.

    Privacy:
        Exact sums, as confidential as the rows.
    """
    return tally(snapshot.batches())


def checked(totals: Totals) -> Totals:
    """The same totals, which are whole numbers.

    Raises:
        PrivacyError: they are not: sums of floats depend on the order and on the other rows.
    """
    if any(total.dtype != np.int64 for total in totals):
        raise PrivacyError("a pass adds up whole numbers of 64 bits, and nothing else")
    return totals


def add_up(
    tally: Tally, parts: Sequence[Snapshot], arrived: Iterable[tuple[int, Totals | None]]
) -> Totals:
    """The totals of all parts, each counted once.

    Args:
        tally: counts.
        parts: of a snapshot; at least one.
        arrived: totals by a part's number, in any order; None where they could not be had. A part
            may come again, which changes nothing; one that never comes is counted here.

    Privacy:
        As `in_process`.
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
    """What another process is asked: a part's totals; None where it cannot give them.

    Never an error: a cluster would tell its text and where it arose to all its logs.

    Args:
        tally: counts.
        part: of a snapshot on a disk that both see.
        here: `arithmetic` and `state_of` the snapshot's file, of who asks.

    Privacy:
        As `in_process`.
    """
    try:
        same = (arithmetic(), state_of(part.path)) == here
        return in_process(tally, part) if same else None
    except Exception:
        return None


@functools.cache
def arithmetic() -> str:
    """Version of dpiw and of NumPy, and the bits of a public calculation on this processor.

    Where the last bit of a feature differs, so may its place on the lattice: processes that share
    a pass must round alike, or a row's part would depend on who counts it.
    """
    numbers = np.linspace(-30.0, 30.0, 1024 * 700).reshape(1024, 700)
    # A product so large that kinds of processor and numbers of threads add it in other orders.
    results = [np.cos(numbers), np.sin(numbers), np.exp(numbers), numbers @ numbers[:100].T]
    digest = hashlib.sha256(f"{__version__} {np.__version__}".encode())
    for bits in results:
        digest.update(np.ascontiguousarray(bits).tobytes())
    return digest.hexdigest()
