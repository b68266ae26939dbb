"""The page of `bench.py`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_limits import RELEASE, UNWEIGHTED
from study import head


@dataclass(frozen=True, kw_only=True)
class Line:
    """A comparison of the page, made and kept with its date and load as a part of an item.

    Target: most that ours may take, in times the reference; or, of a peer, how many times faster
    ours shall be; or seconds. Kind: `limit`, `peer` or `seconds`.
    """

    name: str
    item: str
    ours: str
    reference: str
    target: float | None = None
    kind: str = "limit"

    def ratio(self, ours: float, reference: float) -> float:
        """How many times faster than a peer, or how many times the cost."""
        return reference / ours if self.kind == "peer" else ours / reference

    def is_met(self, ours: float, reference: float) -> bool | None:
        """Whether the target is; None without one."""
        if self.target is None:
            return None
        if self.kind == "peer":
            return self.ratio(ours, reference) >= self.target
        value = ours if self.kind == "seconds" else self.ratio(ours, reference)
        return value <= self.target

    @property
    def asked(self) -> str:
        """The target in words."""
        if self.target is None:
            return ""
        words = {"limit": "at most {:g}", "peer": "at least {:g}", "seconds": "at most {:g} s"}
        return words[self.kind].format(self.target)


HEAD = ("ours", "reference", "ours took", "it took", "times", "times, CPU", "target", "met",
        "measured")  # fmt: skip
HEADS: Mapping[str, tuple[str, str]] = {
    "limit": (
        "Against the machine's limits",
        "Times: how many times the reference's time ours takes. Less is better.",
    ),
    "peer": (
        "Against peers",
        "Times: how many times less time ours takes than theirs. More is better. Each peer is in"
        " an environment of its own; no imports are timed; fits include the draw of as many rows"
        " as were fitted. 2-way distance: mean total variation of all pairs of columns, against"
        " the fitted rows.",
    ),
    "seconds": (
        "Starts",
        "The worked example's commands, each a process of its own. Times: against the bare imports"
        " of Prefect, Great Expectations, pandas, SciPy's statistics and SQLAlchemy.",
    ),
}

MOST_MEMORY = 2 * 10**9
"""Bytes that no process of a release may hold: the target."""

TOGETHER = {"**release without weights**": UNWEIGHTED, "**release, measured weights**": RELEASE}

Record = Mapping[str, Any]


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"


def _times(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _answer(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "**no**"


def row(line: Line, record: Record | None) -> str:
    """A row of a table: what was found, or that nothing was."""
    what = f"| {line.ours} | {line.reference} |"
    comparison = (record or {}).get("lines", {}).get(line.name)
    if comparison is None:
        why = (record or {}).get("not_run", "not yet")
        return f"{what} **not run**: {why} | | | | {line.asked} | | |"
    ours, theirs = comparison["ours"], comparison["reference"]
    wall = line.ratio(ours["wall"], theirs["wall"])
    cpu = line.ratio(ours["cpu"], theirs["cpu"]) if ours["cpu"] and theirs["cpu"] else float("nan")
    met = _answer(line.is_met(ours["wall"], theirs["wall"]))
    said = f"; {comparison['told']}" if comparison["told"] else ""
    return (
        f"{what} {_seconds(ours['wall'])} | {_seconds(theirs['wall'])} | **{_times(wall)}** |"
        f" {_times(cpu)} | {line.asked} | {met} | {made(record or {})}{said} |"
    )


def made(record: Record) -> str:
    """When an item was measured, and under which load."""
    low, high = record["load"]
    return f"{record['date']}, {record['commit']}, load {low:.1f} to {high:.1f}"


def tables(lines: Sequence[Line], records: Mapping[str, Record]) -> list[str]:
    """A table for each kind of line."""
    text = []
    for kind, (title, said) in HEADS.items():
        text += ["", f"## {title}", "", said, "", *head(HEAD)]
        text += [row(line, records.get(line.item)) for line in lines if line.kind == kind]
    return text


def by_rows(sizes: Mapping[int, Record]) -> list[str]:
    """CPU seconds by rows and stage, and what another row costs."""
    counts = sorted(sizes)
    if not counts:
        return []
    heads = [f"{rows:,} rows" for rows in counts]
    slopes = [f"{a:,} to {b:,}" for a, b in itertools.pairwise(counts)]
    text = [
        "", "## By rows", "",
        "CPU seconds of each stage of a release with a histogram and measured weights, as many rows"
        " published as read, 15 columns; `privbayes` and `mst`: the draws of other generators."
        " Imports included. Slopes: **microseconds of CPU that a further row takes**; flat means"
        " the same in each. Not a part of releases: pyarrow, and `rewrite`, pyarrow's"
        " reading and writing of the published rows. Memory: no less is told than the process holds"
        " that starts the others, about 0.3 GiB.", "",
        *head(["stage", *heads, *slopes, "most memory, MiB"]),
    ]  # fmt: skip
    alone = {stage: (stage,) for stage in sizes[counts[0]]["stages"]}
    for name, stages in (alone | TOGETHER).items():
        cells = [f"{_cpu(sizes[rows], stages):.1f}" for rows in counts]
        cells += [f"{slope:.2f}" for slope in slopes_of(stages, sizes).values()]
        peak = max(sizes[rows]["stages"][stage]["peak"] for rows in counts for stage in stages)
        text.append(f"| {name} | " + " | ".join(cells) + f" | {peak / 2**20:,.0f} |")
    most = max(sizes[rows]["stages"][stage]["peak"] for rows in counts for stage in RELEASE)
    is_small = most < MOST_MEMORY
    text += ["", f"Most memory of a release's process: {most / 2**20:,.0f} MiB (target: below"
             f" {MOST_MEMORY / 2**20:,.0f}; {'met' if is_small else '**not met**'})."]  # fmt: skip
    text.append("")
    text += [f"{rows:,} rows: {made(sizes[rows])}." for rows in counts]
    return text


def _cpu(record: Record, stages: Sequence[str]) -> float:
    return sum(record["stages"][stage]["cpu"] for stage in stages)


def slopes_of(stages: Sequence[str], sizes: Mapping[int, Record]) -> dict[int, float]:
    """Microseconds of CPU for each further row, by the larger number of rows."""
    counts = sorted(sizes)
    spent = {rows: _cpu(sizes[rows], stages) for rows in counts}
    return {
        many: (spent[many] - spent[few]) / (many - few) * 1e6
        for few, many in itertools.pairwise(counts)
    }


def page(
    lines: Sequence[Line],
    records: Mapping[str, Record],
    sizes: Mapping[int, Record],
    facts: Mapping[str, str],
) -> str:
    """The whole page."""
    text = [
        "# Speed in ratios",
        "",
        f"`{facts['command']}`, on {facts['machine']}; {facts['versions']}. Each line is one run:"
        " ours and what it is held against, one after the other or in turns, on the same machine."
        " A target is met or not by the seconds of a clock; where the load was more than the"
        " number of cores, the ratio of CPU seconds says more. A line that was measured is kept"
        " with its date, commit and load until it is asked for again. Targets were set"
        " before anything was measured.",
        *tables(lines, records),
        *by_rows(sizes),
    ]
    return "\n".join(text) + "\n"
