"""Libraries an analyst may or may not have."""

from __future__ import annotations

import importlib
from typing import Any

from dpiw.errors import ReleaseError, install


def optional(module: str, *, extra: str) -> Any:
    """Import `module`.

    Raises:
        ReleaseError: it is not installed; names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as reason:
        name = (reason.name or module).split(".")[0]
        raise ReleaseError(f"{name}: not installed; {install(extra)}") from None
