"""DP-SGD of a perceptron, noise included: ours, Opacus, and torch without privacy, for `bench.py`.

Lots of 256 expected rows at a Poisson rate, Adam. Ours is in double precision, with noise from
ChaCha20 keystreams; torch and Opacus are in single precision, with torch's generator, as Opacus's
secure mode cannot be installed. Opacus takes its lots row by row from its Poisson loader, as its
documentation has it; ours and torch's are taken from the table at once.
"""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import PrivacyEngine

from dpiw.methods.neural.backend import make_backend
from dpiw.methods.neural.checkpoints import Adam
from dpiw.methods.neural.clipping import ClipRule, Logistic
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining
from dpiw.methods.neural.networks import Architecture
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

LOT, MULTIPLIER, CLIP, RATE = 256, 1.1, 1.0, 1e-3
WIDTHS = (20, 64, 64, 1)
ROWS, STEPS = 20_000, 20
"""Rows of the table, and steps of a turn."""

Steps = Callable[[int], None]
Rows = NDArray[np.float64]


def ours(rows: Rows, *, lot: int = LOT) -> Steps:
    """Our core: Poisson lots, clipping, secure noise, Adam."""
    training = PrivateTraining(
        sampling_rate=lot / len(rows), steps=10**9, clip=CLIP, divisor=float(lot),
        unit=PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE),
        noise_multiplier=MULTIPLIER, rule=ClipRule.LOSS, optimiser=Adam(learning_rate=RATE),
    )  # fmt: skip
    architecture, noise = Architecture(widths=WIDTHS), SecureNoise()
    lots = PrivateLots(
        architecture=architecture, rows=rows, loss=Logistic(label=1), backend=make_backend("cpu")
    )
    state = training.start(architecture.initial(np.random.default_rng(0)), publishable=True)

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state = training.private_step(state, lots, noise=noise)

    return run


def _module() -> tuple[Any, Any]:
    """The network and its optimiser, as torch has them."""
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(WIDTHS):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    return model, torch.optim.Adam(model.parameters(), lr=RATE)


def without_privacy(rows: Rows, *, lot: int = LOT) -> Steps:
    """Batches of fixed size, nothing clipped."""
    model, optimiser = _module()
    data, ones = torch.tensor(rows, dtype=torch.float32), torch.ones(lot, 1)
    loss = torch.nn.BCEWithLogitsLoss()

    def run(count: int) -> None:
        for _ in range(count):
            batch = data[torch.randint(0, len(data), (lot,))]
            optimiser.zero_grad()
            loss(model(batch), ones).backward()
            optimiser.step()

    return run


def opacus(rows: Rows, *, mode: str, lot: int = LOT) -> Steps:
    """Opacus after `make_private`, with lots from its Poisson loader."""
    model, optimiser = _module()
    table = torch.utils.data.TensorDataset(
        torch.tensor(rows, dtype=torch.float32), torch.ones(len(rows), 1)
    )
    arguments: dict[str, Any] = {
        "module": model, "optimizer": optimiser, "noise_multiplier": MULTIPLIER,
        "data_loader": torch.utils.data.DataLoader(table, batch_size=lot),
        "max_grad_norm": CLIP, "poisson_sampling": True, "grad_sample_mode": mode,
    }  # fmt: skip
    criterion: Any = torch.nn.BCEWithLogitsLoss()
    if mode == "ghost":
        model, optimiser, criterion, loader = PrivacyEngine().make_private(
            criterion=criterion, **arguments
        )
    else:
        model, optimiser, loader = PrivacyEngine().make_private(**arguments)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))

    def run(count: int) -> None:
        for batch, labels in itertools.islice(batches, count):
            optimiser.zero_grad()
            criterion(model(batch), labels).backward()
            optimiser.step()

    return run


VARIANTS: Mapping[str, Callable[..., Steps]] = {
    "ours": ours,
    "Opacus, hooks, its loader": partial(opacus, mode="hooks"),
    "Opacus, ghost, its loader": partial(opacus, mode="ghost"),
    "torch, no privacy": without_privacy,
}


def measure(turns: int) -> dict[str, dict[str, float]]:
    """By variant: microseconds of a step, CPU (median over turns) and wall (best turn).

    The order rotates, so that whatever else the machine does falls on all variants.
    """
    warnings.filterwarnings("ignore")  # of Opacus: no secure mode
    rows = np.random.default_rng(1).normal(size=(ROWS, WIDTHS[0]))
    runs = {name: make(rows) for name, make in VARIANTS.items()}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    wall: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(STEPS)
    for turn in range(turns):
        start = turn % len(runs)
        for name in [*runs][start:] + [*runs][:start]:
            runs[name](STEPS // 4)  # untimed: what ran before has left its own data in the caches
            first, began = time.process_time(), time.perf_counter()
            runs[name](STEPS)
            cpu[name].append(1e6 * (time.process_time() - first) / STEPS)
            wall[name].append(1e6 * (time.perf_counter() - began) / STEPS)
    return {
        name: {"cpu_us": statistics.median(cpu[name]), "wall_us": min(wall[name])} for name in runs
    }
