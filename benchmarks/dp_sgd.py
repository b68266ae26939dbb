"""Throughput of DP-SGD, noise included: our core against Opacus and against no privacy.

    pip install '.[pipeline,neural]'
    python benchmarks/dp_sgd.py --out benchmarks/results

One network (20-64-64-1 by default), lots of 256 expected rows at a Poisson rate, Adam, one thread.
All variants run in one process, in many short turns whose order rotates, so that whatever else the
machine does falls on all of them; what counts is the ratio: the median over turns of the ratio
within a turn. Times are CPU seconds of this process (wall seconds beside them): on a shared machine
they vary less. Ours computes in float64 and draws its
noise from the operating system's entropy; torch and Opacus compute in float32, their default, and
Opacus draws from torch's generator, as its secure mode cannot be installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpiw.methods.neural.backend import keep_memory
from dpiw.methods.neural.clipping import ClipRule
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining
from dpiw.methods.neural.engine import AnyArchitecture
from dpiw.methods.neural.losses import Logistic
from dpiw.methods.neural.mlp import Architecture, Network
from dpiw.methods.neural.optimisers import Adam
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ROWS, LOT, MULTIPLIER, CLIP, RATE = 20_000, 256, 1.1, 1.0, 1e-3
TARGETS = {"opacus hooks": 8.0, "opacus ghost": 3.0}
Steps = Callable[[int], None]


def ours(
    widths: tuple[int, ...], rows: Any, *, device: str = "cpu", as_module: bool = False
) -> Steps:
    """Our core: Poisson lots, clipping, secure noise, Adam; as a module, with Opacus' norms."""
    unit = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
    training = PrivateTraining(
        sampling_rate=LOT / len(rows), steps=10**9, clip=CLIP, divisor=float(LOT), unit=unit,
        noise_multiplier=MULTIPLIER, rule=ClipRule.LOSS, optimiser=Adam(learning_rate=RATE),
    )  # fmt: skip
    noise, architecture = SecureNoise(), architecture_of(widths, rows, as_module=as_module)
    backend = architecture.backend(device)
    lots = PrivateLots(
        architecture=architecture, rows=rows, loss=Logistic(label=1), backend=backend,
    )  # fmt: skip
    state = training.start(architecture.initial(np.random.default_rng(0)), publishable=True)

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state = training.private_step(state, lots, noise=noise)

    return run


def architecture_of(widths: tuple[int, ...], rows: Any, *, as_module: bool) -> AnyArchitecture:
    if not as_module:
        return Architecture(widths=widths)
    from dpiw.methods.neural.opacus_engine import ModuleArchitecture

    return ModuleArchitecture(module=torch_network(widths), example=rows[:3])


def ours_without_privacy(widths: tuple[int, ...], rows: Any) -> Steps:
    """The same network, optimiser and loss; random batches of fixed size, nothing clipped."""
    keep_memory()
    architecture, adam = Architecture(widths=widths), Adam(learning_rate=RATE)
    generator = np.random.default_rng(0)
    parameters = architecture.initial(generator)
    moments, loss, step = adam.start(architecture.size), Logistic(label=1), 0

    def run(count: int) -> None:
        nonlocal parameters, moments, step
        for _ in range(count):
            step += 1
            network = Network(architecture=architecture, parameters=parameters)
            batch = rows.take(generator.integers(0, len(rows), LOT), axis=0)
            forward = network.forward(batch)
            gradient = forward.backward(loss.slopes(forward.outputs)).gradient()
            gradient /= LOT
            parameters, moments = adam.update(parameters, gradient, moments, step)

    return run


def torch_network(widths: tuple[int, ...]) -> Any:
    import torch

    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def torch_without_privacy(widths: tuple[int, ...], rows: Any) -> Steps:
    import torch

    model = torch_network(widths)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    data, ones = torch.tensor(rows, dtype=torch.float32), torch.ones(LOT, 1)
    loss = torch.nn.BCEWithLogitsLoss()

    def run(count: int) -> None:
        for _ in range(count):
            batch = data[torch.randint(0, len(data), (LOT,))]
            optimiser.zero_grad()
            loss(model(batch), ones).backward()
            optimiser.step()

    return run


def opacus(widths: tuple[int, ...], rows: Any, *, mode: str) -> Steps:
    """Opacus as documented: `make_private` with its Poisson loader."""
    import torch
    from opacus import PrivacyEngine

    model = torch_network(widths)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    data = torch.utils.data.TensorDataset(
        torch.tensor(rows, dtype=torch.float32), torch.ones(len(rows), 1)
    )
    arguments: dict[str, Any] = {
        "module": model, "optimizer": optimiser, "noise_multiplier": MULTIPLIER,
        "data_loader": torch.utils.data.DataLoader(data, batch_size=LOT),
        "max_grad_norm": CLIP, "poisson_sampling": True, "grad_sample_mode": mode,
    }  # fmt: skip
    criterion = torch.nn.BCEWithLogitsLoss()
    if mode == "ghost":
        model, optimiser, criterion, loader = PrivacyEngine().make_private(
            criterion=criterion, **arguments
        )
    else:
        model, optimiser, loader = PrivacyEngine().make_private(**arguments)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    source = batches()

    def run(count: int) -> None:
        for _ in range(count):
            batch, labels = next(source)
            optimiser.zero_grad()
            criterion(model(batch), labels).backward()
            optimiser.step()

    return run


