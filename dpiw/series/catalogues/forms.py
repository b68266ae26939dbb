"""What every form says of a release, from its signed files alone; a template for each form.

Certificate, manifest, dictionary and `croissant.json` are public and signed; nothing else is read.
Texts are `shown`: a control character, which XML forbids, becomes its escape in every form.
"""

import base64
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from dpiw.data.documents import parse_canonical
from dpiw.data.schema.columns import ColumnRole
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError, is_plain, optional, shown
from dpiw.plan.calendar import days_of
from dpiw.privacy.event_records import events_text
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.certificate import Certificate, CertifiedStage
from dpiw.release.croissant import NOT_STATED, CatalogueEntry, croissant_json, weight_description
from dpiw.release.manifest import CERTIFICATE, REPLICATES, REPORT, SCHEMA, listed_row_files
from dpiw.release.parquet import LOG_WEIGHT, WEIGHT_ROLES
from dpiw.release.verification import VerifiedRelease, signed_bytes
from dpiw.series.catalogues import CATALOGUES

_URL = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9._~:/?#@!$&'()*+,;=%-]*")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#|$&~])")


def catalogues(release: VerifiedRelease, *, base_url: str | None = None) -> dict[str, bytes]:
    """Return every form by file name; arguments and errors are those of `catalogue`."""
    return {name: catalogue(release, form, base_url=base_url) for form, name in CATALOGUES.items()}


def catalogue(release: VerifiedRelease, form: str, *, base_url: str | None = None) -> bytes:
    """Return one form (a key of `CATALOGUES`) of a release's metadata, the same bytes each time.

    Args:
        release: what `dpiw.release.verification.verify` returned.
        form: which form.
        base_url: the address of the published folder; None: files have no address, and are named
            by their SHA-256.

    Raises:
        SpecError: `base_url` is no address.
        ReleaseError: a file was changed since `verify`, or Jinja2 is missing, which some forms
            need and an analyst need not have.

    Privacy: reads public, signed files only; costs nothing.
    """
    if base_url is not None and _url_of(base_url) is None:
        allowed = "an http or https address such as https://example.org/releases/r1/"
        raise SpecError(field="base_url", allowed=allowed)
    data = signed_bytes(release.folder, release.manifest, SCHEMA).data
    schema = PublicSchema.from_mapping(parse_canonical(data, what=SCHEMA))
    entry = CatalogueEntry.of(release.folder, release.manifest)
    return filled(form, release, schema, entry, f"{base_url.rstrip('/')}/" if base_url else "")


def filled(
    form: str, release: VerifiedRelease, schema: PublicSchema, entry: CatalogueEntry, base: str
) -> bytes:
    """Write a form of a release with this dictionary and what its curator declared.

    `base` precedes the names of files. Raises ReleaseError without Jinja2.
    """
    if form == "croissant":
        return croissant_json(
            release.certificate, schema=schema, files=release.manifest.files, catalogue=entry,
            published_at=release.manifest.facts.published_at, base_url=base,
        )  # fmt: skip
    optional("jinja2", extra="pipeline")
    from dpiw.release.report.pages import plain, render

    values = _described(release, schema, entry, base)
    return render(f"series/catalogues/{CATALOGUES[form]}.j2", plain=plain, **values).encode()


