"""Places to run in, servers that run there, and what must hold whenever a process died."""

import hashlib
import json
import os
import queue
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import ManifestError
from dpiw.ledger import EntryKind, Ledger, StageState
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, PrivacyCost, decimal_text
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import STAGING_PREFIX, verify
from dpiw.run.run import ReleaseRun
from tests.conftest import SCHEMA, SPEC, town
from tests.support.ledger import terms

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("fit_generator", "fit_weights")


class LineServer:
    """A warm process of ours: a task as a line of JSON in, an answer as a line out."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GX_ANALYTICS_ENABLED": "false"},
        )  # fmt: skip

    def wait_until_warm(self) -> None:
        assert self._process.stdout.readline() == "ready\n"

    def ask(self, **task: Any) -> dict[str, Any]:
        """Hand over a task and wait for the answer."""
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()  # the end of its input ends it


class ForkServer(LineServer):
    """Runs one history's process after the other, each forked from a warm one."""

    def __init__(self) -> None:
        super().__init__("tests.crash.forkserver")

    def run(self, place: "Place", **task: Any) -> int:
        """Run a child to its end: its exit code, or -9."""
        return int(self.ask(root=str(place.root), **task)["end"])


class Servers:
    """As many warm servers as there are cores to use, each started when it is needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._servers: list[ForkServer] = []
        self._free: queue.LifoQueue[ForkServer | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)

    @contextmanager
    def one(self) -> Iterator[ForkServer]:
        server = self._free.get()
        try:
            if server is None:
                server = ForkServer()
                self._servers.append(server)
                server.wait_until_warm()
            yield server
        finally:
            self._free.put(server)

    def run(self, place: "Place", **task: Any) -> int:
        with self.one() as server:
            return server.run(place, **task)

    def each(self, items: Sequence[Any], do: Callable[[ForkServer, Any], Any]) -> list[Any]:
        """`do` for every item, on all servers at once, in order of the items."""

        def on_a_server(item):
            with self.one() as server:
                return do(server, item)

        with ThreadPoolExecutor(self._count) as threads:
            return list(threads.map(on_a_server, items))

    def close(self) -> None:
        for server in self._servers:
            server.close()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder with everything one run needs, its ledger anywhere."""

    root: Path
    url: str

    @property
    def releases(self) -> Path:
        return self.root / "state" / "releases"

    @cached_property
    def run(self) -> ReleaseRun:
        return ReleaseRun.prepare(self.root / "release.yaml", period=None)

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.run.plan.stages)

    @property
    def whole_cost(self) -> PrivacyCost:
        return self.run.plan.spec.cost

    def stage_cost(self, stage: str) -> PrivacyCost:
        """Of another draw of it; of all that there is, what the run costs."""
        if self.stages == (stage,):
            return self.whole_cost
        return self.run.plan.stage_cost(frozenset({stage}))

    def noise_log(self) -> list[dict[str, Any]]:
        path = self.root / "noise.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def openings(self) -> int:
        """How often children of ours opened the confidential file."""
        path = self.root / "openings.log"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def ledger(self) -> Ledger:
        return Ledger.open(self.url)

    def error(self) -> str:
        return (self.root / "error.txt").read_text()


def make_place(root: Path, *, url: str, max_attempts: int = 6, epsilon: str = "500") -> Place:
    """A workplace of the suite's table and spec, with a registered population."""
    for private in (root / "state", root / "state" / "keys"):  # whatever the umask
        private.mkdir(mode=0o700)
    (root / "schema.yaml").write_text(SCHEMA)
    town(400, seed=7).to_csv(root / "data.csv", index=False)
    create_key_pair(root / "state" / "keys", "test")
    spec = SPEC.format(
        population="town", epsilon=2, generator="histogram", weights="beta_debiased",
        max_attempts=max_attempts,
    )  # fmt: skip
    (root / "ledger.url").write_text(url)
    (root / "release.yaml").write_text(spec + f'ledger: "{url}"\n')
    budget = {"epsilon": Decimal(epsilon), "delta": Decimal("1e-2"), "max_unpaid_reads": 10**6}
    Ledger.create(url).register(terms(**budget))
    return Place(root=root, url=url)


def units(cost: PrivacyCost) -> tuple[int, int]:
    return cost.epsilon_units, cost.delta_units


# --- what must hold, whenever and wherever a process died -----------------------------------------


def check(place: Place) -> None:
    """What holds whenever a process dies; an AssertionError names the one that is broken."""
    ledger = place.ledger()
    report = ledger.verify()
    assert report.ok, report.fault
    _check_sums(ledger)
    _check_reads(place, ledger)
    _check_draws(place, ledger)
    _check_outputs(place, ledger)
    _check_releases(place, ledger)


def _check_sums(ledger: Ledger) -> None:
    held = Counter[str]()
    for entry in ledger.entries():
        sign = {EntryKind.RESERVE: 1, EntryKind.CONFLICT: 1, EntryKind.VOID: -1}.get(entry.kind, 0)
        for unit in ("epsilon_units", "delta_units"):
            held[unit] += sign * entry.payload.get(unit, 0)
        assert entry.kind is not EntryKind.CONFLICT, "two outputs under one grant"
    spent, budget = ledger.spent("town"), ledger.population("town").budget
    assert units(spent) == (held["epsilon_units"], held["delta_units"])
    assert spent.epsilon_units <= budget.epsilon_units
    assert spent.delta_units <= budget.delta_units


