"""The names of all tests, from the files: what a table that refers to tests may refer to."""

import functools
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


@functools.cache
def named_tests() -> frozenset[str]:
    """`folder/test_file.py::test_name`, for every test function below tests/."""
    names = set[str]()
    for path in TESTS.rglob("test_*.py"):
        file = path.relative_to(TESTS).as_posix()
        functions = re.findall(r"^ *def (test_\w+)\(", path.read_text(), re.M)
        names |= {f"{file}::{name}" for name in functions}
    return frozenset(names)
