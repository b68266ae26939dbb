"""In place of the process that fits: models of small tables, at once and without mbi."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.estimation import NoisyMarginal, project_to_total
from dpiw.methods.generators.pgm import aim, inference, mst
from dpiw.methods.generators.pgm.inference import FittedModel


class Independent:
    """An `Inference` whose models know one-way marginals alone; remembers what it was told."""

    told: list[Sequence[NoisyMarginal]]

    def __init__(self) -> None:
        self.told = []

    def __enter__(self) -> "Independent":
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def fit(
        self, marginals: Sequence[NoisyMarginal], sizes: Sequence[int], *, total: float, **_: Any
    ) -> FittedModel:
        self.told.append(marginals)
        alone = {
            marginal.columns[0]: marginal.values
            for marginal in marginals
            if len(marginal.columns) == 1
        }
        return FittedModel(
            families=tuple(Family(child=j, parents=()) for j in range(len(sizes))),
            tables=tuple(project_to_total(alone[j], total) / total for j in range(len(sizes))),
        )


@contextmanager
def fitted_at_once() -> Iterator[None]:
    """MST and AIM fit by `Independent`, and need no mbi."""
    with (
        mock.patch.object(aim, "Inference", Independent),
        mock.patch.object(inference, "Inference", Independent),
        mock.patch.object(aim, "check_installed", str),
        mock.patch.object(mst, "check_installed", str),
        mock.patch.object(aim, "check_fits"),
        mock.patch.object(mst, "check_fits"),
    ):
        yield
