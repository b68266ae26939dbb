"""A plan as a page a person can read."""

import textwrap
from collections.abc import Mapping
from typing import Any

from dpiw.data.cells.formats import CellFormat
from dpiw.data.cells.reading import settled_formats
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.declarations import provenance_summary
from dpiw.methods.generators.base import MadeElsewhere
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.plan.assumptions import made_elsewhere_text, told_alone
from dpiw.plan.forecast import WIDE
from dpiw.plan.plan import RESOLUTION_FLOOR, Plan, running_text
from dpiw.plan.rehearsal.populations import WeightedRows
from dpiw.plan.spec import MAX_EPSILON
from dpiw.plan.stages import StagePlan, rehearsable
from dpiw.privacy import accounting

_BOUNDED, _TEXT_WIDTH = 60, 84
"""Most columns whose bounds are shown, and characters of a line."""


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _pairs(values: Mapping[str, Any]) -> str:
    entries = {key: value for key, value in values.items() if value not in (None, "", [], {})}
    return ", ".join(f"{key}={_number(value)}" for key, value in entries.items())


def _stage(stage: StagePlan, plan: Plan) -> list[str]:
    lines = [f"  {stage.name} ({stage.method})"]
    for event in stage.events:
        facts = dict(accounting.event_to_json(event))
        kind = facts.pop("type")
        lines.append(f"      {kind:<34}{_pairs(facts)}")
    alone = plan.stage_cost(frozenset({stage.name}))
    lines.append(
        f"      {'alone it would cost':<34}epsilon={alone.epsilon:.4g}{told_alone(plan, stage)}"
    )
    lines.append(f"      {'parameters':<34}{_pairs(stage.parameters)}")
    return lines


def _provenances(plan: Plan) -> list[str]:
    listed = [column for column in plan.schema.released if column.hash_buckets is None]
    bounded = [column for column in listed if column.is_numeric or column.levels]
    summary = provenance_summary(column.provenance for column in bounded)
    return [f"  bounds, levels  {summary}"] if summary else []


