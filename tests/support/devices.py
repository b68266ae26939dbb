"""GPUs of tests: one that is there, one that is posed on the CPU, and either of them vanishing."""

import os
import signal
from typing import Any

import pytest

from dpiw.methods.neural import backend

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
"""Of a test of GPUs and its twin: `make test-gpu` runs the one, every other suite the other."""


def need(device: str) -> None:
    """Skip a test that needs a GPU where there is none."""
    if device == "cuda" and not backend._cuda_is_there():
        pytest.skip("torch finds no CUDA device here")


def torch_state() -> tuple[Any, ...]:
    """What torch and NumPy share with the rest of a process, to be compared."""
    import numpy
    import torch

    return (
        torch.get_num_threads(), torch.get_default_dtype(), torch.get_default_device(),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
        torch.get_rng_state().tolist(), torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark, numpy.random.get_state()[1].tolist(),
    )  # fmt: skip


class PosedGPU:
    """The one GPU of a test, for `device: cuda` and `auto`: it may vanish, and come back.

    `device`: `cuda`: the real one; `cpu`: the CPU stands in for it.
    """

    device = "cuda"

    def __init__(self, patch: pytest.MonkeyPatch, device: str) -> None:
        need(device)
        self._computes = backend.Backend(device)
        self.there, self.handed = True, 0
        self.vanishes_at: int | None = None
        self.kills = False
        patch.setattr(backend, "_cuda_is_there", lambda **_: self.there)
        patch.setattr(backend, "Backend", lambda name: self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._computes, name)

    def array(self, values: Any) -> Any:
        """Hand it an array; fails, or kills the process, once it was handed too many."""
        if self.handed == self.vanishes_at:
            self.there = False
        if not self.there and self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if not self.there:  # as every call raises once a device has vanished
            import torch

            raise torch.AcceleratorError("CUDA error: unspecified launch failure")
        self.handed += 1
        return self._computes.array(values)
