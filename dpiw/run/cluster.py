"""Passes over the snapshot on a Dask cluster (`DPIW_CLUSTER`): the same integers, no extra charge.

Workers, scheduler and their logs are in the confidential zone: they get paths and public plans and
return exact sums. This process does what they fail to do, so no armed draw is lost to them.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeAlias

from dpiw.data.passes import Passes, Tally, Totals, add_up, arithmetic, in_process, tally_part
from dpiw.data.snapshots import Snapshot, state_of
from dpiw.errors import ClusterError, SpecError, install

SETTING = "DPIW_CLUSTER"

TLS = tuple(f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in
            ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY"))  # fmt: skip
"""Dask's own variables: PEM files."""

CONNECT_SECONDS, PATIENCE_SECONDS = 60, 300
"""How long a cluster may take to answer, and then to return any part."""

GROUPS_A_PART = 16
"""Row groups that a worker counts at a time: a million rows."""

MOST_WORKERS = 256

Cluster: TypeAlias = Callable[[Path], AbstractContextManager[Passes]]
"""Makes passes over the snapshot at a path; entered before anything is armed."""


def no_cluster(snapshot: Path) -> AbstractContextManager[Passes]:
    """Make passes in this process."""
    return contextlib.nullcontext(in_process)


def cluster_of(environment: Mapping[str, str]) -> Cluster:
    """Return the deployment's choice: no cluster, a number of local workers, or a scheduler.

    SpecError otherwise, and without TLS: anybody could then run programs in the confidential zone.
    """
    where = environment.get(SETTING, "")
    if not where:
        return no_cluster
    if re.fullmatch("[0-9]{1,3}", where) and 1 <= int(where) <= MOST_WORKERS:
        return partial(_opened, int(where))
    if re.fullmatch(r"tls://[\w.:\[\]-]+:[0-9]{1,5}", where):
        return partial(_opened, where)
    raise SpecError(field=SETTING, allowed=f"1 to {MOST_WORKERS} workers, or tls://HOST:PORT")


@contextlib.contextmanager
def _opened(where: int | str, snapshot: Path) -> Iterator[Passes]:
    try:
        import distributed
    except ImportError:
        raise ClusterError(install("dask"), field=SETTING) from None
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(where, str):
                address, security = where, distributed.Security(require_encryption=True)
            else:
                local = stack.enter_context(_closing(local_cluster(where, snapshot.parent)))
                address, security = local.scheduler_address, local.security
            client = distributed.Client(address, security=security, timeout=CONNECT_SECONDS)
            stack.enter_context(_closing(client))
            problems = _problems(client, snapshot)
        except Exception:
            traceback.print_exc(file=sys.stderr)  # to the stage's log, in the workspace
            raise ClusterError("no answer from a scheduler with workers", field=SETTING) from None
        if problems:
            raise ClusterError(problems[0], field=SETTING)
        yield _OnCluster(client)


def _problems(client: Any, snapshot: Path) -> list[str]:
    import distributed

    client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    here = arithmetic(), state_of(snapshot)
    looking = [
        client.submit(_look, str(snapshot), here, workers=[worker], pure=False)
        for worker in client.nthreads()
    ]
    distributed.wait(looking, timeout=PATIENCE_SECONDS)  # they may be busy with another stage
    return sorted({future.result(timeout=PATIENCE_SECONDS) for future in looking} - {""})


def local_cluster(workers: int, scratch: Path) -> Any:
    """Return a `LocalCluster` of worker processes that end with this process.

    With TLS keys, as any user of the machine reaches its ports; no pages or spilling, one thread.
    """
    import dask
    import distributed

    quiet: dict[str, Any] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.nanny.pre-spawn-environ": {},  # as many threads as this process: same bits
    }
    dask.config.set(quiet)  # permanent: replacement workers read it too
    # Started by Dask's own thread, the tracker would take the stage's shield (`shielded`) from it.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        memory_limit=0,
        security=distributed.Security.temporary(),
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        local_directory=str(scratch),
    )


@contextlib.contextmanager
def _closing(resource: Any) -> Iterator[Any]:
    try:
        yield resource
    finally:
        with contextlib.suppress(Exception):
            resource.close(timeout=10)


def _look(snapshot: str, here: tuple[str, str]) -> str:
    """Return what a worker lacks, or "". Never raises: Dask would log the error's text."""
    try:
        rounds, sees = here
        if state_of(Path(snapshot)) != sees:
            return "a worker does not see the workspace's disk, or another file in the same place"
        same = arithmetic() == rounds
        return "" if same else "a worker has another dpiw, NumPy, processor or number of threads"
    except Exception:
        return "a worker failed"


class _OnCluster:
    """Passes of one stage; in this process once the cluster is lost."""

    def __init__(self, client: Any) -> None:
        self._client, self._lost = client, False

    def __call__(self, tally: Tally, snapshot: Snapshot) -> Totals:
        parts = snapshot.parts(GROUPS_A_PART)
        return add_up(tally, parts, self._arriving(tally, parts))

    def _arriving(
        self, tally: Tally, parts: tuple[Snapshot, ...]
    ) -> Iterator[tuple[int, Totals | None]]:
        """Parts as they are counted; ends early if the cluster is lost, and never raises."""
        try:
            if self._lost:
                return
            came = False
            for number, totals in self._counted(tally, parts):
                came = came or totals is not None
                yield number, totals
            if not came:
                sys.stderr.write(f"{SETTING}: no worker gave a part; counted in this process\n")
        except Exception:
            self._lost = True
            traceback.print_exc(file=sys.stderr)  # to the stage's log; no worker raises an error
            sys.stderr.write(f"{SETTING}: lost; what is missing is counted in this process\n")

    def _counted(
        self, tally: Tally, parts: tuple[Snapshot, ...]
    ) -> Iterator[tuple[int, Totals | None]]:
        import distributed

        queue, waiting = iter(enumerate(parts)), dict[Any, int]()
        most = 2 * max(1, sum(self._client.nthreads().values()))
        here = arithmetic(), state_of(parts[0].path)
        while True:
            for number, part in islice(queue, most - len(waiting)):
                future = self._client.submit(tally_part, tally, part, here, pure=False)
                waiting[future] = number
            if not waiting:
                return
            done, _ = distributed.wait(
                list(waiting), timeout=PATIENCE_SECONDS, return_when="FIRST_COMPLETED"
            )
            for future in done:
                # After an error, such as too many killed workers, the part is counted here.
                number = waiting.pop(future)
                if future.status == "error":
                    yield number, None
                else:
                    yield number, future.result(timeout=PATIENCE_SECONDS)
