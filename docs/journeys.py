"""Walk the three journeys of docs/journeys.md, and write its figures, output and pictures.

    python -m docs.journeys
    python -m docs.journeys --year .dpiw/year      (pictures of docs/year.md, of a played year)

Types every block of the page in an empty folder. Without a Chromium browser the pictures stay as
they are.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from dpiw.data.yaml import load_text
from tests.support.documents import Block, blocks, filled, lines_of

PAGE = Path(__file__).with_name("journeys.md")
NAMED = "clinic/releases/clinic-once-1a2b3c4d"
"""What the page calls the release; its last letters differ from run to run."""
TRUTH = {
    "intercept": 30.0, "age": -0.1, "education[T.secondary]": 0.0, "education[T.tertiary]": 12.0,
    "smoker": 0.0,
}  # fmt: skip
"""What `table_maker` puts into the regression of the page."""
KEEP = "income.interval().frame().to_json('intervals.json', orient='index')\n"
RATE = 150
"""Characters a minute of somebody who looks up what they type."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, kw_only=True)
class Lap:
    """One journey: commands, characters typed (files too), and the machine's seconds."""

    who: str
    commands: int
    characters: int
    seconds: float

    @property
    def row(self) -> str:
        """Of the page's table."""
        minutes = self.characters / RATE + self.seconds / 60
        return (
            f"| {self.who} | {self.commands} | {self.characters:,} | {self.characters / RATE:.1f} |"
            f" {self.seconds:.0f} | {minutes:.1f} |"
        )


def table_maker() -> str:
    """The Python that makes the table."""
    return blocks(PAGE, "python")[0].text


def settle(folder: Path) -> None:
    """Write what the page says into the two drafts below `folder`."""
    dictionary, decisions = blocks(PAGE, "yaml")
    (folder / "clinic/schema.yaml").write_text(dictionary.text)
    spec = folder / "clinic/release.yaml"
    settled = load_text(spec.read_text(), what="draft") | load_text(decisions.text, what="page")
    spec.write_text(json.dumps(settled | {k: str(settled[k]) for k in ("epsilon", "delta")}))


def walk(folder: Path) -> tuple[list[Lap], str]:
    """All three journeys in an empty folder; what the analyst's lines printed, too."""
    draft, rest, audited = blocks(PAGE, "sh")
    _run([sys.executable, "-c", table_maker()], folder)
    machine = _timed(draft, folder)
    settle(folder)
    machine += _timed(rest, folder)
    written = blocks(PAGE, "yaml")
    (published,) = (folder / "clinic/releases").iterdir()
    names = {NAMED: published.relative_to(folder)}
    script = filled(blocks(PAGE, "python")[1].text, names)
    curator = Lap(who="curator", seconds=machine, **typed(draft, rest, files=written))
    auditor = Lap(who="auditor", seconds=_timed(audited, folder), **typed(audited))
    started = time.monotonic()
    output = _run([sys.executable, "-W", "ignore", "-c", script + KEEP], folder)
    analyst = Lap(
        who="analyst", commands=1, characters=len(script), seconds=time.monotonic() - started
    )
    return [curator, auditor, analyst], output


def typed(*shell: Block, files: Sequence[Block] = ()) -> dict[str, int]:
    """Commands, and their characters with those of files, one more for each Return."""
    lines = [line for block in shell for line in lines_of(block)]
    characters = sum(len(line) + 1 for line in lines) + sum(len(block.text) for block in files)
    return {"commands": len(lines), "characters": characters}


def _timed(block: Block, folder: Path) -> float:
    started = time.monotonic()
    _run(["bash", "-euo", "pipefail", "-c", block.text], folder)
    return time.monotonic() - started


