"""Regular expressions take time in proportion to the text: by their structure, not by a clock.

A pattern is flagged where two repeats without a bound follow one another over common characters, or
where a search can begin anew at each place of a run that it then scans to its end. Both take the
square of a hostile text's length. Sets of characters are compared over ASCII and some others.
"""

import ast
import itertools
import re
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    path for room in ("dpiw", "tasks", "flows") for path in sorted((ROOT / room).rglob("*.py"))
]
ALPHABET = [*map(chr, range(128)), "\x85", "\xa0", "\xe9", "\u2028", "\u0660"]
EVERY = frozenset(ALPHABET)
FUNCTIONS = {
    "compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer",
}  # fmt: skip
ANCHORED = {"match", "fullmatch"}

SHORT = {
    "formulas.py": "a formula that the analyst types",
    "models.py": "a feature's name in an analyst's formula",
    "parser.py": "words that were typed",
    "yaml.py": "our own message of one field",
    "location.py": "where a ledger is, as its operator typed it",
    "files.py": "a kind of file system, from the kernel",
    "spec_types.py": "one field of the curator's own spec",
    "plots.py": "the style of our own figure",
}
"""Files with patterns that are flagged, and why their texts are short or their owner's."""


class Item(NamedTuple):
    """Characters at one place, or of a run without a bound."""

    characters: frozenset[str]
    runs: bool = False
    optional: bool = False
    backtracks: bool = False


def characters_of(code, value, flags):
    """Of a single character's node; asked of the library itself."""
    if code is op.ANY:
        return EVERY if flags & re.DOTALL else EVERY - {"\n"}
    if code in (op.LITERAL, op.NOT_LITERAL):
        chosen = {c for c in ALPHABET if ord(c) == value or (
            flags & re.IGNORECASE and c.casefold() == chr(value).casefold())}  # fmt: skip
        return frozenset(chosen if code is op.LITERAL else EVERY - chosen)
    assert code is op.IN
    pattern = _parser.SubPattern(_parser.State(), [(code, value)])
    compiled = re._compiler.compile(pattern, flags)  # type: ignore[attr-defined]
    return frozenset(c for c in ALPHABET if compiled.match(c))


def sequences(nodes, flags):
    """Every way through a pattern, as a list of items; groups that repeat as the run they make."""
    ways = [[]]
    for code, value in nodes:
        options = [[]]
        if code in (op.ANY, op.LITERAL, op.NOT_LITERAL, op.IN):
            options = [[Item(characters_of(code, value, flags))]]
        elif code is op.AT:
            if value is op.AT_BEGINNING:
                options = [[Item(frozenset("\n") if flags & re.MULTILINE else frozenset())]]
            elif value in (op.AT_END, op.AT_END_STRING):
                options = [[Item(frozenset())]]
        elif code is op.SUBPATTERN:
            options = sequences(value[3], flags | value[1])
        elif code is op.ATOMIC_GROUP:
            options = sequences(value, flags)
        elif code is op.BRANCH:
            options = [way for branch in value[1] for way in sequences(branch, flags)]
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            least, most, body = value
            inner = sequences(body, flags)
            if most is op.MAXREPEAT:
                run = frozenset().union(*(item.characters for way in inner for item in way))
                loose = code is not op.POSSESSIVE_REPEAT
                nested = any(quadratic([*way, *way], search=False) for way in inner)
                single = all(len(way) == 1 and not way[0].runs for way in inner)
                ambiguous = loose and (single or nested)
                options = [[Item(run, True, least == 0, ambiguous)]]
                assert not nested or not loose, "a repeat of an ambiguous repeat"
            else:
                turns = range(min(least, 1), min(most, 3) + 1)
                options = [
                    [i for way in chosen for i in way]
                    for turn in turns
                    for chosen in itertools.islice(itertools.product(inner, repeat=turn), 9)
                ]
                options = options or [[]]
        elif code is op.GROUPREF:
            options = [[Item(EVERY, True, True)]]
        ways = [way + option for way in ways for option in options][:500]
    return ways


def quadratic(items, *, search):
    """Whether a way through a pattern takes the square of some text."""
    for place, item in enumerate(items):
        if not item.runs:
            continue
        rest = items[place + 1 :]
        if all(other.optional for other in rest):
            continue  # it succeeds wherever the run ends, and is not tried a second time
        if item.backtracks:
            for other in rest:
                if other.runs and other.backtracks and other.characters & item.characters:
                    return True
                if not other.optional and not other.characters & item.characters:
                    break
        needed = [other for other in items[:place] if not other.optional]
        if search and all(other.characters & item.characters for other in needed):
            return True
    return False


def flagged(pattern, flags=0, *, search=True):
    tree = _parser.parse(pattern, flags)
    try:
        return any(
            quadratic(way, search=search) for way in sequences(tree, flags | tree.state.flags)
        )
    except AssertionError:
        return True


def patterns():
    """Of every file: pattern, flags, and whether it is searched for anywhere in a text."""
    for path in FILES:
        text = path.read_text()
        if "re." not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            known = (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name) and call.func.value.id == "re"
                and call.func.attr in FUNCTIONS
            )  # fmt: skip
            if not known or not isinstance(call.args[0], ast.Constant):
                continue
            words = {*re.findall(r"re\.([A-Z]+)\b", ast.unparse(call))}
            flags = sum(int(getattr(re, word)) for word in words)
            name = re.search(rf"^(\w+) = {re.escape(ast.unparse(call)[:12])}", text, re.M)
            how = {call.func.attr}
            if call.func.attr == "compile":
                lines = text.splitlines()[call.lineno - 1]
                name = re.match(r"\s*(\w+)(?:: [^=]+)? = re\.compile", lines)
                how = {*re.findall(rf"\b{name[1]}\.(\w+)\(", text)} if name else {"search"}
            yield path.name, call.args[0].value, flags, not how <= ANCHORED


@pytest.mark.slow
def test_every_pattern_of_the_product_is_linear():
    found = [
        (name, pattern)
        for name, pattern, flags, search in patterns()
        if isinstance(pattern, str) and flagged(pattern, flags, search=search)
    ]
    assert {name for name, _ in found} == {*SHORT}, found
    assert sum(1 for _ in patterns()) > 60


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        (r"(^|;)\s*(insert\s+(\w+\s+)*into|copy)\s", re.I | re.M),  # as it was
        (r"insert\s+(\w+\s+)*into", re.I), (r"\s+$", 0), (r"^\s*x", re.M), (r"\w+\d+x", 0),
        (r"<.*>", 0), (r".*?,.*?,x", 0), (r"(a+)+b", 0),
    ],
)  # fmt: skip
def test_patterns_that_take_the_square_are_flagged_and_others_are_not(pattern, flags):
    assert flagged(pattern, flags)
    for linear in (r"[^a-z]+", r"(?m)^[ \t]*+x", r"a\s*b", r"\d{1,9}x", r"`[^`]*`"):
        assert not flagged(linear)
