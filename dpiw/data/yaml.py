"""YAML for configuration: plain data only.

Refused: aliases, anchors, tags, duplicate keys, several documents. `no`, `on`, dates and `1:30`
stay text (tests/hostile/bad_inputs/rows.py, row 50).
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from dpiw.data.files import names_in
from dpiw.errors import DPIWError, Mark, SpecError, nearest

MAX_BYTES = 1 << 20
SUFFIXES = (".yaml", ".yml")
"""Suffixes of configuration files; files with others are not opened."""

_MAX_DEPTH = 32
_MOST_TOLD = 6

_REASONS = {
    "mapping values are not allowed": "a second `: ` in one line, or a line that is indented too"
    " far; put a text that holds `: ` in quotes",
    "could not find expected ':'": "no `key: value`; put a colon and a space after the key",
    "expected ',' or": "a bracket that is not closed, or a comma that is missing; put a text that"
    " holds one of ? : , # [ ] { } in quotes",
    "expected <block end>": "a line that is not indented like the lines beside it",
    "unexpected end of stream": "a quote that is not closed",
    "unexpected document separator": "a quote that is not closed",
    "unknown escape character": "a backslash in double quotes; use single quotes",
    "expected a single document": "a second document; remove the line ---",
    "found character '\\t'": "a tab; indent with spaces",
    "found character": "a text that begins with a special character of YAML; put it in quotes",
}
"""Advice by a part of ruamel.yaml's message; it quotes nothing of the file."""

_QUOTED = "are not allowed; put a text that begins with this sign in quotes"
_COMMA = "a number without a key; decimals have a point, such as 18.5, and no comma"

_BEGINS = ("simple key", "flow", "quoted scalar")
"""Faults located by where the construct began, not by where the parser noticed."""


class _Refusal(MarkedYAMLError):  # noqa: N818 - as the library's own are caught
    """A refusal in dpiw's own words."""


def _refusal(problem: str, place: Any) -> _Refusal:
    return _Refusal(problem=problem, problem_mark=place.start_mark)


def _reason(problem: MarkedYAMLError) -> tuple[str, Any]:
    message, mark = problem.problem or "", problem.problem_mark
    if isinstance(problem, _Refusal):
        return message, mark
    if problem.context_mark and any(part in (problem.context or "") for part in _BEGINS):
        mark = problem.context_mark
    cause = next((reason for part, reason in _REASONS.items() if part in message), "")
    return f"not valid YAML: {cause}" if cause else "not valid YAML", mark


def _mark(file: str, found: Any) -> Mark:
    """Return where ruamel.yaml found something, or the file alone."""
    return Mark(file, found.line + 1, found.column + 1) if found else Mark(file)


def _nodes(text: str) -> Any:
    """Return a document's nodes, None if empty; checks by event: builds nothing refused."""
    if found := _OTHER_BREAKS.search(text):
        before = text[: found.start()].split("\n")
        place = StringMark("", found.start(), len(before) - 1, len(before[-1]), None, 0)
        fault = "a line break that some programs do not know (U+0085, U+2028 or U+2029); remove it"
        raise _Refusal(problem=fault, problem_mark=place)
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, CollectionEndEvent):
            depth -= 1
        if not isinstance(event, NodeEvent):
            continue
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise _refusal(f"anchors and aliases (& and *) {_QUOTED}", event)
        if getattr(event, "tag", None) is not None:
            raise _refusal(f"tags (!) {_QUOTED}", event)
        if depth == _MAX_DEPTH:
            raise _refusal(f"nested too deeply; expected at most {_MAX_DEPTH} levels", event)
        depth += isinstance(event, CollectionStartEvent)
    return YAML(typ="safe", pure=True).compose(text)


_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks in one version of YAML, and text in another."""

_NULL = re.compile(r"(?:null|~|)")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,4000})")
_DECIMAL = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|nan))"
)


def _value(node: Any, *, exact: bool) -> Any:
    """Return a node's value; decimals exact (`0.1` is the decimal 0.1), or as the nearest float."""
    if isinstance(node, MappingNode):
        return _mapping(node, exact=exact)
    if isinstance(node, SequenceNode):
        return [_value(item, exact=exact) for item in node.value]
    text = str(node.value)
    if node.style is not None:  # in quotes, or a block
        return text
    if _NULL.fullmatch(text):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        number = text.replace(".inf", "inf").replace(".nan", "nan")
        return Decimal(number) if exact else float(number)
    return text


