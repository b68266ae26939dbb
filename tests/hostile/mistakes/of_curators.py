"""Mistakes of curators: what somebody did, what they typed, and what they must be told.

In a spec, in a data dictionary (lines as in tests/conftest.py), on the command line, and those that
are seen when a run begins, or when its table is read: not a cell is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

Slip = Callable[[Path], None]
"""Makes the mistake, in a folder where everything was right."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One line of the table.

    Attributes:
        slip: what went wrong before the command.
        command: what is typed after `dpiw`, in the curator's folder.
        code: its exit status.
        words: what the message holds, whatever else it says.
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
    slip = in_file("release.yaml", old, new)
    return Mistake(slip=slip, command="plan release.yaml", code=code, words=words)


def in_dictionary(old: str, new: str, *words: str) -> Mistake:
    """A slip in the data dictionary, seen by `dpiw plan`."""
    slip = in_file("schema.yaml", old, new)
    return Mistake(slip=slip, command="plan release.yaml", code=11, words=words)


def typed(command: str, code: int, *words: str, slip: Slip = nothing) -> Mistake:
    """A slip on the command line."""
    return Mistake(slip=slip, command=command, code=code, words=words)


WEIGHTS = "weights: {method: beta_debiased, when_infeasible: keep}"


def _in_latin(folder: Path) -> None:
    (folder / "release.yaml").write_bytes(b"# \nname: M\xfcnchen\n")


