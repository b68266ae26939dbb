"""The table of bad inputs is whole: 52 rows, each with tests that exist."""

from tests.hostile.bad_inputs import config_cases, structure_cases, values_cases
from tests.hostile.bad_inputs.rows import ROWS, SCHEMA, SPEC, STRUCTURE, VALUES
from tests.support.named_tests import named_tests


def test_there_are_52_rows_each_with_a_test():
    assert [row.number for row in ROWS] == list(range(1, 53))
    for row in ROWS:
        assert row.tests, row.number
        assert row.input, row.number
        assert row.result, row.number
        assert row.code in {"C", "S", "V", "B", "I", "R", "-"}, row.number


def test_every_test_a_row_names_exists():
    missing = {name for row in ROWS for name in row.tests} - named_tests()
    assert not missing


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
    for row in ROWS:
        for test, held in cases.items():
            if test in row.tests:
                assert row.number in held, (row.number, test)
    named = {(row.number, test) for row in ROWS for test in row.tests if test in cases}
    assert named >= {(number, test) for test, held in cases.items() for number in held}
