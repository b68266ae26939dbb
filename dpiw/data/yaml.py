"""YAML for configuration: plain data only, nothing surprising.

Refused: aliases and anchors (so no expansion bombs), tags, duplicate keys, more than one document.
`no`, `on`, dates and `1:30` stay text; only `true`/`false`, `null`/`~`, decimal integers and
floats are typed (tests/hostile/bad_inputs/rows.py, row 50).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from dpiw.errors import DPIWError, SpecError, nearest

MAX_BYTES = 1 << 20
SUFFIXES = (".yaml", ".yml")
"""How every configuration file ends; what is named otherwise is not opened."""

_MAX_DEPTH = 32
_MOST_TOLD = 6


_REASONS = {
    "mapping values are not allowed": "a second `: ` in one line, or a line that is indented too"
    " far; a text with `: ` in it stands in quotes",
    "could not find expected ':'": "no `key: value`; after a key comes a colon and a space",
    "expected ',' or": "a bracket that is not closed, or a comma that is missing; a text with one"
    " of ? : , # [ ] { } in it stands in quotes",
    "expected <block end>": "indented otherwise than the lines beside it",
    "unexpected end of stream": "a quote that is not closed",
    "unexpected document separator": "a quote that is not closed",
    "unknown escape character": "a backslash in double quotes; take single ones",
    "expected a single document": "a second document (---); expected one",
    "found character '\\t'": "a tab; indent with spaces",
    "found character": "a text that begins with a sign of YAML stands in quotes",
}
"""What a person should look for, by a part of what PyYAML says; none of it is the file's."""

_COMMA = "a number without a key; decimals have a point, such as 18.5, and no comma"

_BEGINS = ("simple key", "flow", "quoted scalar")
"""Where the fault is better shown where the thing began than where it was noticed."""


class _Refusal(yaml.MarkedYAMLError):
    """A refusal of ours, in our own words."""


def _refusal(problem: str, place: Any) -> _Refusal:
    return _Refusal(problem=problem, problem_mark=place.start_mark)


def _reason(problem: yaml.MarkedYAMLError) -> tuple[str, yaml.Mark | None]:
    """What is wrong, in words of ours alone, and where."""
    message, mark = problem.problem or "", problem.problem_mark
    if isinstance(problem, _Refusal):
        return message, mark
    if problem.context_mark and any(part in (problem.context or "") for part in _BEGINS):
        mark = problem.context_mark
    cause = next((reason for part, reason in _REASONS.items() if part in message), "")
    return f"not valid YAML: {cause}" if cause else "not valid YAML", mark


def _line(mark: yaml.Mark | None) -> str:
    return f", line {mark.line + 1}" if mark else ""


def _place(mark: yaml.Mark | None) -> str:
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader without aliases, tags, duplicate keys and YAML 1.1's implicit types."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refusal("anchors and aliases (& and *) are not allowed", event)
        if getattr(event, "tag", None) is not None:
            raise _refusal("tags (!) are not allowed", event)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _refusal("nested too deeply", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refusal(
                    "a key is not plain text; with a bracket or ? in it, it stands in quotes", key
                )
            if key.value in seen:
                raise _refusal("duplicate key", key)
            seen.add(key.value)
            if re.fullmatch(r"\d{1,20}", key.value) and _is_empty(value):
                raise _refusal(_COMMA, key)
        return super().construct_mapping(node, deep=True)


def _is_empty(node: yaml.Node) -> bool:
    return bool(node.start_mark.index == node.end_mark.index)


def _resolve(tag: str, pattern: str, first: str) -> None:
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first)
    )


_resolve("bool", r"^(?:true|false)$", "tf")
_resolve("null", r"^(?:null|~|)$", "n~")
_StrictLoader.yaml_implicit_resolvers[""] = [("tag:yaml.org,2002:null", re.compile(r"^$"))]
_resolve("int", r"^[-+]?(?:0|[1-9][0-9]{0,4000})$", "-+0123456789")
_resolve(
    "float",
    r"^[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|nan))$",
    "-+.0123456789",
)


def _construct_float(loader: _StrictLoader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)).replace(".inf", "inf").replace(".nan", "nan"))


_StrictLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)


class _ExactLoader(_StrictLoader):
    """The same, with decimals kept exact: `0.1` is the decimal 0.1, not the nearest float."""


def _construct_decimal(loader: _ExactLoader, node: yaml.ScalarNode) -> Decimal:
    text = str(loader.construct_scalar(node))
    return Decimal(text.replace(".inf", "Infinity").replace(".nan", "NaN"))


_ExactLoader.add_constructor("tag:yaml.org,2002:float", _construct_decimal)


def load_text(
    text: str, *, what: str, error: type[DPIWError] = SpecError, exact: bool = False
) -> Any:
    """Parse configuration text.

    Args:
        text: one YAML document.
        what: name of the thing for messages, e.g. `schema`.
        error: class of the errors raised.
        exact: decimals as `decimal.Decimal` instead of float.

    Raises:
        error: not readable under the rules above; the message says why, with line and column. It
            never quotes the text.
    """
    failure, at = ": not valid YAML", what
    try:
        return yaml.load(text, Loader=_ExactLoader if exact else _StrictLoader)  # noqa: S506 (a SafeLoader subclass)
    except yaml.MarkedYAMLError as problem:
        reason, mark = _reason(problem)
        failure, at = f"{_place(mark)}: {reason}", f"{what}{_line(mark)}"
    except yaml.reader.ReaderError:
        failure = ": not valid YAML: a character that no text file holds"
    except (yaml.YAMLError, ValueError, RecursionError):
        pass
    refusal = error(f"{what}{failure}")
    refusal.at = at
    raise refusal


