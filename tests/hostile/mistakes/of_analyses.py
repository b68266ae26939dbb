"""Mistakes of an analyst, with a release that is as it should be."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpiw
from dpiw import analysis
from dpiw.analysis.release import Release
from dpiw.release.signing import create_key_pair


@dataclass(frozen=True, kw_only=True)
class Slip:
    """What an analyst calls, and the words of the error."""

    call: Callable[[Release], Any]
    words: tuple[str, ...]


def slip(call: Callable[[Release], Any], *words: str) -> Slip:
    return Slip(call=call, words=words)


def _key(name: str) -> Callable[[Release], Any]:
    def load(release: Release) -> Any:
        keys = Path(release.verified.folder).parents[1] / "keys"
        return dpiw.load_release(release.verified.folder, public_key=keys / name)

    return load


def _one_ill(table: Any) -> Any:
    """Rows that all have the same truth value."""
    return table["ill"] == table["ill"].iloc[0]


def _foreign(release: Release) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        _, public = create_key_pair(Path(folder), "other")
        return dpiw.load_release(release.verified.folder, public_key=public)


def _interval(**settings: Any) -> Callable[[Release], Any]:
    return lambda release: analysis.confidence_interval(analysis.mean(release, "age"), **settings)


ANALYSES: dict[str, Slip] = {
    "a folder misspelt": slip(
        lambda release: dpiw.load_release(f"{release.verified.folder}x"), "no such folder"),
    "the folder around it": slip(
        lambda release: dpiw.load_release(release.verified.folder.parent),
        "expected the folder of one"),
    "the secret key": slip(_key("test.key"), "the private one, which"),
    "a key misspelt": slip(_key("tset.pub"), "tset.pub"),
    "another curator's key": slip(_foreign, "signed by key id "),
    "a column misspelt": slip(lambda release: release.mean("agee"), "'age'?"),
    "a column of another table": slip(
        lambda release: release.mean("wage_2020"), "its columns: age, income,"),
    "the mean of a text": slip(lambda release: release.mean("region"), "for text give a function"),
    "the mean of a function that gives text": slip(
        lambda release: analysis.mean(release, lambda table: table["region"]), "found text"),
    "numbers for a condition": slip(
        lambda release: analysis.mean(release, "income", where="age"),
        "where: expected one truth"),
    "a sum for a condition": slip(
        lambda release: analysis.mean(release, "income", where="age + 1"),
        "found numbers: compare, as"),
    "a correlation with a constant": slip(
        lambda release: analysis.correlation(release, "age", "ill", where=_one_ill),
        "column 'ill' is the same in"),
    "a test of two groups against a value": slip(
        lambda release: analysis.t_test(release, "income", by="ill", value=3),
        "`value` is for one mean"),
    "an argument as pandas spells it": slip(
        lambda release: analysis.crosstab(release, "region", "ill", normalize=True),
        "crosstab: normalize: it is"),
    "a key as the command line calls it": slip(
        lambda release: dpiw.load_release(release.verified.folder, key="k.pub"),
        "key: it is called"),
    "a seed for a generator": slip(
        lambda release: release.resample(10, 1), "a NumPy Generator, made of"),
    "half a row": slip(
        lambda release: release.resample(1.5, np.random.default_rng(1)), "whole number >= 0"),
    "the target among the features": slip(
        lambda release: analysis.linear_regression(release, "income", ["age", "income"]),
        "column 'income': the target"),
    "a feature twice": slip(
        lambda release: analysis.linear_regression(release, "income", ["age", "age"]),
        "column 'age': a feature"),
    "a constant feature": slip(
        lambda release: analysis.linear_regression(
            release, "income", ["age", "ill"], where=_one_ill),
        "'ill' is the same in every"),
    "numbers for two classes": slip(
        lambda release: analysis.logistic_regression(release, "income", ["age"]),
        "expected a target of truth"),
    "a formula of one side": slip(
        lambda release: analysis.linear_regression(release, "age + ill"), "income ~ age + smoker"),
    "a truth value as the source wrote it": slip(
        lambda release: analysis.mean(release, "age", where="ill == 'yes'"),
        "column 'ill' holds truth"),
    "a total without a scale": slip(
        lambda release: release.total("income"), "weights.normalisation"),
    "a group misspelt": slip(lambda release: analysis.mean(release, "age", where="il"), "'ill'?"),
    "a total of no population": slip(
        lambda release: analysis.total(release, "income"), "give the public `population`"),
    "a quantile in per cent": slip(
        lambda release: analysis.quantile(release, "age", 50), "0 < probability < 1"),
    "a table of one column too few": slip(
        lambda release: analysis.crosstab(release, "region", "il"), "'ill'?"),
    "a level in per cent": slip(_interval(level=95), "between 0 and 1"),
    "a method misspelt": slip(_interval(method="sandwhich"), "'sandwich'?"),
    "a feature misspelt": slip(
        lambda release: analysis.linear_regression(release, "income", ["agee"]), "'age'?"),
    "a text for a target": slip(
        lambda release: analysis.linear_regression(release, "region", ["age"]), "as target"),
    "a family misspelt": slip(
        lambda release: analysis.to_statsmodels(release, "ill", ["age"], family="binomal"),
        "'binomial'?"),
    "a mask of another table": slip(
        lambda release: release.mean(
            "income", where=(release.table["age"] > 40).set_axis(range(9, len(release.table) + 9))),
        "found a Series whose index"),
    "weights of a sorted table that was numbered anew": slip(
        lambda release: analysis.mean(
            (release.table.iloc[9:], release.table["age"].iloc[9:].reset_index(drop=True)), "age"),
        "weights: expected one"),
    "a square as other tools write it": slip(
        lambda release: analysis.linear_regression(release, "income ~ age + age^2"),
        "'age^2' is 'age' alone in a"),
    "a factor as R writes it": slip(
        lambda release: analysis.linear_regression(release, "income ~ factor(region)"),
        "function 'factor'"),
    "a level without a case": slip(
        lambda release: analysis.logistic_regression(
            (release.table.assign(ill=release.table["region"] == "north"), None), "ill",
            ["region"]),
        "the target is "),
}  # fmt: skip
