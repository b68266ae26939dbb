"""Settings of `dpcgan` for MNIST.

On a public stand-in, larger networks (64, 32 and 16, 32) and lots of 1,600 were no better on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]

FULL: Settings = {
    "image": [28, 28], "steps": 1500, "lot": 400, "batch": 64, "latent": 16, "generator": [32, 16],
    "discriminator": [8, 16], "learning_rate": 1e-3, "discriminator_rate": 2e-3, "settle": 0.1,
    "label_scale": 3.0,
}  # fmt: skip
"""28 x 28 pixels, for a core: how they were chosen is told by `mnist_page.CHOICES`."""

SMALL: Settings = {
    "steps": 6000, "lot": 600, "latent": 32, "generator": [128, 128], "discriminator": [128],
    "discriminator_rate": 2e-3, "marginals_share": 0, "learning_rate": 1e-3, "batch": 128,
}  # fmt: skip
"""14 x 14 and 7 x 7 pixels."""