def _run(command: list[str], folder: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "PYTEST", "DPIW"))}
    home = str(PAGE.parents[1])
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    more = {"DPIW_ACTOR": "ada@clinic", "PYTHONPATH": home, "PATH": path}
    return subprocess.run(
        command, cwd=folder, env=kept | more, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def written(text: str, made: Mapping[str, str]) -> str:
    """The page with what stands between its marks made again."""
    for name, content in made.items():
        mark = f"<!-- {name} -->\n"
        text, count = re.subn(
            rf"{mark}.*?<!-- end -->", lambda _, c=mark + content: f"{c}\n<!-- end -->", text,
            flags=re.S,
        )  # fmt: skip
        assert count == 1, name
    return text


def stopwatch(laps: list[Lap]) -> str:
    """The table of laps, with machine and date."""
    today = datetime.datetime.now(datetime.UTC).date()
    head = "| | commands | characters | minutes of typing | seconds of machine | minutes in all |"
    told = (
        f"Typing at {RATE} characters a minute, every character of the files included. Machine: "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}, shared with other work (load {os.getloadavg()[2]:.0f});"
        f" {today:%d %B %Y}."
    )
    lines = textwrap.wrap(told, 100)
    return "\n".join((head, "|---|---|---|---|---|---|", *(lap.row for lap in laps), "", *lines))


def held(intervals: Mapping[str, Mapping[str, float | str]]) -> str:
    """Which intervals hold what was simulated, in a sentence.

    Args:
        intervals: by coefficient its `lower`, `upper` and `verdict`.
    """
    assert set(intervals) == set(TRUTH)
    missed = [
        f"`{name}` ({one['verdict']})"
        for name, one in intervals.items()
        if not float(one["lower"]) <= TRUTH[name] <= float(one["upper"])
    ]
    told = f"Of {len(TRUTH)} intervals in this walk {len(TRUTH) - len(missed)} hold it"
    return f"{told}; missed: {', '.join(missed)}." if missed else f"{told}."


Shot = tuple[Path, str | int]
"""A page, and what is seen of it: so many pixels from its top, or the section of a heading."""


def of_the_walk(folder: Path) -> dict[str, Shot]:
    """The tops of the report and of the audit's page, by name of the picture."""
    (report,) = folder.glob("clinic/releases/*/report.html")
    return {"journey-release": (report, 870), "journey-audit": (folder / "audit/audit.html", 1240)}


def of_a_year(folder: Path) -> dict[str, Shot]:
    """The site of a year that `make year-story` has played: its top, a gap, a withdrawn release."""
    index = json.loads((folder / "site/index.json").read_text())
    (page,) = [one["page"] for one in index["releases"] if one["status"] == "withdrawn"]
    first = folder / "site/index.html"
    return {
        "year-site": (first, 800), "year-missing": (first, "Missing periods"),
        "year-withdrawn": (folder / "site" / page, 560),
    }  # fmt: skip


def pictures(shots: Mapping[str, Shot], browser: str) -> Iterator[tuple[str, bytes]]:
    """Name and PNG of each shot, 800 pixels wide (of a site: 960)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(color_scheme="light")
        for name, (path, part) in shots.items():
            wide = {"width": 960 if name.startswith("year-") else 800}
            page.set_viewport_size(wide | {"height": part if isinstance(part, int) else 600})
            page.goto(path.as_uri())
            section = page.locator("section", has=page.get_by_role("heading", name=str(part)))
            taken = page.screenshot() if isinstance(part, int) else section.screenshot()
            small = io.BytesIO()
            Image.open(io.BytesIO(taken)).convert("RGB").quantize(48).save(
                small, format="PNG", optimize=True
            )
            yield f"{name}.png", small.getvalue()
        chromium.close()


def keep(shots: Mapping[str, Shot]) -> None:
    """Write the pictures into docs/images, if there is a browser."""
    if browser := next(filter(None, map(shutil.which, BROWSERS)), None):
        for name, picture in pictures(shots, browser):
            (PAGE.parent / "images" / name).write_bytes(picture)


def main(arguments: list[str]) -> int:
    """Walk and write; or take the pictures of a year alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--year", type=Path, help="folder of a year that was played")
    if (year := parser.parse_args(arguments).year) is not None:
        keep(of_a_year(year.resolve()))
        return 0
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        laps, output = walk(folder)
        made = {
            "stopwatch": stopwatch(laps),
            "output": f"```\n{output.rstrip()}\n```",
            "held": held(json.loads((folder / "intervals.json").read_text())),
        }
        PAGE.write_text(written(PAGE.read_text(), made))
        keep(of_the_walk(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
