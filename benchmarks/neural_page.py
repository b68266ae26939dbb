"""The page of the neural table: paired comparisons over runs, and markdown of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from neural_cells import EXACT, NEURAL, NO_PRIVACY, WEIGHTS
from weights_cells import REAL
from weights_page import head, number, row, signed
from weights_summary import CELL, HIGHER_IS_BETTER, LABELS, Change, frame_of, paired

METRICS = ("tv_1way", "tv_2way", "mlp_auc", "linear_auc")
REFERENCES = ("histogram", "privbayes")
WEIGHTED = tuple(kind for kind in WEIGHTS if kind != "none")
Changes = Mapping[tuple[str, ...], Mapping[str, Change]]
"""By setting (data set, generator, epsilon, weights) and metric; above zero is better."""


def table_of(records: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """One line per cell; metrics of the same rows without weights as `plain_*`."""
    flat = []
    for record in records:
        plain = record.get("unweighted", record["metrics"])
        assert isinstance(plain, Mapping)
        rest = {k: v for k, v in record.items() if k != "unweighted"}
        flat.append(rest | {f"plain_{name}": plain[name] for name in METRICS})
    return frame_of(flat)


def _compared(mine: pd.DataFrame, base: pd.DataFrame, prefix: str = "") -> dict[str, Change]:
    mine, base = mine.set_index("run"), base.set_index("run")
    runs = [run for run in mine.index if run in base.index]
    return {
        name: paired(
            mine.loc[runs, name],
            base.loc[runs, prefix + name],
            higher_is_better=name in HIGHER_IS_BETTER,
        )
        for name in METRICS
    }


def _settings(frame: pd.DataFrame) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    return [(tuple(map(str, key)), part) for key, part in frame.groupby(CELL, sort=False)]


def against_generator(frame: pd.DataFrame, reference: str) -> Changes:
    """Neural generators less a reference, unweighted, both with the whole budget."""
    plain = frame[frame.weights == "none"]
    changes = {}
    for key, part in _settings(plain[plain.generator.isin(NEURAL)]):
        same = (plain.dataset == key[0]) & (plain.epsilon == key[2])
        changes[key] = _compared(part, plain[same & (plain.generator == reference)])
    return changes


def against_none(frame: pd.DataFrame) -> Changes:
    """Weighted less unweighted at equal total epsilon."""
    changes = {}
    for key, part in _settings(frame[frame.weights.isin(WEIGHTED)]):
        same = (frame[CELL[:3]] == list(key[:3])).all(axis=1)
        changes[key] = _compared(part, frame[same & (frame.weights == "none")])
    return changes


def against_own_rows(frame: pd.DataFrame) -> Changes:
    """Weighted less the very same rows without their weights."""
    settings = _settings(frame[frame.weights.isin(WEIGHTED)])
    return {key: _compared(part, part, "plain_") for key, part in settings}


# Words


def tallied(changes: Sequence[Change]) -> tuple[int, int, int]:
    """How many are clearly better, clearly worse, and neither."""
    outcomes = [change.outcome for change in changes]
    better, worse = outcomes.count("helped"), outcomes.count("hurt")
    return better, worse, len(outcomes) - better - worse


def _where(changes: Changes, metric: str, outcome: str) -> str:
    keys = [key for key, change in changes.items() if change[metric].outcome == outcome]
    return ", ".join(
        f"{dataset} {generator} at {epsilon}" for dataset, generator, epsilon, _ in keys
    )


def in_words(frame: pd.DataFrame) -> list[str]:
    """Where neural generators lose and win, and whether weights help, counted."""
    lines = []
    for reference in REFERENCES:
        changes = against_generator(frame, reference)
        every = [change[name] for change in changes.values() for name in METRICS]
        better, worse, neither = tallied(every)
        lines.append(
            f"- Private neural generators ({', '.join(NEURAL)}) against `{reference}`, unweighted,"
            f" whole budget each, over {len(changes)} settings and {len(METRICS)} metrics: clearly"
            f" worse in {worse} of {len(every)} comparisons, clearly better in {better}, neither"
            f" in {neither}."
        )
        for name in METRICS:
            where = _where(changes, name, "helped") or "nowhere"
            lines.append(f"    - {LABELS[name]} clearly better: {where}.")
    private = frame[frame.epsilon != NO_PRIVACY]
    for against, changes in (
        ("no weights at equal total epsilon", against_none(private)),
        ("the same rows without them", against_own_rows(private)),
    ):
        for names, group in ((METRICS[:2], "distributions"), (METRICS[2:], "models")):
            counts = []
            for kind in WEIGHTED:
                part = [c[n] for key, c in changes.items() if key[3] == kind for n in names]
                if part:
                    better, worse, _ = tallied(part)
                    counts.append(f"{kind} better {better}, worse {worse} of {len(part)}")
            lines.append(f"- Weights against {against}, {group}: {'; '.join(counts)}.")
    return lines


# Tables


def _counts(changes: Sequence[Change]) -> str:
    """`+1 -2 of 8, 3 up`: clearly better, clearly worse, and how many means are above zero."""
    better, worse, _ = tallied(changes)
    up = sum(change.mean > 0 for change in changes)
    return f"+{better} -{worse} of {len(changes)}, {up} up"


def _generators(frame: pd.DataFrame) -> list[str]:
    lines = head(["generator", "against", *(LABELS[name] for name in METRICS)])
    for generator in NEURAL:
        for reference in REFERENCES:
            changes = against_generator(frame, reference)
            cells = []
            for name in METRICS:
                part = [change[name] for key, change in changes.items() if key[1] == generator]
                cells.append(_counts(part))
            lines.append(row([generator, reference, *cells]))
    return lines


def _weights(frame: pd.DataFrame, changes: Changes) -> list[str]:
    lines = head(["generator", "weights", *(LABELS[name] for name in METRICS)])
    pairs = dict.fromkeys((key[1], key[3]) for key in changes)
    for generator, kind in pairs:
        cells = []
        for name in METRICS:
            part = [c[name] for key, c in changes.items() if (key[1], key[3]) == (generator, kind)]
            cells.append(_counts(part))
        lines.append(row([_told(generator), kind, *cells]))
    return lines


def _told(generator: str) -> str:
    return f"{generator} (not private)" if generator in (*EXACT, REAL) else generator


def _values(part: pd.DataFrame) -> list[str]:
    names = [*METRICS, "ess_share"]
    lines = head(["generator", "epsilon", "weights", "fit, CPU s", "weights, CPU s",
                  *(LABELS[n] for n in METRICS), "ESS share"])  # fmt: skip
    for key, runs in _settings(part):
        times = ["", ""]
        if key[1] != REAL:
            times = [f"{runs[n].mean():.2f}" for n in ("generator_seconds", "weights_seconds")]
        cells = [number(runs[name].mean(), runs[name].sem()) for name in names]
        lines.append(row([_told(key[1]), *key[2:], *times, *cells]))
    return lines


def _differences(changes: Changes, dataset: str) -> list[str]:
    lines = head(["generator", "epsilon", "weights", *(LABELS[name] for name in METRICS)])
    for key, change in changes.items():
        if key[0] == dataset:
            cells = [signed(change[name], name) for name in METRICS]
            lines.append(row([_told(key[1]), *key[2:], *cells]))
    return lines


def page(frame: pd.DataFrame) -> list[str]:
    """The body of neural_table.md."""
    whole, same = against_none(frame), against_own_rows(frame)
    lines = ["## In words", "", *in_words(frame), "",
             "## Neural generators against histogram and PrivBayes", "",
             "Settings (data set and epsilon) in which the neural generator is clearly better (+)"
             " and clearly worse (-), and in how many its mean is the better one (up); unweighted,"
             " the whole budget each:", "", *_generators(frame),
             "", "## Do weights help?", "",
             "Settings in which weights are clearly better (+) and clearly worse (-) than no"
             " weights at equal total epsilon:", "", *_weights(frame, whole), "",
             "The same, than the very same rows without their weights:", "",
             *_weights(frame, same)]  # fmt: skip
    for dataset, part in frame.groupby("dataset", sort=False):
        lines += ["", f"## {str(dataset).capitalize()}", "", *_values(part), "",
                  "Weighted minus unweighted at equal total epsilon:", "",
                  *_differences(whole, str(dataset))]  # fmt: skip
    return lines
