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
        "kind: integer", "kind: int", PLACE + "4, column 17: column age: kind: expected one of",
        "datetime, not 'int'; did you mean 'integer'?"),
    "a field misspelt": in_dictionary(
        "kind: integer", "knd: integer", "column age: knd: unknown key; did you mean 'kind'?"),
    "no kind": in_dictionary(
        "kind: integer, ", "", PLACE + "4, column 5: column age: kind: missing, such as"),
    "no lower bound": in_dictionary(
        "lower: 0, upper: 100}", "upper: 100}", "column age", "bounds are required"),
    "bounds the wrong way": in_dictionary(
        "upper: 1000,", "upper: -5,", PLACE + "5, column 38: column income: lower/upper",
        "expected lower < upper"),
    "a bound in letters": in_dictionary(
        "lower: 0, upper: 100}", "lower: zero, upper: 100}", PLACE + "4, column 32: column age",
        "'zero' is no integer value"),
    "a decimal comma in a line": in_dictionary(
        "upper: 1000,", "upper: 1000,5,", PLACE + "5",
        "a number without a key; decimals have a point"),
    "a decimal comma in a block": in_dictionary(
        "lower: 0, upper: 1000,", "lower: '0,5', upper: 1000,", "column income",
        "'0,5' is no continuous value; expected a number with a decimal point, such as 18.5"),
    "a German date": in_dictionary(
        "kind: continuous, lower: 0, upper: 1000", "kind: date, lower: 01.01.2024, upper: x",
        "column income: lower: '01.01.2024' is no date value; expected an ISO date (year-month-",
        "day), such as 2024-01-31"),
    "a German date as upper bound": in_dictionary(
        "kind: continuous, lower: 0, upper: 1000", "kind: date, lower: 2024-01-01, upper: 31.12.29",
        PLACE + "5, column 51: column income: upper: '31.12.29' is no date value"),
    "a cut in letters": in_dictionary(
        "upper: 100}", "upper: 100, cuts: [ten]}", PLACE + "4, column 54: column age: cuts",
        "'ten' is no integer value"),
    "a bound of half a year": in_dictionary(
        "upper: 100}", "upper: 99.5}", "column age: lower/upper: expected whole numbers"),
    "a date that is none": in_dictionary(
        "kind: continuous, lower: 0, upper: 1000", "kind: date, lower: 2020-13-01, upper: x",
        "column income", "'2020-13-01' is no date value"),
    "levels without quotes": in_dictionary(
        "[north, south, other]", "[1, 2, other]", PLACE + "6",
        'must be text, in quotes: ["1", ...]'),
    "levels that YAML reads as truth": in_dictionary(
        "[north, south, other]", "[true, false, other]", 'in quotes: ["true", ...]'),
    "no levels": in_dictionary(
        "levels: [north, south, other], other: other", "", "column region: levels: public levels"),
    "another level misspelt": in_dictionary(
        "other: other", "other: othr", "column region: other: must be a level; did you mean 'o"),
    "a level twice": in_dictionary(
        "[north, south, other]", "[north, north, other]", "two levels are equal"),
    "another word for target": in_dictionary(
        "role: target", "role: targt", PLACE + "7, column 32: column ill: role: expected one of",
        "did you mean 'target'?"),
    "another word for identifier, and no kind": in_dictionary(
        "kind: integer, lower: 0, upper: 100", "role: identifer", PLACE + "4, column 17",
        "column age: role: expected one of", "not 'identifer'; did you mean 'identifier'?"),
    "a provenance misspelt": in_dictionary(
        "upper: 100}", "upper: 100, provenance: codebok}", PLACE + "4, column 54",
        "at most, not 'codebok'; did you mean 'codebook'?"),
    "a name in braces": in_dictionary(
        "name: age", "name: {{age}}", PLACE + "4, column 13: a key is not plain text; with a bra"),
    "a name with a space before it": in_dictionary(
        "name: age", 'name: " age"', PLACE + "4, column 6: column  age: name: white space"),
    "two targets": in_dictionary(
        "upper: 100}", "upper: 100, role: target}", "more than one target"),
    "a column twice": in_dictionary(
        "name: income", "name: age", PLACE + "4", "columns age and age: equal up to case/form",
        "the second is in line 5"),
    "a column in capitals, too": in_dictionary(
        "name: region", "name: AGE", PLACE + "4", "the second is in line 6"),
    "yes for true": in_dictionary(
        "nullable: true", "nullable: yes", PLACE + "5, column 61", "expected true or false"),
    "levels of a boolean": in_dictionary(
        "kind: boolean", "kind: boolean, levels: [a]", "has no meaning for a column of kind"),
    "columns as words": in_dictionary(
        "{name: age, kind: integer, lower: 0, upper: 100}", "age", "a list of mappings"),
    "a heading misspelt": in_dictionary(
        "columns:", "colums:", "schema.yaml: a data dictionary: expected exactly the keys `name`"),
    "a time zone of no place": in_dictionary(
        "upper: 100}", "upper: 100, time_zone: Berlin}", "no IANA time zone, such as Europe/"),
    "a time zone that is the machine's": in_dictionary(
        "upper: 100}", "upper: 100, time_zone: localtime}", "no IANA time zone, such as Europe/"),
    "a constraint on a column that there is not": constrained(
        "never: {regoin: north}", PLACE + "9, column 5: constraint c: no released column is called",
        "did you mean 'region'?"),
    "a constraint on a level that there is not": constrained(
        "never: {region: nort}", PLACE + "9, column 15: constraint c: never: column region: expect",
        "did you mean 'north'?"),
    "a constraint in words": constrained(
        "rule: age <= income", "constraint c: expected one of the keys never, of, sum"),
    "a constraint on amounts of any precision": constrained(
        "never: {income: {lower: 500}}", "constraint c: column income: decimals: expected a num"),
    "a sum that is out of reach": constrained(
        "sum: [age], equals: 200", PLACE + "9, column 15: constraint c: sum: cannot hold within"),
    "a constraint that forbids every row": constrained(
        "never: {age: {lower: 0}}", PLACE + "9, column 15: constraint c: never: forbids every row"),
    "a lookup that leaves out a level": constrained(
        "column: ill, of: region, cases: [{when: north, is: true}]",
        PLACE + "9, column 40: constraint c: cases: expected every value of column region in exac"),
    "another word for project": constrained(
        "never: {age: 3}, repair: projct", "c: repair: expected one of reject, project; did you"),
    "a column's own weight": in_dictionary("name: age", "name: weight", "reserved for the weights"),
}  # fmt: skip
