"""The sections of a release spec, with a sentence on each field; editors show it.

Every default is public and fixed here (docs/spec.md).
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from dpiw.data.cells.formats import FORMAT_FIELDS, ISO, CellFormat
from dpiw.data.source.copy import IngestLimits
from dpiw.methods.weights.registry import NONE, usual_effort
from dpiw.plan.spec_types import (
    Count,
    Exact,
    Flag,
    Label,
    Location,
    Name,
    PlainText,
    Section,
    Settings,
    Share,
    Zone,
)


class SourceFormat(Section):
    """How the confidential table's bytes are to be read.

    `snapshot` is the curator's public label of this state of the file. It is part of the run's
    identity: the same label, period and plan are the same run, whatever happens to the file.
    How cells are written (`decimal` to `missing`) is for every column that does not say otherwise
    in the data dictionary; see `dpiw.data.cells.formats`.

    So are the limits: a read that fails at one tells about the table, and another limit is another
    run. There is none on the number of rows, and that on memory is large, so that no setting makes
    the size of an ordinary table decide how a run ends.

    Attributes:
        format: the form of the confidential file, `csv` or `parquet`.
        encoding: the encoding of a CSV file.
        delimiter: what stands between the cells of a CSV file.
        decimal: the decimal mark of its numbers, `.` or `,`.
        thousands: what stands between groups of three digits: `none`, `,`, `.`, `'` or `space`.
        date_format: how dates are written: `iso`, or a pattern such as `%d.%m.%Y`.
        datetime_format: how date-times are written: `iso`, or a pattern such as `%d.%m.%Y %H:%M`.
        missing: texts that mean a missing cell, beside the empty one.
        snapshot: your public label of this state of the file; part of the run's identity.
        max_columns: the most columns that are read.
        max_cell_bytes: the most bytes that a cell may have.
        max_memory_bytes: the most memory that a stage may hold at once; the table may be larger.
    """

    format: Literal["csv", "parquet"]
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252"] = "utf-8"
    delimiter: Literal[",", ";", "\t", "|"] = ","
    decimal: str = "."
    thousands: str = "none"
    date_format: str = ISO
    datetime_format: str = ISO
    missing: tuple[Any, ...] = ()
    snapshot: Name = "initial"
    max_columns: Annotated[Count, Field(ge=1, le=100_000)] = 1_000
    max_cell_bytes: Annotated[Count, Field(ge=1, le=1 << 24)] = 10_000
    max_memory_bytes: Annotated[Count, Field(ge=1 << 32, le=1 << 42)] = 16 << 30

    @property
    def written(self) -> CellFormat:
        """How the file's cells are written."""
        return CellFormat(**{name: getattr(self, name) for name in FORMAT_FIELDS})

    @property
    def limits(self) -> IngestLimits:
        """The limits on what is read and held."""
        return IngestLimits(
            max_columns=self.max_columns,
            max_cell_bytes=self.max_cell_bytes,
            max_memory_bytes=self.max_memory_bytes,
        )


class SourceSpec(SourceFormat):
    """Where the confidential table lies, and how its bytes are to be read.

    Attributes:
        path: the confidential file, from the spec's folder; `{period}` in it is each period's
            label.
    """

    path: PlainText


MOST_ROWS_EACH = 1000
"""The most rows of one person that a release protects."""


class UnitSpec(Section):
    """Whose contribution is protected: at most `max_rows` rows that share an `id_column` value.

    Attributes:
        id_column: the column that names the person; without one, each row is a person.
        max_rows: the most rows that one person may have, as the population was registered.
    """

    id_column: str | None = None
    max_rows: Annotated[Count, Field(ge=1, le=MOST_ROWS_EACH)] = 1


class GeneratorSpec(Section):
    """The SDGP and its public settings (see the method's own docstring).

    Attributes:
        method: the generator's name, such as `privbayes`; `auto` for one by public facts.
        settings: the generator's settings, by name; what is not stated has its default. `auto` has
            none.
    """

    method: PlainText
    settings: Settings = Field(default_factory=dict)


class WeightsSpec(Section):
    """The weight estimator and its public settings.

    `when_infeasible` decides, from public facts and before data is read, what happens if weights
    are not worth their budget: `none` publishes unweighted rows and gives the whole budget to the
    generator, `refuse` stops the plan, `keep` makes them all the same.

    Attributes:
        method: the name of the weights' method, such as `measured`; `none` for no weights.
        settings: the method's settings, by name; what is not stated has its default.
        normalisation: `self`: mean one, for means and models; `unnormalised`: for totals.
        post_processing: named steps after the fits, in order, each at most once.
        when_infeasible: what to do when the plan finds weights not worth their budget.
    """

    method: PlainText
    settings: Settings = Field(default_factory=dict)
    normalisation: Literal["self", "unnormalised"] = "self"
    post_processing: list[Settings] = Field(default_factory=list)
    when_infeasible: Literal["none", "refuse", "keep"] = "none"

    @property
    def wanted(self) -> bool:
        """Whether there are to be weights at all."""
        return self.method != NONE


