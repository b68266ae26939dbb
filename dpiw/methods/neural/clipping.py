"""Sums of clipped gradients: how much one row can move them is a public number.

Two rules, both of sensitivity C under adding or removing a row:

- `LOSS` clips the gradient of the row's loss, as Abadi et al. (2016) do.
- `OUTPUT` clips the gradient of the network's one output, and then multiplies by the loss's slope,
  which is at most 1. The clip factor then depends on the row's features and not on its label, so
  that rows of both classes at one place are weighed alike and a logit stays calibrated: its
  stationary point is p_real (1 - s) = p_synthetic s, whatever C. Under `LOSS` it is not: the row
  with the larger residual is cut more. The price is that at logit 0 a slope of 1/2 is noised for 1.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

import numpy as np

from dpiw.errors import SpecError, StageFailedError
from dpiw.methods.neural.backend import CPU, Array, computing, library
from dpiw.methods.neural.losses import Critic, RowLoss
from dpiw.methods.neural.networks import Layered, Network, Watch

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
