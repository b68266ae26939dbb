"""Passes on a cluster: the same integers and draws, whatever dies, and no cell in what it logs."""

import contextlib
import gc
import http.client
import os
import platform
import resource
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import dask
import distributed
import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from dpiw.data import snapshots
from dpiw.data.passes import Passes, Totals, add_up, arithmetic, in_process, tally_part
from dpiw.data.scaled import ScaledTable
from dpiw.data.snapshots import Snapshot, open_snapshot, state_of, write_snapshot
from dpiw.data.tables import PrivateTable
from dpiw.errors import ClusterError, LedgerTamperedError, PrivacyError, SpecError
from dpiw.ledger import StageState
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.weights.measured.method import Measured
from dpiw.privacy.randomness import SeededNoise
from dpiw.run import cluster, steps
from dpiw.run.cluster import TLS, cluster_of, local_cluster, no_cluster
from dpiw.run.launch import HELD, launch_stage, shielded
from dpiw.run.run import ReleaseRun
from tests.support.clusters import (
    DiesElsewhere,
    KillsOnce,
    QuotesElsewhere,
    WaitsElsewhere,
    adds_floats,
    count_rows,
    site,
)
from tests.support.noise import Cut
from tests.support.patience import until
from tests.support.whole_runs import ingested
from tests.support.worlds import UNIT, declared

# Of a peer that was killed Dask leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

ROWS, GROUP = 600, 128
SCHEMA = declared(
    {"name": "age", "kind": "integer", "lower": 0, "upper": 100},
    {"name": "income", "kind": "continuous", "lower": 0, "upper": 1000, "nullable": True},
    {"name": "region", "kind": "categorical", "levels": ["north", "south"]},
    {"name": "ill", "kind": "boolean", "role": "target"},
)


@pytest.fixture(scope="module", autouse=True)
def _collected():
    """What is left is collected here, and not in a test of another module."""
    yield
    dask.config.refresh()  # `local_cluster` sets it for the length of a process
    gc.collect()


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """Five row groups, and in them the cells that no log may hold."""
    rng = np.random.default_rng(17)
    income = np.where(rng.random(ROWS) < 0.1, np.nan, rng.random(ROWS))
    rows = {
        "age": rng.integers(0, 101, ROWS) / 100,
        "income": income,
        "region": rng.integers(0, 2, ROWS).astype(np.int32),
        "ill": rng.integers(0, 2, ROWS).astype(np.int32),
    }
    path = tmp_path_factory.mktemp("private") / "snapshot"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "BATCH_ROWS", GROUP)
        write_snapshot(ScaledTable(rows, ROWS), path)
    return open_snapshot(path)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(cluster, "GROUPS_A_PART", 1)


@pytest.fixture(scope="module")
def local(snapshot):
    with local_cluster(1, snapshot.path.parent) as workers, distributed.Client(workers) as client:
        yield client


@pytest.fixture
def elsewhere(local):
    return cluster._OnCluster(local)


def settled(local: Any) -> Any:
    """The client, once each worker that was killed has its successor."""
    until(lambda: len(local.nthreads()) == len(local.cluster.workers), what="the workers")
    return local


def equal(one: Totals, other: Totals) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def draws(snapshot: Snapshot, passes: Passes) -> list[np.ndarray[Any, Any]]:
    """Every noisy number of two measurements, from seeded noise."""
    table = PrivateTable(schema=SCHEMA, scaled=snapshot, passes=passes)
    given: dict[str, Any] = {"schema": SCHEMA, "unit": UNIT, "nominal_rows": ROWS}
    weights = Measured(omega_seed=3, frequencies=40).calibrate(rho=0.5, **given)
    drawn = [weights.measure(table, None, noise=SeededNoise(1))]  # type: ignore[arg-type]
    generator = PrivBayes(bins=4).calibrate(rho=0.5, **given)
    drawn.append(generator.measure(table, noise=SeededNoise(1)))
    return [array for measurement in drawn for array in measurement.arrays.values()]


def test_one_worker_and_three_draw_what_one_process_draws(snapshot, local, elsewhere, monkeypatch):
    expected, sums = draws(snapshot, in_process), in_process(count_rows, snapshot)
    # What a cluster was asked comes from it: nothing is counted here.
    monkeypatch.setattr("dpiw.data.passes.in_process", lambda *_: pytest.fail("counted here"))
    for workers in (1, 3):
        local.cluster.scale(workers)
        local.wait_for_workers(workers, timeout=600)
        assert equal(elsewhere(count_rows, snapshot), sums)
        again = draws(snapshot, elsewhere)
        assert len(again) == len(expected) > 3
        assert all(np.array_equal(a, b) for a, b in zip(again, expected, strict=True))


