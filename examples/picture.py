"""Take the README's picture of a report: its head, its costs and its columns, in one small PNG.

    make release
    python examples/picture.py .dpiw/releases/NAME docs/images/report.png

Needs the test extra and a Chromium browser.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECTIONS = ("What it cost", "Every column")
WIDTH, SCALE, COLOURS = 1200, 0.75, 48

LEAVE_OUT = """kept => document.querySelectorAll("main > section").forEach(section => {
  const title = section.querySelector("h2").textContent;
  if (!kept.some(start => title.startsWith(start))) section.remove();
})"""


def take_picture(release: Path, browser: str) -> bytes:
    """Return the PNG of a release's report, in few colours."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser)
        page = opened.new_page(
            viewport={"width": WIDTH, "height": 200}, device_scale_factor=SCALE,
            color_scheme="light",
        )  # fmt: skip
        page.goto((release.resolve() / "report.html").as_uri())
        page.evaluate(LEAVE_OUT, SECTIONS)
        picture = page.screenshot(full_page=True)
        opened.close()
    small = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(
        small, format="PNG", optimize=True
    )
    return small.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    browser = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if browser is None:
        raise SystemExit("no Chromium: apt-get install chromium")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_bytes(take_picture(arguments.release, browser))


if __name__ == "__main__":
    main()
