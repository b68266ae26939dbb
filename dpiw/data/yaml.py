"""YAML for configuration: plain data only, nothing surprising.

Refused: aliases and anchors (so no expansion bombs), tags, duplicate keys, more than one document.
`no`, `on`, dates and `1:30` stay text; only `true`/`false`, `null`/`~`, decimal integers and
floats are typed (tests/hostile/bad_inputs/rows.py, row 50).
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from dpiw.errors import DPIWError, SpecError

MAX_BYTES = 1 << 20
_MAX_DEPTH = 32


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader without aliases, tags, duplicate keys and YAML 1.1's implicit types."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.YAMLError("anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError("tags are not allowed")
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise yaml.YAMLError("nested too deeply")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError("a key is not plain text")
            if key.value in seen:
                plain = re.fullmatch(r"\w{1,40}", key.value)  # a slip may make a line a key
                raise yaml.YAMLError(f"duplicate key {key.value!r}" if plain else "duplicate key")
            seen.add(key.value)
        return super().construct_mapping(node, deep=True)


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
        error: not readable under the rules above. The message never quotes file content except
            a duplicate key.
    """
    failure = ""
    try:
        return yaml.load(text, Loader=_ExactLoader if exact else _StrictLoader)  # noqa: S506 (a SafeLoader subclass)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        failure = f"not valid YAML at line {mark.line + 1}" if mark else "not valid YAML"
    except yaml.YAMLError as problem:
        failure = str(problem) if len(str(problem)) < 200 else "not valid YAML"
    except (ValueError, RecursionError):
        failure = "not valid YAML"
    raise error(f"{what}: {failure}")


def load_file(
    path: Path, *, what: str, error: type[DPIWError] = SpecError, exact: bool = False
) -> Any:
    """Parse a UTF-8 configuration file of at most `MAX_BYTES`; see `load_text`."""
    failure = ""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) <= MAX_BYTES:
            return load_text(data.decode("utf-8-sig"), what=what, error=error, exact=exact)
        failure = f"larger than {MAX_BYTES} bytes"
    except OSError:
        failure = "cannot be read"
    except UnicodeDecodeError:
        failure = "not UTF-8"
    raise error(f"{what}: {failure}")
