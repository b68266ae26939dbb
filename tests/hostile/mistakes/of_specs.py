"""Mistakes in a release spec. Line 9 is `epsilon`, and so on: as in tests/conftest.py."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.mistakes.mistake import Mistake, in_spec, typed

WEIGHTS = "weights: {method: beta_debiased, when_infeasible: keep}"
PLACE = "release.yaml, line "


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
