"""The site: every page in a menu, every link and anchor followed, nothing asked of a network.

The build itself is strict (`mkdocs.yml`): a page that no menu names, or a link that leads nowhere,
ends it. Where mkdocs is not installed nothing here runs (extra `docs`; `make test` has it).
"""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dpiw import analysis
from tests.support.documents import ROOT

pytest.importorskip("mkdocs", reason="extra docs")


def built(folder: Path, *options: str) -> dict[str, Path]:
    """As `make site` does; its pages. Never with `--quiet`: that hides warnings from `--strict`."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder, *options],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.html")}
    assert len(pages) > 25
    for name, path in pages.items():
        assert elsewhere(path.read_text()) == [], name
    for path in folder.rglob("*.css"):
        assert elsewhere(path.read_text(), of_css=True) == [], path.name
    return pages


class Loaded(HTMLParser):
    """What a browser loads by itself to show a page, in `addresses`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag != "a":
            names = ("src", "href", "srcset", "data", "poster")
            self.addresses += [values[name] for name in names if name in values]
        self.addresses += re.findall(r"url\(['\"]?([^)'\"]+)", values.get("style", ""))


def elsewhere(text: str, *, of_css: bool = False) -> list[str]:
    """The addresses on other hosts that a page, or a style sheet, loads."""
    addresses = re.findall(r"url\(['\"]?([^)'\"]+)", text) if of_css else Loaded(text).addresses
    return [address for address in addresses if re.match(r"(https?:)?//", address)]


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Without what docstrings become."""
    config = tmp_path / "mkdocs.yml"
    places = f"docs_dir: {ROOT}/docs\nhooks: [{ROOT}/docs/site.py]\n"
    config.write_text(f"INHERIT: {ROOT}/mkdocs.yml\n{places}plugins: []\n")
    pages = built(tmp_path / "site", "--config-file", str(config))
    assert 'id="dpiw-ledger-register"' in pages["reference/commands.html"].read_text()
    method = pages["docs/method.html"].read_text()
    assert "<math" in method
    assert "$$" not in method


@pytest.mark.nightly
def test_the_reference_holds_every_public_name_and_no_other(tmp_path: Path) -> None:
    reference = built(tmp_path)["reference/analysis.html"].read_text()
    shown = set(re.findall(r'id="dpiw\.analysis\.(\w+)"', reference))
    assert shown == set(analysis.__all__)
    assert not re.search(r'id="dpiw\.[\w.]*\._[a-z]', reference)


def test_what_a_page_loads_is_seen() -> None:
    for page in (
        '<script src="https://cdn.example/a.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/a.css">',
        '<img src="http://cdn.example/a.png">',
        '<p style="background: url(https://cdn.example/a.png)">',
    ):
        assert len(elsewhere(page)) == 1, page
    assert elsewhere('@import url("https://cdn.example/a.css");', of_css=True)
    assert not elsewhere('<a href="https://example.org">read</a> <img src="images/a.png">')
