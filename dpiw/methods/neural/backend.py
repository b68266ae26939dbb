"""Where a network's arithmetic runs: NumPy on the CPU, torch on a GPU. The one door to torch.

The networks here are small, and on the CPU NumPy trains them about twice as fast as torch does
(`benchmarks/results/dp_sgd.md`); torch serves CUDA, and modules of its own. Both compute in
float64: the error of a sum of clipped gradients must stay far below the accountant's margin, and in
single precision it would not (`dpiw.privacy.mechanisms.noisy_sum`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError

Array = Any
"""A float64 `numpy.ndarray`, or a float64 tensor on a CUDA device."""

DEVICES = ("auto", "cpu", "cuda")


class Backend(Protocol):
    """The few operations that NumPy and torch spell differently."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`; public."""
        ...

    def array(self, values: NDArray[np.float64]) -> Array:
        """The values on the device."""
        ...

    def to_numpy(self, array: Array) -> NDArray[np.float64]:
        """The values on the CPU."""
        ...

    def activate(self, name: str, array: Array) -> Array:
        """`relu` or `tanh`, in place where possible."""
        ...

    def damp(self, name: str, delta: Array, activation: Array) -> Array:
        """Delta times the activation's slope, in place where possible."""
        ...

    def sigmoid(self, array: Array) -> Array:
        """1/(1 + exp(-x)) without overflow warnings."""
        ...

    def squares(self, rows: Array) -> Array:
        """Squared norm of each row, shape (n,)."""
        ...

    def root(self, array: Array) -> Array:
        """Square root."""
        ...

    def exp(self, array: Array) -> Array:
        """Exponential."""
        ...

    def at_least(self, array: Array, floor: float) -> Array:
        """Elementwise maximum with a number."""
        ...

    def at_most(self, array: Array, ceiling: float) -> Array:
        """Elementwise minimum with a number."""
        ...

    def finite(self, array: Array) -> Array:
        """Elementwise: neither infinite nor NaN."""
        ...

    def where(self, condition: Array, array: Array, other: float) -> Array:
        """The array where the condition holds, else a number."""
        ...

    def join(self, parts: list[Array]) -> Array:
        """One flat vector of all parts, in order."""
        ...


class NumpyBackend:
    """The CPU."""

    @property
    def device(self) -> str:
        """See `Backend`."""
        return "cpu"

    def array(self, values: NDArray[np.float64]) -> Array:
        """See `Backend`."""
        return np.asarray(values, dtype=np.float64)

    def to_numpy(self, array: Array) -> NDArray[np.float64]:
        """See `Backend`."""
        return np.asarray(array, dtype=np.float64)

    def activate(self, name: str, array: Array) -> Array:
        """See `Backend`."""
        if name == "relu":
            return np.maximum(array, 0.0, out=array)
        return np.tanh(array, out=array)

    def damp(self, name: str, delta: Array, activation: Array) -> Array:
        """See `Backend`."""
        if name == "relu":
            delta *= activation > 0
            return delta
        slope = activation * activation
        np.subtract(1.0, slope, out=slope)
        delta *= slope
        return delta

    def sigmoid(self, array: Array) -> Array:
        """See `Backend`."""
        from scipy.special import expit

        return expit(array)

    def squares(self, rows: Array) -> Array:
        """See `Backend`."""
        return np.vecdot(rows, rows)

    def root(self, array: Array) -> Array:
        """See `Backend`."""
        return np.sqrt(array)

    def exp(self, array: Array) -> Array:
        """See `Backend`."""
        return np.exp(array)

    def at_least(self, array: Array, floor: float) -> Array:
        """See `Backend`."""
        return np.maximum(array, floor)

    def at_most(self, array: Array, ceiling: float) -> Array:
        """See `Backend`."""
        return np.minimum(array, ceiling)

    def finite(self, array: Array) -> Array:
        """See `Backend`."""
        return np.isfinite(array)

    def where(self, condition: Array, array: Array, other: float) -> Array:
        """See `Backend`."""
        return np.where(condition, array, other)

    def join(self, parts: list[Array]) -> Array:
        """See `Backend`."""
        return np.concatenate([part.ravel() for part in parts])


