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
    "a key misspelt": in_spec(
        "epsilon: 2", "epsilonn: 2",
        PLACE + "9, column 1: epsilonn: unknown key; did you mean 'epsilon'?", "epsilon: missing"),
    "a key left out": in_spec(
        "epsilon: 2\n", "", "release.yaml: epsilon: missing; expected an exact decimal such as"),
    "a key twice": in_spec(
        "delta: 1e-6", "epsilon: 1", PLACE + "10, column 1: duplicate key"),
    "a key in the wrong place": in_spec(
        "format: csv}", "format: csv, epsilon: 1}", PLACE + "6, column 39: source.epsilon",
        "unknown key; known: format, encoding, delimiter"),
    "a key of the source misspelt": in_spec(
        "format: csv}", "format: csv, delimeter: ;}", "source.delimeter", "mean 'delimiter'?"),
    "no path at all": in_spec(
        "signing_key: state/keys/test.key\n", "", "signing_key: missing; expected a text"),
    # words
    "a format misspelt": in_spec(
        "format: csv}", "format: cvs}", PLACE + "6, column 26: source.format: found 'cvs';"
        " expected csv or parquet; did you mean 'csv'?"),
    "a delimiter of another kind": in_spec(
        "format: csv}", "format: csv, delimiter: ':'}",
        "source.delimiter: found ':'; expected ',', ';', '\\t' or '|'"),
    "an encoding's other name": in_spec(
        "format: csv}", "format: csv, encoding: utf8}", "found 'utf8'", "did you mean 'utf-8'?"),
    "another word for yearly": in_spec(
        "cadence: once", "cadence: annual", PLACE + "5", "found 'annual'; expected once, daily"),
    "dashes for underscores": in_spec(
        "add_or_remove_one", "add-or-remove-one", "relation: found 'add-or-remove-one'",
        "did you mean 'add_or_remove_one'?"),
    "a name with a space": in_spec(
        "name: town", "name: Town Hall", PLACE + "3, column 1: name: found 'Town Hall'",
        "expected 1 to 63 lower-case letters"),
    "a verdict misspelt": in_spec(
        "keep}", "keeep}", "weights.when_infeasible: found 'keeep'", "did you mean 'keep'?"),
    "a later format": in_spec("format: 1", "format: 2", "format: found 2; expected 1"),
    # numbers
    "epsilon in letters": in_spec(
        "epsilon: 2", "epsilon: two", PLACE + "9, column 1: epsilon: found 'two'", "decimal"),
    "epsilon with a comma": in_spec(
        "epsilon: 2", "epsilon: 0,5", "epsilon: found '0,5'; expected a plain decimal such as 1"),
    "an epsilon that protects nobody": in_spec(
        "epsilon: 2", "epsilon: 12", PLACE + "9, column 1: epsilon=12: expected at most 10"),
    "a delta too large": in_spec(
        "delta: 1e-6", "delta: 0.01", PLACE + "10", "at most 1/nominal_rows = 0.0025"),
    "about so many rows": in_spec(
        "nominal_rows: 400", "nominal_rows: about 400", PLACE + "11",
        "found 'about 400'; expected a whole number from 1 to 1,000,000,000,000"),
    "rows in exponents": in_spec(
        "nominal_rows: 400", "nominal_rows: 4e2", "found 4E+2; expected a whole number from 1"),
    "no rows": in_spec("synthetic_rows: 300", "synthetic_rows: 0", "found 0; expected a whole"),
    "half a row": in_spec("synthetic_rows: 300", "synthetic_rows: 300.5", "found 300.5"),
    "attempts without end": in_spec(
        "max_attempts: 1", "max_attempts: 99", "found 99; expected a whole number from 1 to 10"),
    # methods
    "a generator misspelt": in_spec(
        "method: histogram", "method: histgram", PLACE + "12, column 13: generator.method",
        "privbayes, histogram, mst, aim, bayes, dpgan, dpcgan, pategan, external, levels; did you"
        " mean 'histogram'?"),
    "a generator of the comparisons": in_spec(
        "method: histogram", "method: gan", PLACE + "12, column 13: generator.method",
        "expected one of privbayes, histogram", "did you mean 'dpgan'?"),
    "a setting misspelt": in_spec(
        "{bins: 4}", "{bin: 4}", PLACE + "12, column 43: generator.settings.bin",
        "did you mean 'bins'?"),
    "a setting in letters": in_spec(
        "{bins: 4}", "{bins: many}", "generator.settings.bins: expected a whole number"),
    "settings that are none": in_spec(
        "settings: {bins: 4}", "settings: 4", "found 4; expected a mapping of keys"),
    "weights misspelt": in_spec(
        "beta_debiased", "beta_debised", PLACE + "13, column 11: weights.method=beta_debised",
        "did you mean 'beta_debiased'?"),
    "weights of the comparisons": in_spec(
        "beta_debiased", "logreg", "weights.method=logreg: expected one of measured, beta_"),
    "weights as a word": in_spec(
        WEIGHTS, "weights: measured", PLACE + "13, column 1: weights: found 'measured'",
        "expected a mapping with the keys method, settings"),
    "a setting of weights misspelt": in_spec(
        WEIGHTS, "weights: {method: beta_debiased, settings: {feature: linear}}",
        "weights.settings.feature: unknown", "did you mean 'features'?"),
    "features misspelt": in_spec(
        WEIGHTS, "weights: {method: beta_debiased, settings: {features: linar}}",
        "expected linear features alone", "method: measured"),
    "measured weights without their seed": in_spec(
        WEIGHTS, "weights: {method: measured}", PLACE + "13", "weights.settings.omega_seed"),
    "a step misspelt": in_spec(
        "keep}", "keep, post_processing: [{step: clp, at: 3}]}", PLACE + "13",
        "did you mean 'clip'?"),
    "a step's setting misspelt": in_spec(
        "keep}", "keep, post_processing: [{step: clip, att: 3}]}",
        PLACE + "13, column 88: weights.post_processing.clip.att: unknown; did you mean 'at'?"),
    "a step as a word": in_spec(
        "keep}", "keep, post_processing: [clip]}", "found 'clip'; expected a mapping such as"),
    # people
    "rows per person without a person": in_spec(
        "delta:", "unit: {max_rows: 3}\ndelta:", PLACE + "10", "unit.id_column: needed when"),
    "a person's column that is none": in_spec(
        "delta:", "unit: {id_column: age}\ndelta:", PLACE + "10, column 8: unit.id_column=age",
        "column of role identifier (none)"),
    # places
    "a dictionary misspelt": in_spec(
        "schema: schema.yaml", "schema: shema.yaml",
        "shema.yaml: no such file; did you mean 'schema.yaml'?", code=11),
    "the table for the dictionary": in_spec(
        "schema: schema.yaml", "schema: data.csv",
        PLACE + "7, column 1: schema: this is source.path, the confidential table"),
    "the spec for the dictionary": in_spec(
        "schema: schema.yaml", "schema: release.yaml",
        "release.yaml: a data dictionary: expected exactly the keys `name` and", code=11),
    "another database": in_spec(
        "state: state\n", "state: state\nledger: mysql://me@host/db\n", PLACE + "17",
        "mysql is not supported; expected a path, sqlite:///PATH or postgresql+psycopg://"),
    "a password in the spec": in_spec(
        "state: state\n", "state: state\nledger: postgresql+psycopg://me:secret7@host/db\n",
        PLACE + "17", "ledger: holds a password; put it in the environment"),
    # YAML
    "no colon": in_spec(
        "epsilon: 2", "epsilon 2", PLACE + "9, column 1: not valid YAML: no `key: value`"),
    "no space after the colon": in_spec("epsilon: 2", "epsilon:2", PLACE + "9, column 1", "space"),
    "a tab": in_spec("epsilon: 2", "\tepsilon: 2", PLACE + "9, column 1", "a tab; indent with"),
    "one line further in": in_spec("epsilon: 2", "  epsilon: 2", PLACE + "9", "indented too far"),
    "a list by accident": in_spec("format: 1", "- format: 1", PLACE + "3", "indented otherwise"),
    "a bracket left open": in_spec(
        "format: csv}", "format: csv", PLACE + "6, column 9", "a bracket that is not closed"),
    "a quote left open": in_spec(
        "name: town", "name: 'town", PLACE + "3, column 7", "a quote that is not closed"),
    "a colon in a text": in_spec(
        "name: town", "name: town: 2027", PLACE + "3, column 11", "stands in quotes"),
    "a backslash in quotes": in_spec(
        "path: data.csv", 'path: "C:\\data.csv"', PLACE + "6", "a backslash in double quotes"),
    "a star": in_spec(
        "name: town", "name: *town", PLACE + "3, column 7: anchors and aliases (& and *)"),
    # files
    "a spec's name misspelt": typed(
        "plan relase.yaml", 10, "relase.yaml: no such file; did you mean 'release.yaml'?"),
    "a folder for the spec": typed("plan state", 10, "state: a folder; expected a YAML file"),
    "the folder of the spec": typed("plan .", 10, "a YAML file: in it release.yaml, schema.yaml"),
    "the dictionary for the spec": typed(
        "plan schema.yaml", 10, "a data dictionary; expected the release spec that names it"),
    "the table for the spec": typed(
        "plan data.csv", 10, "data.csv: expected a YAML file, whose name ends in"),
    "an encoding's name elsewhere": in_spec(
        "format: csv}", "format: csv, encoding: windows-1252}", "did you mean 'cp1252'?"),
    "a date as people write it": in_spec(
        "format: csv}", "format: csv, date_format: DD.MM.YYYY}",
        'such as "%d.%m.%Y" (in quotes) for 31.12.2027'),
    "releases among the table's files": in_spec(
        "publish_to: state/releases", "publish_to: .", "publish_to: is the folder of source.path"),
    "releases in the state folder itself": in_spec(
        "publish_to: state/releases", "publish_to: state", "publish_to: is the state folder, in"
        " which the ledger", "expected a folder of releases alone, such as releases or state/rel"),
    "releases in the workspace": in_spec(
        "publish_to: state/releases", "publish_to: state/workspace/out",
        "publish_to: lies in the confidential workspace"),
    "releases around the table": in_spec(
        "publish_to: state/releases", "publish_to: ..", "publish_to: holds the folder of source"),
    "a file for the releases": in_spec(
        "publish_to: state/releases", "publish_to: schema.yaml", "publish_to: is a file; expected"),
    "a spec in another encoding": typed(
        "plan release.yaml", 10, "release.yaml: not UTF-8; save it as UTF-8",
        slip=_in_latin),
}  # fmt: skip
