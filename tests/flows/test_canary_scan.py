"""20 canaries in every column, and nowhere outside the workspace.

Each mode is a run of its own, with tokens of its own: a success whose stages talk too much, and
failures at every confidential stage. Searched, in eight encodings: what Prefect keeps (database,
write-ahead log, storage, server log), the terminal, temporary and home folders, the ledger, the
releases and every other file of the workplace outside the confidential workspace.
"""

import base64
import concurrent.futures
import dataclasses
import importlib.util
import os
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.ledger import Ledger
from dpiw.release.verification import verify
from dpiw.run.run import ReleaseRun
from tests.flows.conftest import ROOT
from tests.hostile.leaks.canaries import TOKENS, encodings, everything, hits, readable, tokens
from tests.support.patience import until

pytestmark = pytest.mark.flow

COLUMNS = ("age", "income", "region", "ill")
QUOTE = "raise ValueError('rows are ' + cells)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mode:
    """One way for a run to end."""

    stage: str = ""  # where `deed` happens
    deed: str = ""  # Python, after the stage's module is imported; `cells` holds the table
    before: bool = False  # at the stage's beginning, not in its mechanism
    extra: str = ""  # appended to the table
    inner: str = "ended with code 70"  # what Prefect is told
    talks: bool = False  # our own error quotes a cell: a bug of ours that Prefect must survive

    @property
    def code(self) -> int:
        """The flow's exit code: the stage's, if it is one of ours; else 70."""
        ended = self.inner.removeprefix("ended with code ")
        return {"": 0, "12": 12}.get(ended, 70)

    @property
    def epsilon(self) -> int:
        """What is held or charged then: a fault of the table gives the reservation back."""
        return 0 if self.extra else 2


CHATTER = (
    "import logging, warnings, tempfile, os; print(cells); warnings.warn(cells);"
    "logging.getLogger('prefect').error(cells); logging.getLogger('dpiw.progress').info(cells);"
    "sys.stderr.write(cells); os.environ['ROWS'] = cells[:9000];"
    "open(tempfile.mkstemp()[1], 'w').write(cells)"
)
MODES = {
    "a success whose stages talk": Mode(stage="all", deed=CHATTER, before=True, inner=""),
    "a library quotes a cell in ingest": Mode(
        stage="ingest", before=True,
        deed="import pandas as pd; pd.to_numeric(pd.Series(cells.split(chr(10))[1:]))"),
    "memory ends in the stage": Mode(
        stage="fit_generator", before=True,
        deed="import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29));"
             " held = [cells * 10**6]"),
    "a ragged row": Mode(extra="ragged", inner="ended with code 12"),
    "no header": Mode(extra="headless", inner="ended with code 12"),
    "ingest fails": Mode(stage="ingest", deed=QUOTE, before=True),
    "the generator fails": Mode(stage="fit_generator", deed=QUOTE),
    "the weights fail in a chain": Mode(
        stage="fit_weights", deed="\n        try: int(cells)\n        except ValueError as e:"
        " raise RuntimeError(cells) from e"),
    "the stage exits with a text": Mode(
        stage="fit_generator", deed="sys.exit(cells)", inner="ended with code 1"),
    "the stage aborts": Mode(
        stage="fit_weights", deed="sys.stderr.write(cells); os.abort()", inner="code 70"),
    "the stage is killed": Mode(
        stage="ingest", deed="print(cells, flush=True); os.kill(os.getpid(), 9)", before=True,
        inner="code 70"),
    "an error class is named after a cell": Mode(
        stage="fit_generator", deed="raise type(cells.split()[0], (Exception,), {})(cells)"),
    "our own error quotes a cell": Mode(
        stage="ingest", before=True, inner="ended with code 12", talks=True,
        deed="from dpiw.errors import SourceError; raise SourceError(cells)"),
}  # fmt: skip
FAST = ("a success whose stages talk",)

PATCH = """
import os, sys
if 'dpiw.run.process' in ' '.join(sys.orig_argv) and {stage!r} in ('all', *sys.orig_argv[3:]):
    cells = open({source!r}).read().replace('""', '"')
    import dpiw.run.steps as steps
    def deed():
        {deed}
    if {before!r}:
        def early(real):
            def run(*args, **kwargs):
                deed()
                return real(*args, **kwargs)
            return run
        for name in ('ingest', 'fit_generator', 'fit_weights'):
            setattr(steps, name, early(getattr(steps, name)))
    else:
        import dpiw.methods.generators.histogram as g, dpiw.methods.weights.paper.beta as b
        def measure(self, *args, **kwargs):
            deed()
        g.Histogram.measure = b.BetaDebiased.measure = measure
"""


def plant(place, label, mode):
    """Every token in every column: four rows for each, the other cells as they were."""
    lines = place.source.read_text().splitlines()
    for number, token in enumerate(tokens(label)):
        for column in range(len(COLUMNS)):
            at = 1 + number * len(COLUMNS) + column
            cells = lines[at].split(",")
            cells[column] = '"' + token.replace('"', '""') + '"'
            lines[at] = ",".join(cells)
    if mode.extra == "ragged":
        lines.append(",".join(lines[1].split(",")[:1] + lines[2:9]))
    if mode.extra == "headless":
        lines = lines[1:]
    place.source.write_text("\n".join(lines) + "\n")