class TorchBackend:
    """Torch on a device; float64 throughout, no autograd."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._device = device

    @property
    def device(self) -> str:
        """See `Backend`."""
        return self._device

    def array(self, values: NDArray[np.float64]) -> Array:
        """See `Backend`."""
        return self._torch.tensor(values, dtype=self._torch.float64, device=self._device)

    def to_numpy(self, array: Array) -> NDArray[np.float64]:
        """See `Backend`."""
        return np.asarray(array.detach().cpu().numpy(), dtype=np.float64)

    def activate(self, name: str, array: Array) -> Array:
        """See `Backend`."""
        return array.relu_() if name == "relu" else array.tanh_()

    def damp(self, name: str, delta: Array, activation: Array) -> Array:
        """See `Backend`."""
        if name == "relu":
            return delta * (activation > 0)
        return delta * (1.0 - activation * activation)

    def sigmoid(self, array: Array) -> Array:
        """See `Backend`."""
        return self._torch.sigmoid(array)

    def squares(self, rows: Array) -> Array:
        """See `Backend`."""
        return (rows * rows).sum(dim=1)

    def root(self, array: Array) -> Array:
        """See `Backend`."""
        return array.sqrt()

    def exp(self, array: Array) -> Array:
        """See `Backend`."""
        return array.exp()

    def at_least(self, array: Array, floor: float) -> Array:
        """See `Backend`; NaN stays NaN."""
        return array.clamp(min=floor)

    def at_most(self, array: Array, ceiling: float) -> Array:
        """See `Backend`."""
        return array.clamp(max=ceiling)

    def finite(self, array: Array) -> Array:
        """See `Backend`."""
        return self._torch.isfinite(array)

    def where(self, condition: Array, array: Array, other: float) -> Array:
        """See `Backend`."""
        return self._torch.where(condition, array, other)

    def join(self, parts: list[Array]) -> Array:
        """See `Backend`."""
        return self._torch.cat([part.reshape(-1) for part in parts])


NUMPY = NumpyBackend()


@lru_cache(maxsize=8)
def _torch_backend(device: str) -> TorchBackend:
    return TorchBackend(device)


def backend_of(array: Array) -> Backend:
    """The backend an array lives on."""
    if isinstance(array, np.ndarray):
        return NUMPY
    return _torch_backend(str(array.device))


def keep_memory() -> None:
    """Make glibc keep what arrays of up to 32 MB free, for the next step; elsewhere nothing.

    A large block that was mapped and freed raises the allocator's thresholds (mallopt(3)). Without
    it, lots of varying size cost about a hundred page faults a step, a third of the time.
    """
    block = np.empty(2**25 - 2**16, dtype=np.uint8)  # never touched: no memory is used
    del block


def make_backend(device: str, *, torch: bool = False) -> Backend:
    """The backend a spec's word asks for: `cpu` is NumPy, `cuda` torch, `auto` the best there is.

    Args:
        device: the word.
        torch: whether it must be torch, on the CPU as well.

    Raises:
        SpecError: an unknown word, or `cuda` where torch finds none.
    """
    if device not in DEVICES:
        raise SpecError(f"device: expected one of {', '.join(DEVICES)}")
    on_cpu = _torch_backend("cpu") if torch else NUMPY
    if device == "cpu":
        return on_cpu
    has_cuda = _cuda_is_there()
    if device == "cuda" and not has_cuda:
        raise SpecError("device=cuda: torch finds no CUDA device here; expected auto or cpu")
    return _torch_backend("cuda") if has_cuda else on_cpu


def check_device(device: str, *, stage: str, computes: bool) -> None:
    """Refuse `cuda` where torch finds no GPU, before anything is reserved or read.

    Args:
        device: what a spec asks for.
        stage: that would train on it.
        computes: whether to ask the GPU for a sum; it holds memory of the GPU for this process.

    Raises:
        SpecError: there is none; `auto` and `cpu` need none.
    """
    if device == "cuda" and not _cuda_is_there(computes=computes):
        raise SpecError(
            f"stage {stage}: device: cuda, and torch finds no CUDA device on this machine. Start"
            " the run where one is (a worker of the pool dpiw-gpu), or say device: auto or cpu"
        )


def _cuda_is_there(*, computes: bool = True) -> bool:
    """Whether a CUDA device computes: one that is counted and does not answer is not there."""
    try:
        import torch

        counted = bool(torch.cuda.is_available())
        return counted and (not computes or bool(torch.ones(1, device="cuda").sum() == 1))
    except (ImportError, RuntimeError):
        return False
