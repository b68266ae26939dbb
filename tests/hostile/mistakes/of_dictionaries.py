"""Mistakes in a data dictionary. Columns stand in lines 4 to 7: as in tests/conftest.py."""

from __future__ import annotations

from tests.hostile.mistakes.mistake import Mistake, in_dictionary

PLACE = "schema.yaml, line "


def constrained(constraint: str, *words: str) -> Mistake:
    """A constraint in line 9 that cannot be."""
    return in_dictionary(
        "role: target}", f"role: target}}\nconstraints:\n  - {{name: c, {constraint}}}", *words
    )


DICTIONARIES: dict[str, Mistake] = {
    "another word for integer": in_dictionary(
        "kind: integer", "kind: int", "line 4, column 17", "'integer'?"),
    "a field misspelt": in_dictionary("kind: integer", "knd: integer", "'kind'?"),
    "no kind": in_dictionary("kind: integer, ", "", "line 4, column 5"),
    "a bound in letters": in_dictionary(
        "lower: 0, upper: 100}", "lower: zero, upper: 100}", "line 4, column 32"),
    "a decimal comma in a line": in_dictionary("upper: 1000,", "upper: 1000,5,", "line 5"),
    "a decimal comma in a block": in_dictionary(
        "lower: 0, upper: 1000,", "lower: '0,5', upper: 1000,", "column income"),
    "a German date": in_dictionary(
        "kind: continuous, lower: 0, upper: 1000", "kind: date, lower: 01.01.2024, upper: x",
        "column income: lower:"),
    "a cut in letters": in_dictionary(
        "upper: 100}", "upper: 100, cuts: [ten]}", "line 4, column 54"),
    "a bound of half a year": in_dictionary(
        "upper: 100}", "upper: 99.5}", "column age: lower/upper:"),
    "a date that is none": in_dictionary(
        "kind: continuous, lower: 0, upper: 1000", "kind: date, lower: 2020-13-01, upper: x",
        "column income"),
    "levels without quotes": in_dictionary("[north, south, other]", "[1, 2, other]", "line 6"),
    "levels that YAML reads as truth": in_dictionary(
        "[north, south, other]", "[true, false, other]", "in quotes: [\"true\", ...]"),
    "another level misspelt": in_dictionary(
        "other: other", "other: othr", "column region: other: must"),
    "a level twice": in_dictionary(
        "[north, south, other]", "[north, north, other]", "two levels are equal"),
    "another word for target": in_dictionary(
        "role: target", "role: targt", "line 7, column 32", "'target'?"),
    "another word for identifier, and no kind": in_dictionary(
        "kind: integer, lower: 0, upper: 100", "role: identifer", "line 4, column 17",
        "'identifier'?"),
    "a provenance misspelt": in_dictionary(
        "upper: 100}", "upper: 100, provenance: codebok}", "line 4, column 54", "'codebook'?"),
    "a name in braces": in_dictionary("name: age", "name: {{age}}", "line 4, column 13"),
    "a name with a space before it": in_dictionary("name: age", 'name: " age"', "line 4, column 6"),
    "two targets": in_dictionary(
        "upper: 100}", "upper: 100, role: target}", "more than one target"),
    "yes for true": in_dictionary("nullable: true", "nullable: yes", "line 5, column 61"),
    "columns as words": in_dictionary(
        "{name: age, kind: integer, lower: 0, upper: 100}", "age", "a list of mappings"),
    "a heading misspelt": in_dictionary("columns:", "colums:", "schema.yaml"),
    "a time zone of no place": in_dictionary(
        "upper: 100}", "upper: 100, time_zone: Berlin}", "no IANA time zone, such as"),
    "a constraint on a column that there is not": constrained(
        "never: {regoin: north}", "line 9, column 5", "'region'?"),
    "a constraint on a level that there is not": constrained(
        "never: {region: nort}", "line 9, column 15", "'north'?"),
    "a constraint in words": constrained("rule: age <= income", "constraint c: expected one"),
    "a constraint on amounts of any precision": constrained(
        "never: {income: {lower: 500}}", "constraint c: column"),
    "a sum that is out of reach": constrained("sum: [age], equals: 200", "line 9, column 15"),
    "a constraint that forbids every row": constrained(
        "never: {age: {lower: 0}}", "line 9, column 15"),
    "a lookup that leaves out a level": constrained(
        "column: ill, of: region, cases: [{when: north, is: true}]", "line 9, column 40"),
    "another word for project": constrained(
        "never: {age: 3}, repair: projct", "c: repair: expected one of"),
    "a column's own weight": in_dictionary("name: age", "name: weight", "reserved for the weights"),
}  # fmt: skip
