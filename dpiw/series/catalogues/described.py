"""What every catalogue says of a release, from its signed files alone.

Certificate, manifest, dictionary and `croissant.json` are public and signed; nothing else is read.
Texts are `shown`: a control character, which XML forbids, becomes its escape in every format.
"""

import base64
import datetime
import re
from dataclasses import dataclass
from functools import cached_property

from dpiw.data.documents import parse_canonical
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError, shown
from dpiw.privacy.event_records import events_text
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.certificate import Certificate, CertifiedStage
from dpiw.release.croissant import NOT_STATED, CatalogueEntry, croissant_json
from dpiw.release.manifest import REPLICATES, SCHEMA, Facts, listed_row_files
from dpiw.release.verification import VerifiedRelease, signed_bytes

_URL = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9._~:/?#@!$&'()*+,;=%-]*")
_DAY, _WEEK = r"(\d{4})-(\d\d)-(\d\d)", r"(\d{4})-w(\d\d)"
_MONTH, _QUARTER, _YEAR = r"(\d{4})-(\d\d)", r"(\d{4})-q([1-4])", r"(\d{4})"


def text(value: object) -> str:
    """Return a text as every format may hold it: no control character, no line end."""
    return shown(value, most=None)


def url_of(value: str) -> str | None:
    """Return a text that is an `http` or `https` address and needs no escape, else None."""
    return value if _URL.fullmatch(value) else None


def days_of(period: str) -> tuple[datetime.date, datetime.date] | None:
    """Return the first and last day of a period's label; None for `once` and other labels.

    >>> [str(day) for day in days_of("2027-q1")]
    ['2027-01-01', '2027-03-31']
    """
    try:
        return _days(period)
    except ValueError:  # no such day, week or month
        return None


def _days(period: str) -> tuple[datetime.date, datetime.date] | None:
    if found := re.fullmatch(_DAY, period):
        day = datetime.date(*map(int, found.groups()))
        return day, day
    if found := re.fullmatch(_WEEK, period):
        year, week = map(int, found.groups())
        first = datetime.date.fromisocalendar(year, week, 1)
        return first, first + datetime.timedelta(days=6)
    if found := re.fullmatch(_MONTH, period):
        year, month = map(int, found.groups())
        return _months(year, month, 1)
    if found := re.fullmatch(_QUARTER, period):
        year, quarter = map(int, found.groups())
        return _months(year, 3 * quarter - 2, 3)
    return _months(int(period), 1, 12) if re.fullmatch(_YEAR, period) else None


