"""Quotes of a CSV text, looked at in passing: whether they could be anything but balanced."""

from __future__ import annotations

import numpy as np

_QUOTE = ord('"')


class QuoteScan:
    """Whether every quote opens a cell, closes one, or is half of a doubled one within a cell.

    Then whoever reads the text by RFC 4180 finds the same cells, and none is left open. Of other
    texts nothing is said: a quote in a cell without quotes is admissible too, and `csv` tells.
    """

    def __init__(self, delimiter: str) -> None:
        """Take the character between cells, of ASCII."""
        self._edges = np.zeros(256, dtype=bool)
        self._edges[[ord("\n"), _QUOTE, ord(delimiter)]] = True
        self._well_placed = True
        self._before = b"\n"  # the byte before those not looked at yet, and the one that waits
        self._is_open = False

    def add(self, text: bytes) -> None:
        """The next part of the text in UTF-8, whose lines end in LF alone; the last ends in one."""
        seen = self._before + text
        self._before = seen[-2:]
        letters = np.frombuffer(seen, dtype=np.uint8)
        places = np.flatnonzero(letters[1:-1] == _QUOTE) + 1
        if not (places.size and self._well_placed):
            return
        opening = places[self._is_open :: 2]
        closing = places[not self._is_open :: 2]
        beside = self._edges[letters[opening - 1]].all(), self._edges[letters[closing + 1]].all()
        self._well_placed = all(beside)
        self._is_open ^= bool(places.size % 2)

    @property
    def are_plain(self) -> bool:
        """Of the text so far: none is elsewhere, and the last cell with quotes is closed."""
        return self._well_placed and not self._is_open
