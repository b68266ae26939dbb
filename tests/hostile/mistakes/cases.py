"""Mistakes of curators and analysts: what somebody did and typed, and what they must be told.

One case for each way in which a mistake is found. What a field may hold: tests of its own room.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dpiw import analysis
from dpiw.analysis.release import Release

Slip = Callable[[Path], None]
"""Makes the mistake, in a folder where everything was right."""


class Mistake(NamedTuple):
    """One line of the table: what went wrong, what is typed after `dpiw`, and how that ends.

    `command` of a run: its period; `words`: the field, its place, the nearest valid word.
    """

    slip: Slip
    command: str
    code: int
    words: tuple[str, ...]


def nothing(folder: Path) -> None:
    """The files are right; what is typed is not."""


def in_file(name: str, old: str, new: str) -> Slip:
    """A slip of the pen in a file, whose text `old` must be there."""

    def slip(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text, f"{name} does not hold {old!r}"
        (folder / name).write_text(text.replace(old, new, 1))

    return slip


def in_spec(old: str, new: str, *words: str, code: int = 10) -> Mistake:
    """A slip in the release spec, seen by `dpiw plan`."""
    return Mistake(in_file("release.yaml", old, new), "plan release.yaml", code, words)


def in_dictionary(old: str, new: str, *words: str) -> Mistake:
    """A slip in the data dictionary, seen by `dpiw plan`."""
    return Mistake(in_file("schema.yaml", old, new), "plan release.yaml", 11, words)


def typed(command: str, code: int, *words: str, slip: Slip = nothing) -> Mistake:
    """A slip on the command line."""
    return Mistake(slip, command, code, words)


def run(slip: Slip, code: int, *words: str, period: str = "") -> Mistake:
    """Seen by a run of the spec."""
    return Mistake(slip, period, code, words)


WEIGHTS = "weights: {method: beta_debiased, when_infeasible: keep}"
ASKED = "weights: {method: measured}\nquestions: [{mean: age}, "


def _in_latin(folder: Path) -> None:
    (folder / "release.yaml").write_bytes(b"# \nname: M\xfcnchen\n")


def _constrained(constraint: str, *words: str) -> Mistake:
    """A constraint in line 9 that cannot be."""
    return in_dictionary(
        "role: target}", f"role: target}}\nconstraints:\n  - {{name: c, {constraint}}}", *words
    )


FILES: dict[str, Mistake] = {
    # of a spec: keys, words, methods, people, places, YAML
    "a key misspelt": in_spec("epsilon: 2", "epsilonn: 2", "line 9, column 1", "'epsilon'?"),
    "a key in the wrong place": in_spec(
        "format: csv}", "format: csv, epsilon: 1}", "line 6, column 39"),
    "no path at all": in_spec("signing_key: state/keys/test.key\n", "", "signing_key: missing;"),
    "a format misspelt": in_spec("format: csv}", "format: cvs}", "line 6, column 26", "'csv'?"),
    "an encoding's other name": in_spec("format: csv}", "format: csv, encoding: utf8}", "'utf-8'?"),
    "an encoding's name on Windows": in_spec(
        "format: csv}", "format: csv, encoding: windows-1252}", "'cp1252'?"),
    "dashes for underscores": in_spec(
        "add_or_remove_one", "add-or-remove-one", "'add_or_remove_one'?"),
    "a generator of the comparisons": in_spec(
        "method: histogram", "method: gan", "line 12, column 13", "'dpgan'?"),
    "a setting misspelt": in_spec("{bins: 4}", "{bin: 4}", "line 12, column 43", "'bins'?"),
    "a setting of weights misspelt": in_spec(
        WEIGHTS, "weights: {method: beta_debiased, settings: {penalti: 10}}", "'penalty'?"),
    "a step's setting misspelt": in_spec(
        "keep}", "keep, post_processing: [{step: clip, att: 3}]}", "line 13, column 88", "'at'?"),
    "a question's column misspelt": in_spec(
        WEIGHTS, ASKED + "{mean: incme}]", "line 14, column 27: questions[2].mean", "'income'?"),
    "a question without a colon": in_spec(
        WEIGHTS, ASKED + "mean income]", "line 14, column 26: questions[2]", "{mean: visits by"),
    "a question asked twice": in_spec(
        WEIGHTS, ASKED + "{weight: 2, mean: age}]", "line 14, column 26: questions[2]",
        "the same as questions[1]"),
    "rows per person without a person": in_spec("delta:", "unit: {max_rows: 3}\ndelta:", "line 10"),
    "a dictionary misspelt": in_spec(
        "schema: schema.yaml", "schema: shema.yaml", "'schema.yaml'?", code=11),
    "the table for the dictionary": in_spec(
        "schema: schema.yaml", "schema: data.csv", "line 7, column 1"),
    "releases among the table's files": in_spec(
        "publish_to: state/releases", "publish_to: .", "publish_to"),
    "releases in the workspace": in_spec(
        "publish_to: state/releases", "publish_to: state/workspace/out", "publish_to"),
    "releases around the table": in_spec(
        "publish_to: state/releases", "publish_to: ..", "publish_to"),
    "a file for the releases": in_spec(
        "publish_to: state/releases", "publish_to: schema.yaml", "publish_to"),
    "no colon": in_spec("epsilon: 2", "epsilon 2", "line 9, column 1"),
    "one line further in": in_spec("epsilon: 2", "  epsilon: 2", "line 9"),
    "a quote left open": in_spec("name: town", "name: 'town", "line 3, column 7"),
    "a spec in another encoding": typed("plan release.yaml", 10, "release.yaml", slip=_in_latin),
    # of a data dictionary
    "another word for integer": in_dictionary(
        "kind: integer", "kind: int", "line 4, column 17", "'integer'?"),
    "a field misspelt": in_dictionary("kind: integer", "knd: integer", "'kind'?"),
    "a bound in letters": in_dictionary(
        "lower: 0, upper: 100}", "lower: zero, upper: 100}", "line 4, column 32"),
    "a decimal comma in a line": in_dictionary("upper: 1000,", "upper: 1000,5,", "line 5"),
    "levels without quotes": in_dictionary("[north, south, other]", "[1, 2, other]", "line 6"),
    "another word for identifier, and no kind": in_dictionary(
        "kind: integer, lower: 0, upper: 100", "role: identifer", "line 4, column 17",
        "'identifier'?"),
    "a heading misspelt": in_dictionary("columns:", "colums:", "schema.yaml"),
    "a constraint on a column that there is not": _constrained(
        "never: {regoin: north}", "line 9, column 5", "'region'?"),
    "a constraint on a level that there is not": _constrained(
        "never: {region: nort}", "line 9, column 15", "'north'?"),
}  # fmt: skip

LEDGER = "--ledger state/ledger.sqlite"
TERMS = "--epsilon 1 --delta 0 --relation add_or_remove_one"


def written(name: str, text: str) -> Slip:
    """A file that holds something else."""
    return lambda folder: (folder / name).write_text(text) and None


COMMANDS: dict[str, Mistake] = {
    "no such command": typed("pln release.yaml", 2, "'plan'?"),
    "a command of a command misspelt": typed("ledger regster", 2, "'register'?"),
    "the word help": typed("help", 2, "`dpiw --help`"),
    "an option misspelt": typed("release release.yaml --peroid 3", 2, "dpiw release"),
    "an option that is needed misspelt": typed("init new --headr a,b", 2, "'--header'?"),
    "no ledger named": typed("ledger show", 2, "--ledger"),
    # specs
    "a spec's name misspelt": typed("plan relase.yaml", 10, "'release.yaml'?"),
    "a folder for the spec": typed("plan state", 10, "state"),
    "the dictionary for the spec": typed("plan schema.yaml", 10, "data dictionary"),
    "the table for the spec": typed("plan data.csv", 10, "data.csv"),
    # the ledger
    "a ledger misspelt": typed("ledger show --ledger state/ledgr.sqlite", 30, "'ledger.sqlite'?"),
    "a ledger in a folder of a folder": typed(
        f"ledger register village --ledger a/b/l.sqlite {TERMS} --create", 30, "a/b"),
    "a driver left out": typed("ledger show --ledger postgresql://me@host/db", 30,
        "postgresql+psycopg"),
    "a budget with a comma": typed(
        f"ledger register v {LEDGER} --epsilon 1,5 --delta 0 --relation replace_one", 10,
        "epsilon=1,5"),
    "a budget set again": typed(f"ledger register town {LEDGER} {TERMS}", 32, "delta, epsilon"),
    "a population misspelt": typed(f"ledger show {LEDGER} --population twon", 31, "'town'?"),
    # drafts and headers
    "a dump with rows": typed(
        "init new --sql t.sql", 11, "line 2",
        slip=written("t.sql", "create table t (a int);\ninsert into t values (1);\n")),
    "a metadata file misspelt": typed(
        "init new --sql twon.sql", 11, "'town.sql'?", slip=written("town.sql", "")),
    "a table for a header": typed("plan release.yaml --header data.csv", 12, "data.csv"),
    "a name twice in a header": typed("init new --header a,b,A", 11, "columns 1 and 3"),
    "a header in another encoding": typed(
        "plan release.yaml --header age,tÃ¶Ã¶kÃ¼te,region,ill", 12, "source.encoding",
        slip=in_file("schema.yaml", "name: income", "name: tööküte")),
    # keys, releases, the workspace and rehearsals
    "a release that is not there": typed("verify nowhere", 51, "nowhere"),
    "the folder of all releases": typed("verify state", 51, "manifest.json"),
    "the secret key to verify": typed("verify state --key state/keys/test.key", 50, "private"),
    "a state folder misspelt": typed("workspace show --state sate", 10, "sate"),
    "private rows to rehearse on": typed(
        "rehearse release.yaml --public-rows data.csv", 10, "--i-declare-these-rows-publi"),
}  # fmt: skip


def spec(old: str, new: str) -> Slip:
    """A slip in the spec that is admissible in itself."""
    return in_file("release.yaml", old, new)


def _gone(name: str) -> Slip:
    return lambda folder: (folder / name).unlink()


def _public_for_secret(folder: Path) -> None:
    (folder / "state/keys/test.key").write_bytes((folder / "state/keys/test.pub").read_bytes())
    (folder / "state/keys/test.key").chmod(0o600)


BEGINNINGS: dict[str, Mistake] = {
    "a source misspelt": run(spec("path: data.csv", "path: dta.csv"), 12, "'data.csv'?"),
    "no signing key": run(_gone("state/keys/test.key"), 50, "test.key"),
    "the public key to sign": run(_public_for_secret, 50, "public"),
    "a population that nobody registered": run(
        spec("population: town", "population: tawn"), 31, "'town'?"),
    "another relation": run(
        spec("relation: add_or_remove_one", "relation: replace_one"), 21, "relation=replace_one"),
    "a quarter with a capital and no dash": run(
        spec("cadence: once", "cadence: quarterly"), 10, "'2026-q3'?", period="2026Q3"),
    "a period where there is but one": run(nothing, 10, "2027-q1", period="2027-q1"),
}  # fmt: skip
"""Seen before anything is held or read."""

ANALYSES: dict[str, tuple[Callable[[Release], Any], str]] = {
    "a column misspelt": (lambda release: release.mean("agee"), "'age'?"),
    "a column of another table": (lambda release: release.mean("wage_2020"), "age, income,"),
    "the mean of a text": (lambda release: release.mean("region"), "function"),
    "an argument as pandas spells it": (
        lambda release: analysis.crosstab(release, "region", "ill", normalize=True), "normalize"),
    "a family misspelt": (
        lambda release: analysis.to_statsmodels(release, "ill", ["age"], family="binomal"),
        "'binomial'?"),
}  # fmt: skip
"""What an analyst calls with a release that is as it should be, and a word of the error.

What each function refuses: tests/dpiw/analysis.
"""