def measure(
    variants: dict[str, Steps], *, turns: int, steps: int, to: str
) -> dict[str, dict[str, float]]:
    """Median over turns of CPU seconds a step, and of their ratio to those of `to` in the turn."""
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    wall: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for run in variants.values():
        run(20)
    for turn in range(turns):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            run = variants[name]
            run(5)  # untimed: what ran before has left its own data in the caches
            first, began = time.process_time(), time.perf_counter()
            run(steps)
            cpu[name].append((time.process_time() - first) / steps)
            wall[name].append((time.perf_counter() - began) / steps)
    return {
        name: {
            "cpu_us": 1e6 * statistics.median(cpu[name]),
            "wall_us": 1e6 * min(wall[name]),
            "rows_per_s": LOT / statistics.median(cpu[name]),
            "ratio": statistics.median(
                one / two for one, two in zip(cpu[name], cpu[to], strict=True)
            ),
        }
        for name in variants
    }


def report(found: dict[str, dict[str, float]], facts: dict[str, Any]) -> str:
    lines = [
        "# DP-SGD throughput",
        "",
        f"Made by `python benchmarks/dp_sgd.py --out benchmarks/results` on {facts['machine']},"
        f" Python {facts['python']}, NumPy {facts['numpy']}, torch {facts['torch']}, Opacus"
        f" {facts['opacus']}. Network {facts['widths']}, {ROWS:,} rows, Poisson lots of {LOT}"
        f" expected rows, noise multiplier {MULTIPLIER}, Adam, one thread; medians over"
        f" {facts['turns']} turns of {facts['steps']} steps each. Load average"
        f" {facts['load_before']:.1f} before and {facts['load_after']:.1f} after on"
        f" {facts['cores']} cores: the machine was shared, so read the ratios, which are taken"
        " within each turn.",
        "",
        "| variant | CPU us a step (median) | wall us a step (best turn) | rows a CPU second"
        " | times slower than ours with privacy |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in found.items():
        lines.append(
            f"| {name} | {row['cpu_us']:.0f} | {row['wall_us']:.0f} | {row['rows_per_s']:,.0f}"
            f" | {row['ratio']:.2f} |"
        )
    lines += ["", "| target | asked | found | met |", "| --- | --- | --- | --- |"]
    for name, asked in TARGETS.items():
        if name in found:
            ratio = found[name]["ratio"]
            met = "yes" if ratio >= asked else "no"
            lines.append(f"| times faster than {name} | {asked:g} | {ratio:.2f} | {met} |")
    for name in ("torch, no privacy", "ours, no privacy"):
        if name in found:
            ratio = 1 / found[name]["ratio"]
            met = "yes" if ratio <= 1.5 else "no"
            lines.append(f"| times the cost of {name} | at most 1.5 | {ratio:.2f} | {met} |")
    lines += [
        "",
        "Ours is float64 with noise from ChaCha20 keystreams under fresh keys of the operating"
        " system; torch and Opacus are float32 with torch's generator (Opacus's secure mode cannot"
        " be installed). The cost of privacy in our core is sampling, norms, clipping and one"
        " normal draw per parameter and lot.",
    ]
    return "\n".join(lines) + "\n"


def one_thread() -> None:
    """Start again with one thread for every library: they read this when they are loaded."""
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.environ.update(dict.fromkeys(THREADS, "1"))
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=[20, 64, 64, 1])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    import opacus as opacus_library
    import torch

    torch.set_num_threads(1)
    widths = tuple(arguments.widths)
    rows = np.random.default_rng(1).normal(size=(ROWS, widths[0]))
    own = "ours, DP-SGD"
    variants = {
        own: ours(widths, rows),
        "ours, as a torch module": ours(widths, rows, as_module=True),
        "ours, no privacy": ours_without_privacy(widths, rows),
        "torch, no privacy": torch_without_privacy(widths, rows),
        "opacus hooks": opacus(widths, rows, mode="hooks"),
        "opacus ghost": opacus(widths, rows, mode="ghost"),
    }
    if torch.cuda.is_available():
        variants["ours, DP-SGD on CUDA"] = ours(widths, rows, device="cuda")
    before = os.getloadavg()[0]
    found = measure(variants, turns=arguments.turns, steps=arguments.steps, to=own)
    facts = {
        "machine": platform.machine(), "python": platform.python_version(),
        "numpy": np.__version__, "torch": torch.__version__,
        "opacus": opacus_library.__version__, "widths": "-".join(map(str, widths)),
        "turns": arguments.turns, "steps": arguments.steps, "cores": os.cpu_count(),
        "load_before": before, "load_after": os.getloadavg()[0],
    }  # fmt: skip
    text = report(found, facts)
    print(text)
    if arguments.out is not None:
        (arguments.out / "dp_sgd.md").write_text(text)
        stored = json.dumps({"facts": facts, "variants": found}, indent=1)
        (arguments.out / "dp_sgd.json").write_text(stored + "\n")


if __name__ == "__main__":
    main()
