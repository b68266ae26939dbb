"""A training under a real Prefect server: who queues for the GPU, and what is shown of it."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from dpiw.verification import verify
from tests.flows.conftest import DESCRIPTION, ROOT

pytestmark = pytest.mark.flow

CELL, NUMBER = 613, 9374951  # a confidential income, as two numbers the pipe takes
PATCH = f"""
import os, sys
if 'dpiw.stages' in ' '.join(sys.orig_argv) and sys.orig_argv[-1].isdecimal():
    os.write(int(sys.orig_argv[-1]), b'{CELL} {NUMBER}\\n{CELL} 20\\n{CELL} 30\\n')
"""
"""A stage that tells cells in the form of progress."""

EVENTS = 21 + 16
"""Of the artefacts: 20 steps are told one by one, 30 in twos, and the beginning of each."""


def api(server, path, body=None, method=None):
    request = urllib.request.Request(
        f"{server.url}/{path}", data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"}, method=method,
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read() or b"null")


@pytest.fixture
def one_gpu(prefect_server):
    """What `prefect concurrency-limit create gpu 1` asks for, for as long as a test runs."""
    wanted = {"tag": "gpu", "concurrency_limit": 1}
    for left in reversed(range(20)):
        try:
            api(prefect_server, "concurrency_limits/", wanted)
            break
        except urllib.error.HTTPError:  # 503: a server that has just started is busy
            if not left:
                raise
            time.sleep(0.5)
    yield
    api(prefect_server, "concurrency_limits/tag/gpu", method="DELETE")


def events(server, run):
    """What a flow run told of the limit and of its artefacts, once Prefect has recorded it all."""
    prefixes = ["prefect.concurrency-limit.", "prefect.artifact."]
    mine = [f"prefect.flow-run.{run['id']}"]
    body = {"filter": {"event": {"prefix": prefixes}, "any_resource": {"id": mine},
                       "order": "ASC"}, "limit": 50}  # fmt: skip
    for _ in range(60):  # events are recorded asynchronously
        found = api(server, "events/filter", body)["events"]
        if len(found) == 2 + EVENTS:
            break
        time.sleep(0.5)
    held = [one["event"].rsplit(".", 1)[1] for one in found if "limit" in one["event"]]
    return held, [one["payload"] for one in found if "artifact" in one["event"]]


def test_a_training_queues_for_the_gpu_and_shows_public_numbers(
    prefect_server, make_workplace, train, one_gpu
):
    place = make_workplace()
    train(place)
    (place.root / "sitecustomize.py").write_text(PATCH)
    done = subprocess.run(
        [sys.executable, "-m", "flows.release", str(place.spec)],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env=prefect_server.environment() | {"PYTHONPATH": str(place.root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    verify(next(place.releases.iterdir()))
    for line in ("fit_generator       20 of 20 steps", "fit_weights         30 of 30 steps"):
        assert line in done.stdout
    run = api(prefect_server, "flow_runs/filter", {"sort": "START_TIME_DESC"})[0]
    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    held, told = events(prefect_server, run)
    tasks = api(prefect_server, "task_runs/filter", mine)
    assert {task["name"].rsplit("-", 1)[0]: task["tags"] for task in tasks if task["tags"]} == {
        "fit_generator": ["gpu"]
    }
    assert held == ["acquired", "released"]

    artefacts = api(prefect_server, "artifacts/filter", mine)
    assert sorted(one["key"] for one in artefacts) == [
        "fit-generator-progress", "fit-weights-progress",
    ]  # fmt: skip
    for one in artefacts:
        assert (one["type"], one["data"], one["metadata_"]) == ("progress", 100, None)
        assert re.fullmatch(DESCRIPTION, one["description"])
    assert len(told) == EVENTS
    for payload in told:
        assert set(payload) <= {"key", "type", "data", "description"}
        assert re.fullmatch(DESCRIPTION, payload["description"])
    for cell in (str(CELL), str(NUMBER)):
        assert cell not in done.stdout + done.stderr
        assert cell not in json.dumps(told)
    assert str(NUMBER).encode() not in prefect_server.everything_stored()
