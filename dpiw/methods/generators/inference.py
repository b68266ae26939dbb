"""Graphical models of noisy marginals: asked of a process of its own, read without it.

The process is `dpiw.methods.generators.inference_process`; it alone loads mbi and jax, and is told
nothing but noisy counts and public facts. Its answers are post-processing: they cost nothing.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, StageFailedError
from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.estimation import NoisyMarginal
from dpiw.methods.generators.inference_process import receive, send
from dpiw.methods.generators.triangulation import families_of
from dpiw.privacy.measurement import Measurement

Array = NDArray[np.float64]

ITERATIONS = 1000
"""Of mirror descent, between rounds."""

FINAL_ITERATIONS = 2500
"""Of the fit that rows are drawn from. Compiling takes longer than these on most tables."""


def check_installed(method: str) -> None:
    """Raise SpecError where the library of the fit is not there, before anything is reserved."""
    if importlib.util.find_spec("mbi") is None:
        raise SpecError(
            f"generator.method={method}: fitting it needs private-pgm, which is not installed;"
            " run: pip install 'dpiw[marginals]'"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedModel:
    """A distribution, as the joint tables of a junction tree's families.

    Attributes:
        families: parents before children.
        tables: of each family, shape (*parents, child), summing to 1.
    """

    families: tuple[Family, ...]
    tables: tuple[Array, ...] = field(repr=False)

    def pairs(self, column: int) -> dict[int, Array]:
        """Joint shares of a column with each other one, shape (its size, the other's).

        Through the tree, from the column's family outwards: P(a, D) = P(a, S) P(D | S), S what a
        family D shares with the one it is reached from.
        """
        place = {family.child: i for i, family in enumerate(self.families)}
        near: list[list[int]] = [[] for _ in self.families]
        for i, family in enumerate(self.families):
            if family.parents:
                last = max(place[parent] for parent in family.parents)
                near[last].append(i)
                near[i].append(last)
        start = place[column]
        first = _with_column(self.tables[start], self.families[start].members, column)
        joints, waiting = {start: first}, [start]
        while waiting:
            here = waiting.pop()
            for there in near[here]:
                if there not in joints:
                    joints[there] = self._reached(joints[here], here, there)
                    waiting.append(there)
        own = self.tables[start].sum(axis=tuple(range(self.tables[start].ndim - 1)))
        return {
            family.child: joints[i].reshape(own.size, -1, joints[i].shape[-1]).sum(axis=1)
            if i in joints
            else np.outer(own, self.tables[i].reshape(-1, self.tables[i].shape[-1]).sum(axis=0))
            for i, family in enumerate(self.families)
            if family.child != column
        }

    def _reached(self, joint: Array, here: int, there: int) -> Array:
        """P(a, family `there`), from P(a, family `here`); axes: a, then the family's members."""
        one, two = self.families[here].members, self.families[there].members
        shared = [j for j in one if j in two]
        away = tuple(1 + axis for axis, j in enumerate(one) if j not in shared)
        known = joint.sum(axis=away)  # (a, shared in the order of `one`)
        order = [j for j in two if j in shared]
        known = known.transpose(0, *(1 + shared.index(j) for j in order))
        table = self.tables[there]
        missing = tuple(axis for axis, j in enumerate(two) if j not in shared)
        base = table.sum(axis=missing, keepdims=True)
        law = np.divide(table, base, out=np.zeros_like(table), where=base > 0)
        return np.asarray(law[None] * np.expand_dims(known, tuple(1 + axis for axis in missing)))


def _with_column(table: Array, members: Sequence[int], column: int) -> Array:
    """The table with one more axis, the first, that repeats the one of the column."""
    axis = list(members).index(column)
    moved = np.moveaxis(table, axis, 0)
    joint = np.zeros((moved.shape[0], *moved.shape))
    same = np.arange(moved.shape[0])
    joint[same, same] = moved
    return np.moveaxis(joint, 1, axis + 1)


class Inference:
    """A process that fits models, for as long as it is needed: a context manager."""

    def __init__(self) -> None:
        self._process: Any = None

    def __enter__(self) -> Self:
        """Start it; it hears and inherits no more than whoever starts it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dpiw.methods.generators.inference_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def fit(
        self,
        marginals: Sequence[NoisyMarginal],
        sizes: Sequence[int],
        *,
        total: float,
        iterations: int = ITERATIONS,
    ) -> FittedModel:
        """The model of maximal entropy whose marginals are nearest to the noisy ones.

        Args:
            marginals: every column in at least one; noise of each cell known.
            sizes: codes of each column.
            total: noisy number of rows, > 0.
            iterations: of mirror descent.

        Raises:
            StageFailedError: the process ended, or its answer is no distribution.
        """
        families = families_of(sizes, [marginal.columns for marginal in marginals])
        question = Measurement(
            kind="fit",
            arrays={
                f"{name}_{i}": np.ravel(values)
                for i, marginal in enumerate(marginals)
                for name, values in (("values", marginal.values), ("stddev", marginal.stddev))
            },
            facts={
                "sizes": list(sizes),
                "cliques": [list(marginal.columns) for marginal in marginals],
                "families": [list(family.members) for family in families],
                "total": total,
                "iterations": iterations,
            },
            publishable=True,
        )
        try:
            send(self._process.stdin, question)
            answer = receive(self._process.stdout)
        except OSError:
            answer = None
        if answer is None or not all(np.isfinite(one).all() for one in answer.arrays.values()):
            raise StageFailedError("fit", StageFailedError.exit_code)
        tables = tuple(answer.arrays[f"table_{i}"] for i in range(len(families)))
        return FittedModel(families=families, tables=tables)
