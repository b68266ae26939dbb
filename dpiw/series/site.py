"""A public site: what an institution releases, promises and has spent, as static files.

All facts come from the certificates of verified folders and from the audit's count of the ledger,
and all moments from the ledger: the same ledger and folders give the same bytes. What operators
alone may know is left out: who acted, paths, reads without a draw, and reservations that drew
nothing, which may be given back.
"""

import hashlib
import math
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from dpiw.series.catalogues import catalogues
from dpiw.series.completeness import Series, Status

TITLE = "Synthetic data releases"
FORMAT_VERSION = 1
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
    """The people whom one lifetime budget protects.

    Attributes:
        unit: the column that names a person, or `each row`.
        delta: None if the composition `renyi` has no sum of deltas.
        spending: epsilon that was spent by the time of each publication, in order, by period.
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

    Places (`page`, `href`, `documents`) are relative to this file.

    Attributes:
        url: the site's public address, or None.
        updated: when the ledger last changed anything that is shown here.
        keys: ids of the public keys that releases were checked against; none: of unknown signers.
        releases: newest first.
        series: calendars, each period published, pending, missing or withdrawn.
    """

    format: Literal["dpiw-site"] = "dpiw-site"
    format_version: int = FORMAT_VERSION
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
    address = None if url is None else url.rstrip("/") + "/"
    files: dict[str, bytes] = {}
    shown: dict[str, PublicRelease] = {}
    for folder, release in _published(report, counted):
        gone = _withdrawal(folder, counted)
        documents = _documents(release, gone, out=out, url=address)
        entry = _public_release(folder, release, counted, gone, out=out, documents=[*documents])
        if shown.setdefault(entry.release_id, entry) is entry:
            documents[INDEX] = _release_page(
                entry, release, site=title, url=address, pinned=report.pinned
            )
            files |= {f"{PAGES}/{entry.release_id}/{name}": documents[name] for name in documents}
    site = Site(
        title=title,
        url=address,
        updated=_updated(counted),
        keys=report.given,
        populations=tuple(_population(p, counted) for _, p in sorted(counted.populations.items())),
        series=tuple(series),
        releases=tuple(
            sorted(shown.values(), key=lambda r: (r.updated, r.release_id), reverse=True)
        ),
        incidents=tuple(_incidents(report, counted)),
    )
    files[FACTS] = document_json(plain(site))
    files[FACTS_SCHEMA] = document_json(facts_schema())
    files[FEED] = pages.render(
        "series/feed.xml.j2", site=site, base=address or "", identifier=_identifier
    ).encode()
    files[INDEX] = pages.render(
        "series/index.html.j2",
        site=site,
        version=__version__,
        views=tuple(
            _population_view(facts, report, counted.populations[facts.name])
            for facts in site.populations
        ),
        pages={release.release_id: release.page for release in site.releases},
        missing=tuple(
            (calendar.name, period.label, period.why)
            for calendar in series
            for period in calendar.periods
            if period.status is Status.MISSING
        ),
    ).encode()
    return files


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


def _published(
    report: AuditReport, counted: Tally
) -> Iterator[tuple[FolderFacts, VerifiedRelease]]:
    """Folders that verified and that the ledger has published, or recovered."""
    for folder in report.folders:
        if (release := folder.release) is not None:
            known = {folder.manifest_digest, release.manifest.facts.rows_of}
            if folder.run_key is not None or known & counted.recovered.keys():
                yield folder, release


_Withdrawal = tuple[str | None, str | None, str | None]
"""When and why a release was withdrawn, and what replaces it; all None: it is in use."""


def _withdrawal(folder: FolderFacts, counted: Tally) -> _Withdrawal:
    """A folder's withdrawal, by its tombstone or by the ledger alone."""
    record = counted.withdrawn.get(folder.manifest_digest or "")
    if folder.tombstone is not None:
        stated = folder.tombstone.tombstone.statement
        other, at, reason = stated.replaced_by, stated.withdrawn_at, stated.reason
        name = None if other is None else other.release_id
    elif record is not None:
        name, at, reason = None, counted.times[record.seq], record.reason
    else:
        return None, None, None
    return at, reason, name