def run_mode(server, place, label):
    """Run a mode to its end; what the terminal saw, and the folders to search."""
    mode = MODES[label]
    plant(place, label, mode)
    folders = {name: place.root / name for name in ("tmp", "home", "patch")}
    for folder in folders.values():
        folder.mkdir()
    if mode.stage:
        (folders["patch"] / "sitecustomize.py").write_text(
            PATCH.format(
                stage=mode.stage, source=str(place.source), deed=mode.deed, before=mode.before
            )
        )
    return server.python(
        "-m", "flows", place.spec, PYTHONPATH=f"{folders['patch']}:{ROOT}",
        TMPDIR=str(folders["tmp"]), HOME=str(folders["home"]),
    )  # fmt: skip


def outside(place):
    """Everything of the workplace that is not the table and not the confidential workspace."""
    state = place.root / "state"
    inside = {place.source, state, place.root / "patch"}
    paths = [path for path in place.root.iterdir() if path not in inside]
    return paths + [path for path in state.iterdir() if path.name != "workspace"]


def happened(place, mode, wanted):
    """The confidential log shows that the mode's deed was done, in the words it used."""
    if not mode.deed or mode.talks:
        return True
    log = everything((place.root / "state" / "workspace").rglob("log"))
    return b"MemoryError" in log if "RLIMIT" in mode.deed else bool(hits(log, wanted))


def system_temporary_files():
    """Names in the shared temporary folders, without pytest's own."""
    return {
        path
        for folder in ("/tmp", "/var/tmp", "/dev/shm")
        for path in (Path(folder).iterdir() if Path(folder).is_dir() else ())
        if not path.name.startswith("pytest-of")
    }


def scan(server, make_workplace, labels, figures):
    """Run the modes, two at a time; then search once for every token of every mode."""
    places = {label: make_workplace() for label in labels}
    started, before = time.time(), system_temporary_files()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = dict(
            zip(labels, pool.map(lambda m: run_mode(server, places[m], m), labels), strict=True)
        )
    for label, place in places.items():
        run, mode = server.run_of(place.spec), MODES[label]
        assert server.tasks(run, last="publish")  # all is recorded
        assert run["state_type"] == ("FAILED" if mode.code else "COMPLETED"), label
        assert mode.inner in (run["state"]["message"] or ""), label
        assert Ledger.open(place.ledger).spent("town").epsilon == mode.epsilon, label
        assert place.releases.exists() == (mode.code == 0), label
    stored = server.everything_stored()
    shared = everything(_mine(system_temporary_files() - before))
    leaks, searched = [], len(stored) + len(shared)
    for label in labels:
        mode, done, wanted = MODES[label], ends[label], tokens(label)
        output = (done.stdout + done.stderr).encode()
        assert done.returncode == mode.code, (label, output.decode()[-2000:])
        assert happened(places[label], mode, wanted), label
        around = everything(outside(places[label]))
        assert b"ledger.sqlite" in around
        searched += len(around) + len(output)
        leaks += [(label, "Prefect", *hit) for hit in hits(stored, wanted)]
        leaks += [(label, "shared temporary files", *hit) for hit in hits(shared, wanted)]
        leaks += [(label, "outside the workspace", *hit) for hit in hits(around, wanted)]
        if not mode.talks:
            leaks += [(label, "terminal", *hit) for hit in hits(output, wanted)]
        # in the confidential zone they are all there: the table was planted
        assert len({token for token, _ in hits(places[label].source.read_bytes().replace(
            b'""', b'"'), wanted)}) == TOKENS  # fmt: skip
    figures(
        "canary scan", modes=len(labels), tokens=TOKENS * len(labels),
        encodings=len(encodings(tokens("x")[0])), bytes_searched=searched, hits=len(leaks),
        seconds=round(time.time() - started),
    )  # fmt: skip
    assert leaks == []
    return places


def _mine(paths):
    """Files of this user that can be read; other programs of the machine come and go."""
    files = []
    for path in paths:
        try:
            if path.lstat().st_uid == os.getuid() and not path.is_socket():
                files.append(path)
        except OSError:
            continue
    return files


SCRIPT = ROOT / "docs" / "images" / "operator_pages.py"
LINES = [
    "plan: ", "reserve: ", "ingest: ", "fit_generator: ", "draw_synthetic: ", "fit_weights: ",
    "debias: ", "diagnose: ", "publish: ",
]  # fmt: skip


