"""Measurements and releases made blind: the same for any tables; and leaks to plant in them."""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import StageFailedError
from dpiw.ledger import Ledger
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.neural import dp_sgd
from dpiw.methods.weights.measured import method as measured
from dpiw.methods.weights.measured import weighing
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.credit import Misfit, evidence_credit
from dpiw.methods.weights.measured.features import PARTS
from dpiw.methods.weights.measured.sums import exact_sum
from dpiw.methods.weights.paper import beta, output
from dpiw.methods.weights.registry import make_weights
from dpiw.plan.spec import compact_json
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import SeededNoise
from dpiw.run.run import ReleaseRun
from tests.dpiw.methods.generators.neural_world import SCHEMA, UNIT
from tests.hostile.leaks import neighbours as leaks
from tests.proof.neighbours import Plant, instead
from tests.support.fits import fitted_at_once
from tests.support.read import read_snapshot

TABLE_PARTS = dict.fromkeys(PARTS, 1.0)
"""The schema here is no image."""


@contextmanager
def blind() -> Iterator[None]:
    """Mechanisms that return public numbers of the right shape, and choices by turn."""
    turn = itertools.count()

    def drawn(size, scale):
        return np.random.default_rng([1, next(turn)]).normal(scale=scale, size=size)

    def counts(exact, *, law, noise):
        return (20.0 + drawn(law.dimension, law.scale)).reshape(exact.shape)

    def vector(exact, *, law, noise):
        return drawn(law.dimension, law.scale)

    def total(exact, *, scale, noise):
        return drawn(exact.size, scale)

    def choice(scores, *, epsilon, sensitivity, noise):
        return next(turn) % len(scores)

    with (
        fitted_at_once(),
        mock.patch.object(mechanisms, "noisy_counts", counts),
        mock.patch.object(mechanisms, "select", choice),
        mock.patch.object(dp_sgd, "noisy_sum", total),
        mock.patch.object(beta, "noisy_vector", vector),
        mock.patch.object(output, "noisy_vector", vector),
        mock.patch.object(measured, "noisy_vector", vector),
    ):
        yield


# Measurements
def any_table(rng: np.random.Generator) -> PrivateTable:
    """Any number of rows, from laws of their own: sometimes constant, sometimes all missing."""
    rows = int(rng.choice([0, 1, 2, 30, 60]))
    spread = float(rng.choice([1.0, 0.1, 0.01]))
    frame = pd.DataFrame(
        {
            "x": rng.choice([rng.random(), np.nan, np.inf, -5.0, 1e300], rows)
            if rng.random() < 0.5
            else rng.random() + spread * (rng.random(rows) - 0.5),
            "job": rng.choice(["a", "b", "c", None, "other"][: int(rng.integers(1, 6))], rows),
            "sick": rng.random(rows) < rng.random(),
        }
    )
    return PrivateTable(schema=SCHEMA, scaled=SCHEMA.scale(frame))


def public_rows(seed: int) -> SyntheticTable:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"x": rng.random(20), "job": rng.choice(["a", "b"], 20), "sick": rng.random(20) < 0.5}
    )
    return SyntheticTable(schema=SCHEMA, scaled=SCHEMA.scale(frame))


def ready(method: Any, **facts: Any) -> Any:
    return method.calibrate(rho=0.5, schema=SCHEMA, unit=UNIT, nominal_rows=40, **facts)


GAME = {"steps": 3, "lot": 16, "batch": 4, "generator": [3], "discriminator": [3]}
GENERATORS: dict[str, dict[str, Any]] = {
    "histogram": {}, "privbayes": {}, "mst": {}, "aim": {}, "bayes": {"weights": "two_stage"},
    "dpgan": GAME, "dpcgan": GAME,
    "pategan": {"rounds": 2, "batch": 4, "generator": [3], "student": [3], "teacher": 2},
}  # fmt: skip
WEIGHTS: dict[str, tuple[str, dict[str, Any]]] = {
    "beta_noised": ("beta_noised", {}),
    "beta_debiased": ("beta_debiased", {"noise": "laplace"}),
    "beta_noised spherical": ("beta_noised", {"noise": "spherical"}),
    "output_noised": ("output_noised", {"rows": 20, "allow_more_rows": True}),
    "measured": ("measured", {"frequencies": 5, "omega_seed": 1}),
    "measured stack": (
        "measured", {"features": TABLE_PARTS, "frequencies": 5, "omega_seed": 1}),
    "measured chosen": ("measured", {"choose": 2, "omega_seed": 1}),
    "dp_mlp": ("dp_mlp", {"steps": 3, "lot": 8, "hidden": [3]}),
}  # fmt: skip