SPECS: dict[str, Mistake] = {
    # keys
    "a key misspelt": in_spec("epsilon: 2", "epsilonn: 2", "line 9, column 1", "'epsilon'?"),
    "a key left out": in_spec("epsilon: 2\n", "", "release.yaml"),
    "a key in the wrong place": in_spec(
        "format: csv}", "format: csv, epsilon: 1}", "line 6, column 39"),
    "a key of the source misspelt": in_spec(
        "format: csv}", "format: csv, delimeter: ;}", "'delimiter'?"),
    "no path at all": in_spec("signing_key: state/keys/test.key\n", "", "signing_key: missing;"),
    # words
    "a format misspelt": in_spec("format: csv}", "format: cvs}", "line 6, column 26", "'csv'?"),
    "a delimiter of another kind": in_spec(
        "format: csv}", "format: csv, delimiter: ':'}", "source.delimiter"),
    "an encoding's other name": in_spec("format: csv}", "format: csv, encoding: utf8}", "'utf-8'?"),
    "another word for yearly": in_spec("cadence: once", "cadence: annual", "line 5"),
    "dashes for underscores": in_spec(
        "add_or_remove_one", "add-or-remove-one", "'add_or_remove_one'?"),
    "a name with a space": in_spec("name: town", "name: Town Hall", "line 3, column 1"),
    "a verdict misspelt": in_spec("keep}", "keeep}", "'keep'?"),
    "a later format": in_spec("format: 1", "format: 2", "format: found 2; expected 1"),
    # numbers
    "about so many rows": in_spec("nominal_rows: 400", "nominal_rows: about 400", "line 11"),
    # methods
    "a generator misspelt": in_spec(
        "method: histogram", "method: histgram", "line 12, column 13", "'histogram'?"),
    "a generator of the comparisons": in_spec(
        "method: histogram", "method: gan", "line 12, column 13", "'dpgan'?"),
    "a setting misspelt": in_spec("{bins: 4}", "{bin: 4}", "line 12, column 43", "'bins'?"),
    "a setting in letters": in_spec("{bins: 4}", "{bins: many}", "generator.settings.bins"),
    "settings that are none": in_spec(
        "settings: {bins: 4}", "settings: 4", "found 4; expected a mapping"),
    "weights misspelt": in_spec(
        "beta_debiased", "beta_debised", "line 13, column 11", "'beta_debiased'?"),
    "weights of the comparisons": in_spec("beta_debiased", "logreg", "weights.method"),
    "weights as a word": in_spec(WEIGHTS, "weights: measured", "line 13, column 1"),
    "a setting of weights misspelt": in_spec(
        WEIGHTS, "weights: {method: beta_debiased, settings: {feature: linear}}", "'features'?"),
    "features misspelt": in_spec(
        WEIGHTS, "weights: {method: beta_debiased, settings: {features: linar}}",
        "expected linear features"),
    "measured weights without their seed": in_spec(
        WEIGHTS, "weights: {method: measured}", "line 13"),
    "a step misspelt": in_spec(
        "keep}", "keep, post_processing: [{step: clp, at: 3}]}", "line 13", "'clip'?"),
    "a step's setting misspelt": in_spec(
        "keep}", "keep, post_processing: [{step: clip, att: 3}]}", "line 13, column 88", "'at'?"),
    "a step as a word": in_spec(
        "keep}", "keep, post_processing: [clip]}", "found 'clip'; expected a"),
    # people
    "rows per person without a person": in_spec("delta:", "unit: {max_rows: 3}\ndelta:", "line 10"),
    "a person's column that is none": in_spec(
        "delta:", "unit: {id_column: age}\ndelta:", "line 10, column 8"),
    # places
    "a dictionary misspelt": in_spec(
        "schema: schema.yaml", "schema: shema.yaml", "'schema.yaml'?", code=11),
    "the table for the dictionary": in_spec(
        "schema: schema.yaml", "schema: data.csv", "line 7, column 1"),
    "the spec for the dictionary": in_spec(
        "schema: schema.yaml", "schema: release.yaml", "release.yaml", code=11),
    "another database": in_spec(
        "state: state\n", "state: state\nledger: mysql://me@host/db\n", "line 17"),
    # YAML
    "no colon": in_spec("epsilon: 2", "epsilon 2", "line 9, column 1"),
    "no space after the colon": in_spec("epsilon: 2", "epsilon:2", "line 9, column 1"),
    "a tab": in_spec("epsilon: 2", "\tepsilon: 2", "line 9, column 1"),
    "one line further in": in_spec("epsilon: 2", "  epsilon: 2", "line 9"),
    "a list by accident": in_spec("format: 1", "- format: 1", "line 3"),
    "a bracket left open": in_spec("format: csv}", "format: csv", "line 6, column 9"),
    "a quote left open": in_spec("name: town", "name: 'town", "line 3, column 7"),
    "a colon in a text": in_spec("name: town", "name: town: 2027", "line 3, column 11"),
    "a backslash in quotes": in_spec("path: data.csv", 'path: "C:\\data.csv"', "line 6"),
    # files
    "a spec's name misspelt": typed("plan relase.yaml", 10, "'release.yaml'?"),
    "a folder for the spec": typed("plan state", 10, "state: a folder; expected a"),
    "the folder of the spec": typed("plan .", 10, "a YAML file: in it"),
    "the dictionary for the spec": typed("plan schema.yaml", 10, "a data dictionary; expected"),
    "the table for the spec": typed("plan data.csv", 10, "data.csv"),
    "an encoding's name elsewhere": in_spec(
        "format: csv}", "format: csv, encoding: windows-1252}", "'cp1252'?"),
    "a date as people write it": in_spec(
        "format: csv}", "format: csv, date_format: DD.MM.YYYY}", "such as \"%d.%m.%Y\" (in"),
    "releases among the table's files": in_spec(
        "publish_to: state/releases", "publish_to: .", "publish_to: is the folder"),
    "releases in the state folder itself": in_spec(
        "publish_to: state/releases", "publish_to: state", "publish_to: is the state"),
    "releases in the workspace": in_spec(
        "publish_to: state/releases", "publish_to: state/workspace/out",
        "publish_to: lies in the"),
    "releases around the table": in_spec(
        "publish_to: state/releases", "publish_to: ..", "publish_to: holds the"),
    "a file for the releases": in_spec(
        "publish_to: state/releases", "publish_to: schema.yaml", "publish_to: is a file;"),
    "a spec in another encoding": typed("plan release.yaml", 10, "release.yaml", slip=_in_latin),
}  # fmt: skip


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


