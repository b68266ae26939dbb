"""Losses of single rows, and sums of clipped gradients whose sensitivity is public.

The losses are a closed list: DP-SGD needs every row's derivative to depend on that row alone. Both
clip rules have sensitivity C under adding or removing a row. `LOSS` clips the gradient of the row's
loss (Abadi et al. 2016). `OUTPUT` clips that of the one output, then multiplies by the loss's
slope, at most 1: clipping does not depend on the label, so a logit stays calibrated.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpiw.errors import SpecError, StageFailedError
from dpiw.methods.neural.backend import CPU, Array, computing, library
from dpiw.methods.neural.networks import Layered, Network, Watch


class RowLoss(Protocol):
    """The derivative of a loss that is a sum over rows."""

    def slopes(self, outputs: Array) -> Array:
        """Derivative of each row's loss by its outputs: a new array, shape of `outputs`, (n, 1)."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Labelled:
    """A loss of two classes; `label` is 1 for private rows, 0 for synthetic ones."""

    label: int

    def __post_init__(self) -> None:
        if self.label not in (0, 1):
            raise SpecError("loss.label: expected 0 or 1")


class Logistic(_Labelled):
    """Binary cross-entropy of a logit: slope sigmoid(z) - label, inside [-1, 1]."""

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        if self.label:  # without the cancellation of sigmoid(z) - 1
            return -(-outputs).sigmoid()
        return outputs.sigmoid()


class Balanced(_Labelled):
    """A log ratio's loss: slopes -min(1, exp(-z)) for private rows, min(1, exp(z)) for others.

    z is stationary at the log ratio, as under `Logistic`, but at z = 0 the slope is 1 and not 1/2:
    twice the signal under the same noise. Convex in z. Use it with `ClipRule.OUTPUT`.
    """

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        if self.label:
            return -(-outputs).clamp(max=0.0).exp()
        return outputs.clamp(max=0.0).exp()


@dataclass(frozen=True, kw_only=True)
class Critic:
    """A Wasserstein critic's loss, the output times `sign`; no log ratio at any scale.

    `sign` is -1 to raise a row's output, +1 to lower it (docs/method.md section 12).
    """

    sign: int

    def __post_init__(self) -> None:
        """Raises SpecError: a sign other than -1 and 1."""
        if self.sign not in (-1, 1):
            raise SpecError("critic sign: expected -1 or 1")

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        return outputs * 0.0 + float(self.sign)


LEAST_CLIP = 1e-3
"""Least bound C of a training: squares of doubles that underflow change a norm of C or more by
1e-10 at most; a factor whose square would be infinite counts as zero."""


class ClipRule(enum.Enum):
    """Which gradient is clipped; see the module."""

    LOSS = "loss"
    OUTPUT = "output"


def clipped_sum(
    network: Network, rows: Array, loss: RowLoss, *, clip: float, rule: ClipRule
) -> Array:
    """Sum over rows of the clipped gradient, shape (p,); a row's that is not finite counts zero.

    `clip`: C > 0, bound on the norm of one row's part; `rows`: shape (n, inputs), n may be 0.

    Privacy:
        With private rows: exact, not noised. Unit: one row, added or removed. L2: C. Rounding
        between layers is part of the assumption on doubles
        (`dpiw.methods.neural.dp_sgd.ASSUMPTION`).
    """
    if len(rows) == 0:
        return library().zeros_like(network.parameters)  # also where a parameter is not finite
    size = network.architecture.rows_at_once
    total = _part(network, rows[:size], loss, clip, rule)
    for start in range(size, rows.shape[0], size):
        total = total + _part(network, rows[start : start + size], loss, clip, rule)
    return total


def check_computes(stage: str, make: Callable[[], Layered]) -> None:
    """Clip one public row's gradient and compare with autograd, before a stage's first draw.

    Raises:
        StageFailedError: torch or Opacus does not work here, or not as it did in tests.
    """
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
    watch = Watch()
    outputs = network.outputs(rows, watch=watch)
    slopes = loss.slopes(outputs.detach())
    if rule is ClipRule.OUTPUT and slopes.shape[1] != 1:
        raise SpecError("clip rule output: expected a network with one output")
    by = slopes if rule is ClipRule.LOSS else slopes * 0.0 + 1.0
    seen = watch.gradients(outputs, by)
    norms = seen.norms()
    factors = clip / norms.clamp(min=clip)
    if rule is ClipRule.OUTPUT:
        factors = factors * slopes[:, 0].clamp(-1.0, 1.0)
    # Finite only if every factor and norm is: zero times infinity is NaN.
    if not math.isfinite(factors @ norms):
        finite = (factors + norms).isfinite()
        factors = factors.where(finite, 0.0)
        seen = seen.kept(finite)
    return seen.sum(factors)
