"""What a release promises, as one digest: two specs with the same promise share their run keys."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dpiw import __version__
from dpiw.data.cell_formats import without_defaults
from dpiw.data.schema import PublicSchema
from dpiw.methods.generators.registry import public_settings
from dpiw.methods.weights.paper.steps import files_of
from dpiw.plan.sections import Places, SourceFormat, SourceSpec
from dpiw.plan.spec import ReleaseSpec


def compact_json(value: object) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=str)


def public_steps(spec: ReleaseSpec) -> list[dict[str, Any]]:
    """The spec's post-processing without the paths of files; their SHA-256 stand for them."""
    return [
        {name: value for name, value in step.items() if name not in files_of(step)}
        for step in spec.model_dump(mode="json")["weights"]["post_processing"]
    ]


def public_generator(spec: ReleaseSpec) -> dict[str, Any]:
    """The spec's generator, likewise."""
    facts: dict[str, Any] = spec.generator.model_dump(mode="json")
    return facts | {"settings": public_settings(facts["method"], facts["settings"])}


def spec_digest(spec: ReleaseSpec, schema: PublicSchema) -> str:
    """SHA-256 of what a release promises, free of paths: moving a file changes nothing."""
    places: dict[str, Any] = dict.fromkeys(Places.model_fields, True)
    places["source"] = set(SourceSpec.model_fields) - set(SourceFormat.model_fields)
    decisions = spec.model_dump(mode="json", exclude=places)
    decisions["source"] = without_defaults(decisions["source"])
    decisions["public_truth"] = spec.public_truth is not None
    decisions["generator"] = public_generator(spec)
    decisions["weights"]["post_processing"] = public_steps(spec)
    body = {"spec": decisions, "schema": schema.to_mapping(), "dpiw": __version__}
    return hashlib.sha256(b"dpiw-plan-v1\n" + compact_json(body).encode()).hexdigest()


def run_key(spec: ReleaseSpec, schema: PublicSchema, period: str) -> str:
    """Idempotency key of one run: population, decisions, input snapshot and period."""
    parts = {
        "population": spec.population,
        "plan": spec_digest(spec, schema),
        "snapshot": spec.source.snapshot,
        "period": period,
    }
    return hashlib.sha256(b"dpiw-run-v1\n" + compact_json(parts).encode()).hexdigest()