LEDGER = "--ledger state/ledger.sqlite"
TERMS = "--epsilon 1 --delta 0 --relation add_or_remove_one"


def mode(name: str, bits: int) -> Slip:
    """A file or folder that is too open, or closed."""
    return lambda folder: (folder / name).chmod(bits)


def _torn(folder: Path) -> None:
    (folder / "state/ledger.sqlite").write_bytes(b"not a ledger")


COMMANDS: dict[str, Mistake] = {
    # the ledger
    "no such command": typed("pln release.yaml", 2, "'plan'?"),
    "a command of a command misspelt": typed("ledger regster", 2, "'register'?"),
    "a document misspelt": typed("schema spek", 2, "'spec'?"),
    "the word help": typed("help", 2, "did you mean `dpiw --help`?"),
    "an option misspelt": typed("release release.yaml --peroid 3", 2, "dpiw release: error"),
    "an option that is needed misspelt": typed("init new --headr a,b", 2, "'--header'?"),
    "an option before any command misspelt": typed("--verson", 2, "'--version'?"),
    "no ledger named": typed("ledger show", 2, "required: --ledger"),
    "a registration by hand cut short": typed(
        f"ledger register v {LEDGER} --epsilon 1 --delta 0", 2, "required: --relation"),
    "a ledger misspelt": typed("ledger show --ledger state/ledgr.sqlite", 30, "'ledger.sqlite'?"),
    "a ledger that nobody created": typed(
        f"ledger register village --ledger state/new.sqlite {TERMS} --id-column pid --max-rows 3",
        30, "new.sqlite"),
    "a ledger in a folder of a folder": typed(
        f"ledger register village --ledger a/b/l.sqlite {TERMS} --create", 30, "make that one"),
    "a file for the state folder": typed(
        f"ledger register village --ledger schema.yaml/l.sqlite {TERMS} --create", 30,
        "schema.yaml"),
    "the table for the ledger": typed("ledger show --ledger data.csv", 30, "not a database"),
    "a folder for the ledger": typed("ledger show --ledger state", 30, "the ledger's own file"),
    "a ledger that is torn": typed(f"ledger show {LEDGER}", 30, "not a database", slip=_torn),
    "a ledger open to others": typed(
        f"ledger show {LEDGER}", 30, "expected file mode 0600",
        slip=mode("state/ledger.sqlite", 0o666)),
    "a driver left out": typed("ledger show --ledger postgresql://me@host/db", 30,
        "postgresql+psycopg"),
    "a budget with a comma": typed(
        f"ledger register v {LEDGER} --epsilon 1,5 --delta 0 --relation replace_one", 10,
        "epsilon=1,5: expected an"),
    "a population with a capital": typed(
        f"ledger register Village {LEDGER} {TERMS}", 10, "population.name"),
    "a relation with dashes": typed(
        f"ledger register v {LEDGER} --epsilon 1 --delta 0 --relation add-or-remove-one", 2,
        "invalid choice:"),
    "a budget set again": typed(
        f"ledger register town {LEDGER} {TERMS}", 32, "other terms (delta, epsilon)"),
    "many rows and no person": typed(
        f"ledger register v {LEDGER} {TERMS} --max-rows 3", 10, "id_column: needed when"),
    "a population misspelt": typed(f"ledger show {LEDGER} --population twon", 31, "'town'?"),
    "an export of no population": typed(
        f"ledger export {LEDGER} --population hospital", 31, "expected one of town"),
    "a run that is not there": typed(
        f"ledger show {LEDGER} --run abc", 32, "no reservation in this"),
    "a day in words": typed(f"ledger show {LEDGER} --since today", 10, "2027-01-31"),
    "a head cut short": typed(f"ledger verify {LEDGER} --head 12ab", 10, "64 hexadecimal digits"),
    "another ledger's head": typed(
        f"ledger verify {LEDGER} --head {'a' * 64}", 33, "lacks the published head"),
    "an export of nothing": typed("ledger export --ledger l.sqlite", 30, "no such file"),
    # drafts and headers
    "SQL that is not there": typed("init new --sql t.sql", 11, "SQL: no such file"),
    "a dump with rows": typed(
        "init new --sql t.sql", 11, "SQL: line 2: holds",
        slip=lambda folder: (folder / "t.sql").write_text(
            "create table t (a int);\ninsert into t values (1);\n") and None),
    "a dialect by another name": typed(
        "init new --sql t.sql --dialect postgresql", 11, "not 'postgresql'; did you",
        slip=lambda folder: (folder / "t.sql").write_text("create table t (a int);") and None),
    "a header's file misspelt": typed("init new --header-file dta.csv", 11, "'data.csv'?"),
    "a table for a header": typed("plan release.yaml --header data.csv", 12, "data.csv"),
    "a header of two lines": typed(
        "plan release.yaml --header 'age,income,region,ill\n1,2,north,true'", 12,
        "header: 2 lines; expected"),
    "no name in a header": typed("init new --header age,,ill", 11, "name 2 of 3: a column name"),
    "a name twice in a header": typed("init new --header a,b,A", 11, "columns 1 and 3"),
    "a header between other signs, and a slip": typed(
        "plan release.yaml --header 'age;incme;region;ill'", 12, "holds 3 of the declared"),
    "a header in another encoding": typed(
        "plan release.yaml --header age,tÃ¶Ã¶kÃ¼te,region,ill", 12, "source.encoding",
        slip=in_file("schema.yaml", "name: income", "name: tööküte")),
    # keys
    "a key made again": typed("key new state/keys/test", 50, "test.pub"),
    "a key where nobody may write": typed("key new data.csv/k/test", 50, "folder data.csv/k"),
    # releases
    "a release that is not there": typed("verify nowhere", 51, "nowhere: no such folder"),
    "the folder of all releases": typed("verify state", 51, "manifest.json"),
    "a file for a release": typed("verify release.yaml", 51, "release.yaml"),
    "the secret key to verify": typed(
        "verify state --key state/keys/test.key", 50, "the private one, which"),
    "a key file misspelt": typed("verify state --key state/keys/tset.pub", 50, "tset.pub"),
    # the workspace and rehearsals
    "a state folder misspelt": typed("workspace show --state sate", 10, "sate holds no workspace;"),
    "a purge of nothing": typed("workspace purge --state state", 10, "holds no workspace"),
    "too few rehearsals": typed("rehearse release.yaml --runs 2", 10, "expected at least 5"),
    "a population of no kind": typed(
        "rehearse release.yaml --populations strng", 10, "independent, weak, strong,"),
    "private rows to rehearse on": typed(
        "rehearse release.yaml --public-rows data.csv", 10, "--i-declare-these-rows-publi"),
    "a former release misspelt": typed(
        "rehearse release.yaml --like nowhere", 51, "nowhere: no such folder"),
    "a spec misspelt for a rehearsal": typed("rehearse relase.yaml", 10, "'release.yaml'?"),
}  # fmt: skip


