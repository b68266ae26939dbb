"""Laws of noise, and draws to compare."""

import os
import signal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy.randomness import NoiseSource, SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind

DRAWS = ("discrete_gaussian", "discrete_laplace", "spherical_laplace", "noisy_argmax",
         "gaussian_vector")  # fmt: skip
"""What a source of noise adds or selects with. Whom a training or a deal takes is no release."""

LOTS = ("gaussian_vector",)
"""What a training adds to each of its lots."""


class Cut(SecureNoise):
    """Counts what it draws, and is gone after so many: by an error, or as a process."""

    def __init__(
        self, draws: int | None = None, *, of: tuple[str, ...] = DRAWS, killed: bool = False,
        error: BaseException = RuntimeError("gone"),  # noqa: B008
    ) -> None:  # fmt: skip
        self.drawn, self.gone = 0, False
        self._draws, self._killed, self._error = draws, killed, error
        for name in of:
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, draw: Any) -> Any:
        def counted(*words: Any, **options: Any) -> Any:
            if self.drawn == self._draws:
                if self._killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.gone = True
                raise self._error
            self.drawn += 1
            return draw(*words, **options)

        return counted


def integer_mass(kind: NoiseKind, scale: float, reach: int) -> NDArray[np.float64]:
    """Exact probabilities on -reach..reach, the tails put on the ends."""
    wide = np.arange(-60 * reach, 60 * reach + 1)
    power = 0.5 * (wide / scale) ** 2 if kind is NoiseKind.GAUSSIAN else np.abs(wide) / scale
    mass = np.exp(-power)
    clipped = np.clip(wide, -reach, reach) + reach
    return np.bincount(clipped, weights=mass / mass.sum())


def every_draw(noise: NoiseSource, scale: float) -> list[np.ndarray]:
    return [
        noise.discrete_gaussian(scale=scale, size=8),
        noise.discrete_laplace(scale=scale, size=8),
        noise.spherical_laplace(scale=scale, dimension=8),
        np.array([noise.noisy_argmax(np.zeros(10**4, dtype=np.int64), scale=scale)]),
        noise.gaussian_vector(scale=scale, size=8),
    ]


def forked_draws(noise: NoiseSource) -> bytes:
    """What one forked child draws, with nothing but the parent's memory to start from."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, b"".join(draw.tobytes() for draw in every_draw(noise, 2.0**30)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return data


def check_forks_draw_apart() -> None:
    """Eight forked workers draw distinct noise."""
    noise = SecureNoise()
    every_draw(noise, 2.0**30)  # any state a fork could inherit exists now
    draws = [forked_draws(noise) for _ in range(8)]
    for start in (0, 64, 128, 200):  # each law by itself
        assert len({draw[start : start + 64] for draw in draws}) == 8
    # The control: seeded noise is inherited state, so the same harness must see copies.
    assert len({forked_draws(SeededNoise(3)) for _ in range(3)}) == 1