def _mapping(node: MappingNode, *, exact: bool) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            fault = "a key that is not plain text; put a key that holds a bracket or ? in quotes"
            raise _refusal(fault, key)
        if key.style is None and not key.value:
            raise _refusal("a value without a key; write `key: value`", key)
        if key.value in seen:
            raise _refusal("duplicate key: it is already set above; remove one of the two", key)
        seen.add(key.value)
        is_empty = value.start_mark.index == value.end_mark.index
        if is_empty and re.fullmatch(r"\d{1,20}", key.value):
            raise _refusal(_COMMA, key)
    return {_value(key, exact=exact): _value(value, exact=exact) for key, value in node.value}


def load_text(
    text: str, *, what: str, error: type[DPIWError] = SpecError, exact: bool = False
) -> Any:
    """Parse one YAML document; `error` gives reason, line and column of `what`, and quotes nothing.

    `exact`: return decimals as `decimal.Decimal` instead of float.
    """
    failure, found = "not valid YAML", None
    try:
        root = _nodes(text)
        return None if root is None else _value(root, exact=exact)
    except MarkedYAMLError as problem:
        failure, found = _reason(problem)
    except ReaderError:
        failure = "not valid YAML: a character that no text file holds; remove it"
    except (YAMLError, ValueError, RecursionError):
        pass
    raise error(failure, mark=_mark(what, found))


def load_file(
    path: Path, *, what: str, error: type[DPIWError] = SpecError, exact: bool = False
) -> Any:
    """Parse a UTF-8 file of at most `MAX_BYTES`; files not named as YAML are refused unopened."""
    failure = ""
    try:
        named = {path.suffix.lower(), path.resolve().suffix.lower()}
        if not named <= {*SUFFIXES} and os.path.exists(path) and not path.is_dir():
            failure = "expected a YAML file, whose name ends in .yaml or .yml; it was not opened"
        else:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
            if len(data) <= MAX_BYTES:
                return load_text(data.decode("utf-8-sig"), what=what, error=error, exact=exact)
            failure = f"larger than {MAX_BYTES} bytes, the most that such a file may have"
    except OSError as problem:
        failure = _unreadable(path, problem)
    except UnicodeDecodeError:
        failure = "not UTF-8; save the file as UTF-8"
    raise error(failure, mark=Mark(what))


def flow_text(mapping: dict[str, Any]) -> str:
    """Return one line of YAML that people can put into a file."""
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style = True
    writer.width = 10**6
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(mapping, text)
    return text.getvalue().strip()


def _unreadable(path: Path, problem: OSError) -> str:
    if isinstance(problem, IsADirectoryError):
        inside = ", ".join(sorted(names_in(path, *SUFFIXES))[:_MOST_TOLD])
        return f"a folder; expected a YAML file{f', such as one in it: {inside}' if inside else ''}"
    if not isinstance(problem, FileNotFoundError):
        return "you may not read this file; its owner can change that (chmod)"
    beside = names_in(path.parent, *SUFFIXES)
    return f"no such file{nearest(path.name, beside) or '; dpiw init drafts one'}"


@contextlib.contextmanager
def marked(path: Path, *errors: type[DPIWError]) -> Iterator[None]:
    """Mark where the fields of this block's errors stand in a file; not what is of the whole file.

    What was marked before stays as it is.
    """
    name = path.name or str(path)
    try:
        yield
    except errors as error:
        root = None
        with contextlib.suppress(OSError, UnicodeDecodeError, YAMLError, RecursionError):
            root = _nodes(path.read_bytes()[:MAX_BYTES].decode("utf-8-sig"))
        for each in error.several or (error,):
            if each.mark is None and each.field != name:
                each.mark = _mark(name, _place(root, each.field))
        raise


def _place(node: Any, field: str) -> Any:
    """Return where a field stands below a node, or what surrounds it; None if there is no node.

    Items of a list count from 1 in brackets (`questions[1].mean`), else from 0 (`steps.0`).
    """
    item = re.fullmatch(r"(column|constraint)s? (.+?)(?: and .+)?(?:: ([\w/]*).*)?", field)
    if item:
        keys = [f"{item[1]}s", item[2], *(item[3] or "").split("/")[:1]]
    else:
        field = re.sub(r"\[(\d+)\]", lambda number: f".{int(number[1]) - 1}", field)
        keys = re.split(r"[^\w.]", field)[0].split(".")
    mark = None
    for key in keys:
        at, node = _step(node, key)
        if node is None:
            break
        mark = at
    return mark


def _step(node: Any, key: str) -> tuple[Any, Any]:
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if name.value == key:
                return name.start_mark, value
    if isinstance(node, SequenceNode):
        for number, item in enumerate(node.value):
            names = (_step(item, field)[1] for field in ("name", "step"))
            if key in (str(number), *(getattr(name, "value", None) for name in names)):
                return item.start_mark, item
    return None, None