class SharesSpec(Section):
    """Wishes about effort: how much of the joint budget each private stage gets.

    Attributes:
        generator: the generator's share of the effort.
        weights: the weights' share of the effort.
    """

    generator: Share = 0.5
    weights: Share = 0.5

    @classmethod
    def usual(cls, method: str) -> Self:
        """As weights of that method say they are worth it."""
        weights = usual_effort(method)
        return cls(generator=1 - weights, weights=weights)


class CatalogueSpec(Section):
    """What a data catalogue should say about the release's owner and licence.

    Attributes:
        creator: who publishes the release.
        licence: under which licence.
        url: where people read more about it.
    """

    creator: PlainText = "not stated"
    licence: PlainText = "not stated"
    url: PlainText = "not stated"


class SeriesSpec(Section):
    """The calendar of releases (`dpiw series`), from its first to its last period.

    Attributes:
        first: the label of the first period, such as `2026-01`.
        last: the label of the last period; without it the calendar has no end.
        retention: how many periods back from the current one may still be published.
        beyond_budget: whether the calendar may be longer than the budget carries.
    """

    first: Label
    last: Label | None = None
    retention: Annotated[Count, Field(ge=1, le=1000)] = 1
    beyond_budget: Flag = False


def _usual_shares(data: dict[str, Any]) -> SharesSpec:
    """Those of a spec that has none; `data` holds the fields above that are admissible."""
    known = "weights" in data and not data.get("questions")
    return SharesSpec.usual(data["weights"].method) if known else SharesSpec()


class Promise(Section):
    """What a release promises: all of it, and nothing else, makes its digest and its run key.

    Attributes:
        format: the version of this form, 1.
        name: the name of the release.
        population: whose budget pays: one name for all releases about the same people.
        cadence: how long one run counts as the same.
        source: the confidential table, and how its bytes are to be read.
        unit: whose contribution is protected.
        relation: the promise: nobody can tell whether one person was there (`add_or_remove_one`),
            or what one person's rows say, where the number of rows is public (`replace_one`).
        epsilon: the total of one complete run, at most 10: the smaller, the more private.
        delta: the total of one complete run, at most one in `nominal_rows`; 0 for pure epsilon.
        nominal_rows: a public guess at the number of rows, used in every formula.
        generator: what makes the synthetic rows.
        weights: what makes the importance weights.
        shares: how much of the joint budget each private stage gets.
        synthetic_rows: the number of rows to publish, a public choice.
        questions: what the release must answer; `measured` weights measure it directly.
    """

    format: Literal[1]
    name: Name
    population: Name
    cadence: Literal["once", "daily", "weekly", "monthly", "quarterly", "yearly"] = "once"
    source: SourceSpec
    unit: UnitSpec = UnitSpec()
    relation: Literal["add_or_remove_one", "replace_one"] = "add_or_remove_one"
    epsilon: Exact
    delta: Exact
    nominal_rows: Annotated[Count, Field(ge=1, le=10**12)]
    generator: GeneratorSpec
    weights: WeightsSpec
    questions: tuple[Settings, ...] = ()
    shares: SharesSpec = Field(default_factory=_usual_shares)
    synthetic_rows: Annotated[Count, Field(ge=1, le=10**9)]


class Places(Section):
    """Where a release's files lie, and how it is run: to move or change them changes no promise.

    Attributes:
        schema_path: the data dictionary (YAML).
        max_attempts: how often a run may pay for a draw, the first included.
        time_zone: the IANA name of the zone whose days, weeks and months the periods are.
        series: the calendar of releases.
        revises: the name of the published release that this one replaces, if it corrects one.
        mode: `production` needs a second key's approval of each run, `rehearse` spends nothing; no
            mode: an approval is needed where the population has an approver's key.
        state: the folder of the ledger and the confidential workspace.
        ledger: path or URL of the ledger, without a password; else it lies in `state`.
        signing_key: the private key that signs the release (`dpiw key new`).
        publish_to: the folder of releases.
        catalogue: what a data catalogue should say.
    """

    schema_path: PlainText = Field(alias="schema")
    max_attempts: Annotated[Count, Field(ge=1, le=10)] = 1
    time_zone: Zone = "UTC"
    series: SeriesSpec | None = None
    revises: PlainText | None = None
    mode: Literal["production", "rehearse"] | None = None
    state: PlainText
    ledger: Location | None = None
    signing_key: PlainText
    publish_to: PlainText
    catalogue: CatalogueSpec = CatalogueSpec()
