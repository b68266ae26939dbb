"""HTML pages from Jinja2 templates, and numbers as people read them. Every value is escaped."""

import functools
import math
from decimal import Decimal
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from dpiw.errors import shown


def number(value: object) -> str:
    """Format a value: four significant digits, no powers of ten, a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    if 1e-12 <= abs(value) < 1e-3:
        return plain(f"{value:.4g}")
    return f"{value:.4g}"


def plain(decimal_text: str) -> str:
    """Write decimal text such as `1E-6` without a power of ten: `0.000001`."""
    return f"{Decimal(decimal_text):f}"


def short_decimal(decimal_text: str) -> str:
    """Shorten a cost in decimal text; rounded up, never down."""
    if len(decimal_text) <= 8:
        return decimal_text
    return f"{math.ceil(float(decimal_text) * 1e4) / 1e4:.10g}"


def percent_above(probability: float) -> str:
    """Format an upper bound in percent; rounded up, never down."""
    return f"{math.ceil(probability * 1000 - 1e-9) / 10:g}%"


def three_digits_above(value: float) -> str:
    """Format an upper bound with three significant digits; rounded up, never down."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / scale - 1e-9) * scale:.4g}"


def render(template: str, **values: Any) -> str:
    """Return the page of a template (its path inside dpiw) with the names that it may use."""
    return compiled(template).render(values)


def compiled(template: str) -> Template:
    """Return a template, compiled once a process."""
    return _environment().get_template(template)


def _finalized(value: object) -> object:
    return shown(value, most=None, lines=True) if type(value) is str else value


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("dpiw", ""), autoescape=True, undefined=StrictUndefined,
        finalize=_finalized, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
