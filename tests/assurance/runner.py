"""Runs a suite part by part, keeps what is finished, and ends with one table."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.assurance.closure import Keys
from tests.assurance.guard import Guard
from tests.assurance.parts import GREEN, RED, Kept, Part, Suite, write
from tests.assurance.process import Ended, Runner
from tests.assurance.progress import Progress
from tests.assurance.table import Summary, table


class NothingCollectedError(Exception):
    """There is no test to run, or they cannot be collected; the message is pytest's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked for.

    Attributes:
        suite: which tests.
        root: the checkout they are of.
        keep: the folder for finished parts and tables.
        jobs: parts at once.
        figures: a file for all figures told, one JSON object a line; None: no file.
        only: only tests whose id holds this; "": all.
    """

    suite: Suite
    root: Path
    keep: Path
    jobs: int
    figures: Path | None = None
    only: str = ""


def collect(order: Order) -> list[str]:
    """Ids of the suite's tests.

    Raises:
        NothingCollectedError: none, or pytest could not collect them.
    """
    listing = Path(__file__).with_name("listing.py")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "nodes.json"
        done = subprocess.run(
            [sys.executable, listing, out, order.suite.marker],
            cwd=order.root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise NothingCollectedError((done.stdout + done.stderr)[-4000:])
        nodes = [node for node in json.loads(out.read_text()) if order.only in node]
    if not nodes:
        raise NothingCollectedError(f"no test of {order.suite.name} has {order.only!r} in its id")
    return nodes


def state(root: Path) -> tuple[str, bool]:
    """The commit of a checkout, and whether files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    return git("rev-parse", "HEAD") or "unknown", bool(git("status", "--porcelain"))


class Assurance:
    """One run of a suite."""

    def __init__(self, order: Order, guard: Guard) -> None:
        self._order = order
        self._keys = Keys(order.root)
        self._kept = Kept(order.keep / "parts")
        self._guard = guard
        self._runner = Runner(root=order.root, marker=order.suite.marker, guard=guard)

    def run(self) -> Summary:
        """Run what is not kept."""
        for kind in ("md", "json"):  # a run that is killed leaves no word of an earlier one
            self._page(kind).unlink(missing_ok=True)
        Progress.say(f"{self._order.suite.name}: collecting")
        nodes = collect(self._order)
        parts = self._green(nodes)
        # What takes longest first, and what nobody has timed before all.
        known = self._kept.seconds(nodes)
        todo = sorted(set(nodes) - set(parts), key=lambda n: (-known.get(n, float("inf")), n))
        progress = Progress(len(nodes), known, self._order.jobs)
        progress.plan(todo, len(parts))
        for part, log in self._run(todo):
            parts[part.node] = part
            progress.ended(part, log)
        ended = [parts[node] for node in nodes if node in parts]
        return self._report(ended, len(nodes), len(todo))

    def _green(self, nodes: Sequence[str]) -> dict[str, Part]:
        """What is kept of them, as their files are now."""
        parts = [self._kept.find(key) for key in self._keys.of(nodes).values()]
        return {part.node: part for part in parts if part is not None and part.green}

    def _run(self, nodes: Sequence[str]) -> Iterator[tuple[Part, str]]:
        """Run parts, several at once; yields each as it ends, with what it said."""
        with ThreadPoolExecutor(self._order.jobs) as pool:
            try:
                futures = [pool.submit(self._part, node) for node in nodes]
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._guard.stop()
                raise

    def _part(self, node: str) -> tuple[Part, str]:
        """Run a part and keep it; red if the files it depends on did not stay what they were."""
        (commit, dirty), key = state(self._order.root), self._key(node)
        ended = self._runner.run(node)
        if self._key(node) != key:
            ended = dataclasses.replace(ended, why="files it depends on changed while it ran")
        part = _part(node, key, ended, commit, dirty)
        self._kept.keep(part)
        log = self._order.keep / "logs" / f"{key[:16]}.log"
        if part.green:
            log.unlink(missing_ok=True)
        else:
            write(log, ended.log)
        return part, ended.log

    def _page(self, kind: str) -> Path:
        return self._order.keep / f"{self._order.suite.name}.{kind}"

    def _key(self, node: str) -> str:
        return self._keys.of([node])[node]

    def _report(self, parts: Sequence[Part], total: int, now: int) -> Summary:
        summary = Summary.of(self._order.suite.name, parts, total=total, now=now)
        text = f"{table(parts)}\n\n{summary.line()}\n"
        write(self._page("md"), text)
        write(self._page("json"), summary.text())
        if self._order.figures is not None:
            lines = [json.dumps(figure) for part in parts for figure in part.figures]
            write(self._order.figures, "".join(f"{line}\n" for line in lines))
        Progress.say("\n" + text)
        return summary


def _part(node: str, key: str, ended: Ended, commit: str, dirty: bool) -> Part:
    return Part(
        key=key, node=node, outcome=RED if ended.why else GREEN, why=ended.why,
        seconds=ended.seconds, cpu_seconds=ended.cpu_seconds, passed=ended.passed,
        skipped=ended.skipped, figures=ended.figures, commit=commit, dirty=dirty,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=f"{platform.platform()}, {os.cpu_count()} cores",
    )  # fmt: skip
