"""A torch module as a network whose every row's gradient has a known norm: by Opacus.

Opacus (Yousefpour et al. 2021) watches a backward pass and finds the norm of each row's gradient,
layer by layer in the cheapest way it has: in closed form for dense layers and embeddings (ghost
norms; Li et al. 2022), from the row's gradient for the others. A second backward pass, each row's
slope times its clip factor, gives the clipped sum. Nothing else of Opacus is used: lots, noise,
clipping, events and checkpoints are ours (`dpiw.methods.neural`).

All is in double precision. What Opacus leaves to its user is checked once, at construction
(`dpiw.methods.neural.module_checks`): parameters are held by layers of a short list, whose norms
are tested, and used in their own layer; hooks, derivatives of one's own, random numbers and changes
in place are refused; on public rows, a row alone and among others has the same output, norm and
gradient, linear in the slopes. A module must do the same with every row: no check on a few rows can
see a branch that they do not take.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array, Backend, backend_of, make_backend
from dpiw.methods.neural.module_checks import check_layers, check_rows
from dpiw.methods.neural.row_norms import Watched, has_ghost_norms, trainable

_MOST_ENTRIES = 2**25
"""Of all layers' row gradients at once, at most: 256 MiB."""

_PER_ENTRY = 64
"""Numbers that the layers of a row's pass are taken to hold for each of its inputs or outputs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleArchitecture:
    """A torch module as the shape of a network; public.

    Attributes:
        module: maps rows, shape (n, inputs), to outputs, shape (n, k), float64 both. Never changed;
            its trainable parameters, in the order of their names, are the network's, and what it
            holds besides is a public constant.
        example: two public rows or more that it is made for, shape (m, inputs).

    Raises:
        SpecError: the module is not as above, or two example rows are equal, or a parameter's
            gradient is zero on all of them.
    """

    module: Any
    example: NDArray[np.float64]

    def __post_init__(self) -> None:
        """See the class."""
        module = copy.deepcopy(self.module).double().train()
        object.__setattr__(self, "module", module)
        if len(self.example) < 2 or self.size == 0:
            raise SpecError("network: expected two example rows and a trainable parameter at least")
        check_layers(module)
        check_rows(self)

    @property
    def inputs(self) -> int:
        """See `AnyArchitecture`."""
        return int(self.example.shape[1])

    @cached_property
    def size(self) -> int:
        """See `AnyArchitecture`."""
        return sum(parameter.numel() for parameter in trainable(self.module))

    @cached_property
    def outputs(self) -> int:
        """k: numbers of a row's output."""
        with torch.no_grad():
            return int(copy.deepcopy(self.module)(torch.as_tensor(self.example[:1])).shape[1])

    @cached_property
    def has_ghost_norms(self) -> bool:
        """Whether dense layers and embeddings are used once each, as their closed form asks."""
        return has_ghost_norms(self.module, self.example)

    @property
    def rows_at_once(self) -> int:
        """See `AnyArchitecture`."""
        entries = max(self.size, _PER_ENTRY * max(self.inputs, self.outputs))
        return max(1, _MOST_ENTRIES // entries)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """See `AnyArchitecture`: uniform weights (He), biases zero, scales as the module has them.

        A layer's inputs are taken to be all axes of its weights but the first.
        """
        parts = []
        for name, values in self.module.named_parameters():
            if not values.requires_grad:
                continue
            if values.dim() > 1:
                reach = (6.0 * len(values) / values.numel()) ** 0.5
                parts.append(rng.uniform(-reach, reach, values.numel()))
            elif name.endswith("bias"):
                parts.append(np.zeros(values.numel()))
            else:
                parts.append(values.detach().numpy().ravel())
        return np.concatenate(parts)

    def network(self, parameters: Array) -> ModuleNetwork:
        """See `AnyArchitecture`."""
        return ModuleNetwork(architecture=self, parameters=parameters)

    def backend(self, device: str) -> Backend:
        """See `AnyArchitecture`; torch, on the CPU as well."""
        return make_backend(device, torch=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleNetwork:
    """A module's architecture with parameters.

    Attributes:
        architecture: the shape.
        parameters: flat, shape (p,), float64, the layers in the order of their names; a tensor, or
            NumPy's for the CPU.

    Raises:
        SpecError: not as many parameters as the architecture has.
    """

    architecture: ModuleArchitecture
    parameters: Array

    def __post_init__(self) -> None:
        """See the class."""
        object.__setattr__(self, "parameters", torch.as_tensor(self.parameters))
        if tuple(self.parameters.shape) != (self.architecture.size,):
            raise SpecError("network.parameters: not as many as the architecture has")

    @cached_property
    def backend(self) -> Backend:
        """See `AnyNetwork`."""
        return backend_of(self.parameters)

    def forward(self, rows: Array) -> ModuleForward:
        """See `AnyNetwork`."""
        return ModuleForward(network=self, rows=rows)

    def row_outputs(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `AnyNetwork`: every row in a pass of its own, which is slow."""
        module, outputs = self.module(), np.full((len(rows), self.architecture.outputs), np.nan)
        with torch.no_grad():
            for place in np.flatnonzero(np.isfinite(rows).all(axis=1)):
                outputs[place] = self.backend.to_numpy(module(self.backend.array(rows[[place]])))
        return outputs

    def module(self) -> Any:
        """A copy of the module at these parameters: what watches it leaves no trace elsewhere."""
        module, start = copy.deepcopy(self.architecture.module).to(self.parameters.device), 0
        for parameter in trainable(module):
            stop = start + parameter.numel()
            parameter.data = self.parameters[start:stop].reshape(parameter.shape).clone()
            start = stop
        return module


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleForward:
    """A forward pass that Opacus watches.

    Attributes:
        network: whose.
        rows: shape (n, inputs), where the parameters live; n may be 0.
    """

    network: ModuleNetwork
    rows: Array

    @cached_property
    def module(self) -> Any:
        """A copy of the module of this pass's own, with Opacus' hooks, which are on or off."""
        return Watched(self.network.module(), ghost=self.network.architecture.has_ghost_norms)

    @cached_property
    def is_number(self) -> Array:
        """Which rows are of finite numbers, shape (n, 1)."""
        return torch.isfinite(self.rows).all(dim=1, keepdim=True)

    @cached_property
    def given(self) -> Array:
        """The rows, which a derivative can be taken by; a public one for each that is no number."""
        example = torch.as_tensor(self.network.architecture.example[0], device=self.rows.device)
        return torch.where(self.is_number, self.rows, example).detach().requires_grad_()

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
        with warnings.catch_warnings():  # a row that is cut to whole numbers has no derivative
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            return list(
                torch.autograd.grad(
                    self.graph, by, slopes,
                    retain_graph=keep, allow_unused=True, materialize_grads=True,
                )
            )  # fmt: skip

    def norms(self, slopes: Array) -> Array:
        """Of the rows' gradients, shape (n,); once. AttributeError: a layer is not used."""
        if self.graph.shape[0] == 0:
            return self.graph.new_zeros(0)
        ends = [self.given]  # from the outputs to the rows is through every layer, but for words
        if any(isinstance(layer, torch.nn.Embedding) for layer in self.module.modules()):
            ends += trainable(self.module)
        self.module.enable_hooks()
        self.derivatives(slopes, ends)
        self.module.disable_hooks()
        return self.module.norms()

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
    def norms(self) -> Array:
        """See `BackwardPass`."""
        forward = self.forward
        if forward.graph.shape[0] and forward.is_used_up:
            forward = forward.network.forward(forward.rows)
        return forward.norms(self.slopes)

    def gradient(self, factors: Array | None = None, *, last: bool = False) -> Array:
        """See `BackwardPass`."""
        network, slopes = self.forward.network, self.slopes
        if slopes.shape[0] == 0:
            return slopes.new_zeros(network.architecture.size)
        if factors is not None:
            slopes = slopes * torch.as_tensor(factors, device=slopes.device)[:, None]
        parts = self.forward.derivatives(slopes, trainable(self.forward.module), keep=not last)
        total = torch.cat([part.reshape(-1) for part in parts])
        if torch.isfinite(total).all():
            return total
        return self._one_by_one(slopes)

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
        return self.forward.derivatives(self.slopes, [self.forward.given])[0]

    def kept(self, keep: Array) -> ModuleBackward:
        """See `BackwardPass`: rows that are not kept are no numbers any more."""
        rows = torch.where(keep[:, None], self.forward.rows, torch.nan)
        tame = self.forward.network.forward(rows)
        return tame.backward(torch.where(keep[:, None], self.slopes, 0.0))