def _documents(
    release: VerifiedRelease, gone: _Withdrawal, *, out: Path, url: str | None
) -> dict[str, bytes]:
    """Files of a release's page: report, certificate, and entries for catalogues."""
    if any(gone):
        data = signed_bytes(release.folder, release.manifest, CERTIFICATE).data
        return {CERTIFICATE: data}
    names = [name for name in (REPORT, CERTIFICATE) if name in release.manifest.files]
    place = _place_below(release.folder, out)
    return {
        **{name: signed_bytes(release.folder, release.manifest, name).data for name in names},
        **catalogues(release, base_url=None if None in (url, place) else f"{url}{place}"),
    }


def _place_below(folder: Path, out: Path) -> str | None:
    """Address of a folder relative to the site, in which it lies; else None."""
    home, resolved = out.resolve(), folder.resolve()
    return quote(resolved.relative_to(home).as_posix()) if resolved.is_relative_to(home) else None


def _public_release(
    folder: FolderFacts, release: VerifiedRelease, counted: Tally, gone: _Withdrawal, *,
    out: Path, documents: Sequence[str],
) -> PublicRelease:  # fmt: skip
    certificate, facts, (at, reason, replaced_by) = (
        release.certificate,
        release.manifest.facts,
        gone,
    )
    signature = (release.folder / SIGNATURE).read_bytes()
    signed = {
        name: FileEntry(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for name, data in {MANIFEST: release.manifest.to_bytes(), SIGNATURE: signature}.items()
    }
    run = counted.runs.get(folder.run_key or "")
    seq = 0 if run is None or run.published is None else run.published
    place, below = f"{PAGES}/{quote(certificate.release_id)}", _place_below(release.folder, out)
    return PublicRelease(
        release_id=certificate.release_id,
        population=certificate.population,
        period=certificate.period,
        status="published" if at is None else "withdrawn",
        updated=at or counted.times.get(seq, facts.published_at),
        withdrawn=reason,
        replaced_by=replaced_by,
        revises=None if certificate.revises is None else certificate.revises["release_id"],
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        rows=facts.rows,
        weights=certificate.weights_are,
        reasons=tuple(certificate.diagnostics.get("reasons", ())),
        manifest_sha256=release.manifest.digest,
        key_id=release.key_id,
        page=f"{place}/{INDEX}",
        documents=tuple(f"{place}/{quote(name)}" for name in documents),
        files=tuple(
            PublicFile(
                name=name, size=entry.size, sha256=entry.sha256,
                href=f"{below}/{quote(name)}" if below else None,
            )
            for name, entry in [*signed.items(), *sorted(release.manifest.files.items())]
        )
        if at is None
        else (),
    )  # fmt: skip


def _population(population: PopulationTally, counted: Tally) -> PublicPopulation:
    drawn = worth(population, population.drawn_by(max(counted.times)))
    moments = [(run.published, run.period) for run in counted.runs_of(population.name)]
    moments += [
        (lost.seq, lost.period)
        for lost in counted.recovered.values()
        if lost.population == population.name
    ]
    steps = sorted((seq, period) for seq, period in moments if seq is not None)
    return PublicPopulation(
        name=population.name,
        relation=population.relation,
        max_rows=population.max_rows,
        unit=told_column(population.id_column or "each row"),
        composition=population.composition,
        epsilon=_lifetime(epsilon_of(population.budget), epsilon_of(drawn)),
        delta=None
        if population.composition == "renyi"
        else _lifetime(delta_of(population.budget), delta_of(drawn)),
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
    undrawn = {f"run {run.key[:12]}" for run in counted.runs.values() if run.drawn == Units()}
    counts = Counter(
        (finding.severity, _TITLES.get(finding.code, finding.code.replace("_", " ").capitalize()))
        for finding in report.findings
        if finding.severity is not Severity.NOTE and finding.code not in _OF_OPERATORS
        if " ".join(finding.subject.split()[:2]) not in undrawn
    )
    for severity in (Severity.ERROR, Severity.WARNING):
        for title, count in sorted((t, n) for (kind, t), n in counts.items() if kind is severity):
            name: Literal["error", "warning"] = "error" if severity is Severity.ERROR else "warning"
            yield Incident(severity=name, title=title, count=count)


def _population_view(
    facts: PublicPopulation, report: AuditReport, population: PopulationTally
) -> dict[str, Any]:
    """One population, as the template shows it."""
    name, budget = population.name, epsilon_of(population.budget)
    growth = math.exp(min(float(budget), 700.0))
    steps = [(shown(period), Decimal(spent)) for period, spent in facts.spending]
    inside = worth(population, in_folders(report, name))
    lives = {"ε": (facts.epsilon, epsilon_of(inside)), "δ": (facts.delta, delta_of(inside))}
    return {
        "facts": facts,
        "guess": pages.percent_above((growth + float(delta_of(population.budget))) / (1 + growth)),
        "spending": spending(
            [*steps, ("now", Decimal(facts.epsilon.spent))],
            budget,
            title=f"Epsilon spent for population {name}, after each period",
        ),
        "budgets": {
            letter: _bar(letter, life, shown, name)
            for letter, (life, shown) in lives.items()
            if life is not None
        },
    }


def _bar(letter: str, life: Lifetime, shown: Decimal, name: str) -> Budget | None:
    spent = Decimal(life.spent)
    parts = {"in these releases": shown, "in no release shown here": max(spent - shown, Decimal(0))}
    title = f"Lifetime {letter} of population {name}"
    return budget_bar(letter, Decimal(life.budget), spent, parts, title=title)


def _release_page(
    facts: PublicRelease, release: VerifiedRelease, *, site: str, url: str | None, pinned: bool
) -> bytes:
    return pages.render(
        "series/release.html.j2",
        facts=facts,
        why_withdrawn=REASONS.get(facts.withdrawn or "", ""),
        certificate=release.certificate,
        site=site,
        pinned=pinned,
        weighted=release.certificate.is_weighted,
        documents={place.rpartition("/")[2]: place for place in facts.documents},
        address=url if facts.files and facts.files[0].href else None,
        up="../../",
    ).encode()


def write_site(files: Mapping[str, bytes], out: Path) -> None:
    """Write the site's files into `out`, in which other files may lie, such as releases.

    All are written beside the old ones first. Then each takes its place in one step, the index
    last, and pages of the last time that are no more are removed. Raises SpecError if `out` holds
    another site or lies in a release, ReleaseError if it cannot be written.
    """
    refuse_release(out, field="out")
    ours, own = out / FACTS_SCHEMA, out / PAGES
    others = [name for name in (INDEX, FEED, FACTS, PAGES) if os.path.lexists(out / name)]
    if own.is_symlink() or (others and not ours.is_file()):
        raise SpecError(f"{out.name} has {others[0]}, which no `dpiw site` wrote", field="out",
                        allowed="a new folder, or one that this command wrote")  # fmt: skip
    try:
        make_folder(out, mode=0o755, parents=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".site-") as draft:
            for name, data in files.items():
                (Path(draft) / name).parent.mkdir(parents=True, exist_ok=True)
                write_durably(Path(draft) / name, data, mode=0o644)
            # The schema marks the folder as ours; pages are there before an index links to them.
            last = [FACTS, FEED, INDEX]
            for name in [FACTS_SCHEMA, *sorted(files.keys() - {FACTS_SCHEMA, *last}), *last]:
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(draft) / name, out / name)
        for folder in sorted(own.glob("*/")):
            for path in folder.iterdir():
                if f"{PAGES}/{folder.name}/{path.name}" not in files:
                    path.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()
    except OSError as reason:
        raise ReleaseError(reason.strerror, field=f"site {out.name}") from reason