def load_file(
    path: Path, *, what: str, error: type[DPIWError] = SpecError, exact: bool = False
) -> Any:
    """Parse a UTF-8 configuration file of at most `MAX_BYTES`; see `load_text`.

    The one door to such files: another one, such as a table, is refused by its name, unopened.
    """
    failure = ""
    try:
        if _is_named_otherwise(path):
            failure = "expected a YAML file, whose name ends in .yaml or .yml; it was not opened"
        else:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
            if len(data) <= MAX_BYTES:
                return load_text(data.decode("utf-8-sig"), what=what, error=error, exact=exact)
            failure = f"larger than {MAX_BYTES} bytes"
    except OSError as problem:
        failure = _unreadable(path, problem)
    except UnicodeDecodeError:
        failure = "not UTF-8; save it as UTF-8"
    refusal = error(f"{what}: {failure}")
    refusal.at = what
    raise refusal


def _is_named_otherwise(path: Path) -> bool:
    """Whether a file that is there, or what it links to, is not named as YAML is."""
    named = {path.suffix.lower(), path.resolve().suffix.lower()}
    return not named <= {*SUFFIXES} and os.path.exists(path) and not path.is_dir()


def flow_text(mapping: dict[str, Any]) -> str:
    """One line of YAML, for people to put into a file."""
    return yaml.safe_dump(mapping, default_flow_style=True, sort_keys=False, width=10**6).strip()


def _unreadable(path: Path, problem: OSError) -> str:
    if isinstance(problem, IsADirectoryError):
        inside = ", ".join(sorted(_documents(path))[:_MOST_TOLD])
        return f"a folder; expected a YAML file{f': in it {inside}' if inside else ''}"
    if not isinstance(problem, FileNotFoundError):
        return "cannot be read; look at its owner and mode"
    beside = _documents(path.parent)
    return f"no such file{nearest(path.name, beside) or '; dpiw init drafts one'}"


@contextlib.contextmanager
def told_in(path: Path, *errors: type[DPIWError]) -> Iterator[None]:
    """Let what is refused inside name the file, and line and column of the field it is about.

    Args:
        path: a configuration file that was read by `load_file`.
        errors: classes whose messages begin with a field, `column NAME: FIELD` or
            `constraint NAME: FIELD`, or a line each.

    Raises:
        errors: with the place before each line of the message.
    """
    try:
        yield
    except errors as error:
        if not str(error).startswith((f"{_name(path)}:", f"{_name(path)},")):
            error.at = f"{_name(path)}{_line(_mark_of(path, str(error)))}"
            error.args = ("\n".join(_placed(path, line) for line in str(error).split("\n")),)
        raise


def _name(path: Path) -> str:
    return path.name or str(path)


def _placed(path: Path, message: str) -> str:
    return f"{_name(path)}{_place(_mark_of(path, message))}: {message}{_second(path, message)}"


def _second(path: Path, message: str) -> str:
    """The line of the second of two columns, where a message begins with both names."""
    pair = re.match(r"columns (.+) and (.+): equal", message)
    _, columns = _step(_root(path), "columns") if pair else (None, None)
    if pair is None or not isinstance(columns, yaml.SequenceNode):
        return ""
    nodes = [item for item in columns.value if _item_name(item) in pair.groups()]
    return f"; the second is in line {nodes[1].start_mark.line + 1}" if nodes[1:] else ""


def _item_name(item: Any) -> str | None:
    return getattr(_step(item, "name")[1], "value", None)


def _root(path: Path) -> Any:
    """The nodes of a file that was read before; None where it cannot be read any more."""
    with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        loader = _StrictLoader(path.read_bytes()[:MAX_BYTES].decode("utf-8-sig"))
        return loader.get_single_node()
    return None


def _mark_of(path: Path, message: str) -> yaml.Mark | None:
    """Where the field stands that a message begins with, or the nearest thing around it."""
    item = re.match(r"(column|constraint)s? (.+?)(?: and .+?)?: ([\w/]*)", message)
    field = re.match(r"[\w.]+", message)
    if item:
        keys = [f"{item[1]}s", item[2], *item[3].split("/")[:1]]
    elif field:
        keys = field[0].split(".")
    else:
        return None
    return _walk(_root(path), keys)


def _walk(node: Any, keys: list[str]) -> yaml.Mark | None:
    mark = None
    for key in keys:
        at, node = _step(node, key)
        if node is None:
            break
        mark = at
    return mark


def _step(node: Any, key: str) -> tuple[Any, Any]:
    """Mark and node below a key, an index, or the item of that name; None, None: there is none."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return name.start_mark, value
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            names = (_step(item, field)[1] for field in ("name", "step"))
            if key in (str(number), *(getattr(name, "value", None) for name in names)):
                return item.start_mark, item
    return None, None


def _documents(folder: Path) -> list[str]:
    """Names of YAML files in a folder."""
    with contextlib.suppress(OSError):
        return [path.name for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
    return []
