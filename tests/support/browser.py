"""Pages as a browser shows them: headless Chromium, three widths, two themes, and axe.

`DPIW_BROWSER=required`, as `.ci/run` sets it, turns the skip where no Chromium is found into a
failure.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

WIDTHS = (400, 800, 1200)
THEMES = ("light", "dark")
VIEWS = tuple(itertools.product(WIDTHS, THEMES))
CORNERS = ((400, "light"), (1200, "dark"))
"""Views that `make test` looks at; the nightly tests look at all."""
NAMES = ("chromium", "chromium-browser", "google-chrome")

LAID_OUT_WRONG = """width => {
  const wrong = [];
  const name = e => `${e.tagName.toLowerCase()} ${(e.textContent || "").trim().slice(0, 40)}`;
  if (document.documentElement.scrollWidth > width) wrong.push("the page is wider than the screen");
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    if (box.width && (box.left < -0.5 || box.right > width + 0.5)) wrong.push(`off: ${name(e)}`);
    const cut = e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible";
    if (e instanceof HTMLElement && e.clientWidth && cut) wrong.push(`scrolls: ${name(e)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const room = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
    texts.forEach(([text, box], index) => {
      const inside = box.left > room.left - 1 && box.right < room.right + 1
        && box.top > room.top - 1 && box.bottom < room.bottom + 1;
      if (!inside) wrong.push(`outside its figure: ${name(text)}`);
      for (const [other, second] of texts.slice(index + 1)) {
        const across = Math.min(box.right, second.right) - Math.max(box.left, second.left);
        const down = Math.min(box.bottom, second.bottom) - Math.max(box.top, second.top);
        if (across > 1 && down > box.height / 3) wrong.push(`${name(text)} on ${name(other)}`);
      }
    });
  }
  return wrong;
}"""


def chromium() -> str | None:
    """Where Chromium is, if it is."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def faults_of(page: Path, browser: Browser, views: Sequence[tuple[int, Any]]) -> Iterator[str]:
    """What is wrong with a page: its layout, what it says to the console or asks of the network.

    Axe's rules are asked in every view, a width and a theme; unfolded, so that all is seen.
    """
    heard: list[str] = []
    tab = browser.new_page()
    tab.on("console", lambda message: heard.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: heard.append(f"error: {error}"))
    tab.on("request", lambda request: heard.append(f"request: {request.url}"))
    tab.goto(page.as_uri())
    heard.remove(f"request: {page.as_uri()}")
    tab.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
    for width, theme in views:
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=theme)
        heard += tab.evaluate(LAID_OUT_WRONG, width)
        for rule in Axe().run(tab).response["violations"]:
            heard += [f"axe {rule['id']}: {node['html'][:80]}" for node in rule["nodes"]]
        yield from (f"{width} {theme}: {fault}" for fault in heard)
        heard.clear()
    tab.close()


@pytest.fixture
def browser_path() -> str:
    """Where Chromium is; without it a test is skipped, or fails where a browser is required."""
    path = chromium()
    if path is not None:
        return path
    missing = "no Chromium: apt-get install chromium"
    if os.environ.get("DPIW_BROWSER") == "required":
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="module")
def _one_browser() -> Iterator[Callable[..., list[str]]]:
    """One browser for a module, started when a page is looked at first.

    In a thread: its event loop would be in the way of the tests that have their own.
    """
    opened: list[Browser] = []
    stack = contextlib.ExitStack()

    def look(browser_path: str, page: Path, views: Sequence[tuple[int, Any]]) -> list[str]:
        if not opened:
            playwright = stack.enter_context(sync_playwright())
            opened.append(playwright.chromium.launch(executable_path=browser_path))
            stack.callback(opened[0].close)
        return list(faults_of(page, opened[0], views))

    with ThreadPoolExecutor(1) as thread:
        yield lambda *words: thread.submit(look, *words).result()
        thread.submit(stack.close).result()


@pytest.fixture
def look_at(
    tmp_path: Path, browser_path: str, _one_browser: Callable[..., list[str]]
) -> Callable[..., list[str]]:
    """Show a page's text to a browser; returns what is wrong with it, best nothing."""

    def look(text: str, views: Sequence[tuple[int, Any]] = VIEWS) -> list[str]:
        path = tmp_path / "page.html"
        path.write_text(text)
        return _one_browser(browser_path, path, views)

    return look
