"""The networks of `benchmarks/dp_sgd.py`, and every way to train one of them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from dpiw.methods.neural.networks import Architecture, Dense, Layered
from dpiw.methods.neural.row_norms import Convolution
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

LOT, MULTIPLIER, CLIP, RATE = 256, 1.1, 1.0, 1e-3
WIDTHS = (20, 64, 64, 1)
Steps = Callable[[int], None]
Rows = NDArray[np.float64]


def perceptron() -> Any:
    """Of `WIDTHS`."""
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(WIDTHS):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def convolutional(width: int = 16) -> Any:
    """That of the MNIST example of Opacus (Papernot et al. 2021), with one logit.

    Args:
        width: channels of the first layer, 16 there; the second has twice as many.
    """
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, width, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(width, 2 * width, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(2 * width * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 1),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Net:
    """One network and its made-up rows.

    Attributes:
        about: in words.
        make: the module, single precision.
        rows: made-up rows, shape (n, inputs), at a generator.
        is_perceptron: whether the closed form knows it.
        turns, steps: how often it is measured, and steps each time.
        lot: expected rows of a lot.
        on_gpu_only: too slow for the other variants on a core.
    """

    about: str
    make: Callable[[], Any]
    rows: Callable[[np.random.Generator], Rows]
    is_perceptron: bool
    turns: int
    steps: int
    lot: int = LOT
    on_gpu_only: bool = False


NETS: Mapping[str, Net] = {
    "perceptron": Net(
        about="20-64-64-1, rectifiers; 20,000 rows",
        make=perceptron, rows=lambda rng: rng.normal(size=(20_000, WIDTHS[0])),
        is_perceptron=True, turns=60, steps=20,
    ),
    "convolution": Net(
        about="two convolutions of 16 and 32 channels on 28 x 28 pixels, two dense layers; 4,000"
        " rows",
        make=convolutional, rows=lambda rng: rng.random((4_000, 28 * 28)),
        is_perceptron=False, turns=20, steps=3,
    ),
    "wide convolution": Net(
        about="the convolutions with four times as many channels, 64 and 128; lots of 1,024 of"
        " 20,000 rows",
        make=lambda: convolutional(64), rows=lambda rng: rng.random((20_000, 28 * 28)),
        is_perceptron=False, turns=6, steps=2, lot=1_024, on_gpu_only=True,
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class OurConvolutions(Layered):
    """The convolutional network as ours: the same layers.

    Attributes:
        module: that of `convolutional`.
    """

    module: Any
    inputs = 28 * 28

    @property
    def parts(self) -> Any:
        """See `Layered`."""

        def pooled(values: Any, _: Any) -> Any:
            return torch.nn.functional.max_pool2d(values.relu(), 2, 1)

        first, second, dense, last = [part for part in self.module if hasattr(part, "weight")]
        return (
            lambda values, _: values.unflatten(1, (1, 28, 28)),
            Convolution(first, held=50_000), pooled, Convolution(second, held=50_000),
            lambda values, rows: pooled(values, rows).flatten(1),
            Dense(dense.in_features, dense.out_features, 6.0), lambda values, _: values.relu(),
            Dense(last.in_features, last.out_features, 6.0),
        )  # fmt: skip


def ours(net: Net, rows: Rows, *, device: str = "cpu") -> Steps:
    """Our core: Poisson lots, clipping, secure noise, Adam."""
    architecture: Layered = (
        Architecture(widths=WIDTHS) if net.is_perceptron else OurConvolutions(net.make())
    )
    training = PrivateTraining(
        sampling_rate=net.lot / len(rows), steps=10**9, clip=CLIP, divisor=float(net.lot),
        unit=PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE),
        noise_multiplier=MULTIPLIER, rule=ClipRule.LOSS, optimiser=Adam(learning_rate=RATE),
    )  # fmt: skip
    noise = SecureNoise()
    lots = PrivateLots(
        architecture=architecture, rows=rows, loss=Logistic(label=1),
        backend=make_backend(device),
    )  # fmt: skip
    state = training.start(architecture.initial(np.random.default_rng(0)), publishable=True)

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state = training.private_step(state, lots, noise=noise)

    return run


def torch_without_privacy(net: Net, rows: Rows, *, precision: Any, device: str) -> Steps:
    """Batches of fixed size, nothing clipped."""
    model = net.make().to(device, precision)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    data = torch.tensor(rows, dtype=precision, device=device)
    ones = torch.ones(net.lot, 1, dtype=precision, device=device)
    loss = torch.nn.BCEWithLogitsLoss()

    def run(count: int) -> None:
        for _ in range(count):
            batch = data[torch.randint(0, len(data), (net.lot,), device=device)]
            optimiser.zero_grad()
            loss(model(batch), ones).backward()
            optimiser.step()

    return run


def opacus(
    net: Net,
    rows: Rows,
    *,
    mode: str,
    own_loader: bool,
    device: str,
    precision: Any = torch.float32,
) -> Steps:
    """Opacus after `make_private`; lots from its Poisson loader, or as cheaply as ours."""
    data = torch.tensor(rows, dtype=precision)
    model = net.make().to(device, precision)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    table = torch.utils.data.TensorDataset(data, torch.ones(len(rows), 1, dtype=precision))
    arguments: dict[str, Any] = {
        "module": model, "optimizer": optimiser, "noise_multiplier": MULTIPLIER,
        "data_loader": torch.utils.data.DataLoader(table, batch_size=net.lot),
        "max_grad_norm": CLIP, "poisson_sampling": True, "grad_sample_mode": mode,
    }  # fmt: skip
    criterion = torch.nn.BCEWithLogitsLoss()
    if mode == "ghost":
        model, optimiser, criterion, loader = PrivacyEngine().make_private(
            criterion=criterion, **arguments
        )
    else:
        model, optimiser, loader = PrivacyEngine().make_private(**arguments)

    there = data.to(device)

    def batches() -> Iterator[Any]:
        while own_loader:
            for batch, labels in loader:
                yield batch.to(device), labels.to(device)
        while True:
            lot = torch.rand(len(there), device=device) < net.lot / len(there)
            yield there[lot], torch.ones(int(lot.sum()), 1, dtype=precision, device=device)

    source = batches()

    def run(count: int) -> None:
        for _ in range(count):
            batch, labels = next(source)
            optimiser.zero_grad()
            criterion(model(batch), labels).backward()
            optimiser.step()

    return run


def variants(net: Net, device: str = "cpu") -> Mapping[str, Callable[[Rows], Steps]]:
    """By name, every way to train a network; each is made from rows when it is asked for."""
    warnings.filterwarnings("ignore")
    ways: dict[str, Callable[[Rows], Steps]] = {}
    ways["ours"] = lambda rows: ours(net, rows, device=device)
    for mode, own_loader in itertools.product(("hooks", "ghost"), (False, True)):
        loader = ", its loader" if own_loader else ""
        ways[f"Opacus, {mode}{loader}"] = partial(
            opacus, net, mode=mode, own_loader=own_loader, device=device
        )
    ways["Opacus, hooks, double"] = partial(
        opacus, net, mode="hooks", own_loader=False, device=device, precision=torch.float64
    )
    for name, precision in (("", torch.float32), (", double", torch.float64)):
        ways[f"torch, no privacy{name}"] = partial(
            torch_without_privacy, net, precision=precision, device=device
        )
    if device != "cpu":
        ways["ours, on one core instead"] = lambda rows: ours(net, rows)
    return ways
