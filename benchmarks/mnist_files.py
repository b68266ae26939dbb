"""MNIST's files, and pictures of digits."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imsave
from metrics import Array
from numpy.typing import NDArray

FILES = {"train": "train", "test": "t10k"}
SIDE, DIGITS, GRID = 28, 10, 10


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of bytes, gzipped: shape as its header says."""
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def images(data: Path, part: str, side: int) -> tuple[Array, NDArray[np.int32]]:
    """Grey values in [0, 1] averaged to side x side, shape (n, side^2), and digits, shape (n,)."""
    name = FILES[part]
    grey = read_idx(data / f"{name}-images-idx3-ubyte.gz") / 255.0
    block = SIDE // side
    pooled = grey.reshape(len(grey), side, block, side, block).mean(axis=(2, 4))
    labels = read_idx(data / f"{name}-labels-idx1-ubyte.gz").astype(np.int32)
    return pooled.reshape(len(grey), side**2), labels


def grid(pixels: Array, digits: NDArray[Any], side: int) -> Array:
    """The first ten images drawn of each digit, digit by digit, as one picture."""
    rows = []
    for digit in range(DIGITS):
        sample = pixels[digits == digit][:GRID]
        blank = np.zeros((GRID - len(sample), side**2))
        parts = np.vstack([sample, blank]).reshape(GRID, side, side)
        rows.append(np.hstack([np.pad(part, 1) for part in parts]))
    return np.vstack(rows)


def draw(picture: Array, path: Path, side: int) -> None:
    """Write the picture in sixteen greys, every pixel as large as of a 28 x 28 image, doubled."""
    block = 2 * SIDE // side
    greys = np.rint(15 * np.clip(picture, 0, 1)) / 15
    imsave(path, np.kron(greys, np.ones((block, block))), cmap="gray_r", vmin=0, vmax=1)
