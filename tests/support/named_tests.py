"""The names of all tests, from the files: what a table that refers to tests may refer to."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


@functools.cache
def named_tests() -> frozenset[str]:
    """`folder/test_file.py::test_name`, for every test function below tests/."""
    names = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return frozenset(names)