def _bounds(plan: Plan) -> list[str]:
    """Return bounds as they were read: `1.000` is one, not a thousand."""
    columns = [column for column in plan.schema.released if column.is_numeric]
    texts = [f"{c.name} {_end(c.lower)} to {_end(c.upper)}" for c in columns[:_BOUNDED]]
    texts += [f"{len(columns) - _BOUNDED} more"] * (len(columns) > _BOUNDED)
    tied = ", ".join(text.replace(" ", "\xa0") for text in texts)  # no name holds such a space
    wrap = textwrap.TextWrapper(_TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = [line.replace("\xa0", " ") for line in wrap.wrap(tied)]
    return [f"  {'' if place else 'bounds':<14}  {line}" for place, line in enumerate(lines)]


def _end(bound: Any) -> str:
    if isinstance(bound, str):
        return bound
    text = f"{bound:,.10g}"
    return text if float(text.replace(",", "")) == bound else str(bound)


def _cells(plan: Plan) -> list[str]:
    source = plan.spec.source
    settled = settled_formats(plan.schema, source.written, file_format=source.format)
    groups: dict[str, list[str]] = {}
    for column in plan.schema.released:
        description = _format_text(column, settled[column.name])
        if description:
            groups.setdefault(description, []).append(column.name)
    lines = [f"{text}: {_listed(names)}" for text, names in groups.items()]
    if lines:
        lines.append("a cell written otherwise counts as unreadable: it is missing, or filled in")
    return [f"  {'' if place else 'cells':<14}  {line}" for place, line in enumerate(lines)]


def _format_text(column: Column, form: CellFormat) -> str:
    """Return the form of a column's cells; empty for levels, which the dictionary lists."""
    if column.kind is ColumnKind.BOOLEAN:
        return f"{' '.join(column.true_values)} or {' '.join(column.false_values)}"
    if column.kind in (ColumnKind.DATE, ColumnKind.DATETIME):
        dated = column.kind is ColumnKind.DATE
        return f"{column.kind.value}s {form.date_format if dated else form.datetime_format}"
    if not column.is_numeric:
        return ""
    return f"numbers with decimal {form.decimal!r} and thousands {form.thousands}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + f" and {len(names) - 4} more" * (len(names) > 4)


def _kept_back(plan: Plan) -> list[str]:
    """Say that the kept-back column names nobody, if each row counts as a person."""
    column = plan.schema.identifier
    if column is None or plan.spec.privacy_unit.id_column is not None:
        return []
    return [
        f"  person          each row; column {column.name} is not released. If a person may have"
        f" several rows, write unit: {{id_column: {column.name}, max_rows: ...}}"
    ]


def _chosen(plan: Plan) -> list[str]:
    method = plan.generator.method
    return [f"  generator       {method}, by `auto`: {plan.chosen}"] if plan.chosen else []


def _questions(plan: Plan, like: WeightedRows | None) -> list[str]:
    """Return a line for each declared question, and a warning for a wide answer."""
    found = plan.forecasts(like)
    people = "people like those of the release"
    if like is None:
        people = "levels of equal shares, independent columns, a sixth of each range as `spread`"
    lines = [f"questions: half-widths of 95% intervals, forecast for {people}"] * bool(found)
    for forecast in found:
        lines.append(f"  {forecast}")
        if forecast.is_wide:
            enough = forecast.enough(float(plan.spec.epsilon))
            at = f"from epsilon {enough:.2g} on" if enough <= MAX_EPSILON else "at no epsilon"
            lines.append(
                f"  warning: {forecast.question}: over {WIDE:g} times as wide as without privacy;"
                f" less {at}, with more rows, or with fewer questions"
            )
    return lines


def plan_table(plan: Plan, *, like: WeightedRows | None = None) -> str:
    """Return stages, events, noise scales, cost, forecast and warnings, as text.

    `like`: public rows like the people, for the forecast of declared questions.
    """
    spec, unit = plan.spec, plan.spec.privacy_unit
    constraints = ", ".join(constraint.name for constraint in plan.schema.constraints)
    lines = [
        f"plan of {spec.name} for population {spec.population}",
        f"  promise         epsilon={spec.epsilon}, delta={spec.delta}, {unit.relation.value},"
        f" at most {unit.max_rows} row{'s' * (unit.max_rows != 1)} per person",
        *_kept_back(plan),
        f"  nominal rows    {spec.nominal_rows} (public; the true number is never used)",
        f"  synthetic rows  {spec.synthetic_rows}",
        *_chosen(plan),
        *_bounds(plan),
        *_provenances(plan),
        *_cells(plan),
    ]
    if constraints:
        lines.append(f"  constraints     {constraints}: every published row satisfies them")
    if isinstance(plan.generator, MadeElsewhere):
        lines.append(f"  rows            {made_elsewhere_text(plan.generator)}")
    lines += [
        f"  composed        epsilon={plan.composed['pld']:.6g} by privacy loss distributions"
        + (f"; {plan.composed['rdp']:.6g} by Renyi DP (looser)" if spec.delta else ""),
        "private stages",
    ]
    for stage in plan.stages:
        lines += _stage(stage, plan)
    for method in (plan.generator, plan.weights):
        if method is not None and (text := running_text(method, plan.schema, spec)):
            lines.append(f"running time: {text}")
    if plan.forecast is None:
        free = "none" if plan.weights is None else f"{plan.weights.method}, free, no forecast"
        lines.append(f"weights: {free}")
    else:
        lines.append(
            f"weights: {plan.forecast.method},"
            f" {'published' if plan.weights is not None else 'not published'}; forecast: resolution"
            f" {plan.forecast.shown} (at least {RESOLUTION_FLOOR:.0%}), noise"
            f" tau={plan.forecast.tau:.3f}"
            + "; dpiw rehearse shows whether they help"
            * rehearsable(plan.generator)
        )
    lines += _questions(plan, like)
    step = parse_post_processing(spec.weights.post_processing).calibrate
    if step is not None and step.sha256 is not None:
        lines.append(f"weights: beta calibrated on declared public rows, SHA-256 {step.sha256}")
    lines += [f"warning: {warning}" for warning in plan.told]
    lines.append(f"plan digest {plan.digest}; no data was read")
    return "\n".join(lines)
