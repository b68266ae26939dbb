"""Mistakes that are seen when a run begins, or when its table is read: not a cell is told."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tests.hostile.mistakes.mistake import Mistake, Slip, in_file, nothing
from tests.hostile.mistakes.of_commands import mode


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
        nothing, 10, "period 2027-q1: expected", period="2027-q1"),
    "a month of one digit": run(
        in_file("release.yaml", "cadence: once", "cadence: monthly"), 10, "'2027-01'?",
        period="2027-1"),
    "a period with a slash": run(nothing, 10, "'2027-03'?", period="2027/03"),
    "a state folder open to others": run(mode("state", 0o777), 10, "state"),
}  # fmt: skip
"""Seen before anything is held or read."""
