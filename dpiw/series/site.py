"""A public site: what an institution releases, promises and has spent, as static files.

All facts come from the certificates of verified folders and from the audit's count of the ledger,
and all moments from the ledger: the same ledger and folders give the same bytes. What operators
alone may know is left out: who acted, paths, reads without a draw, and reservations that drew
nothing, which may be given back.
"""

import hashlib
import math
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import TypeAdapter

from dpiw import __version__
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import delta_of, epsilon_of
from dpiw.audit.findings import Severity
from dpiw.audit.folders import FolderFacts
from dpiw.audit.records import PopulationTally, Tally, Units, worth
from dpiw.audit.statements import in_folders
from dpiw.data.documents import document_json, plain
from dpiw.data.files import make_folder, write_durably
from dpiw.errors import KEEP_AND_AUDIT, REASONS, LedgerTamperedError, ReleaseError, SpecError, shown
from dpiw.ledger.accounts import told_column
from dpiw.release.manifest import (
    CERTIFICATE,
    MANIFEST,
    REPORT,
    SIGNATURE,
    FileEntry,
    refuse_release,
)
from dpiw.release.report import pages
from dpiw.release.report.plots import Budget, budget_bar, spending
from dpiw.release.verification import VerifiedRelease, signed_bytes
from dpiw.series.catalogues.forms import catalogues
from dpiw.series.completeness import Series

