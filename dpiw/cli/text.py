"""What the command line's modules share: reading decimals, writing lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import TextIO

from dpiw.errors import SpecError


def exact_decimal(field: str, text: str) -> Decimal:
    """`text` as the decimal it is; else SpecError."""
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise SpecError(
            f"{field}={text[:40]}: expected an exact decimal such as 0.5 or 1e-6"
        ) from error


def write_lines(arguments: argparse.Namespace, lines: Iterable[str]) -> None:
    """Write to the arguments' `stream` if a caller set one, else to standard output."""
    stream: TextIO = getattr(arguments, "stream", None) or sys.stdout
    for line in lines:
        stream.write(line + "\n")
