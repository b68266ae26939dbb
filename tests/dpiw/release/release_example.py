"""A small public example release, built in code, for the tests of the release folder."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.questions import answers
from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.weights.questions import parse_questions
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.certificate import Certificate, CertifiedStage
from dpiw.release.croissant import CatalogueEntry
from dpiw.release.files import release_contents
from dpiw.release.manifest import ManifestFacts
from dpiw.release.publication import FileSource, build_folder, publish_built
from dpiw.release.report.figures import Answers, RowsShown, answers_of
from dpiw.release.report.report import build_report
from dpiw.release.signing import PrivateKey, create_key_pair, load_private_key
from tests.support import worlds

PUBLISHED_AT = "2027-01-31T06:00:00Z"

SCHEMA = worlds.declared(
    {"name": "person", "role": "identifier"},
    {"name": "age", "kind": "integer", "lower": 0, "upper": 100, "description": "In years"},
    {"name": "income", "kind": "continuous", "lower": 0.0, "upper": 9.0, "nullable": True},
    {"name": "visits", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
    {"name": "sex <b>&", "kind": "categorical", "levels": ["female", "male", "<i>x</i>"]},
    {"name": "grade", "kind": "ordinal", "levels": ["low", "high"], "nullable": True},
    {"name": "smoker", "kind": "boolean"},
    {"name": "insured", "kind": "boolean", "nullable": True},
    {"name": "born", "kind": "date", "lower": "1900-01-01", "upper": "2020-12-31"},
    {"name": "seen", "kind": "datetime", "nullable": True,
     "lower": "2024-01-01T00:00:00", "upper": "2024-12-31T23:59:59"},
    name="example",
)  # fmt: skip

DTYPES = {
    "age": "int64", "income": "float64", "visits": "Int64", "sex <b>&": "str", "grade": "str",
    "smoker": "bool", "insured": "boolean", "born": "datetime64[s]", "seen": "datetime64[s, UTC]",
}  # fmt: skip


def example_frame(rows: int = 200, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    moments = np.datetime64("2024-01-01T00:00:00", "s") + rng.integers(0, 10**7, rows)
    moments[0] = np.datetime64("NaT")
    income = rng.uniform(0, 9, rows)
    income[1] = np.nan
    return pd.DataFrame(
        {
            "age": rng.integers(0, 101, rows),
            "income": income,
            "visits": pd.array([*rng.integers(0, 10, rows - 1), None], dtype="Int64"),
            "sex <b>&": pd.Series(rng.choice(SCHEMA.column("sex <b>&").levels, rows), dtype="str"),
            "grade": pd.Series([None, *rng.choice(["low", "high"], rows - 1)], dtype="str"),
            "smoker": rng.random(rows) < 0.3,
            "insured": pd.array([None, *(rng.random(rows - 1) < 0.5)], dtype="boolean"),
            "born": pd.Series(
                np.datetime64("1900-01-01", "s") + 86400 * rng.integers(0, 44195, rows)
            ),
            "seen": pd.Series(moments).dt.tz_localize("UTC"),
        }
    )


def example_log_weights(rows: int = 200, seed: int = 2) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(seed).normal(0.3, 0.5, rows)


def example_certificate(**changes: Any) -> Certificate:
    generator = CertifiedStage(
        stage="generator", method="privbayes",
        events=({"event": "gaussian", "noise_multiplier": 12.5, "count": 1},),
        parameters={"degree": 2},
        noise=({"kind": "gaussian", "scale": 12.5, "dimension": 64},),
        standalone_epsilon=0.7,
    )  # fmt: skip
    weights = replace(generator, stage="weights", method="beta_debiased", standalone_epsilon=0.5)
    certificate = Certificate(
        release_id="example-2027-q1", population="example", period="2027-q1",
        unit=PrivacyUnit(
            relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=2, id_column="person"
        ),
        epsilon="1", delta="1E-6",
        attempts=({"epsilon": "1", "delta": "1E-6", "stages": {"fit_generator": "committed"}},),
        spent_epsilon="3", spent_delta="3E-6",
        account={
            "composition": "basic", "max_unpaid_reads": 20,
            "held": {"epsilon_units": 3 * 10**12, "delta_units": 3 * 10**12},
            "drawn": {"epsilon_units": 10**12, "delta_units": 10**12},
        },
        budget_epsilon="8", budget_delta="1E-5", accountants={"pld": 0.9999, "rdp": 1.12},
        plan_digest="a" * 64, nominal_rows=10000, stages=(generator, weights),
        generator={"method": "privbayes"}, weights={"method": "beta_debiased"},
        post_processing=("debiased", "self-normalised"),
        diagnostics={"effective_sample_size": 150.0, "k_hat": None, "tau": 0.2},
        verdict="use", verdict_rule="k-hat < 0.7",
        assumptions=("Each person has at most two rows.",), caveats=("Rare levels are smoothed.",),
        versions={"dpiw": "0.1.0"}, ledger_head="b" * 64,
    )  # fmt: skip
    return replace(certificate, **changes)


def example_facts(certificate: Certificate | None = None) -> ManifestFacts:
    """Of a release of one row and no columns."""
    certificate = certificate or example_certificate()
    return ManifestFacts.of(
        certificate,
        cumulative_epsilon=certificate.spent_epsilon,
        cumulative_delta=certificate.spent_delta,
        rows=1,
        columns=(),
        constraints_digest="d" * 64,
        previous=None,
        published_at=PUBLISHED_AT,
    )


def example_contents(
    workspace: Path, certificate: Certificate | None = None, **changes: Any
) -> tuple[dict[str, FileSource], ManifestFacts]:
    arguments: Mapping[str, Any] = {
        "frames": [example_frame()],
        "log_weights": example_log_weights(),
        "log_weight_noise_sd": np.linspace(0.1, 0.3, 200),
        "schema": SCHEMA,
        "catalogue": CatalogueEntry(
            licence="CC-BY-4.0", url="https://example.org/", creator="not stated"
        ),
        "published_at": PUBLISHED_AT,
        "previous": None,
        "workspace": workspace,
        "rng": np.random.default_rng(3),
    }
    return release_contents(certificate or example_certificate(), **{**arguments, **changes})


def example_key(folder: Path, name: str = "curator") -> PrivateKey:
    return load_private_key(create_key_pair(folder, name)[0])


def publish_example(root: Path, certificate: Certificate | None = None, **changes: Any) -> Path:
    """Publish into `root/release`, signed by `root/curator.key`; returns the release folder."""
    workspace = root / "workspace"
    workspace.mkdir()
    files, facts = example_contents(workspace, certificate, **changes)
    built, key = workspace / "built", example_key(root)
    build_folder(built, files=files, facts=facts, key=key)
    publish_built(built, destination=root / "release", key=key.public, commit=lambda digest: None)
    return root / "release"


def example_report(
    certificate: Certificate | None = None, *, schema: PublicSchema = SCHEMA, weighted: bool = True,
    **changes: Any,
) -> str:  # fmt: skip
    """The page of the example's rows, or of other `frames`, `log_weights` and their noise."""
    frames = changes.get("frames", [example_frame()])
    count = sum(map(len, frames))
    logs = changes.get("log_weights", example_log_weights() if weighted else np.zeros(count))
    noise = np.linspace(0.1, 0.3, 200) if weighted else None
    rows = RowsShown(schema, logs)
    assert [*rows.passing(frames)]
    return build_report(
        certificate or example_certificate(), schema=schema, shown=rows,
        log_weight_noise_sd=changes.get("log_weight_noise_sd", noise),
        answers=changes.get("answers"),
    )  # fmt: skip


