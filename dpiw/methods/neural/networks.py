"""Networks as values: layers in a row, with every parameter in one flat vector; torch computes.

No operation may mix rows: no batch normalisation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import CPU, Array, Backend
from dpiw.methods.neural.row_norms import Convolution, DenseGradients, RowGradients

_MOST_ENTRIES = 2**25
"""Most numbers a pass holds at once: 256 MiB."""


Plain = Callable[[Array, Array], Array]
"""A function without parameters: from values and the network's rows to values, row by row."""


@dataclass(frozen=True)
class Dense:
    """An affine map: weights by rows, then biases; `gain`: 6 (He), or 3 before a tanh (Glorot)."""

    inputs: int
    outputs: int
    gain: float

    @property
    def size(self) -> int:
        """Number of parameters."""
        return (self.inputs + 1) * self.outputs

    @property
    def held(self) -> int:
        """Largest number of values that a row's pass holds."""
        return 2 * (self.inputs + self.outputs)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Starting parameters, shape (size,): uniform weights, biases zero."""
        reach = math.sqrt(self.gain / self.inputs)
        weights = rng.uniform(-reach, reach, self.inputs * self.outputs)
        return np.concatenate([weights, np.zeros(self.outputs)])

    def __call__(self, parameters: Array, values: Array) -> Array:
        """The output for rows of inputs."""
        weights = parameters[: -self.outputs].view(self.inputs, self.outputs)
        return parameters[-self.outputs :].addmm(values, weights)

    def row_gradients(self, values: Array, slopes: Array) -> RowGradients:
        """Every row's gradient by the parameters, from the layer's inputs and slopes."""
        return DenseGradients(values, slopes)


Layer = Dense | Convolution
"""A layer with parameters; row i of its output depends on row i alone."""


Pass = list[tuple[Layer, Array, Array]]
"""The layers of one pass, with their inputs and outputs."""


class Layered:
    """Layers in a row, the shape of a network; public."""

    @property
    def inputs(self) -> int:
        """Numbers in a row."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Layer | Plain, ...]:
        """Layers and functions in the order in which rows pass them."""
        raise NotImplementedError

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers with parameters."""
        return tuple(part for part in self.parts if isinstance(part, Layer))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Parameters of each layer."""
        return tuple(layer.size for layer in self.layers)

    @cached_property
    def size(self) -> int:
        """p: number of parameters."""
        return sum(self.sizes)

    @cached_property
    def rows_at_once(self) -> int:
        """Rows whose pass fits in memory; more are passed part by part."""
        return max(1, _MOST_ENTRIES // sum(layer.held for layer in self.layers))

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Starting parameters, shape (p,); public."""
        return np.concatenate([layer.initial(rng) for layer in self.layers])

    def network(self, parameters: Array) -> Network:
        """The network at some parameters, shape (p,)."""
        return Network(architecture=self, parameters=parameters)


@dataclass(frozen=True, kw_only=True)
class Architecture(Layered):
    """A perceptron: widths of rows, hidden layers and output, such as (20, 64, 64, 1); public."""

    widths: tuple[int, ...]
    activation: str = "relu"

    @property
    def inputs(self) -> int:
        """See `Layered`."""
        return self.widths[0]

    @cached_property
    def parts(self) -> tuple[Layer | Plain, ...]:
        """See `Layered`."""
        gain, bend = (6.0, _relu) if self.activation == "relu" else (3.0, _tanh)
        first, *others = (Dense(*widths, gain) for widths in itertools.pairwise(self.widths))
        return (first, *(part for layer in others for part in (bend, layer)))


def _relu(values: Array, _: Array) -> Array:
    return values.relu()


def _tanh(values: Array, _: Array) -> Array:
    return values.tanh()


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """An architecture with parameters, flat, shape (p,); SpecError if their number differs."""

    architecture: Layered
    parameters: Array

    def __post_init__(self) -> None:
        if isinstance(self.parameters, np.ndarray):
            object.__setattr__(self, "parameters", CPU.array(self.parameters))
        if tuple(self.parameters.shape) != (self.architecture.size,):
            allowed = f"{self.architecture.size} numbers, as the architecture has"
            raise SpecError(field="network.parameters", allowed=allowed)

    @property
    def backend(self) -> Backend:
        """Where the parameters live."""
        return Backend(str(self.parameters.device.type))

    def learning(self) -> Network:
        """The same network, with parameters that autograd differentiates."""
        return replace(self, parameters=self.parameters.detach().clone().requires_grad_())

    def outputs(self, rows: Array, *, seen: Pass | None = None) -> Array:
        """The outputs, shape (n, outputs), for rows of shape (n, inputs); n may be 0.

        `seen` gets the layers; derivatives end at the first one's output.
        """
        values, parameters = rows, iter(self.parameters.split(self.architecture.sizes))
        for part in self.architecture.parts:
            if not isinstance(part, Layer):
                values = part(values, rows)
                continue
            made = part(next(parameters), values)
            if seen is not None:
                if not seen:
                    made.requires_grad_()
                seen.append((part, values.detach(), made))
            values = made
        return values