def run(slip: Slip, code: int, *words: str, period: str = "") -> Mistake:
    """Seen by a run of the spec; `command` is the label of its period."""
    return Mistake(slip=slip, command=period, code=code, words=words)


def spec(old: str, new: str) -> Slip:
    """A slip in the spec that is admissible in itself."""
    return in_file("release.yaml", old, new)


def _saved(**changes: object) -> Slip:
    """The table, saved in another way."""

    def slip(folder: Path) -> None:
        pd.read_csv(folder / "data.csv").to_csv(
            folder / "data.csv", **({"index": False, "encoding": "utf-8"} | changes)
        )

    return slip


def _header(old: str, new: str) -> Slip:
    return in_file("data.csv", old, new)


def _other_encoding(folder: Path) -> None:
    """The spec says UTF-8; in an editor the names look alike."""
    in_file("schema.yaml", "name: income", "name: tööküte")(folder)
    text = (folder / "data.csv").read_text()
    (folder / "data.csv").write_text(text.replace("income", "tööküte", 1), encoding="cp1252")


def _quoted(folder: Path) -> None:
    with (folder / "data.csv").open("a") as file:
        file.write('1,2,"canary-mistake,true\n')


def _linked(folder: Path) -> None:
    (folder / "data.csv").rename(folder / "real.csv")
    (folder / "data.csv").symlink_to("real.csv")