def _months(year: int, month: int, count: int) -> tuple[datetime.date, datetime.date]:
    first = datetime.date(year, month, 1)
    last = month + count - 1
    after = datetime.date(year + last // 12, last % 12 + 1, 1)
    return first, after - datetime.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Described:
    """A release and where its files lie.

    Attributes:
        release: as `dpiw.release.verification.verify` returned it.
        schema: its data dictionary.
        entry: what the curator declared for catalogues.
        base_url: precedes the names of files, ends in `/`; empty: nowhere yet.
    """

    release: VerifiedRelease
    schema: PublicSchema
    entry: CatalogueEntry
    base_url: str

    @classmethod
    def of(cls, release: VerifiedRelease, base_url: str | None) -> "Described":
        """Read dictionary and declared facts, comparing them with the manifest.

        Raises SpecError for a `base_url` that is no address, ReleaseError if a file was changed
        since `verify`.
        """
        if base_url is not None and url_of(base_url) is None:
            allowed = "an http or https address such as https://example.org/releases/r1/"
            raise SpecError(field="base_url", allowed=allowed)
        data = signed_bytes(release.folder, release.manifest, SCHEMA).data
        return cls(
            release=release,
            schema=PublicSchema.from_mapping(parse_canonical(data, what=SCHEMA)),
            entry=CatalogueEntry.of(release.folder, release.manifest),
            base_url=f"{base_url.rstrip('/')}/" if base_url else "",
        )

    @property
    def certificate(self) -> Certificate:
        """The release's certificate."""
        return self.release.certificate

    @property
    def facts(self) -> Facts:
        """The manifest's facts."""
        return self.release.manifest.facts

    @property
    def row_files(self) -> tuple[str, ...]:
        """Files of rows, in order."""
        return listed_row_files(self.release.manifest.files)

    @property
    def creator(self) -> str | None:
        """Who publishes the release, if the curator declared it."""
        return None if self.entry.creator == NOT_STATED else text(self.entry.creator)

    @property
    def licence(self) -> str | None:
        """The licence, a URL or a name, if the curator declared it."""
        return None if self.entry.licence == NOT_STATED else text(self.entry.licence)

    @property
    def page(self) -> str | None:
        """Where people read more: what the curator declared, else the report's address."""
        return url_of(self.entry.url) or (f"{self.base_url}report.html" if self.base_url else None)

    def digest_name(self, sha256: str) -> str:
        """Return the name of a thing by its SHA-256. Source: RFC 6920."""
        digest = base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip("=")
        return f"ni:///sha-256;{digest}"

    @cached_property
    def name(self) -> str:
        """The release's identifier in linked data: its address, else its manifest's digest."""
        return self.base_url or self.digest_name(self.release.manifest.digest)

    def file_name(self, name: str) -> str:
        """Return a file's identifier in linked data: its address, else its digest."""
        if self.base_url:
            return f"{self.base_url}{name}"
        return self.digest_name(self.release.manifest.files[name].sha256)

    @property
    def title(self) -> str:
        """One line that names the release."""
        facts = self.certificate
        return text(f"Synthetic rows of population {facts.population}, period {facts.period}")

    @property
    def days(self) -> tuple[datetime.date, datetime.date] | None:
        """First and last day of the period, if its label names days."""
        return days_of(self.certificate.period)

    @property
    def unit(self) -> str:
        """Whom the guarantee protects."""
        unit = self.certificate.unit
        if unit.id_column is None:
            return "one row of the confidential table"
        rows = "1 row" if unit.max_rows == 1 else f"at most {unit.max_rows} rows"
        return text(f"one person: {rows} with the same value of column {unit.id_column}")

    @property
    def neighbours(self) -> str:
        """Which two tables the guarantee cannot tell apart."""
        add = self.certificate.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
        if add:
            return f"one table has {self.unit}, and the other lacks it; the rest is equal"
        return f"the two tables differ in {self.unit}; the number of rows is equal and public"

    @property
    def guarantee(self) -> str:
        """The promise in one sentence, and what of it is only declared."""
        facts = self.certificate
        declared = "" if facts.declared is None else f" Of these: {text(facts.declared)}."
        return (
            f"Differential privacy with epsilon={facts.epsilon}, delta={facts.delta}, under"
            f" {facts.relation.value.replace('_', ' ')}, for {self.unit}.{declared}"
        )

    @property
    def description(self) -> str:
        """A paragraph for readers of a catalogue."""
        weights = text(self.certificate.weights_are) if self.certificate.is_weighted else "none"
        return (
            "Synthetic rows from a statistical model of a confidential table. No row describes a"
            f" person. {self.guarantee} Weights: {weights}."
        )

    @property
    def source(self) -> str:
        """The confidential table, as the certificate names it."""
        facts = self.certificate
        return text(f"confidential table of population {facts.population}, period {facts.period}")

    def mechanism(self, stage: CertifiedStage) -> str:
        """Return what a stage drew: method, and the law and number of its draws."""
        return text(f"{stage.method}: {events_text(stage.events)}")

    def is_declared(self, stage: CertifiedStage) -> bool:
        """Whether another tool drew it, so that its cost is the word of who declared it."""
        return any(event.get("type") == "declared" for event in stage.events)

    def drawn_in(self, stage: CertifiedStage) -> int:
        """Return how many paid attempts drew, or may have drawn, this stage."""
        states = [attempt.get("stages") for attempt in self.certificate.attempts]
        return sum(isinstance(each, dict) and stage.stage in each for each in states)


def croissant(release: Described) -> bytes:
    """Write `croissant.json` as the release holds it, with the addresses of its files."""
    files = release.release.manifest.files
    return croissant_json(
        release.certificate,
        schema=release.schema,
        rows={name: files[name] for name in release.row_files},
        replicates=files.get(REPLICATES),
        published_at=release.facts.published_at,
        catalogue=release.entry,
        base_url=release.base_url,
    )
