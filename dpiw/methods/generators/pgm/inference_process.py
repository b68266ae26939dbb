"""The only module that loads private-pgm (mbi) and jax: answers fits on a pipe, as a process.

Run with `python -m`. Messages are a length in eight bytes and the bytes of a `Measurement`; they
hold only released values or functions of them, nothing confidential.
Source: McKenna, Sheldon & Miklau (2019), graphical-model based estimation and inference.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy.measurement import Measurement

_LENGTH = 8


def send(stream: BinaryIO, message: Measurement) -> None:
    """Write one message."""
    data = message.to_bytes()
    stream.write(len(data).to_bytes(_LENGTH, "big"))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> Measurement | None:
    """Read one message; None: the writer is gone."""
    length = int.from_bytes(stream.read(_LENGTH), "big")
    data = stream.read(length)
    return Measurement.from_bytes(data) if length and len(data) == length else None


def fit(asked: Measurement) -> Measurement:
    """Fit noisy marginals by mirror descent, least squares in units of the noise.

    Args:
        asked: `values_i` and `stddev_i`, flat, of the columns `facts["cliques"][i]`; facts `sizes`,
            `total`, `iterations`, and the junction tree's `families`, members in axis order.

    Returns:
        `table_i`: of the family i, >= 0, summing to 1.
    """
    import jax
    from mbi import Domain, estimation, marginal_oracles

    facts = asked.facts
    names = [str(j) for j in range(len(facts["sizes"]))]
    model = estimation.mirror_descent(
        Domain(names, facts["sizes"]),
        [
            _measured([names[j] for j in clique], asked.arrays, number)
            for number, clique in enumerate(facts["cliques"])
        ],
        known_total=facts["total"],
        iters=facts["iterations"],
        marginal_oracle=marginal_oracles.message_passing_stable,
    )
    families = [tuple(names[j] for j in family) for family in facts["families"]]
    tables = model.marginals
    if not all(tables.supports(family) for family in families):  # a cycle was triangulated
        potentials = model.potentials.expand(_maximal(families))
        tables = jax.jit(marginal_oracles.message_passing_stable)(potentials)
    arrays = {
        f"table_{i}": _distribution(tables.project(family).datavector(flatten=False))
        for i, family in enumerate(families)
    }
    return Measurement(kind="fit", arrays=arrays, facts={}, publishable=asked.publishable)


def _measured(clique: Sequence[str], arrays: Any, number: int) -> Any:
    from mbi import LinearMeasurement

    scale = arrays[f"stddev_{number}"]
    return LinearMeasurement(
        arrays[f"values_{number}"] / scale, clique, 1.0, lambda factor: factor.datavector() / scale
    )


def _maximal(families: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    sets = [set(family) for family in families]
    return [
        family
        for family, members in zip(families, sets, strict=True)
        if not any(members < other for other in sets)
    ]


def _distribution(table: Any) -> NDArray[np.float64]:
    shares = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    return np.asarray(shares / shares.sum())


def main() -> int:
    """Answer until the input ends."""
    # The limit of a confidential stage is on the table's memory; jax reserves more than it uses.
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    import jax

    settings: Any = jax.config
    settings.update("jax_platforms", "cpu")
    settings.update("jax_enable_x64", True)
    settings.update("jax_disable_most_optimizations", True)  # compiling takes most of the time
    while (request := receive(sys.stdin.buffer)) is not None:
        send(sys.stdout.buffer, fit(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())
