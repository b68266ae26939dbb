"""One column of a public schema; nothing here ever comes from data (docs/privacy.md section 5)."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import unicodedata
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.data.cells.formats import FORMAT_FIELDS, CellFormat
from dpiw.data.cells.plain import day_number, is_zone, one_form, second_number, word_form
from dpiw.data.schema.declarations import (
    EXPECTATIONS,
    FREE_TEXT,
    LEVELS_REQUIRED,
    MOST_DIGITS,
    RESERVED_NAMES,
    Fault,
    bucket_names,
    digits,
    folded_name,
    integer_fault,
    name_fault,
    no_value,
    no_word,
    provenance_fault,
    quoted,
    resolution_fault,
    values_fault,
)
from dpiw.errors import SchemaError, each, nearest, one_of

TRUE_VALUES = ("true", "t", "yes", "y", "1")
FALSE_VALUES = ("false", "f", "no", "n", "0")

MOST_BUCKETS = 4096

MOST_LETTERS = 200
"""Letters of a text that may become a level; longer ones are free text."""


class ColumnKind(enum.Enum):
    """What the cells of a column are."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    CATEGORICAL = "categorical"
    ORDINAL = "ordinal"
    DATE = "date"
    DATETIME = "datetime"


class ColumnRole(enum.Enum):
    """What a column is for. Identifiers are read to bound rows per person and then dropped."""

    FEATURE = "feature"
    TARGET = "target"
    IDENTIFIER = "identifier"


_LEVELLED = frozenset({ColumnKind.CATEGORICAL, ColumnKind.ORDINAL})
_TIMED = frozenset({ColumnKind.DATE, ColumnKind.DATETIME})
_NUMERIC = frozenset({ColumnKind.CONTINUOUS, ColumnKind.INTEGER, *_TIMED})
NORMALISERS = frozenset({"exact", "casefold"})
_FORMATS_OF = {
    ColumnKind.CONTINUOUS: {"decimal", "thousands"},
    ColumnKind.INTEGER: {"decimal", "thousands"},
    ColumnKind.DATE: {"date_format"},
    ColumnKind.DATETIME: {"datetime_format"},
}


def _is_plain_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


