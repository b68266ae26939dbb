"""The table of bad inputs and the leak register are whole, and what they name exists."""

import ast
from pathlib import Path

import pytest

from tests.hostile.bad_inputs import config_cases, structure_cases, values_cases
from tests.hostile.bad_inputs.rows import ROWS, SCHEMA, SPEC, STRUCTURE, VALUES
from tests.hostile.leaks.register import REGISTER
from tests.support.named_tests import named_tests

ROOT = Path(__file__).resolve().parents[2]


def test_there_are_52_rows_and_47_leaks_each_with_a_test_or_a_reason():
    assert [row.number for row in ROWS] == list(range(1, 53))
    assert all(row.tests and row.input and row.result for row in ROWS)
    assert {row.code for row in ROWS} == {"C", "S", "V", "B", "I", "R", "-"}
    assert [leak.number for leak in REGISTER] == list(range(1, 48))
    assert all(leak.path and leak.control and leak.where for leak in REGISTER)
    assert {leak.severity for leak in REGISTER} == {"H", "M", "L"}
    untested = [leak for leak in REGISTER if not leak.tests]
    assert [leak.number for leak in untested] == [38]
    assert all(leak.open.endswith(".") for leak in REGISTER if leak.open or leak in untested)


@pytest.mark.slow
def test_every_test_and_every_control_that_is_named_exists():
    named = {name for row in (*ROWS, *REGISTER) for name in row.tests}
    assert named - named_tests() == set()
    for leak in REGISTER:
        for place in leak.where:
            file, _, name = place.partition("::")
            tree = ast.parse((ROOT / file).read_text())
            kinds = ast.FunctionDef | ast.ClassDef
            defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
            assert not name or name in defined, (leak.number, place)


def test_a_row_that_names_a_table_of_cases_has_a_case_in_it():
    """Cases carry their row's number, so that a row cannot point at a test that leaves it out."""

    def numbers(cases):
        return {int(case.split()[0]) for case in cases}

    cases = {
        VALUES: {case[0] for case in values_cases.VALUES},
        STRUCTURE: numbers(structure_cases.STRUCTURE),
        SPEC: numbers(config_cases.SPEC),
        SCHEMA: numbers(config_cases.BOUNDS),
    }
    named = {(row.number, test) for row in ROWS for test in row.tests if test in cases}
    assert named == {(number, test) for test, held in cases.items() for number in held}