def measuring(name: str) -> Callable[[PrivateTable], bytes]:
    """From a table to a method's measurement, as it is written."""
    if name in GENERATORS:
        with fitted_at_once():
            generator = ready(make_generator(name, GENERATORS[name], pure=False))
        return lambda table: generator.measure(table, noise=SeededNoise(0)).to_bytes()
    synthetic, method = public_rows(1), ready(make_weights(*WEIGHTS[name]))
    method = method.for_rows(public_rows(2))
    return lambda table: method.measure(table, synthetic, noise=SeededNoise(0)).to_bytes()


METHODS = [*GENERATORS, *WEIGHTS]


def compare_measurements(name: str, pairs: int) -> None:
    rng, measure, measurements = np.random.default_rng(20_240_401), measuring(name), set()
    for _ in range(pairs + 1):
        with blind():
            measurements.add(measure(any_table(rng)))
    assert len(measurements) == 1


# Whole releases
_DIGEST = re.compile(rb"[0-9a-f]{64}")
_STATES = {"private", "log"}
"""Folders of a run that are confidential and never leave."""


def text(data: bytes, root: Path) -> bytes:
    return _DIGEST.sub(b"(digest)", data.replace(str(root).encode(), b"(root)"))


def parquet(path: Path, root: Path) -> list[Any]:
    file = pq.ParquetFile(path)
    facts = sorted((k, text(v, root)) for k, v in (file.metadata.metadata or {}).items())
    return [repr(file.read().to_pydict()), facts, file.metadata.num_row_groups]


def arrays(path: Path, root: Path) -> list[Any]:
    with np.load(path, allow_pickle=False) as stored:
        return [(n, stored[n].shape, text(stored[n].tobytes(), root)) for n in stored]