def example_answers(name: str = "visits", level: str = "low <b>") -> Answers:
    """A question with a value of each sort, another without an answer, three pairs of columns."""
    question, why = f"mean: {name} by grade", "fewer than 100 people are behind it"
    values = [f"mean({name}) | grade={text}" for text in (level, "high", "nobody")]
    declared = pd.DataFrame({
        "question": question, "value": values, "estimate": [2.5, 3.0, np.nan],
        "lower": [2.0, 1.0, 0.0], "upper": [3.0, 5.0, 9.0], "support": [1.0, 0.9, 0.0],
        "verdict": ["use", "use with care", "do not use"], "why": ["", why, why],
    })  # fmt: skip
    pairs = pd.DataFrame({
        "first": [name, name, "grade"], "second": [name, "grade", "grade"],
        "support": [1.0, 0.4, 0.75], "use": [1, 0, 3], "use with care": [0, 2, 0],
        "do not use": [0, 1, 0],
    })  # fmt: skip
    nothing = declared.tail(1).assign(question="correlation: age, income", value="no answer")
    return answers_of(pd.concat([declared, nothing]), pairs)


SCALES = ((1e-190, 0), (1e-7, 0), (1e-3, 123456), (1e7, 0), (1e188, 0), (0, -7))
"""Of answers, and where they begin."""


def answers_of_every_kind(scales: Sequence[tuple[float, float]] = SCALES) -> Answers:
    """All kinds of questions, as they are and at further scales, and 24 columns' pairs."""
    asked = [
        {"mean": "age by grade"}, {"share": "smoker by sex <b>&"}, {"quantiles": "age"},
        {"correlation": ["age", "income"]}, {"regression": "income ~ age + C(grade) + smoker"},
        {"table": ["sex <b>&", "grade"]},
    ]  # fmt: skip
    found = answers((example_frame(), None), parse_questions(asked, SCHEMA))
    numbers, frames = ["estimate", "lower", "upper"], [found]
    for scale, start in scales:
        moved = found.assign(question=found["question"] + f" times {scale} from {start}")
        frames.append(moved.assign(**(found[numbers] * scale + start)))
    names = [f"{column.name} {place}" for place in range(3) for column in SCHEMA.released][:24]
    pairs = [(*pair, 0.5, 1, 2, 0) for pair in itertools.combinations_with_replacement(names, 2)]
    columns = ["first", "second", "support", "use", "use with care", "do not use"]
    return answers_of(pd.concat(frames), pd.DataFrame(pairs, columns=columns))


def marginals(frame, *, schema=SCHEMA, weights=None):
    """Each released column's shares, shape (cells,), counted at once."""
    rows = RowsShown(schema, np.zeros(len(frame)) if weights is None else np.log(weights))
    assert [*rows.passing([frame])]
    return rows.shares(weighted=weights is not None)
