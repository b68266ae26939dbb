"""Mistakes on the command line: of the curator, the custodian of the ledger, and the auditor."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.mistakes.mistake import Mistake, Slip, in_file, typed

LEDGER = "--ledger state/ledger.sqlite"
TERMS = "--epsilon 1 --delta 0 --relation add_or_remove_one"
BEGIN = "to begin one: dpiw ledger register NAME --ledger PATH --epsilon E"


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
