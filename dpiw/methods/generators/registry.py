"""Every generator, by the name a spec uses, and the one that `method: auto` stands for.

That is a rule on public facts alone, so it costs nothing. It orders the methods, and a plan takes
the first that it admits. The run's key, the ledger and the certificate name that method, never
`auto`: another rule changes no run that was begun.
"""

from collections.abc import Mapping
from typing import Any

from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError, one_of
from dpiw.methods.base import own_settings
from dpiw.methods.generators.base import FindsLevels, Synthesizer
from dpiw.methods.generators.bayes import Bayes
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

AUTO = "auto"

AUTOMATIC = ("privbayes", "mst", "aim", "histogram")
"""What it may stand for, in order; `preferred` puts `aim` first where it is fast.

With `measured` weights, no measure of the boards shows `aim` worse than `privbayes` by over two
standard errors, on numeric tables either (benchmarks/results/nist.md; tabpe.md, where adult lacks
it); on Characters it is 2.4 points better. The last method asks least of a table, so its refusal
is the one that a curator sees.
"""

LONGEST_AIM = 120.0
"""Seconds that `aim` may be forecast to take, if it is to come first."""


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


def aim_seconds(schema: PublicSchema, *, nominal_rows: int) -> float:
    """Return `aim`'s forecast, which needs no noise scale. Reads no data."""
    return AIM().running(schema=schema, nominal_rows=nominal_rows, published=1).seconds


def preferred(schema: PublicSchema, *, nominal_rows: int) -> tuple[str, ...]:
    """Return all of `AUTOMATIC`, best first, by public facts; equal for equal facts."""
    if aim_seconds(schema, nominal_rows=nominal_rows) > LONGEST_AIM:
        return AUTOMATIC
    return "aim", *(method for method in AUTOMATIC if method != "aim")


def facts_text(schema: PublicSchema, *, nominal_rows: int) -> str:
    """Return the facts that the rule looks at, for people."""
    seconds = aim_seconds(schema, nominal_rows=nominal_rows)
    return (
        f"{len(schema.released)} columns, {nominal_rows} nominal rows, `aim` about {seconds:.0f} s"
    )
