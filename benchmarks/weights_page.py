"""The page of the weights table: markdown from summaries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from weights_cells import UNUSED
from weights_summary import (
    CELL,
    GROUPS,
    HIGHER_IS_BETTER,
    JUDGED,
    LABELS,
    OUTCOMES,
    VERDICTS,
    WEIGHTED,
    Change,
    agreement,
    better_alone,
    changes,
    metrics_of,
    outcome_of,
    tally,
    verdict_counts,
)


def number(mean: float, error: float) -> str:
    """Mean ± standard error; the mean alone of one run."""
    return f"{mean:.3g}" if math.isnan(error) else f"{mean:.3g} ± {error:.1g}"


def signed(change: Change, name: str) -> str:
    """Weighted minus unweighted in the metric's own direction; bold better, italic worse."""
    mean = change.mean if name in HIGHER_IS_BETTER else -change.mean
    text = f"{mean:+.2g} ± {change.error:.1g}"
    return {"helped": f"**{text}**", "hurt": f"*{text}*"}.get(change.outcome, text)


def row(cells: Sequence[object]) -> str:
    """A line of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def head(cells: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [row(cells), "|" + "---|" * len(cells)]


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count)


def _values(
    part: pd.DataFrame, forecasts: Mapping[tuple[str, ...], Mapping[str, Any]]
) -> list[str]:
    names = metrics_of(part)
    lines = head(["generator", "epsilon", "weights", *(LABELS[n] for n in names), "ESS share",
                  "forecast", "verdicts"])  # fmt: skip
    for key, runs in part.groupby(CELL, sort=False):
        cells = [number(runs[n].mean(), runs[n].sem()) for n in [*names, "ess_share"]]
        forecast, verdicts = forecasts.get(key), ""
        text = "" if forecast is None else (
            f"{forecast['resolution']:.2f}, {forecast['tau']:.2f}"
            + ("" if forecast["feasible"] else ", no")
        )  # fmt: skip
        if key[-1] in WEIGHTED:
            verdicts = _told(verdict_counts(runs))
        lines.append(row([*key[1:], *cells, text, verdicts]))
    return lines


def _differences(part: pd.DataFrame, base: str) -> list[str]:
    names = metrics_of(part)
    lines = head(["generator", "epsilon", "weights", *(LABELS[n] for n in names)])
    for key, change in changes(part, base).items():
        lines.append(row([*key[1:], *(signed(change[name], name) for name in names)]))
    return lines


def _counts(change: Mapping[str, Change]) -> str:
    """`models +2 -0, distributions +0 -3`; a group where nothing is clear is left out."""
    parts = []
    for group in GROUPS:
        helped, hurt = tally(change, group)
        if helped or hurt:
            parts.append(f"{group} +{helped} -{hurt}")
    return ", ".join(parts) or "nothing clear"


def _kinds(frame: pd.DataFrame) -> list[str]:
    """Kinds of weights there are, in their order."""
    return [kind for kind in WEIGHTED if kind in set(frame.weights)]


def _map(frame: pd.DataFrame, base: str) -> list[str]:
    kinds = _kinds(frame)
    lines = head(["data", "generator", "epsilon", *kinds])
    by_setting = changes(frame, base)
    for key, _ in frame[frame.weights.isin(WEIGHTED)].groupby(CELL[:3], sort=False):
        cells = []
        for kind in kinds:
            runs = frame[(frame[CELL] == [*key, kind]).all(axis=1)]
            cells.append(f"{_counts(by_setting[(*key, kind)])}; {_told(verdict_counts(runs))}")
        lines.append(row([*key, *cells]))
    return lines


def _breakdown(frame: pd.DataFrame, base: str) -> list[str]:
    by_setting = changes(frame, base)
    lines = head(["settings", *(f"{group}: {o}" for group in GROUPS for o in OUTCOMES)])

    def count(name: str, chosen: Callable[[tuple[str, ...]], bool]) -> None:
        cells = []
        for group in GROUPS:
            outcomes = [
                outcome_of(change, group) for key, change in by_setting.items() if chosen(key)
            ]
            cells += [outcomes.count(outcome) for outcome in OUTCOMES]
        lines.append(row([name, *cells]))

    count("all", lambda key: True)
    for place, _ in enumerate(CELL):
        for value in dict.fromkeys(key[place] for key in by_setting):
            shown = f"epsilon {value}" if CELL[place] == "epsilon" else value
            count(shown, lambda key, p=place, v=value: key[p] == v)
    return lines


def _by_aspect(frame: pd.DataFrame) -> list[str]:
    lines = head(["aspect", *(f"{kind}, against {reference}" for kind in _kinds(frame)
                              for reference in ("none", UNUSED))])  # fmt: skip
    by_base = {base: changes(frame, base) for base in ("none", UNUSED)}
    for aspect in JUDGED:
        cells = []
        for kind in _kinds(frame):
            for base in ("none", UNUSED):
                outcomes = [
                    outcome_of(c, aspect) for key, c in by_base[base].items() if key[-1] == kind
                ]
                cells.append(
                    f"+{outcomes.count('helped')} -{outcomes.count('hurt')} of {len(outcomes)}"
                )
        lines.append(row([aspect, *cells]))
    return lines


def _agreement(frame: pd.DataFrame) -> list[str]:
    lines = []
    for base, title in (
        (UNUSED, "Against the same rows without their weights: what the verdict is asked"),
        ("none", "Against no weights at equal total epsilon: what the budget bought"),
    ):
        lines += ["", f"### {title}", ""]
        lines += head(["judged by", "verdict", "releases", *OUTCOMES])
        for chosen in (None, *GROUPS, *JUDGED):
            table = agreement(frame, base, chosen)
            for verdict in VERDICTS:
                releases = table.loc[verdict]
                lines.append(row([chosen or "all aspects", verdict, releases.sum(), *releases]))
    lines += ["", "### Release by release", "", "Releases that were better with their weights than"
              " without them, by sign alone:", ""]  # fmt: skip
    lines += head(["aspect", *VERDICTS])
    for aspect in JUDGED:
        counts = better_alone(frame, aspect)
        lines.append(row([aspect, *(f"{counts.better[v]} of {counts.releases[v]}"
                                    for v in VERDICTS)]))  # fmt: skip
    return lines


def _plain(frame: pd.DataFrame, forecasts: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """Sentences: where weights do not help, and whether verdict and forecast agree."""
    by_setting, lines = changes(frame, "none"), []
    for group in (None, *GROUPS):
        outcomes = {key: outcome_of(change, group) for key, change in by_setting.items()}
        count = list(outcomes.values()).count
        subject = "All aspects together" if group is None else group.capitalize()
        lines.append(f"- {subject}, against no weights at equal total epsilon: of"
                     f" {len(outcomes)} settings weights helped in {count('helped')}, were mixed in"
                     f" {count('mixed')}, made no clear difference in"
                     f" {count('no clear difference')} and hurt in {count('hurt')}.")  # fmt: skip
        if group is None:
            continue
        for outcome in OUTCOMES:
            keys = [key for key, value in outcomes.items() if value == outcome]
            if keys:
                lines.append(f"    - {outcome}: {_settings(keys)}.")
    for base, against in ((UNUSED, "the same rows without weights"), ("none", "no weights")):
        for group in GROUPS:
            table = agreement(frame, base, group)
            counts = "; ".join(
                f"`{verdict}` ({table.loc[verdict].sum()}): helped {table.loc[verdict, 'helped']},"
                f" did not help {table.loc[verdict].sum() - table.loc[verdict, 'helped']}"
                f" (of these hurt {table.loc[verdict, 'hurt']})"
                for verdict in VERDICTS
            )
            lines.append(f"- Verdict and {group}, against {against}: {counts}.")
    for group in GROUPS:
        parts = []
        for feasible, word in ((True, "worth"), (False, "not worth")):
            results = [
                outcome_of(c, group)
                for k, c in by_setting.items()
                if forecasts[k]["feasible"] is feasible
            ]
            parts.append(f"{word} their budget ({len(results)} settings): helped"
                         f" {results.count('helped')}, hurt {results.count('hurt')}")  # fmt: skip
        lines.append(f"- The plan's forecast and {group}, against no weights: {'; '.join(parts)}.")
    return lines


def _settings(keys: Sequence[tuple[str, ...]]) -> str:
    """Settings in words, epsilons gathered."""
    gathered: dict[tuple[str, ...], list[str]] = {}
    for dataset, generator, epsilon, kind in keys:
        gathered.setdefault((dataset, generator, kind), []).append(epsilon)
    parts = [f"{' '.join(key)} at {', '.join(epsilons)}" for key, epsilons in gathered.items()]
    return "; ".join(parts) or "nowhere"


def page(frame: pd.DataFrame, forecasts: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """The body of weights_table.md."""
    lines = ["## Where weights help, and whether the verdict agrees", "",
             *_plain(frame, forecasts), "",
             "Settings by outcome, against no weights at equal total epsilon:", "",
             *_breakdown(frame, "none"), "",
             "The same, against the same rows without their weights:", "",
             *_breakdown(frame, UNUSED), "",
             "Settings helped (+) and hurt (-), by aspect and features:", "", *_by_aspect(frame),
             "", "Aspects helped (+) and hurt (-), of the three of models and the four of"
             " distributions, and the verdicts given; against no weights at equal total epsilon:",
             "", *_map(frame, "none"), "",
             "The same, against the same rows without their weights:", "", *_map(frame, UNUSED), "",
             "## Verdict against outcome", "",
             "Releases, by their verdict and by the outcome of their setting.",
             *_agreement(frame)]  # fmt: skip
    for dataset, part in frame.groupby("dataset", sort=False):
        lines += ["", f"## {str(dataset).capitalize()}", "", *_values(part, forecasts), "",
                  "Weighted minus unweighted at equal total epsilon:", "",
                  *_differences(part, "none")]  # fmt: skip
    return lines
