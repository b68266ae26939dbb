"""Fast secure randomness: a ChaCha20 keystream under a fresh key, normals and row samples from it.

For DP-SGD, whose millions of draws the exact integer samplers of `dpiw.randomness` would take hours
for. The normals are doubles, not exact: uniforms of 63 bits (more in the tail) through the method
of Box and Muller. What leaves is the sum of value and noise, rounded to a coarse public lattice
(`dpiw.mechanisms.noisy_sum`).

Nothing is buffered between calls: every call keys its own stream with 256 bits from the operating
system, so a forked process draws other values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_KEY_BYTES = 32
_TAIL = 2**43
"""Words below it (one in 2^20) get 53 further bits, so that the far tail is not a coarse grid."""


def keystream_words(count: int) -> NDArray[np.uint64]:
    """`count` independent uniform 64-bit words, shape (count,)."""
    # One key, one stream: the nonce may be constant because no key is ever used twice.
    stream = _stream(os.urandom(_KEY_BYTES), bytes(16))
    return np.frombuffer(stream.update(bytes(8 * count)), dtype=np.uint64)


@lru_cache(maxsize=1)
def _chacha() -> tuple[Any, Any]:
    """The cipher, imported at the first draw only."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher, algorithms.ChaCha20


def _stream(key: bytes, nonce: bytes) -> Any:
    cipher, chacha = _chacha()
    return cipher(chacha(key, nonce), mode=None).encryptor()


def keystream_uniforms(count: int) -> Array:
    """Uniforms on (0, 1], about the midpoints of 2^53 cells, shape (count,)."""
    found = (keystream_words(count) >> np.uint64(11)).view(np.int64) + 0.5
    found *= 2.0**-53
    return np.asarray(found)


def keystream_normals(count: int) -> Array:
    """Independent standard normals, shape (count,).

    Box and Muller (1958): with R = sqrt(-2 log U) and an angle 2 phi uniform on (-pi, pi),
    R cos 2 phi and R sin 2 phi are independent normals; both follow from t = tan phi.
    """
    half = (count + 1) // 2
    words = keystream_words(2 * half)
    radius = _unit(words[:half])
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    tangent = (words[half:] >> np.uint64(1)).view(np.int64) * (math.pi * 2.0**-63)
    tangent -= math.pi / 2
    np.tan(tangent, out=tangent)
    square = tangent * tangent
    square += 1.0
    radius /= square
    found = np.empty(2 * half)
    np.multiply(radius, tangent, out=found[:half])  # sin 2 phi = 2 t / (1 + t^2)
    found[:half] *= 2.0
    np.subtract(2.0, square, out=square)  # cos 2 phi = (1 - t^2) / (1 + t^2)
    np.multiply(radius, square, out=found[half:])
    return np.asarray(found[:count])


def _unit(words: NDArray[np.uint64]) -> Array:
    """Uniforms on (0, 1] of relative precision 2^-43 or better, from words."""
    high = (words >> np.uint64(1)).view(np.int64)
    found = high.astype(np.float64) + 0.5
    small = high < _TAIL
    if small.any():
        extra = keystream_words(int(small.sum())) >> np.uint64(11)
        found[small] = high[small] + (extra.view(np.int64) + 0.5) * 2.0**-53
    found *= 2.0**-63
    return found


def bernoulli_rows(
    rows: int, probability: float, *, uniforms: Callable[[int], Array]
) -> NDArray[np.int64]:
    """Each of `rows` rows with the same probability, independently; ascending indices.

    The gaps between chosen rows are geometric, so the work is in the rows chosen, not in all.

    Args:
        rows: how many there are; may be confidential, and is in no error's text.
        probability: in (0, 1].
        uniforms: draws on (0, 1].
    """
    if probability >= 1.0:
        return np.arange(rows, dtype=np.int64)
    slope = 1.0 / math.log1p(-probability)
    chosen: list[Array] = []
    last = -1.0
    while last < rows - 1:
        expected = (rows - 1 - last) * probability
        gaps = np.log(uniforms(int(expected + 6 * math.sqrt(expected)) + 8))
        gaps *= slope
        np.floor(gaps, out=gaps)
        gaps += 1.0
        np.cumsum(gaps, out=gaps)
        gaps += last
        chosen.append(gaps)
        last = float(gaps[-1])
    found = chosen[0] if len(chosen) == 1 else np.concatenate([np.empty(0), *chosen])
    return np.asarray(found[: np.searchsorted(found, rows)], dtype=np.int64)
