"""The one door to Jinja2: pages of HTML from the templates inside this package.

Templates hold every tag and every sentence of a page; Python hands them numbers and names. All that
comes in is escaped, in texts and in attributes, and a name that is not there is an error.
"""

from __future__ import annotations

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from dpiw.errors import shown


def render(template: str, view: object) -> str:
    """Return one page; the same view gives the same text.

    Args:
        template: its path inside dpiw, as `release/report/report.html.j2`.
        view: a dataclass; the template knows its fields by their names.
    """
    return compiled(template).render(vars(view))


def compiled(template: str) -> Template:
    """A template, compiled once a process."""
    return _environment().get_template(template)


def _finalized(value: object) -> object:
    """Texts without what would turn or hide the text behind them; markup of ours as it is."""
    return shown(value, most=None, lines=True) if type(value) is str else value


@functools.cache
def _environment() -> Environment:
    """One for all pages, as it keeps a template that it has compiled."""
    return Environment(
        loader=PackageLoader("dpiw", ""), autoescape=True, undefined=StrictUndefined,
        finalize=_finalized, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
