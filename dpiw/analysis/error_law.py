"""What intervals ask of the law of a release's weights, whatever the weights are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpiw.analysis.sample import Array, Estimate
    from dpiw.methods.weights.objections import Objection


class ErrorLaw(Protocol):
    """What intervals ask of the law of a release's weights.

    `dpiw.analysis.coefficients_law.CoefficientsLaw`: of weights made from noisy coefficients.
    `dpiw.methods.weights.means_law.MeansLaw`: of weights made from noisy means.
    """

    @property
    def nominal_rows(self) -> float:
        """How many private rows there are, as far as is public."""
        ...

    @property
    def max_rows(self) -> int:
        """Most rows of one person among them."""
        ...

    @property
    def bins(self) -> Mapping[str, np.ndarray]:
        """In which bin of its generator each row's value lies, by column where that is known."""
        ...

    @property
    def base_rows(self) -> float:
        """Effective rows of which the rows were chosen; infinite where they were not."""
        ...

    @property
    def count_noise(self) -> float:
        """Standard deviation of the generator's noisy counts, in people; 0 where not known."""
        ...

    def parts(self, estimate: Estimate) -> dict[str, Array]:
        """Variance of each value by source, shape (p,) each."""
        ...

    def support(self, estimate: Estimate) -> Array:
        """Share of each value that the weights can correct, in [0, 1], shape (p,)."""
        ...

    def objections(self, estimate: Estimate, parts: dict[str, Array]) -> list[list[Objection]]:
        """Of each value, what keeps it from `use`: by `support` and `parts`."""
        ...

    def draws(self, estimate: Estimate, replicates: int, rng: np.random.Generator) -> Array:
        """Estimates under drawn errors, shape (replicates, p)."""
        ...
