"""SQL definitions: `CREATE TABLE` with types, `CHECK`, enumerations and comments, by sqlglot.

A dump with rows (`INSERT`, `COPY`) is refused. Constraints of unknown shapes are ignored.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialects
from sqlglot.errors import SqlglotError

from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.declarations import no_word
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, number, texts
from dpiw.plan.drafts.reading import one_of, read_text

_WHAT = "SQL"
_ROWS = re.compile(
    r"(^|;)[^\S\n]*+(insert\s++(?:\w++\s++){0,4}?into|copy|replace\s++into|load\s++data)\s",
    re.I | re.M,
)
"""A statement with rows. Takes linear time: no repeat crosses a line or backtracks."""
_MAX_STATEMENTS = 10_000
_WHOLE = re.compile(r"^(U?(BIG|SMALL|TINY|MEDIUM)?INT\d*|U?INT|(BIG|SMALL)?SERIAL|YEAR)$")
_REAL = re.compile(r"^(DECIMAL\d*|UDECIMAL|FLOAT|DOUBLE|UDOUBLE|MONEY|SMALLMONEY|BIGDECIMAL|REAL)$")
_TEXT = re.compile(r"^(N?VARCHAR|N?CHAR|(TINY|MEDIUM|LONG)?TEXT|BPCHAR|NAME|ENUM\d*|USERDEFINED)$")


def read_sql(path: Path, *, table: str | None = None, dialect: str = "") -> TableDraft:
    """Draft from a file of SQL definitions in one of sqlglot's dialects; empty: what all share.

    Raises SchemaError: no definitions, unknown dialect, or a dump with rows. The message has at
    most a line's number and names of tables.
    """
    text = read_text(path, suffixes=(".sql", ".ddl"), what=_WHAT)
    if rows := _ROWS.search(text):
        line = text.count("\n", 0, rows.start(2)) + 1
        fault = f"line {line} is a statement with rows; export the definitions without the data"
        raise SchemaError(fault, field=_WHAT)
    known = [known_dialect.value for known_dialect in Dialects if known_dialect.value]
    if dialect and dialect.casefold() not in known:
        raise SchemaError(field="--dialect", allowed=no_word(dialect, known))
    statements = _statements(text, dialect)
    types = {name.casefold(): levels for name, levels in _enumerations(statements)}
    tables = dict(_tables(statements))
    if not tables:
        raise SchemaError("holds no definition", field=_WHAT, allowed="CREATE TABLE with columns")
    name, definition = one_of(tables, table, what=_WHAT)
    comments = dict(_comments(statements, name))
    checks = [rule for element in definition.expressions for rule in _conditions(element)]
    keys = list(_keys(definition))
    columns = [
        _column(element, checks, types, comments)
        for element in definition.expressions
        if isinstance(element, exp.ColumnDef)
    ]
    return TableDraft(columns=tuple(columns), name=name).with_key(keys)


def _statements(text: str, dialect: str) -> list[Any]:
    parsed: list[Any] = []
    try:
        pieces = _pieces(sqlglot.tokenize(text, read=dialect or None), text)
        for piece in pieces[:_MAX_STATEMENTS]:
            if re.match(r"(create\s+(\w+\s+)*?(table|type)|comment\s+on)\b", piece, re.I):
                parsed += sqlglot.parse(piece, read=dialect or None)
        return parsed
    except (SqlglotError, ValueError, RecursionError):
        pass  # what sqlglot says quotes the file
    raise SchemaError("cannot be read; name its --dialect, such as postgres or tsql", field=_WHAT)


def _pieces(tokens: list[Any], text: str) -> list[str]:
    pieces: list[str] = []
    start = None
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            pieces += [] if start is None else [text[start : token.start]]
            start = None
        elif start is None:
            start = token.start
    return pieces if start is None else [*pieces, text[start:]]


def _tables(statements: list[Any]) -> Iterator[tuple[str, Any]]:
    for statement in statements:
        if isinstance(statement, exp.Create) and isinstance(statement.this, exp.Schema):
            yield statement.this.this.name, statement.this


def _enumerations(statements: list[Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for statement in statements:
        if isinstance(statement, exp.Create) and isinstance(statement.expression, exp.DataType):
            yield (
                statement.this.name,
                texts(level.name for level in statement.expression.expressions),
            )


def _comments(statements: list[Any], table: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        of_column = isinstance(statement, exp.Comment) and isinstance(statement.this, exp.Column)
        if (
            of_column
            and statement.this.table == table
            and isinstance(statement.expression, exp.Literal)
        ):
            yield statement.this.name, statement.expression.name


def _conditions(definition: Any) -> list[Any]:
    conjuncts: list[Any] = []
    for check in definition.find_all(exp.CheckColumnConstraint, exp.Check):
        condition = check.this.unnest()
        conjuncts += condition.flatten() if isinstance(condition, exp.And) else [condition]
    return [conjunct.unnest() for conjunct in conjuncts]


def _keys(definition: Any) -> Iterator[str]:
    for element in definition.expressions:
        if isinstance(element, exp.ColumnDef) and element.find(exp.PrimaryKeyColumnConstraint):
            yield element.name
        for key in element.find_all(exp.PrimaryKey):
            yield from (column.name for column in key.expressions)


def _column(
    definition: Any, checks: list[Any], types: dict[str, tuple[str, ...]], comments: dict[str, str]
) -> ColumnDraft:
    name, declared = definition.name, definition.kind
    kind = _kind(declared)
    levels: tuple[str, ...] = ()
    if declared is not None and declared.this.name.startswith("ENUM"):
        levels = texts(level.name for level in declared.expressions)
    elif declared is not None and declared.this is exp.DType.USERDEFINED:
        levels = types.get(str(declared.args.get("kind", "")).casefold(), ())
    demands: dict[str, Any] = {}
    for condition in checks:
        demands |= _demanded(condition, name, whole=kind is ColumnKind.INTEGER)
    levels = texts(demands.get("levels", ())) or levels
    if levels and kind is not ColumnKind.BOOLEAN:
        kind = ColumnKind.CATEGORICAL
    required = definition.find(exp.NotNullColumnConstraint, exp.PrimaryKeyColumnConstraint)
    comment = definition.find(exp.CommentColumnConstraint)
    return ColumnDraft(
        name=name,
        kind=kind,
        nullable=required is None,
        **bounds(kind, demands.get("lower"), demands.get("upper")),
        levels=levels,
        decimals=_scale(declared) if kind is ColumnKind.CONTINUOUS else None,
        description=comments.get(name, "" if comment is None else comment.this.name),
        provenance="other: a constraint of the table's SQL definition",
    ).admissible()


def _kind(declared: Any) -> ColumnKind | None:
    name = "" if declared is None else declared.this.name
    if name == "DATE" or name == "DATE32":
        return ColumnKind.DATE
    if name.startswith(("TIMESTAMP", "DATETIME")):
        return ColumnKind.DATETIME
    if name == "BOOLEAN":
        return ColumnKind.BOOLEAN
    rules = ((_WHOLE, ColumnKind.INTEGER), (_REAL, ColumnKind.CONTINUOUS))
    for rule, kind in (*rules, (_TEXT, ColumnKind.CATEGORICAL)):
        if rule.match(name):
            return kind
    return None


def _scale(declared: Any) -> int | None:
    parameters = [number(parameter.this.name) for parameter in declared.expressions]
    return int(parameters[1]) if len(parameters) == 2 and parameters[1] else None


def _literal(value: Any) -> Any:
    """Return a literal's number or text, through signs, casts and brackets; else None."""
    value = value.unnest()
    while isinstance(value, exp.Cast):
        value = value.this.unnest()
    if isinstance(value, exp.Neg):
        operand = _literal(value.this)
        return -operand if isinstance(operand, int | float) else None
    if not isinstance(value, exp.Literal):
        return None
    return value.name if value.is_string else number(value.name)


def _demanded(condition: Any, name: str, *, whole: bool) -> dict[str, Any]:
    """Return bounds or levels that a condition states of the column; empty for other shapes."""
    subject = condition.this if isinstance(condition.this, exp.Expression) else None
    while isinstance(subject, exp.Cast | exp.Paren):
        subject = subject.this
    if not isinstance(subject, exp.Column) or subject.name != name:
        return {}
    if isinstance(condition, exp.Between):
        return {"lower": _literal(condition.args["low"]), "upper": _literal(condition.args["high"])}
    if isinstance(condition, exp.In):
        return {"levels": [_literal(item) for item in condition.expressions]}
    if isinstance(condition, exp.EQ) and isinstance(condition.expression, exp.Any):
        listed = condition.expression.find(exp.Array)
        return {} if listed is None else {"levels": [_literal(item) for item in listed.expressions]}
    side = {exp.GTE: "lower", exp.GT: "lower", exp.LTE: "upper", exp.LT: "upper"}.get(
        type(condition)
    )
    bound = _literal(condition.expression) if side else None
    if side is None or bound is None:
        return {}
    if isinstance(condition, exp.GT | exp.LT) and whole and isinstance(bound, int):
        bound += 1 if side == "lower" else -1
    return {side: bound}
