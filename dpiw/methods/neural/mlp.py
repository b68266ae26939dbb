"""A multilayer perceptron as a value, with the norm of every row's gradient in closed form.

For a dense layer with input a and output gradient delta, one row's gradient is the outer product of
(a, 1) and delta, so its squared norm is |delta|^2 (|a|^2 + 1); a network's is the sum over layers.
Scaling delta by the row's clip factor and multiplying out then gives the sum of clipped gradients
at the price of an ordinary backward pass: no row's gradient is ever stored (Goodfellow 2015).

No operation mixes rows: there is no batch normalisation here, and there must be none.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array, Backend, backend_of, make_backend

ACTIVATIONS = ("relu", "tanh")

CHUNK = 65536
"""Rows in memory at once; a lot is never redrawn to fit."""

_BLOCK = 1024
"""Rows at a time in `Network.row_outputs`, so that its numbers stay in the processor's cache."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Shape of a network; public.

    Attributes:
        widths: of the rows, the hidden layers and the output: (20, 64, 64, 1).
        activation: of the hidden layers, `relu` or `tanh`; the output is linear.
    """

    widths: tuple[int, ...]
    activation: str = "relu"

    def __post_init__(self) -> None:
        """Raises SpecError: fewer than two widths, one below 1, or an unknown activation."""
        if len(self.widths) < 2 or any(width < 1 for width in self.widths):
            raise SpecError("network.widths: expected at least two whole numbers >= 1")
        if self.activation not in ACTIVATIONS:
            raise SpecError(f"network.activation: expected one of {', '.join(ACTIVATIONS)}")

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each layer."""
        return tuple(itertools.pairwise(self.widths))

    @cached_property
    def size(self) -> int:
        """p: number of parameters."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    @property
    def inputs(self) -> int:
        """Numbers in a row."""
        return self.widths[0]

    @property
    def rows_at_once(self) -> int:
        """See `dpiw.methods.neural.engine.AnyArchitecture`."""
        return CHUNK

    def network(self, parameters: Array) -> Network:
        """The network at some parameters, shape (p,); SpecError: another number of them."""
        return Network(architecture=self, parameters=parameters)

    def backend(self, device: str) -> Backend:
        """Where it computes: see `make_backend`."""
        return make_backend(device)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Starting parameters, shape (p,): uniform weights (Glorot or He), biases zero. Public."""
        gain = 6.0 if self.activation == "relu" else 3.0
        parts = []
        for inputs, outputs in self.shapes:
            reach = math.sqrt(gain / inputs)
            parts += [rng.uniform(-reach, reach, inputs * outputs), np.zeros(outputs)]
        return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """An architecture with parameters.

    Attributes:
        architecture: the shape.
        parameters: flat, shape (p,): per layer the weights (inputs, outputs) by rows, then the
            biases. NumPy or torch; everything computed lives where they do.
    """

    architecture: Architecture
    parameters: Array

    def __post_init__(self) -> None:
        """Raises SpecError: not as many parameters as the architecture has."""
        if tuple(self.parameters.shape) != (self.architecture.size,):
            raise SpecError("network.parameters: not as many as the architecture has")

    @cached_property
    def backend(self) -> Backend:
        """Where the parameters live."""
        return backend_of(self.parameters)

    @cached_property
    def layers(self) -> tuple[tuple[Array, Array], ...]:
        """(weights, biases) of each layer, views of `parameters`."""
        layers, start = [], 0
        for inputs, outputs in self.architecture.shapes:
            middle = start + inputs * outputs
            weights = self.parameters[start:middle].reshape(inputs, outputs)
            layers.append((weights, self.parameters[middle : middle + outputs]))
            start = middle + outputs
        return tuple(layers)

    def forward(self, rows: Array, *, by_rows: bool = False) -> Forward:
        """The network's outputs, with what the backward pass needs.

        Args:
            rows: shape (n, widths[0]); n may be 0.
            by_rows: see `AnyNetwork`; here derivatives by the rows need nothing kept.
        """
        inputs, name = [rows], self.architecture.activation
        for weights, biases in self.layers[:-1]:
            value = inputs[-1] @ weights
            value += biases
            inputs.append(self.backend.activate(name, value))
        weights, biases = self.layers[-1]
        outputs = inputs[-1] @ weights
        outputs += biases
        return Forward(network=self, inputs=tuple(inputs), outputs=outputs)

    def row_outputs(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The outputs, each row's a function of that row alone **to the last bit**; NumPy only.

        A matrix product adds up in an order that depends on how many rows there are and on where a
        row stands, so that `forward` rounds one row differently in two tables. Here every step is
        an elementwise product, sum or activation, in a fixed order, on numbers of the one row,
        whatever stands beside it: products and sums are IEEE operations, an activation is NumPy's.
        Several times slower than `forward`, and silent where a row overflows.

        Args:
            rows: shape (n, widths[0]); n may be 0.
        """
        starts = range(0, max(len(rows), 1), _BLOCK)
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = [self._row_block(rows[start : start + _BLOCK]) for start in starts]
        return np.concatenate(blocks)

    def _row_block(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        value = np.ascontiguousarray(rows.T)  # features first: each row of memory is one feature
        last = len(self.layers) - 1
        for place, (weights, biases) in enumerate(self.layers):
            total = np.repeat(biases[:, None], value.shape[1], axis=1)
            term = np.empty_like(total)
            for feature, factors in zip(value, weights, strict=True):
                total += np.multiply(factors[:, None], feature, out=term)
            value = (
                total
                if place == last
                else self.backend.activate(self.architecture.activation, total)
            )
        return np.ascontiguousarray(value.T)


@dataclass(frozen=True, kw_only=True, eq=False)
class Forward:
    """A forward pass.

    Attributes:
        network: whose.
        inputs: what each layer was given: the rows, then activations, shapes (n, widths[l]).
        outputs: shape (n, widths[-1]).
    """

    network: Network
    inputs: tuple[Array, ...]
    outputs: Array

    def backward(self, slopes: Array) -> Backward:
        """Propagate the loss's derivative with respect to the outputs, row by row.

        Args:
            slopes: shape (n, widths[-1]); row i must depend on row i alone.
        """
        network = self.network
        deltas = [slopes]
        for layer in range(len(network.layers) - 1, 0, -1):
            weights, _ = network.layers[layer]
            delta = deltas[-1] @ weights.T
            name = network.architecture.activation
            deltas.append(network.backend.damp(name, delta, self.inputs[layer]))
        return Backward(forward=self, deltas=tuple(reversed(deltas)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Backward:
    """A backward pass: every row's gradient, in factors.

    Attributes:
        forward: the pass it belongs to.
        deltas: gradients at the layers' outputs, shapes (n, widths[l + 1]).
    """

    forward: Forward
    deltas: tuple[Array, ...]

    @property
    def norms(self) -> Array:
        """L2 norm of each row's gradient with respect to all parameters, shape (n,)."""
        backend = self.forward.network.backend
        total: Array = 0.0
        for layer_inputs, delta in zip(self.forward.inputs, self.deltas, strict=True):
            part = backend.squares(layer_inputs)
            part += 1.0
            part *= backend.squares(delta)
            total = part + total
        return backend.root(total)

    def gradient(self, factors: Array | None = None, *, last: bool = False) -> Array:
        """Sum over rows of factor times gradient, shape (p,).

        Args:
            factors: shape (n,); None for ones.
            last: the pass is used up: its deltas may be overwritten, which is faster.
        """
        parts: list[Array] = []
        for layer_inputs, delta in zip(self.forward.inputs, self.deltas, strict=True):
            if factors is None:
                parts += [layer_inputs.T @ delta, delta.sum(axis=0)]
            elif layer_inputs.shape[1] < delta.shape[1]:  # scale the narrower side
                parts += [(layer_inputs * factors[:, None]).T @ delta, factors @ delta]
            else:
                biases = factors @ delta
                if last:
                    delta *= factors[:, None]
                else:
                    delta = delta * factors[:, None]
                parts += [layer_inputs.T @ delta, biases]
        return self.forward.network.backend.join(parts)

    def row_gradients(self) -> Array:
        """Gradient with respect to the rows themselves, shape (n, widths[0]).

        What a generator needs of a discriminator: the derivative of the loss by its rows.
        """
        weights, _ = self.forward.network.layers[0]
        return self.deltas[0] @ weights.T

    def kept(self, keep: Array) -> Backward:
        """The same pass with zeros in the rows that are not kept, also where they held NaN."""
        backend, forward = self.forward.network.backend, self.forward
        inputs = tuple(
            backend.where(keep[:, None], layer_inputs, 0.0) for layer_inputs in forward.inputs
        )
        blank = Forward(network=forward.network, inputs=inputs, outputs=forward.outputs)
        deltas = tuple(backend.where(keep[:, None], delta, 0.0) for delta in self.deltas)
        return Backward(forward=blank, deltas=deltas)