TITLE = "Synthetic data releases"
INDEX, FEED, FACTS, FACTS_SCHEMA, PAGES = (
    "index.html", "feed.xml", "index.json", "index.schema.json", "pages",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """A lifetime budget in decimal text. Spent: by draws, which nobody can take back."""

    budget: str
    spent: str
    left: str


@dataclass(frozen=True, kw_only=True)
class PublicPopulation:
    """The people whom one lifetime budget protects; `unit` names a person's column, or each row.

    `delta` is None under the composition `renyi`, which has no sum of deltas. `spending`: epsilon
    spent by the time of each publication, in order, by period.
    """

    name: str
    relation: str
    max_rows: int
    unit: str
    composition: str
    epsilon: Lifetime
    delta: Lifetime | None
    spending: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class PublicFile:
    """A file of a release: size in bytes, SHA-256, and its place if it lies below the site."""

    name: str
    size: int
    sha256: str
    href: str | None


@dataclass(frozen=True, kw_only=True)
class PublicRelease:
    """A release whose signature and files were verified, and which the ledger has published.

    Attributes:
        updated: when it was published or withdrawn, such as `2027-01-31T06:00:00Z`.
        withdrawn: the reason, if it was withdrawn: `error`, `disclosure`, `superseded`, `request`.
        replaced_by, revises: names of the release to use instead, and of the one before.
        weights, reasons: the verdict of its weights, and why.
        key_id: the first 16 digits of the SHA-256 of the public key that signed it.
        page, documents: places of its page, and of report, certificate and catalogue entries.
    """

    release_id: str
    population: str
    period: str
    status: Literal["published", "withdrawn"]
    updated: str
    withdrawn: str | None
    replaced_by: str | None
    revises: str | None
    epsilon: str
    delta: str
    rows: int
    weights: str
    reasons: tuple[str, ...]
    manifest_sha256: str
    key_id: str
    page: str
    documents: tuple[str, ...]
    files: tuple[PublicFile, ...]


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Errors and warnings of the audit, by title."""

    severity: Literal["error", "warning"]
    title: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Site:
    """All facts of the site. Later versions may add fields; these stay, unless the format changes.

    Places (`page`, `href`, `documents`) are relative to this file. `updated`: when the ledger last
    changed anything that is shown here. `keys`: ids of the public keys that releases were checked
    against; none: of unknown signers. `releases`: newest first.
    """

    format: Literal["dpiw-site"] = "dpiw-site"
    format_version: int = 1
    title: str
    url: str | None
    updated: str
    keys: tuple[str, ...]
    populations: tuple[PublicPopulation, ...]
    series: tuple[Series, ...]
    releases: tuple[PublicRelease, ...]
    incidents: tuple[Incident, ...]


_OF_OPERATORS = frozenset({"too_many_reads", "stage_armed"})
"""Findings on reads without a draw, and on draws under way. Notes are no incidents."""

_TITLES = {
    "cost_above_charge": "A draw cost more than the ledger charged",
    "cost_declared": "A cost was declared by somebody, not computed",
    "draw_lost": "A draw was lost; its cost stays charged",
    "folder_missing": "A published release is not in the given folders",
    "folder_unknown": "No entry of the ledger published a release, which is not shown here",
    "folder_unsound": "A release is not as it was signed, and is not shown here",
    "head_missing": "A release names an entry that the ledger lacks",
    "key_not_pinned": "No public key was given: nothing shows who signed the releases",
    "loss_stated": "A custodian recorded draws that no release shows",
    "not_published": "A draw was paid for and is not published",
    "other_key": "A release is signed by an unknown key, and is not shown here",
    "overspent": "A population's charges exceed its lifetime budget",
    "previous_disagrees": "The releases do not form one chain",
    "recovered": "A release that the ledger had lost was charged again",
    "rows_paid_before": "The rows of a release were paid for by another run",
    "threshold_too_low": "A listed level may belong to one person",
}
"""Public titles of findings; any other shows its code."""


def build_site(
    report: AuditReport,
    series: Sequence[Series] = (),
    *,
    out: Path,
    title: str = TITLE,
    url: str | None = None,
) -> dict[str, bytes]:
    """Return the site's files by their names; the same arguments give the same bytes.

    Files of releases are linked if they lie below `out`. Raises LedgerTamperedError for a ledger
    that proves nothing: unreadable, or of a broken chain.
    """
    counted, codes = report.counted, {finding.code for finding in report.findings}
    if counted is None or not counted.times or codes & {"ledger_unreadable", "chain_broken"}:
        raise LedgerTamperedError(
            "its chain is broken, so nothing shows what was spent; the site was not written",
            field="ledger",
            next=[KEEP_AND_AUDIT],
        )
    base = None if url is None else url.rstrip("/") + "/"
    files: dict[str, bytes] = {}
    releases: dict[str, PublicRelease] = {}
    for folder in report.folders:
        release = folder.release
        if release is None or release.certificate.release_id in releases:
            continue
        if not _is_published(folder, release, counted):
            continue
        below = _place_below(release.folder, out)
        gone = _withdrawal(folder, counted)
        address = f"{base}{below}" if base and below else None
        documents = _documents(release, bool(gone), address)
        run = counted.runs.get(folder.run_key or "")
        place = 0 if run is None or run.published is None else run.published
        moment = counted.times.get(place, release.manifest.facts.published_at)
        facts = _public_release(release, gone, moment, [*documents], below)
        documents[INDEX] = pages.render(
            "series/release.html.j2",
            site=title,
            facts=facts,
            why_withdrawn=REASONS.get(facts.withdrawn or "", ""),
            certificate=release.certificate,
            pinned=report.pinned,
            address=base if facts.files and below else None,
            up="../../",
        ).encode()
        releases[facts.release_id] = facts
        files |= {f"{PAGES}/{facts.release_id}/{name}": documents[name] for name in documents}
    newest = sorted(releases.values(), key=lambda r: (r.updated, r.release_id), reverse=True)
    populations = [tally for _, tally in sorted(counted.populations.items())]
    people = tuple(_population(tally, counted) for tally in populations)
    site = Site(
        title=title, url=base, updated=_updated(counted), keys=report.given, populations=people,
        series=tuple(series), releases=tuple(newest), incidents=tuple(_incidents(report, counted)),
    )  # fmt: skip
    views = [_view(*pair, report) for pair in zip(people, populations, strict=True)]
    places = {release.release_id: release.page for release in newest}
    feed = pages.render("series/feed.xml.j2", site=site, base=base or "", identifier=_identifier)
    index = pages.render(
        "series/index.html.j2", site=site, version=__version__, views=views, pages=places
    )
    schema = document_json(facts_schema())
    files |= {FACTS: document_json(plain(site)), FACTS_SCHEMA: schema}
    return files | {FEED: feed.encode(), INDEX: index.encode()}


def _updated(counted: Tally) -> str:
    """Moment of the last entry that is public by its effect; reads and reservations are not."""
    places = [seq for p in counted.populations.values() for seq, _ in (*p.history[:1], *p.drawn)]
    places += [run.published for run in counted.runs.values() if run.published is not None]
    places += [record.seq for record in counted.withdrawn.values()]
    return counted.times[max(places, default=min(counted.times))]


def facts_schema() -> dict[str, Any]:
    """Return the JSON Schema of `index.json`."""
    schema = TypeAdapter(Site).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _identifier(text: str) -> str:
    """A permanent identifier for Atom, the same for the same text."""
    return uuid.uuid5(uuid.NAMESPACE_URL, text).urn


def _is_published(folder: FolderFacts, release: VerifiedRelease, counted: Tally) -> bool:
    """Whether the ledger has published a release, or recovered it."""
    known = {folder.manifest_digest, release.manifest.facts.rows_of}
    return folder.run_key is not None or bool(known & counted.recovered.keys())


def _withdrawal(folder: FolderFacts, counted: Tally) -> dict[str, str | None]:
    """When and why a release was withdrawn, by its tombstone or by the ledger alone; else empty."""
    if folder.tombstone is not None:
        stated = folder.tombstone.tombstone.statement
        other = None if stated.replaced_by is None else stated.replaced_by.release_id
        return {"updated": stated.withdrawn_at, "withdrawn": stated.reason, "replaced_by": other}
    if record := counted.withdrawn.get(folder.manifest_digest or ""):
        return {"updated": counted.times[record.seq], "withdrawn": record.reason}
    return {}


def _documents(release: VerifiedRelease, is_withdrawn: bool, base: str | None) -> dict[str, bytes]:
    """Files of a release's page: report, certificate, and entries for catalogues."""
    names = (CERTIFICATE,) if is_withdrawn else (REPORT, CERTIFICATE)
    own = {
        name: signed_bytes(release.folder, release.manifest, name).data
        for name in names
        if name in release.manifest.files
    }
    return own if is_withdrawn else own | catalogues(release, base_url=base)


def _place_below(folder: Path, out: Path) -> str | None:
    """Address of a folder relative to the site, in which it lies; else None."""
    home, resolved = out.resolve(), folder.resolve()
    return quote(resolved.relative_to(home).as_posix()) if resolved.is_relative_to(home) else None


def _public_release(
    release: VerifiedRelease, gone: Mapping[str, Any], published: str, documents: Iterable[str],
    below: str | None,
) -> PublicRelease:  # fmt: skip
    """The facts of a release; a withdrawn one offers no files."""
    certificate, manifest = release.certificate, release.manifest
    signature = (release.folder / SIGNATURE).read_bytes()
    signed = {
        name: FileEntry(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for name, data in {MANIFEST: manifest.to_bytes(), SIGNATURE: signature}.items()
    }
    offered = {} if gone else {**signed, **dict(sorted(manifest.files.items()))}
    place = f"{PAGES}/{quote(certificate.release_id)}"
    dates = {"updated": published, "withdrawn": None, "replaced_by": None, **gone}
    return PublicRelease(
        release_id=certificate.release_id,
        population=certificate.population,
        period=certificate.period,
        status="withdrawn" if gone else "published",
        revises=None if certificate.revises is None else certificate.revises["release_id"],
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        rows=manifest.facts.rows,
        weights=certificate.weights_are,
        reasons=tuple(certificate.diagnostics.get("reasons", ())),
        manifest_sha256=manifest.digest,
        key_id=release.key_id,
        page=f"{place}/{INDEX}",
        documents=tuple(f"{place}/{quote(name)}" for name in documents),
        files=tuple(
            PublicFile(name=name, size=entry.size, sha256=entry.sha256,
                       href=f"{below}/{quote(name)}" if below else None)
            for name, entry in offered.items()
        ),
        **dates,
    )  # fmt: skip


def _population(population: PopulationTally, counted: Tally) -> PublicPopulation:
    """The facts of a population; a recovered release spends when it was recovered."""
    published = [(run.published, run.period) for run in counted.runs_of(population.name)]
    recovered = [
        (lost.seq, lost.period)
        for lost in counted.recovered.values()
        if lost.population == population.name
    ]
    steps = sorted((seq, period) for seq, period in published + recovered if seq is not None)
    budget, drawn = population.budget, worth(population, population.drawn_by(max(counted.times)))
    is_sum = population.composition != "renyi"
    return PublicPopulation(
        name=population.name,
        relation=population.relation,
        max_rows=population.max_rows,
        unit=told_column(population.id_column or "each row"),
        composition=population.composition,
        epsilon=_lifetime(epsilon_of(budget), epsilon_of(drawn)),
        delta=_lifetime(delta_of(budget), delta_of(drawn)) if is_sum else None,
        spending=tuple(
            (period, _text(epsilon_of(worth(population, population.drawn_by(seq)))))
            for seq, period in steps
        ),
    )


def _lifetime(budget: Decimal, spent: Decimal) -> Lifetime:
    left = max(budget - spent, Decimal(0))
    return Lifetime(budget=_text(budget), spent=_text(spent), left=_text(left))


def _text(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _incidents(report: AuditReport, counted: Tally) -> Iterator[Incident]:
    """What the audit found, errors first, less what only operators may know."""
    runs = counted.runs.values()
    undrawn = {f"run {run.key[:12]}" for run in runs if run.drawn == Units()}
    undrawn |= {f"run {r.key[:12]} attempt {a.number}" for r in runs for a in r.attempts
                if not a.armed}  # fmt: skip
    titles: dict[Severity, list[str]] = {Severity.ERROR: [], Severity.WARNING: []}
    for found in report.findings:
        is_shown = found.severity in titles and found.code not in _OF_OPERATORS
        words = found.subject.split()
        if is_shown and not undrawn & {" ".join(words[:2]), " ".join(words[:4])}:
            plain_code = found.code.replace("_", " ").capitalize()
            titles[found.severity].append(_TITLES.get(found.code, plain_code))
    for title, count in sorted(Counter(titles[Severity.ERROR]).items()):
        yield Incident(severity="error", title=title, count=count)
    for title, count in sorted(Counter(titles[Severity.WARNING]).items()):
        yield Incident(severity="warning", title=title, count=count)


def _view(
    facts: PublicPopulation, population: PopulationTally, report: AuditReport
) -> dict[str, Any]:
    """One population, as the template shows it."""
    name, budget = population.name, population.budget
    growth = math.exp(min(float(epsilon_of(budget)), 700.0))
    inside = worth(population, in_folders(report, name))
    steps = [(shown(period), Decimal(spent)) for period, spent in facts.spending]
    return {
        "facts": facts,
        "guess": pages.percent_above((growth + float(delta_of(budget))) / (1 + growth)),
        "spending": spending(
            [*steps, ("now", Decimal(facts.epsilon.spent))],
            epsilon_of(budget),
            title=f"Epsilon spent for population {name}, after each period",
        ),
        "budgets": {
            "ε": _bar("ε", facts.epsilon, epsilon_of(inside), name),
            "δ": facts.delta and _bar("δ", facts.delta, delta_of(inside), name),
        },
    }


def _bar(letter: str, life: Lifetime, inside: Decimal, name: str) -> Budget | None:
    spent = Decimal(life.spent)
    outside = max(spent - inside, Decimal(0))
    parts = {"in these releases": inside, "in no release shown here": outside}
    title = f"Lifetime {letter} of population {name}"
    return budget_bar(letter, Decimal(life.budget), spent, parts, title=title)


def write_site(files: Mapping[str, bytes], out: Path) -> None:
    """Write the site's files into `out`, in which other files may lie, such as releases.

    Each takes its place in one step, the index last; then pages of the last time that are no more
    are removed. Raises SpecError if `out` holds another site or lies in a release, ReleaseError if
    it cannot be written: the same command again completes it.
    """
    refuse_release(out)
    ours, own = out / FACTS_SCHEMA, out / PAGES
    others = [name for name in (INDEX, FEED, FACTS, PAGES) if os.path.lexists(out / name)]
    if own.is_symlink() or (others and not ours.is_file()):
        raise SpecError(f"{out.name} has {others[0]}, which no `dpiw site` wrote", field="out",
                        allowed="a new folder, or one that this command wrote")  # fmt: skip
    try:
        # The schema marks the folder as ours; pages are there before an index links to them.
        last = [FACTS, FEED, INDEX]
        for name in [FACTS_SCHEMA, *sorted(files.keys() - {FACTS_SCHEMA, *last}), *last]:
            make_folder((out / name).parent, mode=0o755, parents=True)
            write_durably(out / name, files[name], mode=0o644)
        for folder in sorted(own.glob("*/")):
            for path in folder.iterdir():
                if f"{PAGES}/{folder.name}/{path.name}" not in files:
                    path.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()
    except OSError as reason:
        raise ReleaseError(reason.strerror, field=f"site {out.name}") from reason