def check_story(server, place):
    """Its name, a line and a task a step, in order, and five pages: nothing else."""
    run = server.run_of(place.spec)
    spec = ReleaseRun.prepare(place.spec, period=None)
    assert run["name"] == f"{spec.spec.name} {spec.period}"
    assert run["state_type"] == "COMPLETED"
    assert run["parameters"] == {"spec": str(place.spec), "period": spec.period}
    lines = server.log_lines(run, len(LINES))
    assert [re.match(r"\w+: ", line["message"]).group() for line in lines] == LINES
    assert {line["name"] for line in lines} == {"dpiw"}

    tasks = server.tasks(run, last="publish")
    parents = [
        {parent["id"] for inputs in task["task_inputs"].values() for parent in inputs}
        for task in tasks
    ]
    assert not any(task["tags"] for task in tasks)
    assert parents[1:] == [{task["id"]} for task in tasks[:-1]]  # a chain, in the story's order

    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    shown = {artifact["key"]: artifact for artifact in server.api("artifacts/filter", mine)}
    name, population = (text.replace("_", "-") for text in (spec.spec.name, spec.spec.population))
    assert set(shown) == {
        f"{name}-plan", f"{name}-run", f"{population}-budget", f"{population}-budget-picture",
        f"{name}-release",
    }  # fmt: skip
    assert spec.key in shown[f"{name}-run"]["data"]
    assert str(spec.directory / "log") in shown[f"{name}-run"]["data"]
    report = re.search(r"`(/[^`]*report\.html)`", shown[f"{name}-release"]["data"]).group(1)
    assert Path(report).is_file()
    told = verify(Path(report).parent).certificate.weights_are
    assert f"**{told}**" in shown[f"{name}-release"]["data"]


@pytest.mark.nightly
def test_a_run_is_pictured_by_the_documents_script(
    prefect_server, make_workplace, browser_path, tmp_path
):
    assert prefect_server.run_flow(make_workplace().spec).returncode == 0
    spec = importlib.util.spec_from_file_location("operator_pages", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    base = prefect_server.url.removesuffix("/api")
    assert script.pictures(base, browser_path, tmp_path) == []
    for picture in ("prefect-run.png", "prefect-budget.png"):
        assert 5_000 < (tmp_path / picture).stat().st_size < 150_000
        assert (SCRIPT.parent / picture).stat().st_size < 150_000


def test_no_canary_leaves_the_confidential_zone(prefect_server, make_workplace, figures):
    (place,) = scan(prefect_server, make_workplace, FAST, figures).values()
    check_story(prefect_server, place)


AS_A_WORKER = "import sys; from flows.release import release; release(sys.argv[1])"


@pytest.mark.crash
def test_no_canary_leaves_in_any_of_the_modes(prefect_server, make_workplace, figures):
    """And what is published costs a worker that runs it again nothing."""
    place = scan(prefect_server, make_workplace, tuple(MODES), figures)[FAST[0]]
    again = prefect_server.python("-c", AS_A_WORKER, place.spec)
    assert again.returncode == 0, again.stdout + again.stderr
    assert Ledger.open(place.ledger).spent("town").epsilon == 2
    (folder,) = place.releases.iterdir()
    assert len(verify(folder).certificate.attempts) == 1


def test_the_scan_would_find_every_canary(prefect_server, tmp_path):
    """The unsafe control: the rows as a parameter, a log line and an exception of a flow."""
    wanted = tokens("unsafe")
    script = tmp_path / "unsafe.py"
    script.write_text(
        "from prefect import flow\n"
        "@flow(log_prints=True)\ndef unsafe(rows: list[str]):\n"
        "    print(rows)\n    raise ValueError(str(rows))\n"
        f"unsafe({list(wanted)!r}, return_state=True)\n"
    )
    prefect_server.python(script, PREFECT_LOGGING_TO_API_ENABLED="true")

    def all_found():
        leaked = {token for token, _ in hits(prefect_server.everything_stored(), wanted)}
        return leaked == set(wanted)

    assert until(all_found, every=1, what="the leak")


@pytest.mark.parametrize("encoding", list(encodings(tokens("x")[-2])))
def test_every_encoding_is_seen_at_any_offset(encoding):
    rng = np.random.default_rng(4)
    seen = 0
    for token in tokens("search"):
        for form in encodings(token).get(encoding, ()):
            for lead in range(4):
                assert (token, encoding) in hits(rng.bytes(lead) + form + rng.bytes(9), [token])
                seen += 1
        assert hits(rng.bytes(100_000), [token]) == []
    assert seen >= 8


def test_base64_is_seen_wherever_the_token_begins():
    for token in tokens("search"):
        for lead in range(6):
            text = base64.b64encode(b"x" * lead + token.encode() + b"yz")
            assert (token, "base64") in hits(text, [token])


def test_a_canary_in_a_compressed_column_is_seen(tmp_path):
    path = tmp_path / "rows.parquet"
    wanted = tokens("search")
    numbers = [float(token) for token in wanted[14:17]]
    frame = pd.DataFrame({"c": list(wanted[:3]) * 500, "x": numbers * 500})
    frame.to_parquet(path, compression="zstd")
    seen = {token for token, _ in hits(b"".join(readable(path)), wanted)}
    assert seen == {*wanted[:3], *wanted[14:17]}