def test_a_worker_that_is_killed_in_mid_pass_changes_nothing(snapshot, local, elsewhere, tmp_path):
    before = set(settled(local).run(os.getpid).values())
    assert equal(
        elsewhere(KillsOnce(tmp_path / "killed"), snapshot), in_process(count_rows, snapshot)
    )
    dead = int((tmp_path / "killed").read_text())
    assert dead in before
    assert not elsewhere._lost  # type: ignore[attr-defined]
    settled(local)


def test_what_workers_fail_at_is_counted_here(snapshot, local, elsewhere, monkeypatch):
    monkeypatch.setattr(local.cluster.scheduler, "allowed_failures", 0)
    monkeypatch.setattr(cluster, "GROUPS_A_PART", 3)
    for tally in (QuotesElsewhere(os.getpid()), DiesElsewhere(os.getpid())):
        assert equal(elsewhere(tally, snapshot), in_process(count_rows, snapshot))
        assert not elsewhere._lost  # type: ignore[attr-defined]
    settled(local)


def test_workers_that_stand_still_are_not_waited_for_without_end(
    snapshot, elsewhere, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster, "PATIENCE_SECONDS", 1)
    tally = WaitsElsewhere(os.getpid(), tmp_path / "go on")
    assert equal(elsewhere(tally, snapshot), in_process(count_rows, snapshot))
    assert elsewhere._lost  # type: ignore[attr-defined]
    tally.may_go_on.touch()


def test_a_worker_that_rounds_otherwise_counts_nothing_and_is_refused_at_once(
    snapshot, local, monkeypatch
):
    here = arithmetic(), state_of(snapshot.path)
    assert tally_part(count_rows, snapshot, here) is not None
    assert tally_part(count_rows, snapshot, ("another processor", here[1])) is None
    assert cluster._problems(local, snapshot.path) == []
    monkeypatch.setattr(cluster, "arithmetic", lambda: "another processor")
    (lacks,) = cluster._problems(local, snapshot.path)
    assert lacks.startswith("a worker has another dpiw, NumPy, processor")


def test_a_worker_that_sees_another_snapshot_counts_nothing_and_is_refused_at_once(
    snapshot, local, elsewhere, monkeypatch, capsys
):
    """Another file at the path, as on another disk: the stage's own look is of the right one."""
    mine, expected = state_of(snapshot.path), in_process(count_rows, snapshot)
    monkeypatch.setattr(cluster, "state_of", lambda _: "of another file")
    assert tally_part(count_rows, snapshot, (arithmetic(), "of another file")) is None
    (lacks,) = cluster._problems(local, snapshot.path)
    assert lacks.startswith("a worker does not see the workspace's disk, or another file")
    assert equal(elsewhere(count_rows, snapshot), expected)
    assert "no worker gave a part" in capsys.readouterr().err
    assert not elsewhere._lost  # type: ignore[attr-defined]
    # No disk at all says the same; a file that is nowhere is nobody's fault but the stage's.
    monkeypatch.setattr(cluster, "state_of", lambda _: mine)
    (lacks,) = cluster._problems(local, snapshot.path / "elsewhere")
    assert lacks.startswith("a worker does not see the workspace's disk")


def test_two_snapshots_differ_whatever_their_size_and_time(snapshot, tmp_path):
    copy = tmp_path / "snapshot"
    shutil.copy2(snapshot.path, copy)
    state, status = state_of(snapshot.path), copy.stat()
    assert state_of(copy) == state
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert state_of(copy) != state
    content = bytearray(copy.read_bytes())
    content[-9] ^= 1  # the last byte of the footer
    copy.write_bytes(content)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert state_of(copy) != state
    copy.write_bytes(b"PAR1\xff\xff\xff\xffPAR1")
    assert state_of(copy) == state_of(tmp_path / "nothing") == ""


@pytest.mark.nightly
def test_threads_and_kinds_of_processor_are_told_apart():
    (blas, *_) = [one for one in threadpool_info() if one["user_api"] == "blas"]
    if blas["internal_api"] != "openblas" or platform.machine() != "x86_64":
        pytest.skip("processors are played by OpenBLAS on x86-64")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core has one thread")
    other = "Haswell" if blas["architecture"] == "Nehalem" else "Nehalem"
    played = ({}, {}, {"OPENBLAS_NUM_THREADS": "2"}, {"OPENBLAS_CORETYPE": other})
    told = "from dpiw.data.passes import arithmetic; print(arithmetic())"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", told], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd(), "OPENBLAS_NUM_THREADS": "1"} | one,
        )
        for one in played
    ]  # fmt: skip
    one, again, threads, processor = [process.communicate()[0] for process in started]
    assert one == again != ""
    assert len({one, threads, processor}) == 3


