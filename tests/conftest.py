"""Fixtures shared by the suites: a small workplace with a table, a key and a ledger."""

import os
import signal

# Before NumPy: two workers on two cores with two threads each wait for one another, and a sum in
# several threads rounds otherwise. The long suites set it too (tests/suite.sh).
os.environ.setdefault("OMP_NUM_THREADS", "1")

import dataclasses
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpiw.privacy.units import NeighbouringRelation

pytest.register_assert_rewrite("tests.support", "tests.proof", "tests.hostile", "tests.dpiw")
pytest_plugins = ["tests.support.browser", "tests.support.stores"]

UMASK = os.umask(0o077)
os.umask(UMASK)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long cases of a test, before markers choose the tests."""
    for item in items:
        case = "[" + item.nodeid.partition("[")[2]
        for name in ("crash", "nightly"):
            for mark in item.iter_markers(f"{name}_cases"):
                if any(part in case for part in mark.args):
                    item.add_marker(name)


def pytest_sessionstart() -> None:
    """A shell's background job ignores Ctrl-C, and what tests raise would be ignored with it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Importing `flows` closes files for the rest of a process: not for the tests of this one."""
    os.umask(UMASK)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", type=Path, help="append the long tests' figures to this file")


@pytest.fixture
def figures(request, capsys) -> Callable[..., None]:
    """Print what a long test counted, and keep it as a JSON line if a file is given."""

    def tell(name: str, **numbers: object) -> None:
        line = json.dumps({"test": name, **numbers})
        with capsys.disabled():
            print(f"\nfigures {line}")
        path = request.config.getoption("--figures")
        if path is not None:
            with path.open("a") as file:
                file.write(line + "\n")

    return tell


SCHEMA = """
name: town
columns:
  - {name: age, kind: integer, lower: 0, upper: 100}
  - {name: income, kind: continuous, lower: 0, upper: 1000, nullable: true}
  - {name: region, kind: categorical, levels: [north, south, other], other: other}
  - {name: ill, kind: boolean, role: target}
"""

SPEC = """
format: 1
name: town
population: {population}
cadence: once
source: {{path: data.csv, format: csv}}
schema: schema.yaml
relation: add_or_remove_one
epsilon: {epsilon}
delta: 1e-6
nominal_rows: 400
generator: {{method: {generator}, settings: {{bins: 4}}}}
weights: {{method: {weights}, when_infeasible: keep}}
synthetic_rows: 300
max_attempts: {max_attempts}
state: state
signing_key: state/keys/test.key
publish_to: state/releases
"""


def town(rows: int, seed: int) -> pd.DataFrame:
    """A confidential table of the schema above."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(rng.random(rows) < 0.1, np.nan, rng.gamma(4, 60, rows).round(2)),
            "region": rng.choice(["north", "south"], rows),
            "ill": np.where(rng.random(rows) < age / 120, "true", "false"),
        }
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workplace:
    """A folder with everything a release needs."""

    root: Path
    spec: Path
    ledger: Path
    releases: Path

    @property
    def source(self) -> Path:
        return self.root / "data.csv"

    @property
    def key(self) -> Path:
        return self.root / "state" / "keys" / "test.pub"

    def rewrite(self, old: str, new: str) -> None:
        """Change the first such words of the spec, which are there."""
        text = self.spec.read_text()
        assert old in text, old
        self.spec.write_text(text.replace(old, new, 1))

    def write_spec(self, **changes: object) -> Path:
        settings = {
            "population": "town", "epsilon": 2, "generator": "histogram",
            "weights": "beta_debiased", "max_attempts": 1,
        } | changes  # fmt: skip
        self.spec.write_text(SPEC.format(**settings))
        return self.spec

    def add_steps(self, *steps: str) -> None:
        """Add post-processing steps to the spec."""
        anchor, listed = "when_infeasible: keep", ", ".join(steps)
        self.rewrite(anchor, f"{anchor}, post_processing: [{listed}]")


@pytest.fixture(scope="session", autouse=True)
def verdicts_once() -> Iterator[None]:
    """Great Expectations is asked once for the same frame and the same checks.

    Its verdicts are a function of both, and hundreds of tests ingest the same small table in this
    process. Stages in processes of their own ask it every time.
    """
    from dpiw.data.source import validation

    real, known = validation.run_checks, {}

    def run_checks(frame: pd.DataFrame, checks: Sequence[Any]) -> validation.Results:
        key = pickle.dumps(frame), repr(checks)
        if key not in known:
            known[key] = real(frame, checks)
        return dict(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "run_checks", run_checks)
        yield


@pytest.fixture
def says(capsys) -> Callable[..., str]:
    """What a `dpiw` command prints, which ends with a code: on standard error if that is not 0."""

    def run(*words: object, code: int = 0) -> str:
        from dpiw.cli.main import main

        assert main([str(word) for word in words]) == code
        output = capsys.readouterr()
        return output.err if code else output.out

    return run


@pytest.fixture(scope="session")
def make_workplace(tmp_path_factory) -> Callable[..., Workplace]:
    """Make a workplace; `epsilon` and `reads` without a draw are the population's for life."""

    def make(*, epsilon: str = "5", reads: int = 20, **changes: object) -> Workplace:
        from dpiw.ledger import Ledger, Population
        from dpiw.release.signing import create_key_pair

        root = tmp_path_factory.mktemp("workplace")
        (root / "state").mkdir(mode=0o700)
        (root / "state" / "keys").mkdir(mode=0o700)
        (root / "schema.yaml").write_text(SCHEMA)
        town(400, seed=7).to_csv(root / "data.csv", index=False)
        create_key_pair(root / "state" / "keys", "test")
        ledger = Ledger.create(root / "state" / "ledger.sqlite")
        ledger.register(
            Population(
                name="town", relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1,
                epsilon=Decimal(epsilon), delta=Decimal("1e-4"), max_unpaid_reads=reads,
            )
        )  # fmt: skip
        place = Workplace(
            root=root, spec=root / "release.yaml", ledger=root / "state" / "ledger.sqlite",
            releases=root / "state" / "releases",
        )  # fmt: skip
        place.write_spec(**changes)
        return place

    return make


@pytest.fixture
def workplace(make_workplace) -> Workplace:
    return make_workplace()


@pytest.fixture
def place(make_workplace) -> Workplace:
    """One whose releases draw no weights."""
    return make_workplace(weights="none")
