"""What no change of the house may move: keys, costs, noise, published bytes, words, exit codes.

`tests/golden/fence.json` was written before the rooms were built, at the commit it names; plans of
examples that came later were added since, and a key or a draw that had to move is in the CHANGELOG.
A run key that changes makes every scheduled release a new one, and draws again.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpiw import errors
from dpiw.cli.main import main
from dpiw.data.tables import PrivateTable
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.plan.plan import compile_plan
from dpiw.plan.rehearsal.populations import KINDS, random_law
from dpiw.plan.spec import load_schema, load_spec
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.release.release_example import example_certificate
from tests.hostile.fuzz import corpus
from tests.hostile.fuzz.worker import raw_cells

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "fence.json"
EXAMPLES = ROOT / "examples"
SPECS = {
    **{path.parent.name: path for path in sorted(EXAMPLES.glob("*/release.yaml"))},
    "beta-release": GOLDEN.with_name("beta_release.yaml"),
    "population-mst": EXAMPLES / "population" / "mst.yaml",
    **{
        f"external-{tool}": EXAMPLES / "external" / f"{tool}.yaml"
        for tool in ("dpmm", "smartnoise")
    },
}
COMMANDS = (
    "", "init", "plan", "rehearse", "series", "approve", "withdraw", "ledger",
    "ledger register",
    "ledger show", "ledger verify", "ledger void", "ledger recover", "ledger backup",
    "ledger restore", "ledger witness", "workspace", "workspace show",
    "workspace cells", "workspace purge", "verify", "describe", "key", "key new", "key add",
    "key revoke", "key list", "release", "audit", "local", "local plan", "local report",
    "local collect", "schema", "completion", "site",
)  # fmt: skip


def near(value: Any) -> Any:
    """A JSON value whose floats may differ by 1e-7 of them: other processors add up otherwise."""
    if isinstance(value, Mapping):
        return {key: near(element) for key, element in value.items()}
    if isinstance(value, list):
        return [near(element) for element in value]
    return pytest.approx(value, rel=1e-7, abs=0) if isinstance(value, float) else value


def plan_of(name: str) -> dict[str, Any]:
    """Key, cost and noise of an example's plan."""
    spec = load_spec(SPECS[name])
    plan = compile_plan(spec, load_schema(spec))
    return {
        "digest": plan.digest,
        "run_key": plan.run_key("2026-q4"),
        "epsilon": str(plan.spec.cost.epsilon),
        "delta": str(plan.spec.cost.delta),
        "effort": plan.effort,
        "stages": {
            stage.name: json.loads(json.dumps(stage.parameters, default=dict))
            for stage in plan.stages
        },
    }


def drawn() -> dict[str, Any]:
    """Digest of a seeded measurement of stand-in rows, and moments of the weights made of it."""
    spec = load_spec(ROOT / "examples" / "breast-cancer" / "release.yaml")
    schema = load_schema(spec)
    plan, rng = compile_plan(spec, schema), np.random.default_rng(20261122)
    private = PrivateTable(
        schema=schema, scaled=random_law(schema, KINDS["strong"], rng=rng).draw(2000, rng=rng)
    )
    noise = SeededNoise(20261122)
    measured = plan.generator.measure(private, noise=noise)
    model = plan.generator.model(measured, schema=schema)
    estimator = plan.weights
    assert isinstance(estimator, Measured)
    base = model.sample(estimator.base_rows_for(1000), rng=rng)
    means = estimator.for_rows(base).measure(private, base, noise=noise)
    weights = weigh_measured(estimator, means, base, rows=1000, rng=rng, known=model.one_way)
    logs, facts = weights.log_weights, weights.facts["measured"]
    moments = [logs.min(), logs.max(), logs.std(), facts["credit"], facts["rows"]]
    return {"generator": measured.digest, "moments": [float(moment) for moment in moments]}


def corpus_scaled(folder: Path) -> dict[str, str]:
    """Digest of the scaled rows of each file of the hostile corpus; of a refusal its class."""
    every = [("csv", data) for data in corpus.csv_files()]
    every += [("parquet", data) for data in corpus.parquet_files()]
    found = {}
    for number, (kind, data) in enumerate(every):
        try:
            columns = corpus.schema().scale(raw_cells(data, kind, folder)).columns
        except errors.DPIWError as refusal:
            found[f"{kind} {number}"] = type(refusal).__name__
            continue
        text = hashlib.sha256()
        for name, values in columns.items():
            text.update(name.encode() + np.asarray(values, dtype="<f8").tobytes())
        found[f"{kind} {number}"] = text.hexdigest()
    return found


def codes() -> dict[str, int]:
    def below(kind: type[errors.DPIWError]) -> Iterator[type[errors.DPIWError]]:
        yield kind
        for error in kind.__subclasses__():
            yield from below(error)

    every = {error for error in below(errors.DPIWError) if error.__module__ == "dpiw.errors"}
    return {
        error.__name__: error.exit_code for error in sorted(every, key=lambda error: error.__name__)
    }


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(GOLDEN.read_text())
    return content


@pytest.mark.parametrize("name", SPECS)
def test_plans_and_keys_are_what_they_were(name: str, golden: dict[str, Any]) -> None:
    assert plan_of(name) == near(golden["plans"][name])


def test_a_seeded_draw_and_its_weights_are_what_they_were(golden: dict[str, Any]) -> None:
    measured = drawn()
    assert measured["generator"] == golden["drawn"]["generator"]
    assert measured["moments"] == pytest.approx(golden["drawn"]["moments"], rel=1e-6)


def test_the_hostile_corpus_is_read_as_before(golden: dict[str, Any], tmp_path: Path) -> None:
    assert corpus_scaled(tmp_path) == golden["scaled"]


def test_a_certificate_has_the_same_bytes(golden: dict[str, Any]) -> None:
    assert example_certificate().digest == golden["certificate"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_the_same(
    command: str, golden: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert output.getvalue() == golden["help"][command]


def test_exit_codes_are_promises(golden: dict[str, Any]) -> None:
    assert codes() == golden["exit_codes"]
    assert not {*codes().values()} & {*golden["retired_exit_codes"].values()}
