"""E5, of the engine of torch modules: what one row of a module that is refused would do.

Each is a module that an earlier engine admitted: with the checks taken away, a row moves the
clipped sum by more than the bound, which no noise covers. Skipped without torch and Opacus;
`make test-neural` runs it. The bugs of DP-SGD itself are planted in both engines alike, by
tests/dpiw/methods/neural/test_planted_bugs.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.neural.clipping import ClipRule, clipped_sum
from dpiw.methods.neural.losses import Logistic

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from dpiw.methods.neural import opacus_engine  # noqa: E402
from dpiw.methods.neural.row_norms import Watched  # noqa: E402
from tests.dpiw.methods.neural.modules import Given, Own, Signs, gated, with_hook  # noqa: E402

Rows = NDArray[np.float64]
nn = torch.nn


def normal(*shape: int, seed: int = 1) -> Rows:
    return np.random.default_rng(seed).normal(size=shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bug:
    """A module, public rows that it was tried on, private rows, and where its parameters stand."""

    make: Callable[[], Any]
    rows: Rows
    example: Rows = dataclasses.field(default_factory=lambda: normal(3, 8))
    parameters: Callable[[Rows], Rows] = lambda initial: initial


def around() -> Any:
    """A convolution whose image goes on at its other side; 100 parameters see the first line."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular", bias=False),
        nn.Tanh(), nn.Flatten(), nn.Linear(256, 1),
    )  # fmt: skip


def at_the_first_line(initial: Rows) -> Rows:
    heavy = np.zeros((4, 8, 8))
    heavy[:, 0, :] = 3.0
    return np.concatenate([0.01 * initial[:36], heavy.ravel(), initial[292:]])


def at_the_last_line() -> Rows:
    image = np.zeros((1, 8, 8))
    image[0, -1] = 1.0
    return image.reshape(1, 64)


def with_black_borders() -> Rows:
    images = np.zeros((3, 8, 8))
    images[:, 2:6, 2:6] = np.abs(normal(3, 4, 4))
    return images.reshape(3, 64)


def centred(layer: Any, rows: Any) -> Any:
    return torch.sin(3 * layer(rows - rows.mean(0).detach()))


FAR = 3 * normal(6, 8, seed=2)
BUGS = {
    "a convolution around the edge": Bug(
        make=around, rows=at_the_last_line(), example=with_black_borders(),
        parameters=at_the_first_line),
    "a sign of slopes": Bug(make=lambda: with_hook(torch.sign), rows=FAR),
    "slopes of one size": Bug(make=lambda: with_hook(lambda g: g / g.norm()), rows=FAR),
    "a derivative of one's own": Bug(
        make=lambda: Given(lambda layer, rows: Signs.apply(layer(rows))), rows=FAR),
    "a parameter in a function that no example reaches": Bug(
        make=lambda: Own(gated), rows=np.full((2, 8), 20.0),
        parameters=lambda initial: 0.01 * initial),
    "a mean of equal examples": Bug(
        make=lambda: Given(centred), example=np.ones((2, 8)),
        rows=np.vstack([normal(60, 8), np.full((1, 8), 80.0)])),
}  # fmt: skip


def largest_move(bug: Bug, clip: float = 0.01) -> float:
    """Of the clipped sum by the last row, in units of the bound; the engine's checks pass."""
    architecture = opacus_engine.ModuleArchitecture(module=bug.make(), example=bug.example)
    initial = architecture.initial(np.random.default_rng(3))
    network = architecture.network(torch.as_tensor(bug.parameters(initial)))
    whole, rest = (
        clipped_sum(
            network, torch.as_tensor(rows), Logistic(label=0), clip=clip, rule=ClipRule.LOSS
        )
        for rows in (bug.rows, bug.rows[:-1])
    )
    return float((whole - rest).norm()) / clip


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_module_is_refused(name: str) -> None:
    with pytest.raises(SpecError):
        largest_move(BUGS[name])


@pytest.mark.parametrize("name", BUGS)
def test_an_admitted_one_would_break_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a second backward pass; a sum of the gradients whose norms were found keeps it.

    Unless rows reach into one another, which no sum can mend.
    """
    for check in ("check_layers", "check_rows"):
        monkeypatch.setattr(opacus_engine, check, lambda *_: None)
    move = largest_move(BUGS[name])
    assert move > 1.5 if name == "a mean of equal examples" else move <= 1 + 1e-9
    monkeypatch.setattr(Watched, "parameter_gradients", lambda module: None)
    assert largest_move(BUGS[name]) > 1.5
