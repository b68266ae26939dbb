"""What the parameters of a flow may name: files below a deployment's root.

Everyone who may start a run on a server chooses them, so their paths must be below `DPIW_ROOT` (the
worker's folder). People at a terminal may name any path (`typed_here`).
"""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import parse_qsl

from dpiw.data.yaml import SUFFIXES
from dpiw.errors import SpecError
from dpiw.ledger.location import check_location

ROOT = "DPIW_ROOT"
"""A worker's variable for another root than its working folder."""

_FILES = frozenset({"host", "passfile", "sslrootcert", "sslcert", "sslkey", "sslcrl"})
"""Options of a PostgreSQL URL that may name a file or a socket's folder."""

_TYPED_HERE: ContextVar[bool] = ContextVar("typed_here", default=False)


@contextlib.contextmanager
def typed_here() -> Iterator[None]:
    """Mark the flows inside as a person's, with parameters typed on this machine."""
    token = _TYPED_HERE.set(True)
    try:
        yield
    finally:
        _TYPED_HERE.reset(token)


def below_root(name: str, text: str) -> Path:
    """Return a parameter's path with links followed (a person's: as typed); SpecError if outside.

    The error does not repeat the text, and nothing is opened.
    """
    if _TYPED_HERE.get():
        return Path(text)
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # not a path; a loop of links
        root = Path(os.environ.get(ROOT) or Path.cwd()).resolve()
        path = (Path.cwd() / text).resolve()
        if path.is_relative_to(root):
            return path
    raise SpecError(
        field=name,
        allowed="a path below the deployment's root, which is the worker's folder or what its"
        f" {ROOT} names; nothing was opened",
    )


def spec_below_root(name: str, text: str) -> Path:
    """Return the path of a spec; SpecError as `below_root`, or if it is not named as YAML."""
    path = below_root(name, text)
    if Path(text).suffix.lower() in SUFFIXES and path.suffix.lower() in SUFFIXES:
        return path
    raise SpecError(
        field=name, allowed="a spec, whose name ends in .yaml or .yml; nothing was opened"
    )


def ledger_below_root(text: str) -> str:
    """Return a ledger's path or URL, or a spec's path. SpecError: as `below_root`, or bad URL."""
    check_location(text, error=SpecError)
    scheme, separator, rest = text.partition("://")
    if _TYPED_HERE.get():
        return text
    if not separator:
        return str(below_root("ledger", text))
    place, mark, options = rest.partition("?")
    if scheme == "sqlite":
        return f"sqlite:///{below_root('ledger', place.removeprefix('/'))}{mark}{options}"
    named = {name for name, _ in parse_qsl(options, keep_blank_values=True)}
    if named & _FILES:
        raise SpecError(
            "a worker takes no URL that names files or sockets",
            field="ledger",
            allowed="the release spec whose `ledger` it is",
        )
    return text
