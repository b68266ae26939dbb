"""`make serve` for real: server, worker and deployment; a scheduled run ends in a release."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.events.schemas.automations import AutomationCore
from ruamel.yaml import YAML

from dpiw.ledger import Ledger
from dpiw.plan.plan import Plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.stages import PrivateMethods
from dpiw.release.verification import verify
from flows import PREFECT_DEFAULTS
from flows.release import gpu_tags, release
from tasks.signals import Alarm
from tests.flows.conftest import ROOT, PrefectServer, _healthy, finished_database, free_port
from tests.support.patience import SECONDS, until

DONE = ("COMPLETED", "FAILED", "CRASHED")


def document(name: str) -> dict[str, Any]:
    return YAML(typ="safe").load((ROOT / f"deployments/{name}.yaml").read_text())


def test_the_deployments_are_module_path_entries():
    deployments = document("prefect")["deployments"]
    monthly, audit, catch_up, training, collection = deployments
    assert catch_up["entrypoint"] == "flows.series.series"
    assert "schedules" not in catch_up  # its spec needs a calendar
    assert monthly["entrypoint"] == training["entrypoint"] == "flows.release.release"
    assert audit["entrypoint"] == "flows.audit.audit"
    for deployment in deployments:
        assert "concurrency_limit" not in deployment  # a restart of the server would end its runs
        quiet = deployment["work_pool"]["job_variables"]["env"]
        assert quiet == monthly["work_pool"]["job_variables"]["env"]
        assert quiet.items() <= PREFECT_DEFAULTS.items()
    for deployment in (monthly, audit):
        assert deployment["schedules"][0]["active"] is True
        assert deployment["work_pool"]["name"] == "dpiw"
    assert collection["entrypoint"] == "flows.local.collect"
    assert "schedules" not in collection  # it ends once
    served = re.findall(
        r"^(?:pool|prefect worker start --pool) ([\w-]+)",
        (ROOT / "deployments/serve.sh").read_text(), re.M,
    )  # fmt: skip
    pools = {deployment["work_pool"]["name"] for deployment in deployments}
    assert served == [*sorted(pools), "dpiw"]  # both are made; a worker starts for what is due
    for deployment in (monthly, collection):
        assert (ROOT / deployment["parameters"]["spec"]).exists()
    assert (ROOT / audit["parameters"]["ledger"]).exists()


def test_the_example_automations_are_prefect_s():
    automations = document("automations")["automations"]
    read = [AutomationCore.model_validate(automation) for automation in automations]
    kinds = [action.type for automation in read for action in automation.actions]
    assert kinds == ["send-notification", "change-flow-run-state", *["send-notification"] * 5]
    for automation in read[:2]:
        assert release.name in str(automation.trigger.match_related)
    heard = [event for automation in read[2:6] for event in automation.trigger.expect]
    assert heard == [alarm.value for alarm in Alarm]


def test_the_training_waits_for_a_worker_with_a_gpu_and_the_example_does_not():
    (training,) = [d for d in document("prefect")["deployments"] if d["name"] == "gpu"]
    assert training["work_pool"]["name"] == "dpiw-gpu"
    assert training["work_pool"]["work_queue_name"] == "trainings"
    assert "schedules" not in training  # nothing is late where no such worker runs
    there = load_spec(ROOT / training["parameters"]["spec"])
    example = load_spec(ROOT / "examples" / "population-neural" / "release.yaml")
    for spec, tagged in ((there, {"gpu"}), (example, set())):
        methods = vars(PrivateMethods.of_spec(spec, load_schema(spec)))
        plan = Plan(**dict.fromkeys(Plan.__dataclass_fields__) | methods)
        assert gpu_tags(plan, "fit_generator") == tagged
        assert gpu_tags(plan, "fit_weights") == set()
        assert (ROOT / "examples/population/schema.yaml").samefile(spec.schema_path)
    assert there.population == example.population


@pytest.mark.flow
@pytest.mark.crash
def test_a_scheduled_run_appears_and_ends_with_a_verified_release(make_workplace, tmp_path):
    place = make_workplace()
    settings = document("prefect")
    # The shipped deployment, but soon and on the test's own spec.
    settings["deployments"][0]["schedules"] = [{"interval": 20, "active": True}]
    settings["deployments"][0]["parameters"] = {"spec": str(place.spec)}
    wanted = ("monthly", "gpu")  # the others have tests of their own
    settings["deployments"] = [d for d in settings["deployments"] if d["name"] in wanted]
    file = tmp_path / "prefect.yaml"
    file.write_text(json.dumps(settings))
    port, log = free_port(), tmp_path / "serve.log"
    server = PrefectServer(
        url=f"http://127.0.0.1:{port}/api", home=finished_database(tmp_path / "home")
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DPIW_PREFECT_PORT": str(port), "PREFECT_HOME": str(server.home), "OMP_NUM_THREADS": "1",
        "DPIW_ROOT": str(place.root),
    }  # fmt: skip

    def scheduled_and_over():
        assert process.poll() is None, log.read_text()
        runs = server.api("flow_runs/filter") if _healthy(server.url) else []
        # Later runs of the same period find it published and cost nothing.
        return [run for run in runs if run["auto_scheduled"] and run["state_type"] in DONE]

    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(ROOT / "deployments/serve.sh"), str(file)], cwd=ROOT, env=environment,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            runs = until(scheduled_and_over, every=0.5, what=f"a scheduled run's end ({log})")
            assert runs[0]["parameters"]["spec"] == str(place.spec)
            check_gpu_pool(server)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=SECONDS)
    (folder,) = place.releases.iterdir()
    assert verify(folder, public_key=place.root / "state" / "keys" / "test.pub").pinned
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def check_gpu_pool(server):
    """A pool for workers with a GPU, none of which was asked for, and a limit on what trains."""
    pool = server.api("work_pools/dpiw-gpu", method="GET")
    assert (pool["type"], pool["concurrency_limit"]) == ("process", 1)
    assert server.api("work_pools/dpiw-gpu/workers/filter") == []
    limit = server.api("concurrency_limits/tag/gpu", method="GET")
    assert limit["concurrency_limit"] == 1
    deployed = server.api("deployments/name/dpiw-release/gpu", method="GET")
    assert (deployed["work_pool_name"], deployed["work_queue_name"]) == ("dpiw-gpu", "trainings")


def test_stopping_does_not_wait_for_a_server_that_will_not_stop(tmp_path):
    deaf = tmp_path / "prefect"
    deaf.write_text("#!/usr/bin/env bash\ntrap '' TERM INT\ntouch up\nexec sleep 999\n")
    deaf.chmod(0o755)
    environment = os.environ | {
        "PATH": os.pathsep.join(
            [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "DPIW_PREFECT_PORT": str(free_port()),
        "PREFECT_HOME": str(tmp_path / "home"),
        "DPIW_STOP_SECONDS": "1",
    }
    process = subprocess.Popen(
        [str(ROOT / "deployments/serve.sh")], cwd=tmp_path, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: (tmp_path / "up").exists(), what="the start of the deaf server")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=SECONDS) == 0
        until(lambda: not alive_in_group(process.pid), what="the end of the deaf server")
    finally:
        if alive_in_group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def alive_in_group(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
