"""Every generator, by the name a spec uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpiw.errors import SpecError
from dpiw.methods.generators.base import Synthesizer
from dpiw.methods.generators.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan import CGAN, GAN
from dpiw.methods.generators.gan_settings import GANSettings
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.pategan import PATEGAN
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.privacy.units import NoiseKind

GENERATORS: Mapping[
    str, type[PrivBayes] | type[Histogram] | type[DPGAN] | type[PATEGAN] | type[GAN]
] = {
    "privbayes": PrivBayes,
    "histogram": Histogram,
    "dpgan": DPGAN,
    "dpcgan": DPCGAN,
    "pategan": PATEGAN,
    "gan": GAN,
    "cgan": CGAN,
}

_NOISES = {kind.value: kind for kind in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE)}


def _check_type(method: str, key: str, value: object, default: object) -> None:
    """Whole numbers stay whole, numbers take both; a bool is neither."""
    admissible = (int, float) if isinstance(default, float) else (type(default),)
    if isinstance(value, bool) or not isinstance(value, admissible):
        kind = "a number" if isinstance(default, float) else "a whole number"
        raise SpecError(f"generator.settings.{key}: {method} expected {kind}")


def make_generator(method: str, settings: Mapping[str, Any], *, pure: bool) -> Synthesizer:
    """Build an uncalibrated generator from a spec's words.

    Args:
        method: a key of `GENERATORS`.
        settings: fields of that generator; `noise` as text.
        pure: whether delta is 0, which needs Laplace noise: it is then the default, and
            `gaussian` is refused.

    Raises:
        SpecError: unknown method or setting, a setting of the wrong type or out of range.
    """
    if method not in GENERATORS:
        raise SpecError(f"generator.method: expected one of {', '.join(sorted(GENERATORS))}")
    generator = GENERATORS[method]
    fields = {f.name: f.default for f in dataclasses.fields(generator) if f.name != "calibrated"}
    chosen = dict(settings)
    for key in chosen:
        if key not in fields:
            raise SpecError(f"generator.settings: {method} has no setting {key!r}")
    if issubclass(generator, GANSettings):  # checks its settings itself
        if pure and generator.private:
            raise SpecError(f"delta: expected more than 0 with {method}, whose noise is Gaussian")
        return generator(**chosen)
    noise = chosen.pop("noise", "laplace" if pure else "gaussian")
    if not isinstance(noise, str) or noise not in _NOISES:
        raise SpecError("generator.settings.noise: expected gaussian or laplace")
    if pure and noise == "gaussian":
        raise SpecError("generator.settings.noise: delta 0 needs laplace")
    if issubclass(generator, PATEGAN):
        return generator(noise=_NOISES[noise], **chosen)
    for key, value in chosen.items():
        _check_type(method, key, value, fields[key])
    return generator(noise=_NOISES[noise], **chosen)
