"""An institution's year on simulated tables: two keys, twelve months to fill, and what goes wrong.

    python examples/year/year.py serve    starts server, worker, site, back-fill; Ctrl-C ends them
    python examples/year/year.py story    plays the incidents there, from another terminal

All files are below .dpiw/year, or the folder that `--folder` names. Prefect's database is SQLite,
or the PostgreSQL that PREFECT_SERVER_DATABASE_CONNECTION_URL names.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dpiw.cli.main import main as dpiw
from dpiw.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENT = "dpiw-series/catch-up"
KEYS = ("--key", "keys/curator.pub", "--key", "keys/second.pub")
MONTHS = 12
ROWS = 20_000
EPSILON = 0.25
"""Of each release, as in release.yaml."""
SPARE = 2
"""How many releases the budget carries beyond the calendar."""
PATIENCE_SECONDS = 1800


def until(happens: Callable[[], Any], what: str) -> Any:
    """Return what `happens` returns once it is true; TimeoutError after `PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (outcome := happens()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)
    return outcome


def answers(url: str) -> bool:
    """Return whether a server answers at this address."""
    try:
        urllib.request.urlopen(url, timeout=30).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Place:
    """The folder of a year, and the labels of its months, at least four."""

    folder: Path
    labels: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, months: int = MONTHS) -> Place:
        """Return a place; one that was prepared keeps its months."""
        spec = folder / "release.yaml"
        if spec.exists():
            months = int(YAML(typ="safe").load(spec)["series"]["last"][-2:])
        return cls(folder.resolve(), tuple(f"2025-{month:02d}" for month in range(1, months + 1)))

    @property
    def killed(self) -> str:
        """The month in which the server is killed."""
        return self.labels[len(self.labels) // 2 - 1]

    @property
    def gone(self) -> str:
        """The month that has no table."""
        return self.labels[len(self.labels) * 3 // 4 - 1]

    @property
    def wrong(self) -> str:
        """The month whose release is withdrawn."""
        return self.labels[len(self.labels) // 3 - 1]

    def prepare(self) -> None:
        """Make tables, spec, keys and population, as an institution does once."""
        try:
            self._prepare()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _prepare(self) -> None:
        sys.path.insert(0, str(ROOT / "examples/population"))
        import simulate

        for name in ("home", "tables", "site/releases"):
            (self.folder / name).mkdir(mode=0o700, parents=True)
        for number, label in enumerate(self.labels):
            if label != self.gone:
                people = simulate.population(rows=ROWS, seed=simulate.CONFIDENTIAL_SEED + number)
                people.to_csv(self.folder / f"tables/{label}.csv", index=False)
        spec = Path(__file__).with_name("release.yaml").read_text()
        schema = ROOT / "examples/population/schema.yaml"
        for old, new in (("../population/", ""), ("last: 2025-12", f"last: {self.labels[-1]}")):
            spec = spec.replace(old, new)
        (self.folder / "schema.yaml").write_bytes(schema.read_bytes())
        (self.folder / "release.yaml").write_text(spec)
        file = YAML(typ="safe").load(ROOT / "deployments/prefect.yaml")
        file["deployments"] = [one for one in file["deployments"] if one["name"] == "catch-up"]
        file["deployments"][0]["parameters"] = {"spec": str(self.folder / "release.yaml")}
        (self.folder / "prefect.yaml").write_text(json.dumps(file))
        budget = str(EPSILON * (len(self.labels) + SPARE))
        sign = ("--sign-with", "keys/curator.key")
        add = ("key", "add", "--ledger", "release.yaml", *sign)
        for words in (
            ("key", "new", "keys/curator.key"),
            ("key", "new", "keys/second.key"),
            ("ledger", "register", "--spec", "release.yaml", "--epsilon", budget, "--delta", "1e-4",
             "--create", *sign),
            (*add, "--public", "keys/curator.pub", "--role", "curator"),
            (*add, "--public", "keys/second.pub", "--role", "approver"),
        ):  # fmt: skip
            self.typed(*words, ends=0)

    def typed(self, *words: str, ends: int | None = None) -> tuple[int, str]:
        """Type a command of dpiw in the folder; print it and return its exit code and output."""
        print(f"\n$ {shlex.join(['dpiw', *words])}", flush=True)
        said = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            code = dpiw([*words])
        print(said.getvalue().rstrip(), flush=True)
        if ends not in (None, code):
            raise SystemExit(f"exit code {code}")
        return code, said.getvalue()

    def site(self) -> dict[str, Any]:
        """Write the public site again; return its facts."""
        words = ("site", "site", "--ledger", "release.yaml", *KEYS)
        self.typed(*words, "--title", "Town: synthetic data", ends=0)
        return dict(json.loads((self.folder / "site/index.json").read_text()))

    def facts(self) -> dict[str, Any]:
        """Return what `serve` wrote down: addresses, process ids, and the back-fill it started."""
        return dict(json.loads((self.folder / "year.json").read_text()))

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a process, which writes nothing outside of the folder."""
        home, tools = self.folder / "home", Path(sys.executable).parent
        return os.environ | {
            "HOME": str(home), "PREFECT_HOME": str(home / "prefect"), "DPIW_ROOT": str(self.folder),
            "DPIW_SECRETS": str(home / "none"), "DPIW_CHECKOUT": str(ROOT),
            "DPIW_HOST": "127.0.0.1", "PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1",
            "PREFECT_WORKER_QUERY_SECONDS": "2", "PREFECT_SERVER_UI_V2_ENABLED": "false",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        } | more  # fmt: skip


def be_quiet(place: Place) -> None:
    """Set Prefect's home, and its defaults of a confidential workplace, before its first import."""
    os.environ["PREFECT_HOME"] = str(place.folder / "home/prefect")
    importlib.import_module("flows")


def back_fill(api: str) -> str:
    """Start a back-fill in Prefect, as a schedule does; return the id of the flow run."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    print(f"\n$ prefect deployment run {DEPLOYMENT}", flush=True)
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(DEPLOYMENT)
        return str(client.create_flow_run_from_deployment(deployment.id).id)


class Processes:
    """Server, worker and site, started as in the containers of deployments/compose.yaml."""

    def __init__(self, place: Place) -> None:
        self.place, self.running = place, dict[str, subprocess.Popen[bytes]]()
        with contextlib.ExitStack() as held:
            local = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
            ports = [held.enter_context(each).getsockname()[1] for each in local]
        names = ("DPIW_PREFECT_PORT", "DPIW_SITE_PORT", "PREFECT_WORKER_WEBSERVER_PORT")
        self.ports = dict(zip(names, map(str, ports), strict=True))
        self.facts: dict[str, Any] = {
            "api": f"http://127.0.0.1:{ports[0]}/api", "pages": f"http://127.0.0.1:{ports[1]}/",
        }  # fmt: skip

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of deployments/entry.sh in a process group of its own, without Ctrl-C."""
        api = {} if words[0] == "server" else {"PREFECT_API_URL": str(self.facts["api"])}
        with (self.place.folder / f"home/{words[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [ROOT / "deployments/entry.sh", *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=ROOT, env=self.place.environment(**self.ports, **api),
                start_new_session=True,
            )  # fmt: skip

    def write_down(self, **more: str) -> None:
        """Write `year.json`, in one step."""
        self.facts |= more | {name: process.pid for name, process in self.running.items()}
        new = self.place.folder / "year.new"
        new.write_text(json.dumps(self.facts))
        new.replace(self.place.folder / "year.json")

    def start_server(self) -> None:
        """Start the server and wait for its answer."""
        server = self.running["server"] = self.command("server")
        self.write_down()
        health = f"{self.facts['api']}/health"
        until(lambda: server.poll() is not None or answers(health), "the start of the server")
        if server.poll() is not None:
            raise SystemExit(f"the server ended: see {self.place.folder / 'home/server.log'}")

    def start(self) -> None:
        """Start all, and the back-fill."""
        self.start_server()
        deploy = self.running["deploy"] = self.command(
            "deploy", str(self.place.folder / "prefect.yaml")
        )
        if deploy.wait():
            raise SystemExit(f"not deployed: see {self.place.folder / 'home/deploy.log'}")
        self.running["worker"] = self.command("worker")
        self.running["site"] = self.command("site", str(self.place.folder / "site"))
        self.write_down(run=back_fill(str(self.facts["api"])))

    def stop(self) -> None:
        """End all of them, the server last, with the runs that they leave behind."""
        for name in ("deploy", "site", "worker", "server"):
            if process := self.running.get(name):
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=30)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def serve(place: Place) -> int:
    """Start all, and the server again whenever it dies, until a signal."""
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in ends:
        signal.signal(number, signal.default_int_handler)
    processes = Processes(place)
    try:
        if not place.folder.exists():
            place.prepare()
        be_quiet(place)
        processes.start()
        place.site()
        print(f"\nPrefect  {processes.facts['api'].removesuffix('/api')}")
        print(f"site     {processes.facts['pages']}\nnow type in another terminal: make year-story")
        print("Ctrl-C here stops all", flush=True)
        while True:
            processes.running["server"].wait()
            print("the Prefect server died and is started again", flush=True)
            processes.start_server()
    except KeyboardInterrupt:
        return 0
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_IGN)
        processes.stop()


class Story:
    """The incidents of a year, each with what must be true afterwards."""

    def __init__(self, place: Place) -> None:
        self.place, self.claims = place, dict[str, bool]()
        self.ledger = Ledger.open(f"sqlite:///{place.folder / 'state/ledger.sqlite'}")

    def claim(self, text: str, holds: bool) -> None:
        """Print a claim and whether it holds."""
        print(f"  {'ok  ' if holds else 'FAIL'}  {text}", flush=True)
        self.claims[text] = holds

    def paid(self) -> int:
        """Return how many releases are paid for."""
        return int(self.ledger.spent("town").epsilon / EPSILON)

    def drawn(self) -> set[str]:
        """Return the months that drew from their tables."""
        return {run.period for run in self.ledger.runs("town") if run.drawn}

    def first_fill(self) -> str:
        """Wait for the back-fill that `serve` started; return how it ended."""
        return self.end_of(self.place.facts()["run"])

    def fill(self, *, dies_in: str | None = None) -> str:
        """Start a back-fill, kill the server once it draws for a month; return how it ended."""
        facts = self.place.facts()
        run = back_fill(facts["api"])
        if dies_in is not None:
            until(lambda: dies_in in self.drawn(), f"the draw of {dies_in}")
            print(f"\n$ kill -9 {facts['server']}        # the Prefect server", flush=True)
            os.kill(facts["server"], signal.SIGKILL)
            until(lambda: self.place.facts()["server"] != facts["server"], "another server")
        return self.end_of(run)

    def end_of(self, run: str) -> str:
        """Wait for the end of a flow run; return its state and message."""
        from httpx import HTTPError
        from prefect.client.orchestration import get_client
        from prefect.settings import PREFECT_API_URL, temporary_settings

        def ended() -> Any:
            with contextlib.suppress(HTTPError), get_client(sync_client=True) as client:
                state = client.read_flow_run(run).state
                return state if state is not None and state.is_final() else None
            return None

        with temporary_settings({PREFECT_API_URL: self.place.facts()["api"]}):
            state = until(ended, "the end of the flow run")
        print(f"{state.name}: {state.message}", flush=True)
        return f"{state.name}: {state.message}"

    def audit(self) -> None:
        """Type the auditor's command."""
        words = ("audit", "--ledger", "release.yaml", *KEYS, "--out", "audit")
        print(f"\n$ {shlex.join(['dpiw', *words])}", flush=True)
        subprocess.run(
            [sys.executable, "-m", "dpiw.cli.main", *words], cwd=self.place.folder, check=False,
            env=self.place.environment(PREFECT_API_URL=self.place.facts()["api"]),
        )  # fmt: skip

    def findings(self) -> list[dict[str, Any]]:
        """Audit, and return what the report says."""
        self.audit()
        report = json.loads((self.place.folder / "audit/audit.json").read_text())
        return list(report["findings"])

    def play(self) -> int:
        """Play all; return 0 if every claim holds."""
        place, labels, gone = self.place, self.place.labels, self.place.gone
        there = [label for label in labels if label != gone]

        print("\n== one key alone is refused: the end of the back-fill that make year started")
        self.claim("the back-fill stops: no second key", "NotApprovedError" in self.first_fill())
        approve = ("approve", "release.yaml", "--period")
        code, _ = place.typed(*approve, labels[0], "--key", "keys/curator.key")
        self.claim("the curator's key cannot approve", code == 27)
        self.claim("nothing is spent", self.paid() == 0)

        print("\n== the second key agrees to each month, and the server dies in one of them")
        for label in labels:
            place.typed(*approve, label, "--key", "keys/second.key", ends=0)
        ended = self.fill(dies_in=place.killed)
        if "IncompleteSeriesError" not in ended:
            ended = self.fill()
        self.claim(f"the back-fill goes on, and names {gone} alone", f"missing: {gone} (" in ended)
        runs = {run.period: run for run in self.ledger.runs("town")}
        self.claim(f"{len(there)} months are published", [*runs] == there)
        self.claim("each was drawn once", all(len(run.attempts) == 1 for run in runs.values()))
        self.claim("and paid once", self.paid() == len(there))
        self.fill()
        self.claim("the same back-fill again pays nothing", self.paid() == len(there))

        print("\n== one month is missing, and the forecast")
        _, said = place.typed("series", "release.yaml")
        left = f"the budget carries {SPARE + 1} further periods: all of the calendar"
        self.claim("the forecast counts what is left", left in said)
        (series,) = place.site()["series"]
        missing = [(p["label"], p["why"]) for p in series["periods"] if p["status"] == "missing"]
        self.claim(f"the site names it and why: {missing}", missing == [(gone, "never started")])
        page = (place.folder / "site/index.html").read_text()
        self.claim("people read the same there", left in page and "never started" in page)

        print("\n== a release is withdrawn")
        (wrong,) = (place.folder / "site/releases").glob(f"*-{place.wrong}-*")
        folder = str(wrong.relative_to(place.folder))
        withdraw = ("withdraw", folder, "--ledger", "release.yaml", "--reason", "error")
        place.typed(*withdraw, ends=0)
        code, _ = place.typed("verify", folder, "--key", "keys/curator.pub")
        self.claim("readers are refused", code == 54)
        status = {one["release_id"]: one["status"] for one in place.site()["releases"]}
        self.claim("the site says so", status[wrong.name] == "withdrawn")
        self.claim("its cost stays", self.paid() == len(there))

        print("\n== the auditor finds what was planted, and nothing else")
        (rows,) = (place.folder / "site/releases").glob(f"*-{there[-1]}-*/synthetic.parquet")
        whole = rows.read_bytes()
        rows.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        errors = [one for one in self.findings() if one["severity"] == "error"]
        named = [(one["code"], one["subject"]) for one in errors]
        planted = [("folder_unsound", f"release {rows.parent.name}")]
        self.claim("one error: the release with a changed byte", named == planted)
        counts = [one["count"] for one in place.site()["incidents"]]
        self.claim("the site counts one incident", counts == [1])
        rows.write_bytes(whole)
        codes = {one["code"] for one in self.findings()}
        self.claim(f"with the byte put back: {codes}", codes == {"withdrawn"})
        self.claim("the site counts no incident", not place.site()["incidents"])

        failed = [text for text, holds in self.claims.items() if not holds]
        print(f"\n{len(self.claims) - len(failed)} of {len(self.claims)} claims hold", flush=True)
        return int(bool(failed))


def main(arguments: list[str]) -> int:
    """Serve a year, or play its story."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["serve", "story"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".dpiw/year")
    parser.add_argument("--months", type=int, default=MONTHS, choices=range(4, 13))
    chosen = parser.parse_args(arguments)
    place = Place.of(chosen.folder, chosen.months)
    if chosen.what == "serve":
        return serve(place)
    if not (place.folder / "year.json").exists():
        raise SystemExit("nothing is served there: type `make year` in another terminal first")
    be_quiet(place)
    if Story(place).paid():
        raise SystemExit(f"this year was played: stop `make year` and remove {chosen.folder}")
    return Story(place).play()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
