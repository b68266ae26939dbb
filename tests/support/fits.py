"""In place of the fits of MST and AIM: models that know one-way marginals alone, at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.estimation import NoisyMarginal, project_to_total
from dpiw.methods.generators.pgm import aim_rounds, inference
from dpiw.methods.generators.pgm.inference import FittedModel


def independent(
    marginals: Sequence[NoisyMarginal], sizes: Sequence[int], *, total: float
) -> FittedModel:
    """Stands for `inference.fit`."""
    alone = {
        marginal.columns[0]: marginal.values for marginal in marginals if len(marginal.columns) == 1
    }
    return FittedModel(
        families=tuple(Family(child=j, parents=()) for j in range(len(sizes))),
        tables=tuple(project_to_total(alone[j], total) / total for j in range(len(sizes))),
    )


@contextmanager
def fitted_at_once() -> Iterator[None]:
    """MST and AIM fit by `independent`."""
    with (
        mock.patch.object(aim_rounds, "fit", independent),
        mock.patch.object(inference, "fit", independent),
    ):
        yield
