"""Every generator, by the name a spec uses."""

from collections.abc import Mapping
from typing import Any

from dpiw.errors import SpecError, one_of
from dpiw.methods.base import own_settings
from dpiw.methods.generators.base import FindsLevels, Synthesizer
from dpiw.methods.generators.bayes import Bayes
from dpiw.methods.generators.choice import AUTO
from dpiw.methods.generators.external import External
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.pgm.aim import AIM
from dpiw.methods.generators.pgm.mst import MST
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.generators.unseen_levels import UnseenLevels

GENERATORS: Mapping[str, type[Synthesizer]] = {
    "privbayes": PrivBayes,
    "histogram": Histogram,
    "mst": MST,
    "aim": AIM,
    "bayes": Bayes,
    "dpgan": DPGAN,
    "dpcgan": DPCGAN,
    "pategan": PATEGAN,
    "external": External,
    "levels": UnseenLevels,
}


def public_settings(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A spec's settings without those that say where a file lies; its SHA-256 stands for it."""
    files = GENERATORS[method].files if method in GENERATORS else frozenset()
    return {name: value for name, value in settings.items() if name not in files}


def finds_levels(method: str) -> bool:
    """Whether a method shows levels that it found in the table."""
    return issubclass(GENERATORS.get(method, object), FindsLevels)


def make_generator(method: str, settings: Mapping[str, Any], *, pure: bool) -> Synthesizer:
    """As `Synthesizer.from_settings`, by a spec's words; SpecError also for unknown ones."""
    if method not in GENERATORS:
        raise SpecError(field="generator.method", allowed=one_of(method, (AUTO, *GENERATORS)))
    generator = GENERATORS[method]
    if pure and generator.needs_delta:
        raise SpecError(f"{method} needs a delta > 0; {generator.needs_delta}", field="delta=0")
    settings = own_settings(generator, settings, field="generator.settings", name=method)
    return generator.from_settings(settings, pure=pure)