@pytest.mark.parametrize(
    "order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [0, 0, 1, 1, 2, 3, 4, 0], [3], []]
)
def test_each_part_counts_once_however_often_it_arrives(snapshot, order):
    parts = snapshot.parts(1)
    assert len(parts) == 5
    totals = [in_process(count_rows, part) for part in parts]
    arrived = [(number, totals[number]) for number in order]
    whole = in_process(count_rows, snapshot)
    assert equal(add_up(count_rows, parts, [(0, None), *arrived, (1, None)]), whole)
    assert whole[0][0] == ROWS
    # The control: added as they come, they are right only where each came once.
    naive = sum(int(rows[0]) for _, (rows, _) in arrived)
    assert (naive == ROWS) == (sorted(order) == [0, 1, 2, 3, 4])


def test_sums_of_floats_are_refused_wherever_they_are_made(snapshot, elsewhere):
    for passes in (in_process, elsewhere):
        table = PrivateTable(schema=SCHEMA, scaled=snapshot, passes=passes)
        with pytest.raises(PrivacyError, match="whole numbers"):
            table.added(adds_floats)
    # The control: why. The same rows in another order give other bits.
    cells = np.nan_to_num(snapshot.read().columns["income"]).tolist()
    assert sum(cells) != sum(reversed(cells))


def test_a_setting_that_says_something_else_is_refused():
    wrong = ["0", "-1", "257", "two", "2 ", "tcp://host:8786", "tls://host", "tls://u:p@host:1"]
    for said in wrong:
        with pytest.raises(SpecError, match=r"^DPIW_CLUSTER: "):
            cluster_of({"DPIW_CLUSTER": said})