def public_bytes(root: Path) -> dict[str, Any]:
    """All that a run leaves outside its confidential folders, digests masked."""
    run, ends = leaks.run_world(root)
    public: dict[str, Any] = {"ends": ends, "name": run.release_id, "plan": run.plan.to_json()}
    ledger = Ledger.open(root / "state" / "ledger.sqlite")
    public["ledger"] = [
        (e.seq, e.kind.value, e.stage, text(compact_json(dict(e.payload)).encode(), root))
        for e in ledger.entries()
    ]
    for path in sorted((root / "state").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir() or _STATES & set(path.parts) or path.name.startswith("ledger.sqlite"):
            continue
        if path.suffix == ".parquet":
            public[name] = parquet(path, root)
        elif path.suffix == ".npz":
            public[name] = arrays(path, root)
        elif path.suffix == ".sig" or "keys" in path.parts:
            public[name] = path.stat().st_size
        else:
            public[name] = text(path.read_bytes(), root)
    return public


def any_lines(rng: np.random.Generator) -> list[str]:
    """A CSV of any number of rows, some of them hostile, of another town each."""
    lines = leaks.town(int(rng.choice([0, 1, 2, 40])), int(rng.integers(10**6)))
    csv_lines = lines.to_csv(index=False).splitlines()
    for _ in range(int(rng.integers(0, 4))):
        csv_lines.insert(int(rng.integers(1, len(csv_lines) + 1)), str(rng.choice(leaks.HOSTILE)))
    return csv_lines


def view_of(template: Any, number: int, lines: list[str]) -> dict[str, Any]:
    root = template.world(number, lines)
    with blind():
        seen = public_bytes(root)
    shutil.rmtree(root)
    return seen


def compare_releases(factory: Any, pairs: int, *, dictionary: str = "", **changes: str) -> None:
    template = leaks.template_of(factory, **changes)
    with (template.root / "schema.yaml").open("a") as file:
        file.write(dictionary)
    rng = np.random.default_rng(20_240_402)
    first = view_of(template, 0, any_lines(rng))
    assert first["ends"] == ["ok"] * 8
    assert any(name.endswith("report.html") for name in first)
    for number in range(1, pairs + 1):
        differing = leaks.differences(first, view_of(template, number, any_lines(rng)))
        assert not differing, differing[:5]


MEASURED = "measured, settings: {frequencies: 20, omega_seed: 1, base_rows: 2000, replicates: 20}"
"""Measured weights of a whole release, as small as they are useful."""

CONSTRAINTS = """
constraints:
  - {name: healthy, never: {region: [north, other], ill: true}}
  - {name: old, never: {age: {upper: 70}, region: south}, repair: project}
"""
"""Of a data dictionary: many confidential rows break them, and nobody may hear of that."""


# Controls: a planted leak is seen
def rows_of(run: ReleaseRun) -> int:
    return int(pq.ParquetFile(run.snapshot).metadata.num_rows)


def telling_rows(real, run, ledger):
    return replace(real(run, ledger), nominal_rows=rows_of(run))


@contextmanager
def as_many_rows(real, path):
    """As many synthetic rows as private ones."""
    rows = np.arange(rows_of(ReleaseRun.load(path.parent)))
    with real(path) as append:
        yield lambda scaled: append(scaled.take(rows))


def failing_at_few(real, directory, tally, **given):
    if tally.rows < 5:
        raise StageFailedError("ingest", 70)
    return real(directory, tally, **given)


def telling_a_total(real, self, table, *, noise):
    measurement = real(self, table, noise=noise)
    rows = table.confidential().rows
    return replace(measurement, facts={**measurement.facts, "total": rows})


def private_credit(estimator: Any, drawn: Any, private: Any, base: SyntheticTable) -> Any:
    """The credit by the private rows' exact sum."""
    stack = estimator.stack(base.schema)
    exact = exact_sum(stack, private, constant=estimator.calibrated.constant)
    features = stack.matrix(base.scaled)
    targets = estimator.targets(replace(drawn, arrays={"sum": exact}), about=features.mean(axis=0))
    return evidence_credit(Misfit.of(BaseRows(features), targets))


def believing_private_rows(patch):
    """How much the base is believed, from the private rows' own means."""
    seen: list[ReleaseRun] = []

    def watched(real, run):
        seen.append(run)
        return real(run)

    def believing(real, estimator, drawn, base, **rest):
        credit = private_credit(estimator, drawn, [read_snapshot(seen[-1].snapshot)], base)
        return real(replace(estimator, credit=credit), drawn, base, **rest)

    instead(leaks.POSTPROCESSING, "_weights", watched)(patch)
    instead(weighing, "weigh_measured", believing)(patch)


LEAKS: dict[str, tuple[Plant, str]] = {
    "in a fact": (
        instead(Histogram, "measure", telling_a_total),
        "known class: an exact total beside noisy counts"),
    "in the report": (
        instead(leaks.PUBLISH, "certify", telling_rows),
        "known class: the row count in a public file"),
    "in the number of rows": (
        instead(leaks.POSTPROCESSING, "snapshot_writer", as_many_rows),
        "known class: as many synthetic rows as private ones"),
    "in how a step ends": (
        instead(leaks.INGEST, "leave_statement", failing_at_few),
        "known class: a check of values that stops a run"),
    "in the credit": (
        believing_private_rows, "known class: a tuning constant from exact private statistics"),
}  # fmt: skip
"""By name: what is planted, and where it is known from."""


def check_seen(name: str, factory: Any, patch: pytest.MonkeyPatch) -> None:
    LEAKS[name][0](patch)
    template = leaks.template_of(factory, **({"weights": MEASURED} if "credit" in name else {}))
    views = [view_of(template, n, leaks.table(5)[:rows]) for n, rows in enumerate((40, 3))]
    assert leaks.differences(*views)
