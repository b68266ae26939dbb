"""What the site has and the repository has not, made as it is built (`mkdocs.yml`, `make site`).

The site is laid out like the repository, so that one relative link leads to the same place in both.
Added are the files that a page links to and lie elsewhere, and the reference: from docstrings, and
from the parsers of the command line.
"""

from __future__ import annotations

import argparse
import functools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from dpiw.cli.main import _parser

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = "docs/gallery.md"
"""The page that stands for a folder: a code host shows its files, a site cannot."""
MODULES = {
    "dpiw": ("dpiw",),
    "analysis": ("dpiw.analysis",),
    "weights": (
        "dpiw.methods.weights.measured.credit",
        "dpiw.methods.weights.measured.tilting",
        "dpiw.methods.weights.measured.law",
        "dpiw.methods.weights.paper.steps",
        "dpiw.methods.weights.diagnostics",
    ),
    "fields": (
        "dpiw.plan.sections",
        "dpiw.data.schema.columns.Column",
        "dpiw.data.cells.formats.CellFormat",
    ),
    "local": (
        "dpiw.local",
        "dpiw.local.estimate",
        "dpiw.local.learn",
    ),
    "errors": ("dpiw.errors",),
}
"""Page of the reference: the modules whose public names it shows, or the classes."""

_TARGET = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_FORMULA = re.compile(r"\$\$(.+?)\$\$", re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's own files, the repository's pages with what they link to, and the reference."""
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    for uri in sorted(_carried()):
        site.append(File.generated(config, uri, abs_src_path=str(ROOT / uri)))
    parts = {name: [f"::: {module}" for module in modules] for name, modules in MODULES.items()}
    parts["commands"] = list(_commands(_parser()))
    for name, texts in parts.items():
        text = "\n\n".join([f"# {name.capitalize()}", *texts])
        site.append(File.generated(config, f"reference/{name}.md", content=text))
    return site


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML, which a browser sets by itself; links to folders as links to a page.

    A page that stands alone in the menu has no menu beside it.
    """
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    folder = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        if not (ROOT / folder / found[1]).is_dir():
            return found[0]
        return f"]({posixpath.relpath(FOLDERS, folder or '.')})"

    formulas = _FORMULA.sub(lambda found: convert(found[1], display="block"), markdown)
    return _TARGET.sub(link, formulas)


def _carried() -> set[str]:
    """All pages of the repository's root and of docs/, and all files that they lead to."""
    pages = [*ROOT.glob("[A-Z]*.md"), *(ROOT / "docs").glob("*.md")]
    waiting, carried = {page.relative_to(ROOT).as_posix() for page in pages}, set[str]()
    while waiting:
        uri = waiting.pop()
        carried.add(uri)
        if uri.endswith(".md"):
            waiting |= {one for one in _linked(uri) if (ROOT / one).is_file()} - carried
    return carried


def _linked(uri: str) -> Iterator[str]:
    for target, _ in _TARGET.findall((ROOT / uri).read_text(encoding="utf-8")):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A heading and the help of a parser and all below it, 80 columns wide on every terminal."""
    parser.formatter_class = functools.partial(parser.formatter_class, width=80)
    yield f"## {parser.prog}\n\n```text\n{parser.format_help()}```"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _commands(below)