# `dpiw.plan.json_schema` shows the docstring of this class to users, field by field.
@dataclass(frozen=True, kw_only=True)
class Column:
    """A column's public declaration.

    Attributes:
        name: as in the file's header; unique up to case and Unicode form.
        kind: what the cells are. Optional only for identifiers.
        role: feature, target or identifier.
        nullable: whether a missing cell is a value of its own. If not, `fill` takes its place.
        lower, upper: inclusive public bounds of a numeric kind, in the column's own units; ISO
            text for dates and datetimes.
        values: the only values of an integer or continuous column, ascending, instead of bounds;
            every other number, of an integer column rounded first, becomes the nearest one.
        levels: admissible values of a categorical or ordinal column, in order.
        members: for each level, further public texts that mean it (`dpiw.data.schema.levels`).
        hash_buckets: categorical only, instead of levels: how many buckets texts are hashed to.
        unseen: categorical only: nobody knows the levels; only the generator `levels` takes it.
        other: the level that unknown cells become; without it they are missing.
        fill: value of missing and unparsable cells in a column that is not nullable. Default:
            the lower bound; `other`, else the first level; false.
        true_values, false_values: what a boolean cell may say, compared casefolded and stripped.
        cuts: public discretisation edges strictly between the bounds, in own units (ISO for dates).
        bins: public number of equal-width bins, instead of cuts.
        decimals: continuous only: values are rounded to this many decimals, read and released.
            Default: `released_decimals`, about twelve digits of the range.
        time_zone: datetime only: the zone in which naive cells are read, and moments are released.
        normaliser: how category cells are compared to levels, in one Unicode form (NFC, plain
            spaces) and after stripping white space: `exact`, or `casefold`.
        null_is_own_person: identifiers only: a row without id is one person, not a faulty source.
        description: what the column holds, for people.
        provenance: where its bounds or levels come from: law, codebook, earlier release or other.
        expectations: what the custodian expects of the source's cells. They decide nothing.
        written: how the source writes the cells; no part of what they are, nor of a comparison.
    """

    name: str
    kind: ColumnKind = ColumnKind.CATEGORICAL
    role: ColumnRole = ColumnRole.FEATURE
    nullable: bool = False
    lower: float | int | str | None = None
    upper: float | int | str | None = None
    values: tuple[float | int, ...] = ()
    levels: tuple[str, ...] = ()
    members: tuple[tuple[str, ...], ...] = ()
    hash_buckets: int | None = None
    unseen: bool = False
    other: str | None = None
    fill: Any = None
    true_values: tuple[str, ...] = TRUE_VALUES
    false_values: tuple[str, ...] = FALSE_VALUES
    cuts: tuple[float | int | str, ...] = ()
    bins: int | None = None
    decimals: int | None = None
    time_zone: str = "UTC"
    normaliser: str = "exact"
    null_is_own_person: bool = False
    description: str = ""
    provenance: str = ""
    expectations: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), compare=False)
    written: CellFormat = dataclasses.field(default=CellFormat(), compare=False)

    def __post_init__(self) -> None:
        """Raises SchemaError with the column's name, the field and the admissible range."""
        for field in ("values", "levels", "true_values", "false_values", "cuts", "members",
                      "expectations"):  # fmt: skip
            object.__setattr__(self, field, self._listed(field, getattr(self, field)))
        members = tuple(self._listed("members", texts) for texts in self.members)
        object.__setattr__(self, "members", members)
        self._check_name()
        self._check_types()
        self._check_placement()
        if fault := self.format_fault(self.written):
            raise self._refuse(*fault)
        each(self.expected, self.expectations, SchemaError)
        if self.role is ColumnRole.IDENTIFIER:
            return
        if self.is_numeric:
            self._check_bounds()
        elif self.kind in _LEVELLED:
            if fault := self._levels_fault():
                raise self._refuse(*fault)
            if self.hash_buckets is not None:
                object.__setattr__(self, "levels", bucket_names(self.hash_buckets))
        else:
            self._check_boolean()
        self._check_fill()

    @property
    def is_numeric(self) -> bool:
        """Continuous, integer, date or datetime."""
        return self.kind in _NUMERIC

    @property
    def is_discrete(self) -> bool:
        """Boolean, categorical or ordinal."""
        return self.kind not in _NUMERIC

    @property
    def is_whole(self) -> bool:
        """Numeric with whole values in own units: integers, days, seconds."""
        return self.is_numeric and self.kind is not ColumnKind.CONTINUOUS

    @property
    def level_names(self) -> tuple[str, ...]:
        """Levels of a discrete column; a boolean's are `false`, `true`."""
        return ("false", "true") if self.kind is ColumnKind.BOOLEAN else self.levels

    @property
    def cardinality(self) -> int:
        """Number of levels of a discrete column, missing not counted; 0 for numeric kinds."""
        return 0 if self.is_numeric else len(self.level_names)

    @property
    def lower_number(self) -> float:
        """Lower bound in own units; days or seconds since the epoch (UTC) for dates."""
        return float(self.number(self.lower))

    @property
    def upper_number(self) -> float:
        """Upper bound in own units; days or seconds since the epoch (UTC) for dates."""
        return float(self.number(self.upper))

    @property
    def cut_numbers(self) -> tuple[float, ...]:
        """`cuts` as numbers in own units."""
        return tuple(float(self.number(cut)) for cut in self.cuts)

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The time zone of naive datetimes."""
        return zoneinfo.ZoneInfo(self.time_zone)

    @property
    def released_decimals(self) -> int:
        """Decimals of a continuous column, declared or about 12 digits of the range; may be < 0."""
        if self.decimals is not None:
            return self.decimals
        low, high = self.lower_number, self.upper_number
        return min(12 - digits(high - low), MOST_DIGITS - digits(max(abs(low), abs(high))))

    @property
    def fill_code(self) -> int:
        """The fill of a discrete column, as a level's index."""
        if self.kind is ColumnKind.BOOLEAN:
            return int(bool(self.fill))
        level = self.other if self.fill is None else self.fill
        return 0 if level is None else self.levels.index(level)

    def number(self, value: Any) -> Any:
        """Return a declared value (bound, cut, fill) in own units; raise SchemaError otherwise."""
        if self.kind in _TIMED and isinstance(value, str):
            days = day_number(value)
            number = days if self.kind is ColumnKind.DATE else second_number(value, self.zone)
            if number is not None:
                return number
        elif self.kind not in _TIMED and _is_plain_number(value):
            return value
        fields = [key for key in ("lower", "upper", "fill") if getattr(self, key) is value]
        raise self._refuse((*fields, "cuts/value")[0], no_value(value, self.kind.value))

    def expected(self, expectation: Any) -> dict[str, Any]:
        """Return an expectation's arguments in own units, texts normalised; raise SchemaError."""
        given = dict(expectation) if isinstance(expectation, Mapping) else {}
        name = str(given.pop("type", None))
        if name not in EXPECTATIONS:
            raise self._refuse("expectations: type", allowed=one_of(name, EXPECTATIONS))
        read, allowed = EXPECTATIONS[name]
        try:
            return read(self._own, **given)
        except (SchemaError, TypeError, ValueError, OverflowError):
            raise self._refuse(f"expectations: {name}", allowed=allowed) from None

    def _own(self, value: Any) -> Any:
        if self.is_numeric and self.role is not ColumnRole.IDENTIFIER:
            number = self.number(value)
            if math.isfinite(number) and float(number) == number:  # GX compares with floats
                return number
        elif self.kind is not ColumnKind.BOOLEAN and isinstance(value, str):
            return self.normalised(value)
        raise TypeError

    def normalised(self, text: str) -> str:
        """Return the form in which a cell is compared to the levels."""
        stripped = one_form(text).strip()
        if self.normaliser == "exact":
            return stripped
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", stripped).casefold())

    def level_codes(self) -> dict[str, int]:
        """Return the level index of every listed text, a level or a member, by normalised text."""
        codes = {self.normalised(level): code for code, level in enumerate(self.levels)}
        for code, members in enumerate(self.members):
            codes |= {self.normalised(member): code for member in members}
        return codes

    def unlisted_level(self, text: str) -> str | None:
        """Read a cell's text as a normalised level; None if no dictionary could list it. Total."""
        text = text.strip()
        if len(text) > MOST_LETTERS:
            return None
        level = self.normalised(text)
        listable = len(level) <= MOST_LETTERS and level.isprintable() and level == level.strip()
        return level if listable and self.normalised(level) == level else None

    @property
    def format_fields(self) -> frozenset[str]:
        """Settings of `CellFormat` that apply to this column's cells; none for an identifier.

        A token for missing could name one person, and a row without an identifier may end a read.
        """
        if self.role is ColumnRole.IDENTIFIER:
            return frozenset()
        return frozenset({"missing"} | _FORMATS_OF.get(self.kind, set()))

    def format_fault(self, written: CellFormat) -> Fault | None:
        """What is wrong with a format for this column's cells, or None."""
        if fault := written.fault():
            return fault
        if self.kind is ColumnKind.BOOLEAN and self.role is not ColumnRole.IDENTIFIER:
            own, form = {*map(word_form, self.true_values + self.false_values)}, word_form
        else:
            own, form = {*self.level_codes()}, self.normalised
        if own.isdisjoint(map(form, written.missing or ())):
            return None
        return "missing", "one of these texts is one of the column's own values; remove it"

    def to_mapping(self) -> dict[str, Any]:
        """Return JSON values: name, kind and every field that is not at its default."""
        mapping: dict[str, Any] = {"name": self.name, "kind": self.kind.value}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in mapping or value == field.default or field.name == "written":
                continue
            mapping[field.name] = _plain(value)
        if self.hash_buckets is not None:
            del mapping["levels"]  # they follow from their number
        if self.values:
            del mapping["lower"], mapping["upper"]
        return mapping | self.written.to_mapping()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Column:
        """Read what `to_mapping` wrote; raise SchemaError for an unknown key or kind."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("name"), str):
            expected = "a list of mappings, each with a text `name`"
            raise SchemaError(field="columns", allowed=expected)
        values = dict(mapping)
        field = f"column {values['name']}: "
        if fault := name_fault(values["name"]):  # later messages would repeat the name
            raise SchemaError(fault, field="a column's name")
        known = {field.name for field in dataclasses.fields(cls)} - {"written"} | {*FORMAT_FIELDS}
        if odd := [str(key)[:40] for key in values if key not in known]:
            near = nearest(odd[0], known) or "; docs/spec.md lists the keys of a column"
            raise SchemaError(f"unknown key{near}", field=field + odd[0])
        if values.get("kind") == "text":
            raise SchemaError(FREE_TEXT, field=field + "kind")
        for key, members in (("kind", ColumnKind), ("role", ColumnRole)):
            if key in values:
                allowed = [member.value for member in members]
                if values[key] not in allowed:
                    raise SchemaError(field=field + key, allowed=no_word(values[key], allowed))
                values[key] = members(values[key])
        if "kind" not in values and values.get("role") is not ColumnRole.IDENTIFIER:
            kinds = ", ".join(kind.value for kind in ColumnKind)
            raise SchemaError("missing", field=field + "kind", allowed=f"one of {kinds}")
        written = CellFormat.taken_from(values)
        return cls(**values, written=written)

    def _listed(self, field: str, value: object) -> tuple[Any, ...]:
        if isinstance(value, list | tuple):
            return tuple(value)
        raise self._refuse(field, allowed="a list")

    def _refuse(self, field: str, found: str = "", *, allowed: str = "") -> SchemaError:
        return SchemaError(found, field=f"column {self.name}: {field}", allowed=allowed)

    def _check_name(self) -> None:
        if fault := name_fault(self.name):
            raise SchemaError(fault, field="a column's name")
        if folded_name(self.name) in RESERVED_NAMES and self.role is not ColumnRole.IDENTIFIER:
            raise self._refuse("name", "reserved for weights; rename the column, in the file too")

    def _check_types(self) -> None:
        if not isinstance(self.kind, ColumnKind) or not isinstance(self.role, ColumnRole):
            raise self._refuse("kind/role", allowed="a ColumnKind and a ColumnRole")
        for field in ("nullable", "null_is_own_person", "unseen"):
            if not isinstance(getattr(self, field), bool):
                raise self._refuse(field, allowed="true or false")
        for field in ("levels", "true_values", "false_values", "members"):
            field_value = getattr(self, field)
            texts = list(itertools.chain(*field_value)) if field == "members" else field_value
            if not all(isinstance(value, str) for value in texts):
                raise self._refuse(field, f"every value must be text, in quotes: {quoted(texts)}")
        if not isinstance(self.description, str):
            raise self._refuse("description", allowed="text")
        if fault := provenance_fault(self.provenance):
            raise self._refuse("provenance", fault)
        if not isinstance(self.normaliser, str) or self.normaliser not in NORMALISERS:
            raise self._refuse("normaliser", allowed="exact or casefold")
        if not is_zone(self.time_zone):
            raise self._refuse("time_zone", allowed="an IANA time zone, such as Europe/Berlin")

    def _check_placement(self) -> None:
        identifier = self.role is ColumnRole.IDENTIFIER
        numeric = self.is_numeric and not identifier
        levelled = self.kind in _LEVELLED and not identifier
        allowed = {
            "lower": numeric, "upper": numeric, "cuts": numeric, "bins": numeric,
            "values": self.kind in (ColumnKind.INTEGER, ColumnKind.CONTINUOUS) and not identifier,
            "levels": levelled, "members": levelled, "other": levelled, "fill": not identifier,
            "hash_buckets": levelled and self.kind is ColumnKind.CATEGORICAL,
            "unseen": levelled and self.kind is ColumnKind.CATEGORICAL,
            "decimals": self.kind is ColumnKind.CONTINUOUS and not identifier,
            "null_is_own_person": identifier,
        }  # fmt: skip
        of = "an identifier" if identifier else f"a column of kind {self.kind.value}"
        for field, admissible in allowed.items():
            value = getattr(self, field)
            if not admissible and not (value is None or value is False or value == ()):
                raise self._refuse(field, f"has no meaning for {of}; remove it")
        for field in sorted(set(self.written.stated()) - self.format_fields):
            raise self._refuse(field, f"has no meaning for {of}; remove it")

    def _check_bounds(self) -> None:
        if self.values:
            stated = {key: getattr(self, key) for key in ("decimals", "bins", "cuts")}
            ends = None if self.lower is self.upper is None else (self.lower, self.upper)
            if fault := values_fault(self.values, ends, stated, whole=self.is_whole):
                raise self._refuse(*fault)
            object.__setattr__(self, "lower", self.values[0])
            object.__setattr__(self, "upper", self.values[-1])
        if self.lower is None or self.upper is None:
            why = "public bounds are required and never inferred from the table; write both"
            raise self._refuse("lower/upper", why)
        low, high = self.number(self.lower), self.number(self.upper)
        if not (abs(low) < math.inf and abs(high) < math.inf):  # NaN compares false
            raise self._refuse("lower/upper", allowed="finite bounds")
        if low >= high:
            raise self._refuse("lower/upper", allowed="lower < upper")
        fault = None
        if self.kind is ColumnKind.INTEGER:
            fault = integer_fault(low, high)
        elif self.kind is ColumnKind.CONTINUOUS:
            fault = resolution_fault(low, high, self.decimals)
        if fault := fault or self._cuts_fault():
            raise self._refuse(*fault)

    def _cuts_fault(self) -> Fault | None:
        edges = [self.number(edge) for edge in (self.lower, *self.cuts, self.upper)]
        if not all(before < after for before, after in itertools.pairwise(edges)):
            return "cuts", "expected increasing values strictly between the bounds"
        if self.bins is None:
            return None
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or self.bins < 1:
            return "bins", "expected a whole number >= 1"
        return ("bins", "give cuts or bins, not both") if self.cuts else None

    def _levels_fault(self) -> Fault | None:
        buckets = self.hash_buckets
        if buckets is not None:
            is_integer = isinstance(buckets, int) and not isinstance(buckets, bool)
            if not is_integer or not 2 <= buckets <= MOST_BUCKETS:
                return "hash_buckets", f"expected a whole number from 2 to {MOST_BUCKETS}"
            extras = self.members or self.other or self.unseen
            if extras or self.levels not in ((), bucket_names(buckets)):
                why = "every text has a bucket; remove levels, their files, other and unseen"
                return "hash_buckets", why
            return None
        if self.unseen:
            return self._unseen_fault()
        if not self.levels:
            return "levels", LEVELS_REQUIRED
        if self.members and len(self.members) != len(self.levels):
            return "members", "expected one list of texts for each level"
        texts = [*self.levels, *itertools.chain(*self.members)]
        if any(not text or text != text.strip() or not text.isprintable() for text in texts):
            return "levels", "a level is empty, padded with blanks or unprintable; correct it"
        if len({self.normalised(text) for text in texts}) < len(texts):
            return "levels", f"two levels are equal (normaliser: {self.normaliser}); remove one"
        if self.other is not None and self.other not in self.levels:
            return "other", f"must be a level{nearest(self.other, self.levels)}"
        return None

    def _unseen_fault(self) -> Fault | None:
        if self.levels or self.members or self.fill is not None:
            return "unseen", "nobody knows the levels; remove levels, their files and fill"
        if self.other is None or (self.other and self.unlisted_level(self.other) == self.other):
            return None
        of = "in lower case, " if self.normaliser == "casefold" else ""
        return "other", f"expected printable text {of}of at most {MOST_LETTERS} characters"

    def _check_boolean(self) -> None:
        true, false = ({*map(word_form, v)} for v in (self.true_values, self.false_values))
        if not true or not false or "" in true | false or true & false:
            raise self._refuse("true_values/false_values", allowed="two lists that share no text")

    def _check_fill(self) -> None:
        if self.fill is None:
            return
        if self.is_numeric:
            value = self.number(self.fill)
            if not self.number(self.lower) <= value <= self.number(self.upper):
                allowed = f"a value inside the bounds, {self.lower} to {self.upper}"
                raise self._refuse("fill", allowed=allowed)
            if self.is_whole and value != int(value):
                raise self._refuse("fill", allowed="a whole number")
        elif self.kind is ColumnKind.BOOLEAN:
            if not isinstance(self.fill, bool):
                raise self._refuse("fill", allowed="true or false")
        elif self.fill not in self.levels:
            raise self._refuse("fill", f"must be a level{nearest(self.fill, self.levels)}")
