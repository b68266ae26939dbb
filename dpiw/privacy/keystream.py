"""Fast secure randomness for DP-SGD from ChaCha20 under a fresh key; forked processes differ.

Normals are doubles: only sums that `mechanisms.noisy_sum` rounded may leave. Buffer nothing.
"""

import math
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_KEY_BYTES = 32
_TAIL = 2.0**43
"""Words nearer to 0 (one in 2^20) get 52 more bits, so that the far tail is no coarse grid."""


def keystream_words(count: int) -> NDArray[np.uint64]:
    """Return independent uniform 64-bit words, shape (count,)."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    # One key, one stream: the nonce may be constant because no key is ever used twice.
    chacha = algorithms.ChaCha20(os.urandom(_KEY_BYTES), bytes(16))
    stream = Cipher(chacha, mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype=np.uint64)


def keystream_uniforms(count: int) -> Array:
    """Return uniforms on (0, 1], about the midpoints of 2^53 cells, shape (count,)."""
    uniforms = (keystream_words(count) >> np.uint64(11)).view(np.int64) + 0.5
    uniforms *= 2.0**-53
    return np.asarray(uniforms)


def keystream_normals(count: int) -> Array:
    """Return independent standard normals, shape (count,).

    Source: Box & Muller (1958), by t = tan phi for an angle 2 phi uniform on (-pi, pi).
    """
    half = (count + 1) // 2
    uniforms = keystream_words(2 * half).view(np.int64).astype(np.float64)
    radii = _radii(uniforms[:half])
    cosines, sines = uniforms[:half], uniforms[half:]  # overwritten step by step
    sines *= math.pi * 2.0**-64  # phi
    np.tan(sines, out=sines)  # t
    np.multiply(sines, sines, out=cosines)
    cosines += 1.0
    np.divide(radii, cosines, out=cosines)  # R cos^2 phi = R / (1 + t^2)
    cosines += cosines
    sines *= cosines  # R sin 2 phi = 2 R t cos^2 phi
    cosines -= radii  # R cos 2 phi = 2 R cos^2 phi - R
    return uniforms[:count]


def _radii(uniforms: Array) -> Array:
    """R = sqrt(-2 log U) for U = |u| 2^-63, of the floors of uniforms u on [-2^63, 2^63)."""
    squares = uniforms * uniforms
    if np.minimum.reduce(squares) < _TAIL**2:
        small = squares < _TAIL**2
        extra = keystream_words(int(small.sum())) >> np.uint64(12)
        # 52 bits, so that adding a half is exact and u is never zero.
        squares[small] = (uniforms[small] + (extra.view(np.int64) + 0.5) * 2.0**-52) ** 2
    np.divide(2.0**126, squares, out=squares)  # R^2 = log 1/U^2
    np.log(squares, out=squares)
    return np.sqrt(squares, out=squares)


def bernoulli_rows(
    rows: int, probability: float, *, uniforms: Callable[[int], Array]
) -> NDArray[np.int64]:
    """Select each of `rows` (confidential: in no error's text) independently; ascending.

    Gaps between selected rows are geometric. `uniforms` draws on (0, 1]; `probability` in (0, 1].
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
        gaps[0] += last
        gaps.cumsum(out=gaps)
        chosen.append(gaps)
        last = float(gaps[-1])
    indices = chosen[0] if len(chosen) == 1 else np.concatenate([np.empty(0), *chosen])
    return indices[: indices.searchsorted(rows)].astype(np.int64)
