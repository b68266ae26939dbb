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

import numpy as np

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.engine import AnyNetwork, BackwardPass, ForwardPass
from dpiw.methods.neural.losses import RowLoss

LEAST_CLIP = 1e-3
"""Least bound C of a training. Norms are roots of sums of squares of doubles; a square that is too
small for one loses digits, of which a norm of C or more shows 1e-10 at most, as a larger factor's
square would be infinite, which counts as zero."""

_Factors = tuple[BackwardPass, Array, Array]
"""A pass, its rows' factors and the norms they are made of."""


class ClipRule(enum.Enum):
    """Which gradient is clipped; see the module."""

    LOSS = "loss"
    OUTPUT = "output"


def clipped_sum(
    network: AnyNetwork, rows: Array, loss: RowLoss, *, clip: float, rule: ClipRule
) -> Array:
    """Sum over rows of the clipped gradient, shape (p,).

    A row whose gradient is not finite counts as zero.

    Args:
        network: at which parameters, of either engine.
        rows: shape (n, widths[0]); n may be 0.
        loss: of each row.
        clip: C > 0, bound on the norm of one row's part.
        rule: what is clipped.

    Privacy:
        With private rows: exact, not noised. Unit: one row, added or removed. L2: C.
    """
    size = network.architecture.rows_at_once
    total = _part(network, rows[:size], loss, clip, rule)
    for start in range(size, rows.shape[0], size):
        total = total + _part(network, rows[start : start + size], loss, clip, rule)
    return total


@np.errstate(all="ignore")  # what overflows or is no number is set to zero below
def _part(network: AnyNetwork, rows: Array, loss: RowLoss, clip: float, rule: ClipRule) -> Array:
    forward = network.forward(rows)
    if rule is ClipRule.LOSS:
        backward, factors, norms = _loss_factors(forward, loss, clip)
    else:
        backward, factors, norms = _output_factors(forward, loss, clip)
    # Finite only if every factor and norm is: zero times infinity is NaN.
    if not math.isfinite(factors @ norms):
        finite = network.backend.finite(factors + norms)
        factors = network.backend.where(finite, factors, 0.0)
        backward = backward.kept(finite)
    return backward.gradient(factors, last=True)


def _loss_factors(forward: ForwardPass, loss: RowLoss, clip: float) -> _Factors:
    """C/max(norm, C) of the loss's gradient, and the norms."""
    backward = forward.backward(loss.slopes(forward.outputs))
    norms = backward.norms
    return backward, clip / forward.network.backend.at_least(norms, clip), norms


def _output_factors(forward: ForwardPass, loss: RowLoss, clip: float) -> _Factors:
    """Slope times C/max(norm, C) of the output's gradient, and the norms."""
    backend = forward.network.backend
    if forward.outputs.shape[1] != 1:
        raise SpecError("clip rule output: expected a network with one output")
    backward = forward.backward(forward.outputs * 0.0 + 1.0)
    slopes = loss.slopes(forward.outputs)[:, 0]
    bounded = backend.at_most(backend.at_least(slopes, -1.0), 1.0)
    norms = backward.norms
    return backward, bounded * clip / backend.at_least(norms, clip), norms
