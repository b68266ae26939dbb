"""Losses of single rows, and sums of clipped gradients whose sensitivity is public.

The losses are a closed list, because DP-SGD needs every row's derivative to depend on that row
alone. Each gives its derivative by the output, its slope.

Two clip rules, both of sensitivity C under adding or removing a row:

- `LOSS` clips the gradient of the row's loss, as Abadi et al. (2016) do.
- `OUTPUT` clips the gradient of the network's one output, then multiplies by the loss's slope, at
  most 1. The clip factor depends on the row's features and not on its label, so a logit stays
  calibrated: its stationary point is p_real (1 - s) = p_synthetic s, whatever C. Under `LOSS` the
  row with the larger residual is cut more. The price: at logit 0 a slope of 1/2 is noised for 1.
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
    """A loss of the two classes.

    Attributes:
        label: 1 for private rows, 0 for synthetic ones.
    """

    label: int

    def __post_init__(self) -> None:
        """Raises SpecError: a label other than 0 and 1."""
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
    """A log ratio's loss with slopes -min(1, exp(-z)) for private rows and min(1, exp(z)) else.

    Their ratio is exp(z), so z is stationary where it is the log ratio, as under `Logistic`; but at
    z = 0, where training starts and good generators leave it, the slope is the whole bound 1 and
    not half of it: twice the signal under the same noise. (The two are the acceptance rules of
    Metropolis and of Barker; the loss is convex in z.) Use it with `ClipRule.OUTPUT`.
    """

    def slopes(self, outputs: Array) -> Array:
        """See `RowLoss`."""
        if self.label:
            return -(-outputs).clamp(max=0.0).exp()
        return outputs.clamp(max=0.0).exp()


@dataclass(frozen=True, kw_only=True)
class Critic:
    """The output itself, to be raised or lowered: a Wasserstein critic's loss, slope `sign`.

    The critic is no log ratio, whatever its scale (docs/method.md section 12).

    Attributes:
        sign: -1 for rows whose output is to rise, +1 for those whose output is to fall.
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
"""Least bound C of a training. Norms are roots of sums of squares of doubles; a square that is too
small for one loses digits, of which a norm of C or more shows 1e-10 at most, as a larger factor's
square would be infinite, which counts as zero."""


class ClipRule(enum.Enum):
    """Which gradient is clipped; see the module."""

    LOSS = "loss"
    OUTPUT = "output"


def clipped_sum(
    network: Network, rows: Array, loss: RowLoss, *, clip: float, rule: ClipRule
) -> Array:
    """Sum over rows of the clipped gradient, shape (p,).

    A row whose gradient is not finite counts as zero.

    Args:
        network: at which parameters.
        rows: shape (n, inputs); n may be 0.
        loss: of each row.
        clip: C > 0, bound on the norm of one row's part.
        rule: what is clipped.

    Privacy:
        With private rows: exact, not noised. Unit: one row, added or removed. L2: C. What is
        rounded while slopes pass from layer to layer is part of the assumption on doubles that
        certificates state (`dpiw.methods.neural.dp_sgd.ASSUMPTION`).
    """
    if len(rows) == 0:
        return library().zeros_like(network.parameters)  # also where a parameter is not finite
    size = network.architecture.rows_at_once
    total = _part(network, rows[:size], loss, clip, rule)
    for start in range(size, rows.shape[0], size):
        total = total + _part(network, rows[start : start + size], loss, clip, rule)
    return total


def check_computes(stage: str, make: Callable[[], Layered]) -> None:
    """Clip the gradient of one public row, before the first draw of a stage, and by autograd alone.

    Args:
        stage: that trains.
        make: its network's shape.

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
