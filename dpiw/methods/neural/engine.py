"""What DP-SGD asks of a network, whoever computes it: the contract of both engines.

- `dpiw.methods.neural.mlp`: multilayer perceptrons, every row's norm in closed form. The default.
- `dpiw.methods.neural.opacus_engine`: feed-forward torch modules of listed layers, every row's norm
  by Opacus; slower, and for what the closed form does not know: convolutions, embeddings.

An engine gives outputs, norms and weighted sums of the rows' gradients. Everything that a guarantee
rests on stands outside of it and is there once: clipping (`dpiw.methods.neural.clipping`), lots,
noise, events and checkpoints (`dpiw.methods.neural.dp_sgd`).

**Formal guarantees** of an engine, which tests/dpiw/methods/neural/test_engines.py asks of both:

- A row's output, norm and gradient are functions of the parameters and of that row alone.
- `norms` are of the gradient by all parameters together, biases included, in double precision.
- `gradient(factors)` is the sum of factor times gradient: one with a factor of at most C/norm has
  a norm of at most C, up to the rounding of doubles.
- Where a row's gradient by a layer is a sum (over places, words or uses), `norms` are also at least
  2^-10 of what the parts' norms add up to: parts that cancel have magnitudes of at most 2^10 C. A
  sum over n rows with N parts together then errs by at most n N 2^-43 C, to first order.
- A value is never changed: another pass, or another step, leaves no trace in it.

What is rounded before, while slopes pass from layer to layer, is not bounded here: it is part of
the assumption on doubles that certificates state (`dpiw.methods.neural.dp_sgd.ASSUMPTION`).
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.neural.backend import Array, Backend

ASSUMPTION = (
    "The norms by which the rows' gradients of convolutional networks are clipped are found by"
    " Opacus and torch in double precision; they were tried on public rows, layer by layer in"
    " tests, and are taken to be right on every row."
)
"""For the certificate of every release with a network of the second engine."""


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

    def forward(self, rows: Array, *, by_rows: bool = False) -> ForwardPass:
        """Outputs of rows, shape (n, inputs); n may be 0.

        Args:
            rows: the rows.
            by_rows: whether `row_gradients` will be asked for: it may cost another pass otherwise.
        """
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
