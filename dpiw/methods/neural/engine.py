"""What DP-SGD asks of a network, whoever computes it: the contract of both engines.

- `dpiw.methods.neural.mlp`: multilayer perceptrons, every row's norm in closed form. The default.
- `dpiw.methods.neural.opacus_engine`: any torch module, every row's norm by Opacus; slower, and for
  layers that the closed form does not know: convolutions, embeddings, attention.

An engine gives outputs, norms and weighted sums of the rows' gradients. Everything that a guarantee
rests on stands outside of it and is there once: clipping (`dpiw.methods.neural.clipping`), lots,
noise, events and checkpoints (`dpiw.methods.neural.dp_sgd`).

**Formal guarantees** of an engine, which tests/dpiw/methods/neural/test_engines.py asks of both:

- A row's output, norm and gradient are functions of the parameters and of that row alone.
- `norms` are of the gradient by all parameters together, biases included, in double precision.
- `gradient(factors)` is the sum of factor times gradient: one with a factor of at most C/norm has
  a norm of at most C, up to the rounding of doubles.
- A value is never changed: another pass, or another step, leaves no trace in it.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.neural.backend import Array, Backend


class BackwardPass(Protocol):
    """Every row's gradient, of a sum over rows of slopes times outputs."""

    @property
    def norms(self) -> Array:
        """L2 norm of each row's gradient by all parameters, shape (n,)."""
        ...

    def gradient(self, factors: Array | None = None, *, last: bool = False) -> Array:
        """Sum over rows of factor times gradient, shape (p,).

        Args:
            factors: shape (n,); None for ones.
            last: the pass is used up and may be overwritten, which is faster.
        """
        ...

    def row_gradients(self) -> Array:
        """Gradient by the rows themselves, shape (n, inputs)."""
        ...

    def kept(self, keep: Array) -> Self:
        """The same pass with zeros for the rows that are not kept, shape (n,), even after NaN."""
        ...


class ForwardPass(Protocol):
    """A network's outputs on some rows."""

    @property
    def network(self) -> AnyNetwork:
        """Whose."""
        ...

    @property
    def outputs(self) -> Array:
        """Shape (n, outputs)."""
        ...

    def backward(self, slopes: Array) -> BackwardPass:
        """Propagate the derivative by the outputs, shape (n, outputs); row i of row i alone."""
        ...


class AnyNetwork(Protocol):
    """An architecture with parameters."""

    @property
    def architecture(self) -> AnyArchitecture:
        """The shape."""
        ...

    @property
    def parameters(self) -> Array:
        """Flat, shape (p,); what is computed lives where they do."""
        ...

    @property
    def backend(self) -> Backend:
        """Where the parameters live."""
        ...

    def forward(self, rows: Array) -> ForwardPass:
        """Outputs of rows, shape (n, inputs); n may be 0."""
        ...

    def row_outputs(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The outputs, each row's a function of that row alone to the last bit."""
        ...


class AnyArchitecture(Protocol):
    """Shape of a network; public."""

    @property
    def inputs(self) -> int:
        """Numbers in a row."""
        ...

    @property
    def size(self) -> int:
        """p: number of parameters."""
        ...

    @property
    def rows_at_once(self) -> int:
        """Rows whose pass fits in memory; more go one part after the other."""
        ...

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Starting parameters, shape (p,); public."""
        ...

    def network(self, parameters: Array) -> AnyNetwork:
        """The network at some parameters, shape (p,); SpecError: another number of them."""
        ...

    def backend(self, device: str) -> Backend:
        """Where it can compute, for a spec's word `cpu`, `cuda` or `auto`; SpecError: nowhere."""
        ...
