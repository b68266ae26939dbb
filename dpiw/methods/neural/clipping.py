"""Losses of single rows, and sums of clipped gradients whose sensitivity is public.

The losses are a closed list: DP-SGD needs every row's derivative to depend on that row alone.
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpiw.errors import SpecError, StageFailedError
from dpiw.methods.neural.backend import CPU, Array, computing, library
from dpiw.methods.neural.networks import Layered, Network, Pass
from dpiw.methods.neural.row_norms import AllGradients


class RowLoss(Protocol):
    """The derivative of a loss that is a sum over rows."""

    def slopes(self, outputs: Array) -> Array:
        """Derivative of each row's loss by its outputs: a new array, shape of `outputs`, (n, 1)."""


@dataclass(frozen=True, kw_only=True)
class _Labelled:
    """A loss of two classes; `label` is 1 for private rows, 0 for synthetic ones."""

    label: int


class Logistic(_Labelled):
    """Binary cross-entropy of a logit: slope sigmoid(z) - label, inside [-1, 1]."""

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        if self.label:  # without the cancellation of sigmoid(z) - 1
            return -(-outputs).sigmoid()
        return outputs.sigmoid()


class Balanced(_Labelled):
    """A log ratio's loss: slopes -min(1, exp(-z)) for private rows, min(1, exp(z)) for others.

    As `Logistic`, with twice the signal at z = 0 under the same noise. Use it with
    `ClipRule.OUTPUT`.
    """

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        if self.label:
            return -(-outputs).clamp(max=0.0).exp()
        return outputs.clamp(max=0.0).exp()


@dataclass(frozen=True, kw_only=True)
class Critic:
    """A Wasserstein critic's loss, no log ratio; `sign`: -1 raises outputs, +1 lowers them."""

    sign: int

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        return outputs * 0.0 + float(self.sign)


LEAST_CLIP = 1e-3
"""Least bound C of a training: squares of doubles that underflow change a norm of C or more by
1e-10 at most; a factor whose square would be infinite counts as zero."""


class ClipRule(enum.Enum):
    """`LOSS`: the row's loss (Abadi et al. 2016). `OUTPUT`: the output, then times its slope <= 1.

    Both have sensitivity C. Under `OUTPUT` clipping ignores the label: a logit stays calibrated.
    """

    LOSS = "loss"
    OUTPUT = "output"


def clipped_sum(
    network: Network, rows: Array, loss: RowLoss, *, clip: float, rule: ClipRule
) -> Array:
    """Sum over rows, shape (n, inputs), of gradients clipped to norm C = `clip`, shape (p,).

    A row's gradient that is not finite counts as zero.

    Privacy:
        Exact, not noised. Unit: one row, added or removed. L2: C. Rounding between layers is part
        of `dpiw.methods.neural.dp_sgd.ASSUMPTION`.
    """
    if len(rows) == 0:
        return library().zeros_like(network.parameters)  # also where a parameter is not finite
    size = network.architecture.rows_at_once
    total = _part(network, rows[:size], loss, clip, rule)
    for start in range(size, rows.shape[0], size):
        total = total + _part(network, rows[start : start + size], loss, clip, rule)
    return total


def check_computes(stage: str, make: Callable[[], Layered]) -> None:
    """Compare a clipped public gradient with autograd's; StageFailedError unless they agree."""
    try:
        with computing():
            shape, rng = make(), np.random.default_rng(0)
            network = shape.network(shape.initial(rng)).learning()
            row, loss = CPU.array(rng.uniform(-1, 1, (1, shape.inputs))), Critic(sign=1)
            found = clipped_sum(network, row, loss, clip=LEAST_CLIP, rule=ClipRule.LOSS)
            outputs = network.outputs(row).sum()
            (expected,) = library().autograd.grad(outputs, network.parameters)
            expected = expected * (LEAST_CLIP / expected.norm().clamp(min=LEAST_CLIP))
            works = float((found - expected).norm()) <= 1e-6 * LEAST_CLIP
    except Exception as error:
        raise StageFailedError(stage, StageFailedError.exit_code) from error
    if not works:
        raise StageFailedError(stage, StageFailedError.exit_code)


def _part(network: Network, rows: Array, loss: RowLoss, clip: float, rule: ClipRule) -> Array:
    seen: Pass = []
    outputs = network.outputs(rows, seen=seen)
    slopes = loss.slopes(outputs.detach())
    if rule is ClipRule.OUTPUT and slopes.shape[1] != 1:
        raise SpecError(field="clip rule output", allowed="a network with one output")
    by = slopes if rule is ClipRule.LOSS else slopes * 0.0 + 1.0
    by_layer = library().autograd.grad(outputs, [made for *_, made in seen], by)
    passed = zip(seen, by_layer, strict=True)
    layers = tuple(layer.row_gradients(x, slope) for (layer, x, _), slope in passed)
    gradients = AllGradients(layers)
    norms = gradients.norms()
    factors = clip / norms.clamp(min=clip)
    if rule is ClipRule.OUTPUT:
        factors = factors * slopes[:, 0].clamp(-1.0, 1.0)
    # Finite only if every factor and norm is: zero times infinity is NaN.
    if not math.isfinite(factors @ norms):
        finite = (factors + norms).isfinite()
        return clipped_sum(network, rows[finite], loss, clip=clip, rule=rule)
    return gradients.sum(factors)
