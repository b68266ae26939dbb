"""Throughput and memory of DP-SGD, noise included: ours, Opacus, and no privacy.

    pip install '.[pipeline,neural]'
    python benchmarks/dp_sgd.py --out benchmarks/results [--device cuda]

Two networks (`dp_sgd_nets.py`): a perceptron and a convolutional one; lots of 256 expected rows at
a Poisson rate, Adam, one thread; on a GPU a wide convolutional one as well.
All variants of a network run in one process, in many short turns whose order rotates, so that
whatever else the machine does falls on all of them; what counts is the ratio: the median over turns
of the ratio within a turn. Times are CPU seconds of this process (wall seconds beside them): on a
shared machine they vary less; with a GPU they are wall seconds, until it has done what it was
given. Memory is measured in a process for each variant: what its steps take at most beyond what lay
there before (Linux); on a GPU, what torch allocates there at most.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PLAIN = "torch, no privacy"
Row = Mapping[str, float]


def work_seconds(device: str) -> float:
    """CPU seconds of this process; with a GPU wall seconds, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def measure(name: str, turns: int, device: str = "cpu") -> dict[str, dict[str, float]]:
    """By variant: medians over turns of seconds of work a step and of their ratio to torch's."""
    from dp_sgd_nets import NETS, variants

    net = NETS[name]
    rows = net.rows(np.random.default_rng(1))
    runs = {variant: make(rows) for variant, make in variants(net, device).items()}
    cpu: dict[str, list[float]] = {variant: [] for variant in runs}
    wall: dict[str, list[float]] = {variant: [] for variant in runs}
    names, warm = list(runs), max(1, net.steps // 4)
    for run in runs.values():
        run(net.steps)
    for turn in range(turns):
        start = turn % len(names)
        for variant in names[start:] + names[:start]:
            runs[variant](warm)  # untimed: what ran before has left its own data in the caches
            first, began = work_seconds(device), time.perf_counter()
            runs[variant](net.steps)
            cpu[variant].append((work_seconds(device) - first) / net.steps)
            wall[variant].append((time.perf_counter() - began) / net.steps)
    return {
        variant: {
            "cpu_us": 1e6 * statistics.median(cpu[variant]),
            "wall_us": 1e6 * min(wall[variant]),
            "rows_per_s": net.lot / statistics.median(cpu[variant]),
            "ratio": statistics.median(
                seconds / base for seconds, base in zip(cpu[variant], cpu[PLAIN], strict=True)
            ),
        }
        for variant in runs
    }


def peak(name: str, variant: str, device: str) -> float:
    """MiB that six steps take at most beyond what the process held before them; here, once."""
    from dp_sgd_nets import NETS, variants

    net = NETS[name]
    rows = net.rows(np.random.default_rng(1))
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        variants(net, device)[variant](rows)(6)
        return float(torch.cuda.max_memory_allocated() - before) / 2**20
    run = variants(net, device)[variant](rows)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present from here on
    run(6)
    return max(0.0, _status("VmHWM") - before) / 1024


def _status(field: str) -> float:
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    if match is None:
        raise OSError(f"no {field} in /proc/self/status")
    return float(match[1])


def peak_elsewhere(name: str, variant: str, device: str) -> float:
    """As `peak`, in a process of its own; on a GPU here, where torch counts each for itself."""
    if device != "cpu":
        return peak(name, variant, device)
    done = subprocess.run(
        [sys.executable, __file__, "--device", device, "--peak", name, variant],
        capture_output=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def report(found: Mapping[str, Mapping[str, Row]], facts: Mapping[str, Any]) -> str:
    """The page."""
    from dp_sgd_nets import LOT, MULTIPLIER, NETS

    device = facts["device"]
    where = "" if device == "cpu" else f" and {device}"
    of_work = "CPU" if device == "cpu" else "wall"
    lines = [
        "# DP-SGD: throughput and memory" + ("" if device == "cpu" else " on a GPU"),
        "",
        f"Made by `{facts['command']}` at commit {facts['commit']} on {facts['machine']},"
        f" {facts['cores']} cores{where}, Python {facts['python']}, NumPy {facts['numpy']}, torch"
        f" {facts['torch']}, Opacus {facts['opacus']}. Poisson lots of {LOT} expected rows, noise"
        f" multiplier {MULTIPLIER}, Adam, one thread. Load average {facts['load_before']:.1f}"
        f" before and {facts['load_after']:.1f} after: where the machine was shared, read the"
        " ratios, which are taken within each turn.",
    ]
    for name, rows in found.items():
        net = NETS[name]
        lines += [
            "",
            f"## {name.capitalize()}",
            "",
            f"{net.about[0].upper()}{net.about[1:]}. Medians over {facts['turns'][name]} turns of"
            f" {net.steps} steps.",
            "",
            f"| variant | rows a {of_work} second | {of_work} ms a step (median) | wall ms a step"
            f" (best turn) | times the cost of {PLAIN} | peak memory of the steps, MiB |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {variant} | {row['rows_per_s']:,.0f} | {row['cpu_us'] / 1e3:.2f}"
            f" | {row['wall_us'] / 1e3:.2f} | {row['ratio']:.2f} | {row['peak_mib']:.0f} |"
            for variant, row in rows.items()
        ]
    lines += [
        "",
        "Ours is in double precision, with noise from ChaCha20 keystreams under fresh keys of the"
        " operating system; torch and Opacus are in single precision (but where it says double),"
        " with torch's generator, as Opacus's secure mode cannot be installed. `its loader`: lots"
        " come from Opacus's Poisson loader, which gathers them row by row, as its documentation"
        " has it; without, they are taken from the table at once, as ours are.",
    ]
    if device != "cpu":
        lines[-1] += (
            " Rows, optimiser and noise of ours stay on the CPU, which hands each lot to the GPU;"
            " torch and Opacus have the whole table there, but for `its loader`. Memory is the"
            " GPU's, with the table where it lies there."
        )
    return "\n".join(lines) + "\n"


def one_thread() -> None:
    """Start again with one thread for every library: they read this when they are loaded."""
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.environ.update(dict.fromkeys(THREADS, "1"))
        os.execv(sys.executable, [sys.executable, *sys.argv])


def machine() -> str:
    """The processor's name, family, model and vectors, where they are told; its architecture.

    Under a hypervisor many generations share one name: times differ twofold, and last bits.
    """
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    told = dict(re.findall(r"^(model name|cpu family|model|flags)\s*: (.+)$", text, re.M))
    if "model name" not in told:
        return platform.machine()
    vectors = [name for name in ("avx512f", "avx2", "avx") if name in told.get("flags", "").split()]
    facts = [
        platform.machine(),
        *(f"{name} {told[name]}" for name in ("cpu family", "model") if name in told),
        *vectors[:1],
    ]
    return f"{told['model name']} ({', '.join(facts)})"


def main() -> None:
    """See the module."""
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=float, default=1.0, help="times the usual number of turns")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--peak", nargs=2, metavar=("NET", "VARIANT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    import opacus
    import torch
    from dp_sgd_nets import NETS
    from provenance import foot, stamp

    torch.set_num_threads(1)
    if arguments.peak:
        print(peak(*arguments.peak, arguments.device))
        return
    device, before = arguments.device, os.getloadavg()[0]
    names = [name for name, net in NETS.items() if device != "cpu" or not net.on_gpu_only]
    turns = {name: max(1, round(NETS[name].turns * arguments.turns)) for name in names}
    stamped = stamp(f"python benchmarks/dp_sgd.py {' '.join(sys.argv[1:])}".strip())
    results = {name: measure(name, turns[name], device) for name in names}
    for name, rows in results.items():
        for variant, row in rows.items():
            row["peak_mib"] = peak_elsewhere(name, variant, device)
    facts = {
        **stamped, "machine": machine(), "cores": os.cpu_count(),
        "python": platform.python_version(), "numpy": np.__version__,
        "torch": torch.__version__, "opacus": opacus.__version__, "turns": turns,
        "load_before": before, "load_after": os.getloadavg()[0],
        "device": "cpu" if device == "cpu" else torch.cuda.get_device_name(),
    }  # fmt: skip
    text = report(results, facts) + foot(facts)
    print(text)
    if arguments.out is not None:
        name = "dp_sgd" if device == "cpu" else f"dp_sgd_{device}"
        (arguments.out / f"{name}.md").write_text(text)
        stored = json.dumps({"facts": facts, "variants": results}, indent=1)
        (arguments.out / f"{name}.json").write_text(stored + "\n")


if __name__ == "__main__":
    main()
