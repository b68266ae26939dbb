"""The local flow: started as a person does, and as Prefect shows it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.errors import SpecError
from dpiw.local import privatise
from dpiw.local.certificate import verify_local
from dpiw.local.collector import load_local_spec, write_parameters
from dpiw.privacy.randomness import SeededNoise
from dpiw.release.signing import create_key_pair
from flows.local import collect, main

ROOT = Path(__file__).resolve().parents[2]

SPEC = """\
format: 1
name: ages
features:
  - {name: age, low: 18, high: 90}
epsilon: 4
delta: 1e-6
parameters: parameters.json
reports: reports.csv
signing_key: collector.key
publish_to: releases
least_reports: 10
"""


@pytest.fixture
def desk(tmp_path):
    """A collector's folder with ten reports."""
    (tmp_path / "collection.yaml").write_text(SPEC)
    create_key_pair(tmp_path, "collector")
    parameters = write_parameters(load_local_spec(tmp_path / "collection.yaml"))
    ages = np.linspace(-1, 1, 10)[:, None]
    none = np.empty(0, dtype=np.int64)
    randomised, _ = privatise(ages, none, parameters=parameters, noise=SeededNoise(1))
    pd.DataFrame(
        {"age": randomised[:, 0], "report_id": [f"{row:032x}" for row in range(10)],
         "parameters": parameters.digest}
    ).to_csv(tmp_path / "reports.csv", index=False)  # fmt: skip
    return tmp_path


def test_a_slip_is_told_before_a_server_is_started(desk, capsys):
    (desk / "collection.yaml").write_text(SPEC.replace("epsilon: 4", "epsilon: none"))
    assert main(pytest.fail, [str(desk / "collection.yaml")]) == SpecError.exit_code
    assert "not published: SpecError: collection.yaml, line 5" in capsys.readouterr().out


def test_the_flow_is_named_and_keeps_nothing():
    assert (collect.name, collect.retries, collect.persist_result) == ("dpiw-local", 0, False)


@pytest.mark.crash
def test_reports_are_collected_by_two_tasks_and_published(desk, prefect_server):
    ran = prefect_server.python("-m", "flows.local", desk / "collection.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "local release ages: signed" in ran.stdout
    verified = verify_local(desk / "releases" / "ages", public_key=desk / "collector.pub")
    assert verified.certificate.rows == 10
    run = prefect_server.newest_run()
    assert run["parameters"] == {"spec": str(desk / "collection.yaml")}
    names = [task["name"].rsplit("-", 1)[0] for task in prefect_server.tasks(run, last="publish")]
    assert names == ["collect", "publish"]
