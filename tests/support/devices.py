"""GPUs of tests: one that is there, one that is posed on the CPU, and either of them vanishing."""

from __future__ import annotations

import importlib.util
import os
import signal
from typing import Any

import pytest

from dpiw.methods.neural import backend

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
"""Of a test of GPUs and its twin: `make test-gpu` runs the one, every other suite the other."""

HAS_TORCH = importlib.util.find_spec("torch") is not None


def need(device: str) -> None:
    """Skip a test that needs a GPU where there is none."""
    if device == "cuda" and not backend._cuda_is_there():
        pytest.skip("torch finds no CUDA device here")


def as_cuda_says() -> RuntimeError:
    """What every call raises once a device has vanished."""
    kind: type[RuntimeError] = RuntimeError
    if HAS_TORCH:
        import torch

        kind = torch.AcceleratorError
    return kind("CUDA error: unspecified launch failure")


class PosedGPU:
    """The one GPU of a test, for `device: cuda` and `auto`: it may vanish, and come back.

    Args:
        patch: of the test.
        device: `cuda`: the real one; `cpu`: torch on the CPU stands in for it, or NumPy.
    """

    device = "cuda"

    def __init__(self, patch: pytest.MonkeyPatch, device: str) -> None:
        need(device)
        real = backend._torch_backend
        self._computes = real("cuda") if device == "cuda" else backend.make_backend(
            "cpu", torch=HAS_TORCH
        )  # fmt: skip
        self.there, self.handed = True, 0
        self.vanishes_at: int | None = None
        self.kills = False
        patch.setattr(backend, "_cuda_is_there", lambda **_: self.there)
        patch.setattr(
            backend, "_torch_backend", lambda name: self if name == "cuda" else real(name)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._computes, name)

    def array(self, values: Any) -> Any:
        """Hand it an array; fails, or kills the process, once it was handed too many."""
        if self.handed == self.vanishes_at:
            self.there = False
        if not self.there and self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if not self.there:
            raise as_cuda_says()
        self.handed += 1
        return self._computes.array(values)
