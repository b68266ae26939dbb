"""A training under a real Prefect server: who queues for the GPU, and what is shown of it."""

import json
import re

import pytest

from dpiw.ledger import Ledger
from dpiw.release.verification import verify
from tests.flows.conftest import DESCRIPTION, ROOT
from tests.support.devices import DEVICES, need
from tests.support.patience import until

pytestmark = pytest.mark.flow

CELL, NUMBER = 613, 9374951  # a confidential income, as two numbers the pipe takes
PATCH = f"""
import os, sys
if 'dpiw.run.process' in ' '.join(sys.orig_argv) and sys.orig_argv[-1].isdecimal():
    os.write(int(sys.orig_argv[-1]), b'{CELL} {NUMBER}\\n{CELL} 20\\n{CELL} 30\\n')
"""
"""A stage that tells cells in the form of progress."""

EVENTS = 21 + 16
PAGES = 5
"""Of the artefacts: 20 steps are told one by one, 30 in twos, and the beginning of each."""

LAUNCH = """
import sys, flows, tasks.window
tasks.window.TIMEOUT_SECONDS = 600.0
from flows import console
from flows.release import release
sys.exit(console.main(release, sys.argv[1:]))
"""
"""`python -m flows`, but a busy machine may take its time to take an artefact."""

VANISHING = """
import os, sys
trains = {'fit_generator', 'fit_weights'} & {*sys.orig_argv}
if trains and os.environ.get('CUDA_VISIBLE_DEVICES') != '':
    import mmap, pytest
    reserved = mmap.mmap(-1, 2**37, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    from tests.support.devices import PosedGPU
    gpu = PosedGPU(pytest.MonkeyPatch(), 'KIND')
    gpu.vanishes_at, gpu.kills = 30, 'fit_generator' in sys.orig_argv
"""
"""A worker whose GPU vanishes in every training: with one stage's process, or with CUDA's error.

It reserves address space as CUDA does, many times what other stages may have.
"""


@pytest.fixture
def one_gpu(prefect_server):
    """What `prefect concurrency-limit create gpu 1` asks for, for as long as a test runs."""
    wanted = {"tag": "gpu", "concurrency_limit": 1}
    prefect_server.api("concurrency_limits/", wanted)
    yield
    prefect_server.api("concurrency_limits/tag/gpu", method="DELETE")


def events(server, run):
    """What a flow run told of the limit and of its artefacts, once Prefect has recorded it all."""
    prefixes = ["prefect.concurrency-limit.", "prefect.artifact."]
    mine = [f"prefect.flow-run.{run['id']}"]
    body = {"filter": {"event": {"prefix": prefixes}, "any_resource": {"id": mine},
                       "order": "ASC"}, "limit": 50}  # fmt: skip

    def recorded():
        batch = server.api("events/filter", body)["events"]
        return batch if len(batch) == 2 + EVENTS + PAGES else []

    logged = until(recorded, every=0.5, what=f"the last of {2 + EVENTS + PAGES} events")
    held = [event["event"].rsplit(".", 1)[1] for event in logged if "limit" in event["event"]]
    payloads = [event["payload"] for event in logged if "artifact" in event["event"]]
    pages = ("table", "markdown", "image")  # tests/flows/test_window.py looks at them
    return held, [payload for payload in payloads if payload.get("type") not in pages]


@pytest.mark.crash
def test_a_training_queues_for_the_gpu_and_shows_public_numbers(
    prefect_server, make_workplace, train, one_gpu
):
    place = make_workplace()
    train(place)
    (place.root / "sitecustomize.py").write_text(PATCH)
    done = prefect_server.python("-c", LAUNCH, place.spec, PYTHONPATH=f"{place.root}:{ROOT}")
    assert done.returncode == 0, done.stdout + done.stderr
    verify(next(place.releases.iterdir()))
    for line in ("fit_generator       20 of 20 steps", "fit_weights         30 of 30 steps"):
        assert line in done.stdout
    run = prefect_server.newest_run()
    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    held, payloads = events(prefect_server, run)
    tasks = prefect_server.tasks(run, last="publish")
    assert {task["name"].rsplit("-", 1)[0]: task["tags"] for task in tasks if task["tags"]} == {
        "fit_generator": ["gpu"]
    }
    assert held == ["acquired", "released"]

    artefacts = [
        artefact
        for artefact in prefect_server.api("artifacts/filter", mine)
        if artefact["type"] == "progress"
    ]
    assert sorted(artefact["key"] for artefact in artefacts) == [
        "fit-generator-progress", "fit-weights-progress",
    ]  # fmt: skip
    for artefact in artefacts:
        assert (artefact["data"], artefact["metadata_"]) == (100, None)
        assert re.fullmatch(DESCRIPTION, artefact["description"])
    assert len(payloads) == EVENTS
    for payload in payloads:
        assert set(payload) <= {"key", "type", "data", "description"}
        assert re.fullmatch(DESCRIPTION, payload["description"])
    for cell in (str(CELL), str(NUMBER)):
        assert cell not in done.stdout + done.stderr
        assert cell not in json.dumps(payloads)
    assert str(NUMBER).encode() not in prefect_server.everything_stored()


@pytest.mark.crash
@pytest.mark.parametrize("device", DEVICES)
def test_a_run_whose_gpu_vanishes_ends_on_the_cpu_at_its_planned_cost(
    prefect_server, make_workplace, train, one_gpu, device
):
    need(device)
    place = make_workplace()
    train(place)
    place.rewrite("hidden: [8]}", "hidden: [8], device: auto}")
    (place.root / "sitecustomize.py").write_text(VANISHING.replace("KIND", device))
    paths = f"{place.root}:{ROOT}"
    done = prefect_server.python(
        "-c", LAUNCH, place.spec, PYTHONPATH=paths, CUDA_VISIBLE_DEVICES="0"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = place.releases.iterdir()
    verify(folder)
    (attempt,) = json.loads((folder / "certificate.json").read_text())["attempts"]
    assert attempt["resumed"] == {"fit_generator": 1, "fit_weights": 1}
    assert Ledger.open(place.ledger).spent("town").epsilon == 2
    for stage in ("fit_generator", "fit_weights"):
        assert f"    {stage:<16}goes on from its checkpoint, without a GPU" in done.stdout

    run = prefect_server.run_of(place.spec)
    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}

    def fits():
        states = [
            (task["name"].rsplit("-", 1)[0], task["state_type"], task["tags"])
            for task in sorted(
                prefect_server.api("task_runs/filter", mine), key=lambda task: task["start_time"]
            )
            if task["name"].startswith("fit_")
        ]
        return states if len(states) == 4 and states[-1][1] == "COMPLETED" else []

    assert until(fits, every=0.5, what="four fits") == [
        (stage, state, tags)
        for stage in ("fit_generator", "fit_weights")
        for state, tags in (("FAILED", ["gpu"]), ("COMPLETED", []))
    ]
    lines = [line["message"] for line in prefect_server.log_lines(run, 13)]
    for stage in ("fit_generator", "fit_weights"):
        assert f"{stage}: goes on from its checkpoint, without a GPU, at no further cost" in lines
    assert b"CUDA error" not in prefect_server.everything_stored()
