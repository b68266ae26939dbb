"""Torch's devices and arrays: float64, as float32 errs by more than the accountant's margin.

Torch's own state is changed only in `computing`.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, install

Array = Any
"""A float64 tensor."""

DEVICES = ("auto", "cpu", "cuda")


@cache
def library() -> Any:
    """Torch; SpecError where it cannot be loaded."""
    try:
        import torch
    except (ImportError, OSError) as error:
        raise SpecError(f"torch cannot be loaded here; run: {install('neural')}") from error

    return torch


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """One thread, so that sums round alike and resumed trainings agree; settings are restored."""
    torch = library()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Backend:
    """A device that computes: `cpu` or `cuda`; public."""

    device: str

    def array(self, values: NDArray[np.float64]) -> Array:
        """A copy of the values on the device."""
        torch = library()
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def to_numpy(self, array: Array) -> NDArray[np.float64]:
        """The values on the CPU."""
        return np.asarray(array.detach().cpu().numpy(), dtype=np.float64)


CPU = Backend("cpu")


def make_backend(device: str) -> Backend:
    """The backend of a spec's device; SpecError for `cuda` without a GPU."""
    if device == "cpu":
        return CPU
    has_cuda = _cuda_is_there()
    if device == "cuda" and not has_cuda:
        raise SpecError(
            "torch finds no CUDA device here", field="device=cuda", allowed="auto or cpu"
        )
    return Backend("cuda") if has_cuda else CPU


def check_installed(method: str) -> None:
    """Raise SpecError where torch or Opacus is missing; `method` is named in the message."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "opacus")):
        raise SpecError(
            "its networks need torch and Opacus, which are not installed; run: "
            f"{install('neural')}",
            field=method,
        )


def check_device(device: str, *, stage: str, computes: bool) -> None:
    """Raise SpecError for `cuda` without a GPU; `computes` tests a sum, which holds GPU memory."""
    if device == "cuda" and not _cuda_is_there(computes=computes):
        raise SpecError(
            "the spec says device: cuda, and torch finds no CUDA device on this machine. Start the"
            " run where one is (a worker of the pool dpiw-gpu), or write device: auto or cpu",
            field=f"stage {stage}",
        )


def _cuda_is_there(*, computes: bool = True) -> bool:
    """Whether a CUDA device computes; one that does not answer does not count."""
    try:
        torch = library()
        counted = bool(torch.cuda.is_available())
        return counted and (not computes or bool(torch.ones(1, device="cuda").sum() == 1))
    except (ImportError, RuntimeError):
        return False