def test_without_a_setting_there_is_no_cluster_and_without_the_extra_no_draw(snapshot, monkeypatch):
    assert cluster_of({}) is no_cluster
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"dpiw\[dask\]"):  # noqa: SIM117
        with cluster_of({"DPIW_CLUSTER": "2"})(snapshot.path):
            pytest.fail("opened")


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """A site's certificate and key in files: as Dask's variables name them, and as options."""
    tls = distributed.Security.temporary()
    files = {"ca": tls.tls_ca_file, "cert": tls.tls_client_cert, "key": tls.tls_client_key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for variable, name in zip(TLS, files, strict=True):
        monkeypatch.setenv(variable, str(tmp_path / name))
    named = zip(("--tls-ca-file", "--tls-cert", "--tls-key"), files, strict=True)
    options = [word for option, name in named for word in (option, str(tmp_path / name))]
    dask.config.refresh()  # as in a stage, which imports Dask with the variables set
    yield options
    monkeypatch.undo()
    dask.config.refresh()


@pytest.fixture
def two_threads():
    """As a stage has, whatever this process was given."""
    with threadpool_limits(limits=2):
        arithmetic.cache_clear()
        yield
    arithmetic.cache_clear()


def cells(snapshot: Snapshot) -> list[str]:
    return [repr(cell) for cell in snapshot.read().columns["income"].tolist() if cell == cell]


def test_a_lost_scheduler_changes_nothing_and_no_log_holds_a_cell(
    snapshot, keys, two_threads, tmp_path, monkeypatch, capsys
):
    expected = in_process(count_rows, snapshot)
    with site(tmp_path, keys) as place:
        assert [answer(f"{place.page}/{page}") for page in PAGES] == [404] * len(PAGES)
        opened = cluster_of({"DPIW_CLUSTER": place.address})
        with opened(snapshot.path) as passes:
            limits = passes._client.run(resource.getrlimit, resource.RLIMIT_CORE)  # type: ignore[attr-defined]
            assert [*limits.values()] == [(0, 0)]
            assert equal(passes(QuotesElsewhere(os.getpid()), snapshot), expected)
            assert equal(passes(count_rows, snapshot), expected)
            logs = "".join(log.read_text() for log in place.logs)
            assert "Registered to" in logs
            assert not [cell for cell in cells(snapshot) if cell in logs]
            # The control: a tally that is not wrapped tells its cells to the worker's log.
            control = passes._client.submit(QuotesElsewhere(0), [*snapshot.batches()], pure=False)  # type: ignore[attr-defined]
            assert control.exception() is not None
            until(lambda: "ValueError" in place.logs[1].read_text(), what="the log")
            text = place.logs[1].read_text()
            assert [cell for cell in cells(snapshot) if cell in text]
            # The scheduler is killed by the first part; the rest, and what follows, is done here.
            killer = KillsOnce(tmp_path / "killed", place.scheduler.pid)
            assert equal(passes(killer, snapshot), expected)
            assert equal(passes(count_rows, snapshot), expected)
        assert place.scheduler.wait() == -9
        assert "DPIW_CLUSTER: lost" in capsys.readouterr().err
        monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
        with pytest.raises(ClusterError, match="no answer from a scheduler"):  # noqa: SIM117
            with opened(snapshot.path):
                pytest.fail("opened")


def test_a_scheduler_that_does_not_answer_costs_and_draws_nothing(make_workplace, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    run = ReleaseRun.prepare(make_workplace().spec, period=None)
    steps.reserve(run)
    steps.ingest(run)
    nobody, noise = cluster_of({"DPIW_CLUSTER": "tls://127.0.0.1:9"}), Cut()
    with pytest.raises(ClusterError):
        steps.fit_generator(run, noise=noise, cluster=nobody)
    assert not run.measurement("fit_generator").exists()

    def restores_an_old_copy(_):
        run.measurement("fit_generator").touch()
        return contextlib.nullcontext(in_process)

    # A cluster may take minutes: what is checked before a draw is checked after it answered.
    with pytest.raises(LedgerTamperedError):
        steps.fit_generator(run, noise=noise, cluster=restores_an_old_copy)
    run.measurement("fit_generator").unlink()
    ledger = run.open_ledger()
    (attempt,) = ledger.run(run.key).attempts
    assert {stage.state for stage in attempt.stages.values()} == {StageState.RESERVED}
    assert not noise.drawn
    steps.fit_generator(run, noise=noise)
    (attempt,) = ledger.run(run.key).attempts
    assert attempt.stages["fit_generator"].state is StageState.COMMITTED
    assert noise.drawn


@pytest.mark.nightly
def test_a_stage_asks_its_deployment_s_cluster_and_leaves_no_trace_of_it(
    make_workplace, monkeypatch
):
    place = make_workplace(weights="measured, settings: {frequencies: 20, omega_seed: 1}")
    run = ingested(place)
    monkeypatch.setenv("DPIW_CLUSTER", "1")
    assert ReleaseRun.prepare(place.spec, period=None).key == run.key
    launch_stage("fit_generator", run.directory)
    stage = run.open_ledger().run(run.key).stages["fit_generator"]
    assert (stage.state, stage.attempt) == (StageState.COMMITTED, 1)
    log = (run.directory / "log" / "fit_generator.log").read_text()
    assert "lost" not in log
    assert "Traceback" not in log


PAGES = ("health", "metrics", "info/main/workers.html", "json/counts.json", "status")
OPENS = """
import os, sys, time
from pathlib import Path
from dpiw.run.cluster import cluster_of
if __name__ == "__main__":
    with cluster_of({"DPIW_CLUSTER": "1"})(Path(sys.argv[1])) as passes:
        while True:
            print(*passes._client.run(os.getpid).values(), flush=True)
            time.sleep(0.1)
"""


def test_a_killed_stage_leaves_no_worker_and_strangers_see_nothing(snapshot, tmp_path):
    """Nor of a worker that follows a killed one; and but for that, nothing stops the stage."""
    (tmp_path / "opens.py").write_text(OPENS)
    with shielded():
        stage = subprocess.Popen(
            [sys.executable, str(tmp_path / "opens.py"), str(snapshot.path)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()},
        )  # fmt: skip
    try:
        assert stage.stdout is not None
        pids = filter(str.strip, stage.stdout)
        first = next(pids)
        psutil.Process(int(first)).kill()
        worker = psutil.Process(int(next(line for line in pids if line != first)))
        for number in HELD:
            stage.send_signal(number)
        ports = {
            listening.laddr.port
            for process in (psutil.Process(stage.pid), worker)
            for listening in process.net_connections("tcp")
            if listening.status == psutil.CONN_LISTEN
        }
        assert len(ports) >= 3
        for port in sorted(ports):
            for page in PAGES:
                assert answer(f"http://127.0.0.1:{port}/{page}") in (404, None)
        assert stage.poll() is None
    finally:
        stage.kill()
        stage.wait()
        stage.stdout.close()  # type: ignore[union-attr]
    until(lambda: not worker.is_running(), what="the worker's end")


def answer(page: str) -> int | None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        try:
            with urllib.request.urlopen(page, timeout=60) as response:
                return int(response.status)
        except urllib.error.HTTPError as refused:
            return refused.code
    return None