def _check_reads(place: Place, ledger: Ledger) -> None:
    """The table is opened only under a read on record; each is unpaid until a draw is committed."""
    attempts: dict[EntryKind, list[tuple[str | None, int | None]]] = {}
    for entry in ledger.entries():
        attempts.setdefault(entry.kind, []).append((entry.run_key, entry.attempt))
    reads = attempts.get(EntryKind.READ, [])
    opened = place.openings()
    assert opened <= len(reads), f"opened {opened} times, {len(reads)} reads on record"
    paid = set(reads) & set(attempts.get(EntryKind.COMMIT, []))
    died = [*attempts.get(EntryKind.LOSE, []), *attempts.get(EntryKind.RESUME, [])]
    assert ledger.account("town").unpaid_reads == len(reads) + len(died) - len(paid)


def _check_draws(place: Place, ledger: Ledger) -> None:
    """Noise only under an arm, in one process per arm, and one measurement at most."""
    armed = {(e.stage, e.attempt) for e in ledger.entries() if e.kind is EntryKind.ARM}
    drawers: dict[tuple[str, int], set[int]] = {}
    outputs = Counter[tuple[str, int]]()
    for line in place.noise_log():
        drawn = (line["stage"], line["attempt"])
        assert drawn in armed, f"noise of {drawn} without an arm"
        drawers.setdefault(drawn, set()).add(line["pid"])
        outputs[drawn] += "measured" in line
    assert all(len(pids) == 1 for pids in drawers.values()), drawers
    assert all(count <= 1 for count in outputs.values()), outputs


def _check_outputs(place: Place, ledger: Ledger) -> None:
    """Every measurement on disk was paid for, and is the committed one where one is committed."""
    entries = ledger.entries()
    measured = {
        (m["stage"], m["attempt"]): m["measured"] for m in place.noise_log() if "measured" in m
    }
    committed = [e for e in entries if e.kind is EntryKind.COMMIT]
    assert len({(e.attempt, e.stage) for e in committed}) == len(committed)
    for stage in place.stages:
        arms = sum(e.kind is EntryKind.ARM and e.stage == stage for e in entries)
        written = set(place.run.directory.glob(f"*{stage}.npz*"))  # the torn ones, too
        assert len(written) <= arms, f"{stage}: an output that nobody paid for"
        path = place.run.measurement(stage)
        if path.exists():
            record = ledger.run(place.run.key).stages[stage]
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert record.state in (StageState.ARMED, StageState.COMMITTED)
            if measured:  # not so where the run was not a child of ours
                assert digest == measured[stage, record.attempt]  # not that of a lost attempt
            assert record.output_digest in (None, digest)


def _check_releases(place: Place, ledger: Ledger) -> None:
    if not place.releases.exists():
        return
    for folder in place.releases.iterdir():
        if folder.name.startswith(STAGING_PREFIX):
            if folder.is_dir():
                with pytest.raises(ManifestError):
                    verify(folder)
        elif not folder.name.startswith("."):
            _check_release(place, folder, ledger)


def _check_release(place: Place, folder: Path, ledger: Ledger) -> None:
    whole = verify(folder, public_key=place.root / "state" / "keys" / "test.pub")
    run = ledger.run(place.run.key)
    manifest = (folder / "manifest.json").read_bytes()
    assert run.manifest_digest == hashlib.sha256(manifest).hexdigest()
    assert all(stage.state is StageState.COMMITTED for stage in run.stages.values())
    certificate = whole.certificate
    assert ledger.contains(certificate.ledger_head)
    assert certificate.epsilon == decimal_text(run.held.cost.epsilon_units, EPSILON_UNIT)
    assert certificate.delta == decimal_text(run.held.cost.delta_units, DELTA_UNIT)
    for stage in place.stages:
        path = place.run.measurement(stage)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == run.stages[stage].output_digest


def check_published(place: Place) -> None:
    """One release, whole, made visible once; nothing of its making left behind in public."""
    check(place)
    (folder,) = place.releases.iterdir()
    built = place.run.directory / "built"
    shown, made = ({p.name: p.read_bytes() for p in f.iterdir()} for f in (folder, built))
    assert shown == made
    kinds = Counter(entry.kind for entry in place.ledger().entries())
    assert kinds[EntryKind.PUBLISH] == 1
    assert kinds[EntryKind.ARM] == kinds[EntryKind.COMMIT] + kinds[EntryKind.LOSE]


def check_charge(place: Place) -> int:
    """Charged: the run once, and each lost draw again. The log knows of every draw there was."""
    entries = place.ledger().entries()
    lost = Counter(e.stage for e in entries if e.kind is EntryKind.LOSE)
    whole = units(place.whole_cost)
    again = [units(place.stage_cost(stage)) for stage in lost.elements()]
    expected = tuple(sum(parts) for parts in zip(whole, *again, strict=True))
    assert units(place.ledger().spent("town")) == expected
    for stage in place.stages:
        drawn = {line["attempt"] for line in place.noise_log() if line["stage"] == stage}
        assert len(drawn) <= 1 + lost[stage]
    return lost.total()
