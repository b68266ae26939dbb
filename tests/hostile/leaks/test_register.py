"""The leak register is whole, and what it names exists."""

import ast
from pathlib import Path

from tests.hostile.leaks.register import REGISTER
from tests.support.named_tests import named_tests

ROOT = Path(__file__).resolve().parents[3]


def names_in(path):
    """Functions and classes a module defines, at any depth."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_there_are_47_rows_each_with_a_control_and_a_test_or_a_reason():
    assert [row.number for row in REGISTER] == list(range(1, 48))
    for row in REGISTER:
        assert row.path, row.number
        assert row.control, row.number
        assert row.where, row.number
        assert row.severity in {"H", "M", "L"}, row.number
        assert row.tests or len(row.open) > 20, row.number
        assert not row.open or row.open.endswith("."), row.number


def test_every_test_the_register_names_exists():
    assert {name for row in REGISTER for name in row.tests} - named_tests() == set()


def test_every_control_the_register_names_exists():
    for row in REGISTER:
        for place in row.where:
            file, _, name = place.partition("::")
            assert (ROOT / file).is_file(), (row.number, file)
            assert not name or name in names_in(ROOT / file), (row.number, place)


def test_open_rows_are_told_to_figures(figures):
    """What is open is printed, so that nobody has to look for it."""
    untested = [row.number for row in REGISTER if not row.tests]
    figures(
        "leak register", rows=len(REGISTER), with_tests=len(REGISTER) - len(untested),
        without_tests=untested, open=[row.number for row in REGISTER if row.open],
    )  # fmt: skip
    assert untested == [38]