def _headless(folder: Path) -> None:
    lines = (folder / "data.csv").read_text().splitlines()
    (folder / "data.csv").write_text("\n".join(lines[1:]) + "\n")


def _gone(name: str) -> Slip:
    return lambda folder: (folder / name).unlink()


def _public_for_secret(folder: Path) -> None:
    (folder / "state/keys/test.key").write_bytes((folder / "state/keys/test.pub").read_bytes())
    (folder / "state/keys/test.key").chmod(0o600)


READS: dict[str, Mistake] = {
    "semicolons": run(_saved(sep=";"), 12, "source.delimiter"),
    "commas where semicolons are declared": run(
        spec("format: csv}", "format: csv, delimiter: ;}"), 12, "names between ','; the spec"),
    "no header": run(_headless, 12, "columns missing in the"),
    "a column's name with a capital": run(_header("age", "Age"), 12, "columns missing in the"),
    "a space after each comma": run(
        _header("age,income,region", "age, income, region"), 12, "income, region stands there"),
    "a column's name misspelt": run(_header("income", "incomme"), 12, "columns missing in the"),
    "a column renamed": run(_header("income", "canary-mistake"), 12, "columns missing in the"),
    "a name beyond ASCII in another encoding": run(_other_encoding, 12, "source.encoding"),
    "a column too many": run(_saved(index=True), 12, "columns that the data"),
    "a quote left open": run(_quoted, 12, "an unbalanced quote"),
    "CSV that is called Parquet": run(
        spec("format: csv}", "format: parquet}"), 12, "not a plain Parquet file;"),
}  # fmt: skip
"""Seen when the table is read: the read counts, the budget is given back."""

BEGINNINGS: dict[str, Mistake] = {
    "a source misspelt": run(spec("path: data.csv", "path: dta.csv"), 12, "'data.csv'?"),
    "a folder for the source": run(spec("path: data.csv", "path: state"), 12, "source.path"),
    "a link for the source": run(_linked, 12, "source.path"),
    "no signing key": run(_gone("state/keys/test.key"), 50, "test.key"),
    "a signing key open to others": run(
        mode("state/keys/test.key", 0o644), 50, "mode 0644: expected 0600"),
    "the public key to sign": run(_public_for_secret, 50, "it is the public one: name"),
    "the table for a key": run(
        spec("state/keys/test.key", "schema.yaml"), 50, "key file schema.yaml"),
    "a population that nobody registered": run(
        spec("population: town", "population: tawn"), 31, "'town'?"),
    "another relation": run(
        spec("relation: add_or_remove_one", "relation: replace_one"), 21, "relation=replace_one:"),
    "no ledger": run(_gone("state/ledger.sqlite"), 30, "no such file"),
    "more than is left": run(spec("epsilon: 2", "epsilon: 9"), 22, "epsilon=9"),
    "a period with a capital": run(nothing, 10, "'2027-q1'?", period="2027-Q1"),
    "a quarter with a capital and no dash": run(
        spec("cadence: once", "cadence: quarterly"), 10, "'2026-q3'?", period="2026Q3"),
    "a period where there is but one": run(
        nothing, 10, "period 2027-q1: ", period="2027-q1"),
    "a month of one digit": run(
        in_file("release.yaml", "cadence: once", "cadence: monthly"), 10, "'2027-01'?",
        period="2027-1"),
    "a period with a slash": run(nothing, 10, "'2027-03'?", period="2027/03"),
    "a state folder open to others": run(mode("state", 0o777), 10, "state"),
}  # fmt: skip
"""Seen before anything is held or read."""
