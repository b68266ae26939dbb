"""What intervals ask of the law of a release's weights, whatever the weights are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpiw.analysis.sample import Array, Estimate


class ErrorLaw(Protocol):
    """What intervals ask of the law of a release's weights.

    `dpiw.analysis.noise.WeightLaw`: of weights made from noisy coefficients.
    `dpiw.methods.weights.means_law.MeansLaw`: of weights made from noisy means.
    """

    @property
    def nominal_rows(self) -> float:
        """How many private rows there are, as far as is public."""
        ...

    def parts(self, estimate: Estimate) -> dict[str, Array]:
        """Variance of each value by source, shape (p,) each."""
        ...

    def support(self, estimate: Estimate) -> Array:
        """Share of each value that the weights can correct, in [0, 1], shape (p,)."""
        ...

    def grades(self, estimate: Estimate, parts: dict[str, Array]) -> NDArray[np.int64]:
        """Verdicts by `support` and `parts`: 0 `use`, 1 `use with care`, 2 `do not use`; (p,)."""
        ...

    def draws(self, estimate: Estimate, replicates: int, rng: np.random.Generator) -> Array:
        """Estimates under drawn errors, shape (replicates, p)."""
        ...
