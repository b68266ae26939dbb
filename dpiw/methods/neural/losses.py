"""Losses of single rows: what a network's output is asked to be, one row at a time.

A closed list, because DP-SGD needs every row's derivative to depend on that row alone. Each gives
that derivative by the output (its slope), because the clip rule `output` bounds it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array


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
