"""One column of a public schema: its kind, role and public bounds or levels.

Everything here is public and stated before data is read (docs/privacy.md section 5): a bound,
level, fill or cut never comes from the confidential table.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import unicodedata
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.data.bounds import MOST_DIGITS, bounds_fault, digits
from dpiw.data.cell_formats import FORMAT_FIELDS, CellFormat, column_fault, meaningful_fields
from dpiw.data.cells import one_form, word_form
from dpiw.data.dates import day_number, is_zone, second_number
from dpiw.data.forms import FREE_TEXT, no_value, no_word, quoted
from dpiw.data.levels import bucket_names, levels_fault
from dpiw.data.names import MAX_NAME_LENGTH, RESERVED_NAMES, folded_name, name_fault
from dpiw.data.provenance import provenance_fault
from dpiw.errors import SchemaError, nearest

TRUE_VALUES = ("true", "t", "yes", "y", "1")
FALSE_VALUES = ("false", "f", "no", "n", "0")


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


def _plain(value: Any) -> Any:
    """A field's value in JSON's terms."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


def _is_plain_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
        levels: admissible values of a categorical or ordinal column, in order.
        members: for each level, further public texts that mean it (`dpiw.data.levels`).
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
        written: how the source writes the cells; no part of what they are, nor of a comparison.
    """

    name: str
    kind: ColumnKind = ColumnKind.CATEGORICAL
    role: ColumnRole = ColumnRole.FEATURE
    nullable: bool = False
    lower: float | int | str | None = None
    upper: float | int | str | None = None
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
    written: CellFormat = dataclasses.field(default=CellFormat(), compare=False)

    def __post_init__(self) -> None:
        """Raises SchemaError with the column's name, the field and the admissible range."""
        for field in ("levels", "true_values", "false_values", "cuts", "members"):
            object.__setattr__(self, field, self._listed(field, getattr(self, field)))
        members = tuple(self._listed("members", texts) for texts in self.members)
        object.__setattr__(self, "members", members)
        self._check_name()
        self._check_types()
        self._check_placement()
        if fault := column_fault(self, self.written):
            raise self._refuse(*fault)
        if self.role is ColumnRole.IDENTIFIER:
            return
        if self.is_numeric or self.kind in _LEVELLED:
            if fault := bounds_fault(self) if self.is_numeric else levels_fault(self):
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
        """Decimals of a continuous column: declared, or about 12 digits of the range.

        Coarse enough that scaling, unscaling and scaling again gives the same double. Negative:
        rounded to tens, hundreds, ...
        """
        if self.decimals is not None:
            return self.decimals
        low, high = self.lower_number, self.upper_number
        return min(12 - digits(high - low), MOST_DIGITS - digits(max(abs(low), abs(high))))

    @property
    def fill_code(self) -> int:
        """The fill of a discrete column, as a level's index."""
        if self.kind is ColumnKind.BOOLEAN:
            return int(bool(self.fill))
        if self.fill is None:
            return 0 if self.other is None else self.levels.index(self.other)
        return self.levels.index(self.fill)

    def number(self, value: Any) -> Any:
        """A declared value (bound, cut, fill) in own units, int or float; else SchemaError."""
        if self.kind in _TIMED and isinstance(value, str):
            days = day_number(value)
            number = days if self.kind is ColumnKind.DATE else second_number(value, self.zone)
            if number is not None:
                return number
        elif self.kind not in _TIMED and _is_plain_number(value):
            return value
        fields = [key for key in ("lower", "upper", "fill") if getattr(self, key) is value]
        raise self._refuse((*fields, "cuts/value")[0], no_value(value, self.kind.value))

    def normalised(self, text: str) -> str:
        """The form in which a category cell is compared to the levels."""
        stripped = one_form(text).strip()
        if self.normaliser == "exact":
            return stripped
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", stripped).casefold())

    def to_mapping(self) -> dict[str, Any]:
        """JSON values: name, kind and every field that is not at its default."""
        mapping: dict[str, Any] = {"name": self.name, "kind": self.kind.value}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in mapping or value == field.default or field.name == "written":
                continue
            mapping[field.name] = _plain(value)
        if self.hash_buckets is not None:
            del mapping["levels"]  # they follow from their number
        return mapping | self.written.to_mapping()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Column:
        """Read `to_mapping`'s form. Unknown keys and unknown kinds are refused."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("name"), str):
            raise SchemaError("columns: expected a list of mappings, each with a text `name`")
        values = dict(mapping)
        name = values["name"]
        if len(name) > MAX_NAME_LENGTH:  # not repeated in what is said of its fields
            raise SchemaError(f"a column name has over {MAX_NAME_LENGTH} characters")
        known = {field.name for field in dataclasses.fields(cls)} - {"written"} | {*FORMAT_FIELDS}
        if odd := [str(key)[:40] for key in values if key not in known]:
            raise SchemaError(f"column {name}: {odd[0]}: unknown key{nearest(odd[0], known)}")
        if values.get("kind") == "text":
            raise SchemaError(f"column {name}: kind: {FREE_TEXT}")
        for key, members in (("kind", ColumnKind), ("role", ColumnRole)):
            if key in values:
                allowed = [member.value for member in members]
                if values[key] not in allowed:
                    raise SchemaError(f"column {name}: {key}: {no_word(values[key], allowed)}")
                values[key] = members(values[key])
        if "kind" not in values and values.get("role") is not ColumnRole.IDENTIFIER:
            raise SchemaError(f"column {name}: kind: missing, such as continuous or categorical")
        written = CellFormat.taken_from(values)
        return cls(**values, written=written)

    def _listed(self, field: str, value: object) -> tuple[Any, ...]:
        if isinstance(value, list | tuple):
            return tuple(value)
        raise self._refuse(field, "expected a list")

    def _refuse(self, field: str, why: str) -> SchemaError:
        return SchemaError(f"column {self.name}: {field}: {why}")

    def _check_name(self) -> None:
        if fault := name_fault(self.name):
            raise SchemaError(fault)
        if folded_name(self.name) in RESERVED_NAMES and self.role is not ColumnRole.IDENTIFIER:
            raise self._refuse("name", "reserved for the weights of a release; rename it")

    def _check_types(self) -> None:
        if not isinstance(self.kind, ColumnKind) or not isinstance(self.role, ColumnRole):
            raise self._refuse("kind/role", "expected a ColumnKind and a ColumnRole")
        for field in ("nullable", "null_is_own_person", "unseen"):
            if not isinstance(getattr(self, field), bool):
                raise self._refuse(field, "expected true or false")
        for field in ("levels", "true_values", "false_values", "members"):
            field_value = getattr(self, field)
            texts = list(itertools.chain(*field_value)) if field == "members" else field_value
            if not all(isinstance(value, str) for value in texts):
                raise self._refuse(field, f"every value must be text, in quotes: {quoted(texts)}")
        if not isinstance(self.description, str):
            raise self._refuse("description", "expected text")
        if fault := provenance_fault(self.provenance):
            raise self._refuse("provenance", fault)
        if not isinstance(self.normaliser, str) or self.normaliser not in NORMALISERS:
            raise self._refuse("normaliser", "expected exact or casefold")
        if not is_zone(self.time_zone):
            raise self._refuse("time_zone", "no IANA time zone, such as Europe/Berlin")

    def _check_placement(self) -> None:
        """Refuse a field that means nothing for this kind, rather than ignore it."""
        identifier = self.role is ColumnRole.IDENTIFIER
        numeric = self.is_numeric and not identifier
        levelled = self.kind in _LEVELLED and not identifier
        allowed = {
            "lower": numeric, "upper": numeric, "cuts": numeric, "bins": numeric,
            "levels": levelled, "members": levelled, "other": levelled, "fill": not identifier,
            "hash_buckets": levelled and self.kind is ColumnKind.CATEGORICAL,
            "unseen": levelled and self.kind is ColumnKind.CATEGORICAL,
            "decimals": self.kind is ColumnKind.CONTINUOUS and not identifier,
            "null_is_own_person": identifier,
        }  # fmt: skip
        for field, admissible in allowed.items():
            value = getattr(self, field)
            if not admissible and not (value is None or value is False or value == ()):
                kind = "identifier" if identifier else self.kind.value
                raise self._refuse(field, f"has no meaning for a column of kind {kind}")
        for field in sorted(set(self.written.stated()) - meaningful_fields(self)):
            raise self._refuse(field, f"has no meaning for a column of kind {self.kind.value}")

    def _check_boolean(self) -> None:
        true, false = (
            {word_form(value) for value in values}
            for values in (self.true_values, self.false_values)
        )
        if not true or not false or "" in true | false or true & false:
            raise self._refuse("true_values/false_values", "expected two disjoint, non-empty lists")

    def _check_fill(self) -> None:
        if self.fill is None:
            return
        if self.is_numeric:
            value = self.number(self.fill)
            if not self.number(self.lower) <= value <= self.number(self.upper):
                raise self._refuse("fill", "expected a value inside the bounds")
            if self.is_whole and value != int(value):
                raise self._refuse("fill", "expected a whole number")
        elif self.kind is ColumnKind.BOOLEAN:
            if not isinstance(self.fill, bool):
                raise self._refuse("fill", "expected true or false")
        elif self.fill not in self.levels:
            raise self._refuse("fill", f"must be a level{nearest(self.fill, self.levels)}")
