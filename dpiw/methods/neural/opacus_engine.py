"""A torch module as a network whose every row's gradient has a known norm: by Opacus.

Opacus (Yousefpour et al. 2021) watches a backward pass and finds the norm of each row's gradient,
layer by layer (`dpiw.methods.neural.row_norms`). The clipped sum is made of what that pass leaves;
where it leaves too little (embeddings, layers that are used twice) by a second backward pass, each
row's slope times its clip factor. Nothing else of Opacus is used: lots, noise, clipping, events and
checkpoints are ours (`dpiw.methods.neural`).

All is in double precision. What Opacus leaves to its user is checked once, at construction
(`dpiw.methods.neural.module_checks`): parameters are held by layers of a short list, whose norms
are tested, and used in their own layer; hooks, derivatives of one's own, random numbers and changes
in place are refused; on public rows, a row alone and among others has the same output, norm and
gradient, linear in the slopes. A module must do the same with every row: no check on a few rows can
see a branch that they do not take.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array, Backend, backend_of, make_backend
from dpiw.methods.neural.module_checks import check_layers, check_rows
from dpiw.methods.neural.module_passes import ModuleForward
from dpiw.methods.neural.row_norms import has_ghost_norms, trainable

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

    def forward(self, rows: Array, *, by_rows: bool = False) -> ModuleForward:
        """See `AnyNetwork`."""
        return ModuleForward(network=self, rows=rows, by_rows=by_rows)

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
