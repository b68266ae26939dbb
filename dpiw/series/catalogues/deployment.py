"""The release as a draft record of the registry of differential privacy deployments.

Source: the schema of the Privacy Deployments Registry (github.com/opendp/deployments-registry-data,
commit 057e5d81). What dpiw cannot know is left out: the registry refuses the record until its
curator states it, and an invented value would pass.
"""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from dpiw.errors import is_plain
from dpiw.privacy.units import NeighbouringRelation
from dpiw.series.catalogues.described import Described, text

TO_STATE = (
    "deployment.basic.data_curators: data_curator_type (Government, Industry or Nonprofit)",
    "deployment.basic: intended_use, data_product_region",
)
"""Required fields that only the curator knows."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#|$&~])")


class _Verbatim(str):
    """A number as it is written, so that no digit of it is rounded."""

    __slots__ = ()


def registry_yaml(release: Described) -> bytes:
    """Write the record as YAML: plain keys, and every text in double quotes."""
    facts = release.certificate
    pure = Decimal(facts.delta) == 0
    columns = ", ".join(column.name for column in release.schema.released)
    record = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", facts.release_id.lower()).strip("-"),
        "deployment": {
            "basic": {
                "name": _markdown(release.title),
                "data_curators": [
                    {"data_curator_name": _markdown(release.creator or "not stated")}
                ],
                "description": _markdown(release.description),
                "data_product_type": "Synthetic data",
                "publication_date": release.facts.published_at[:10],
            },
            "dp_variant": {
                "variant_name": "Pure DP" if pure else "Approximate DP",
                "data_domain": _markdown(f"Tables with columns {columns}."),
                "unprotected_quantities": _markdown(unprotected(release)),
            },
            "privacy_loss": _loss(release, pure=pure),
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": _bullets(facts.assumptions),
                "release_type": "One release" if facts.period == "once" else "Many releases",
                "release_type_details": _markdown(_budget(release)),
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _markdown(facts.assumptions[0])
                if facts.assumptions
                else "Not stated.",
                "mechanisms": _bullets(f"{s.stage}: {release.mechanism(s)}" for s in facts.stages),
                "composition": _markdown(composition(release)),
                "post_processing": _bullets(facts.post_processing),
                "utility": _markdown(utility(release)),
                "additional_information": _bullets(facts.caveats),
            },
            "administrative": {
                **_evidence(release),
                "status": "Draft",
                "registry_authors": [_markdown(release.creator or "not stated")],
                "tier": _Verbatim(2),
            },
        },
    }
    head = "# A draft from the release's certificate. State these before you submit it:"
    lines = [head, *(f"# {field}" for field in TO_STATE), *_lines(record)]
    return ("\n".join(lines) + "\n").encode()


def unprotected(release: Described) -> str:
    """Return which quantities have no privacy noise."""
    facts, said = release.certificate, ["dpiw publishes no statistic of the table without noise."]
    if facts.relation is NeighbouringRelation.REPLACE_ONE:
        said.append("The number of rows is public.")
    if facts.declared is not None:
        said.append("What the tool that made the rows published is not known here.")
    return " ".join(said)


def composition(release: Described) -> str:
    """Return how costs add up, in a run and over the population's life."""
    facts = release.certificate
    rule = text(facts.account["composition"])
    return (
        "Inside a run: privacy loss distributions of all draws together, checked with Renyi"
        f" accounting. Across releases of a population: {rule} composition, in a ledger that"
        " charges before data are read."
    )


def utility(release: Described) -> str:
    """Return what is known of the quality of the weights; all of it from released values."""
    facts = release.certificate
    if not release.certificate.is_weighted:
        return "The release has no weights: estimates keep whatever bias the generator has."
    size = facts.diagnostics.get("effective_sample_size")
    rows = f" Effective sample size: {size:.0f}." if isinstance(size, int | float) else ""
    return f"Weights: {facts.weights_are}.{rows} Rule: {facts.verdict_rule}"


def _budget(release: Described) -> str:
    facts = release.certificate
    return (
        f"Population {facts.population} has spent epsilon={facts.spent_epsilon},"
        f" delta={facts.spent_delta} with this release, of a lifetime budget of"
        f" epsilon={facts.budget_epsilon}, delta={facts.budget_delta}."
    )


def _loss(release: Described, *, pure: bool) -> Mapping[str, Any]:
    facts = release.certificate
    parameters = {"epsilon": _number(facts.epsilon)}
    if not pure:
        parameters["delta"] = _number(facts.delta)
    return {
        "privacy_unit": _markdown(release.unit),
        "privacy_unit_details": _markdown(f"Adjacent datasets: {release.neighbours}."),
        "privacy_parameters": parameters,
        "privacy_parameters_details": _markdown(release.guarantee),
    }


def _evidence(release: Described) -> Mapping[str, Any]:
    if release.page is None:
        return {}
    source = {
        "evidence_source_type": "Formal publication by the deploying organization",
        "misc": {"title": _markdown(release.title), "url": release.page},
    }
    return {"evidence_sources": {"release": source}}


def _number(decimal_text: str) -> _Verbatim:
    """Return a decimal in full, without a power of ten, which YAML readers take for text."""
    return _Verbatim(f"{Decimal(decimal_text):f}")


def _markdown(value: str) -> str:
    """Return a text that Markdown, HTML and LaTeX show as it is."""
    return _MARKDOWN.sub(r"\\\1", text(value))


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {_markdown(item)}" for item in items) or "None stated."


def _lines(value: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(item, f"{indent}  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            for element in item:
                if isinstance(element, Mapping):
                    first, *others = _lines(element, f"{indent}    ")
                    yield f"{indent}  - {first.strip()}"
                    yield from others
                else:
                    yield f"{indent}  - {_quoted(element)}"
        else:
            yield f"{indent}{key}: {_quoted(item)}"


def _quoted(value: str) -> str:
    """Return a scalar of YAML 1.1 and 1.2; other characters than plain ones are escaped."""
    if isinstance(value, _Verbatim):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if is_plain(c) else f"\\U{ord(c):08x}" for c in quoted)