def _described(
    release: VerifiedRelease, schema: PublicSchema, entry: CatalogueEntry, base: str
) -> dict[str, Any]:
    """The names that templates may use; what the curator did not declare is None."""
    facts, manifest = release.certificate, release.manifest
    rows, unit = listed_row_files(manifest.files), _unit(facts)
    place = _text(f"population {facts.population}, period {facts.period}")
    guarantee = (
        f"Differential privacy with epsilon={facts.epsilon}, delta={facts.delta}, under"
        f" {facts.relation.value.replace('_', ' ')}, for {unit}."
        + ("" if facts.declared is None else f" Of these: {_text(facts.declared)}.")
    )
    weights = _text(facts.weights_are) if facts.is_weighted else "none"

    def name_of(file: str) -> str:
        """A file's identifier in linked data: its address, else its digest."""
        return f"{base}{file}" if base else _digest_name(manifest.files[file].sha256)

    return {
        "facts": facts,
        "public": manifest.facts,
        "files": manifest.files,
        "row_files": rows,
        "readable": [f for f in (*rows, CERTIFICATE, SCHEMA, REPORT, REPLICATES)
                     if f in manifest.files],
        "columns": schema.released,
        "has_identifier": any(column.role is ColumnRole.IDENTIFIER for column in schema.columns),
        "key_id": release.key_id,
        "slug": re.sub(r"[^a-z0-9]+", "-", facts.release_id.lower()).strip("-"),
        # Where it lies, and what the curator declared
        "base": base,
        "name": base or _digest_name(manifest.digest),
        "creator": None if entry.creator == NOT_STATED else _text(entry.creator),
        "licence": None if entry.licence == NOT_STATED else _text(entry.licence),
        "page": _url_of(entry.url) or (f"{base}report.html" if base else None),
        # In words
        "title": f"Synthetic rows of {place}",
        "source": f"confidential table of {place}",
        "days": days_of(facts.period),
        "unit": unit,
        "neighbours": _neighbours(facts, unit),
        "guarantee": guarantee,
        "description": "Synthetic rows from a statistical model of a confidential table. No row"
        f" describes a person. {guarantee} Weights: {weights}.",
        "variant": "Pure" if Decimal(facts.delta) == 0 else "Approximate",
        "unprotected": _unprotected(facts),
        "composition": "Inside a run: privacy loss distributions of all draws together, checked"
        " with Renyi accounting. Across releases of a population:"
        f" {_text(facts.account['composition'])} composition, in a ledger that charges before data"
        " are read.",
        "utility": _utility(facts),
        "weight": weight_description(facts),
        "log_weight": WEIGHT_ROLES[LOG_WEIGHT],
        # To say more of a thing
        "name_of": name_of, "digest_name": _digest_name, "url_of": _url_of,
        "mechanism": _mechanism, "is_declared": _is_declared, "attempts_of": _attempts_of,
        "scalar": _scalar, "quoted": _quoted, "bullets": _bullets,
    }  # fmt: skip


def _unit(facts: Certificate) -> str:
    """Whom the guarantee protects."""
    unit = facts.unit
    if unit.id_column is None:
        return "one row of the confidential table"
    rows = "1 row" if unit.max_rows == 1 else f"at most {unit.max_rows} rows"
    return _text(f"one person: {rows} with the same value of column {unit.id_column}")


def _neighbours(facts: Certificate, unit: str) -> str:
    """Which two tables the guarantee cannot tell apart."""
    if facts.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        return f"one table has {unit}, and the other lacks it; the rest is equal"
    return f"the two tables differ in {unit}; the number of rows is equal and public"


def _unprotected(facts: Certificate) -> str:
    """Which quantities have no privacy noise."""
    said = ["dpiw publishes no statistic of the table without noise."]
    if facts.relation is NeighbouringRelation.REPLACE_ONE:
        said.append("The number of rows is public.")
    if facts.declared is not None:
        said.append("What the tool that made the rows published is not known here.")
    return " ".join(said)


def _utility(facts: Certificate) -> str:
    """What is known of the quality of the weights; all of it from released values."""
    if not facts.is_weighted:
        return "The release has no weights: estimates keep whatever bias the generator has."
    size = facts.diagnostics.get("effective_sample_size")
    rows = f" Effective sample size: {size:.0f}." if isinstance(size, int | float) else ""
    return f"Weights: {facts.weights_are}.{rows} Rule: {facts.verdict_rule}"


def _mechanism(stage: CertifiedStage) -> str:
    """What a stage drew: method, and the law and number of its draws."""
    return _text(f"{stage.method}: {events_text(stage.events)}")


def _is_declared(stage: CertifiedStage) -> bool:
    """Whether another tool drew it, so that its cost is the word of who declared it."""
    return any(event.get("type") == "declared" for event in stage.events)


def _attempts_of(facts: Certificate, stage: CertifiedStage) -> int:
    """How many paid attempts drew, or may have drawn, a stage."""
    states = [attempt.get("stages") for attempt in facts.attempts]
    return sum(isinstance(each, dict) and stage.stage in each for each in states)


def _text(value: object) -> str:
    return shown(value, most=None)


def _url_of(value: str) -> str | None:
    """The text if it is an `http` or `https` address and needs no escape, else None."""
    return value if _URL.fullmatch(value) else None


def _digest_name(sha256: str) -> str:
    """The name of a thing by its SHA-256. Source: RFC 6920."""
    digest = base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip("=")
    return f"ni:///sha-256;{digest}"


def _quoted(value: str) -> str:
    """Quote for YAML a text that Markdown, HTML and LaTeX then show as it is."""
    return _scalar(_escaped(value))


def _bullets(items: Iterable[str]) -> str:
    return _scalar("\n".join(f"- {_escaped(item)}" for item in items) or "None stated.")


def _escaped(value: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _text(value))


def _scalar(value: str) -> str:
    """Quote a text for YAML 1.1 and 1.2 alike."""
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if is_plain(c) else f"\\U{ord(c):08x}" for c in quoted)
