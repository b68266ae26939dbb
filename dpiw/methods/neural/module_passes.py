"""Forward and backward passes of a torch module that Opacus watches."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.row_norms import ParameterGradients, Watched, smallest, trainable

if TYPE_CHECKING:
    from dpiw.methods.neural.opacus_engine import ModuleNetwork


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleForward:
    """A forward pass that Opacus watches.

    Attributes:
        network: whose.
        rows: shape (n, inputs), where the parameters live; n may be 0.
        by_rows: whether derivatives by the rows can be taken.
    """

    network: ModuleNetwork
    rows: Array
    by_rows: bool

    @cached_property
    def module(self) -> Watched:
        """A copy of the module of this pass's own, with Opacus' hooks, which are on or off."""
        return Watched(self.network.module(), ghost=self.network.architecture.has_ghost_norms)

    @cached_property
    def is_number(self) -> Array:
        """Which rows are of finite numbers, shape (n, 1)."""
        return torch.isfinite(self.rows).all(dim=1, keepdim=True)

    @cached_property
    def given(self) -> Array:
        """The rows, and a public one for each that is no number."""
        example = torch.as_tensor(self.network.architecture.example[0], device=self.rows.device)
        rows = torch.where(self.is_number, self.rows, example).detach()
        return rows.requires_grad_(self.by_rows)

    @cached_property
    def outputs(self) -> Array:
        """See `ForwardPass`."""
        return self.graph.detach()

    @cached_property
    def graph(self) -> Array:
        """The outputs, which have derivatives; those of rows that are no numbers have none."""
        if self.rows.shape[0] == 0:
            return self.rows.new_zeros((0, self.network.architecture.outputs))
        outputs = self.module(self.given)
        self.module.disable_hooks()
        return torch.where(self.is_number, outputs, torch.nan)

    def backward(self, slopes: Array) -> ModuleBackward:
        """See `ForwardPass`."""
        return ModuleBackward(forward=self, slopes=slopes)

    def derivatives(self, slopes: Array, by: list[Array], *, keep: bool = True) -> list[Array]:
        """Of the sum of slopes times outputs, by each of some tensors."""
        if slopes.shape[0] == 0:
            return [torch.zeros_like(tensor) for tensor in by]
        with warnings.catch_warnings():  # that rows have no derivative is meant
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            return list(
                torch.autograd.grad(
                    self.graph, by, slopes,
                    retain_graph=keep, allow_unused=True, materialize_grads=True,
                )
            )  # fmt: skip

    def watched(self, slopes: Array) -> Watched:
        """The module after a backward pass through its hooks; once, with rows."""
        ends = smallest(self.module) + [self.given] * self.by_rows  # on the way: every layer
        _ = self.graph  # which leaves the hooks off
        self.module.enable_hooks()
        self.derivatives(slopes, ends)
        self.module.disable_hooks()
        return self.module

    @property
    def is_used_up(self) -> bool:
        """Whether a pass has gone back through the hooks."""
        return bool(self.module.magnitudes)


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleBackward:
    """A backward pass; what it is asked for is computed then.

    Attributes:
        forward: the pass it belongs to.
        slopes: shape (n, outputs).
    """

    forward: ModuleForward
    slopes: Array

    @cached_property
    def _watched(self) -> tuple[Array, ParameterGradients | None]:
        """Norms, and what is left of the rows' gradients. AttributeError: a layer is not used."""
        forward = self.forward
        if forward.graph.shape[0] == 0:
            return forward.graph.new_zeros(0), None
        if forward.is_used_up:
            forward = forward.network.forward(forward.rows)
        module = forward.watched(self.slopes)
        return module.norms(), module.parameter_gradients()

    @property
    def norms(self) -> Array:
        """See `BackwardPass`."""
        return self._watched[0]

    def gradient(self, factors: Array | None = None, *, last: bool = False) -> Array:
        """See `BackwardPass`; of what the norms were found by, if they were asked for before."""
        network, slopes = self.forward.network, self.slopes
        if slopes.shape[0] == 0:
            return slopes.new_zeros(network.architecture.size)
        ones = slopes.new_ones(len(slopes))
        factors = ones if factors is None else torch.as_tensor(factors, device=slopes.device)
        kept = self._watched[1] if "_watched" in vars(self) else None
        weighted = slopes * factors[:, None]
        total = self._second(weighted, last) if kept is None else kept.sum(factors)
        return total if torch.isfinite(total).all() else self._one_by_one(weighted)

    def _second(self, slopes: Array, last: bool) -> Array:
        """The gradient by another backward pass."""
        parts = self.forward.derivatives(slopes, trainable(self.forward.module), keep=not last)
        return torch.cat([part.reshape(-1) for part in parts])

    def _one_by_one(self, slopes: Array) -> Array:
        """The sum of the rows whose gradient is a number, after a pass in which one was none."""
        network = self.forward.network
        total = slopes.new_zeros(network.architecture.size)
        if slopes.shape[0] == 1:
            return total
        for place in slopes.any(dim=1).nonzero()[:, 0]:
            row = slice(int(place), int(place) + 1)
            total += network.forward(self.forward.rows[row]).backward(slopes[row]).gradient()
        return total

    def row_gradients(self) -> Array:
        """See `BackwardPass`."""
        forward = self.forward
        if not forward.by_rows:
            forward = forward.network.forward(forward.rows, by_rows=True)
        return forward.derivatives(self.slopes, [forward.given])[0]

    def kept(self, keep: Array) -> ModuleBackward:
        """See `BackwardPass`: rows that are not kept are no numbers any more."""
        rows = torch.where(keep[:, None], self.forward.rows, torch.nan)
        tame = self.forward.network.forward(rows)
        return tame.backward(torch.where(keep[:, None], self.slopes, 0.0))
