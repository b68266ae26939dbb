"""Controls of the leak register that had no test of their own (docs/privacy.md section 9)."""

import ast
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from prefect import Flow, Task
from prefect.cache_policies import NO_CACHE

import flows
from dpiw.ledger import Ledger
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.privacy import mechanisms
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun
from flows.release import run_name
from tests.hostile.leaks.canaries import everything, hits, tokens
from tests.support.found_levels import without_list
from tests.support.whole_runs import asked, publish_run

ROOT = Path(__file__).resolve().parents[3]

NEITHER = {"__init__", "__main__", "step", "progress", "window", "pages", "console", "server",
           "interrupts", "reading", "step_log", "summary", "failures", "deployed", "signals",
           "pools", "due", "parameters"}  # fmt: skip
"""Modules beside the tasks and flows that define none."""


def prefect_objects(folder, kind):
    """Every flow or task that the modules of a folder define."""
    objects = {}
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.stem not in NEITHER:
            module = importlib.import_module(f"{folder}.{path.stem}")
            mine = [
                v
                for v in vars(module).values()
                if isinstance(v, kind) and v.fn.__module__ == module.__name__
            ]
            assert mine, path.name
            objects |= {value.name: value for value in mine}
    return list(objects.values())


TASKS, FLOWS = prefect_objects("tasks", Task), prefect_objects("flows", Flow)


def published(place, period=None):
    return publish_run(place.spec, period=period)


@pytest.fixture(scope="module")
def finished(make_workplace):
    """A workplace with a finished run, which nobody changes: 37 incomes cannot be read."""
    place = make_workplace()
    with place.source.open("a") as table:
        table.write('1,"1,5",north,true\n' * 37)
    return place, *published(place)


# Rows 1, 2, 5, 7: what Prefect is given


def test_the_release_flow_takes_a_name_and_a_period_and_nothing_else():
    (release,) = (flow for flow in FLOWS if flow.name == "dpiw-release")
    assert set(release.parameters.properties) == {"spec", "period"}


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_no_flow_stores_prints_retries_or_is_named_after_values(flow):
    """Its parameters, which Prefect stores by value, are short texts: names, paths, addresses."""
    for settings in flow.parameters.properties.values():
        parts = settings.get("anyOf", [settings])
        kinds = {part.get("items", part)["type"] for part in parts}
        assert kinds <= {"string", "null", "boolean"}
    assert flow.persist_result is False
    assert flow.retries == 0
    assert flow.log_prints is False
    named_by_spec = flow.name in ("dpiw-release", "dpiw-series")
    assert flow.flow_run_name is (run_name if named_by_spec else None)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_no_task_caches_stores_retries_or_is_named_after_values(task):
    assert task.cache_policy == NO_CACHE
    assert task.cache_key_fn is None
    assert task.persist_result is False
    assert task.retries == 0
    assert task.log_prints is False
    assert task.task_run_name is None
    assert re.fullmatch("[a-z_]+", task.name)


def test_no_module_writes_artifacts_tags_or_notifications():
    """Row 5: Prefect's other doors are not used, but for artifacts and events of public facts.

    A training's progress, the window's pages of plan and ledger, and alarms, of short labels alone
    (flows/test_alarms.py).
    """
    banned = ("artifact", "emit_event", "send_notification", "prefect.blocks", "webhook")
    for path in [*(ROOT / "tasks").glob("*.py"), *(ROOT / "flows").glob("*.py")]:
        text = path.read_text().lower()
        present = [word for word in banned if word in text]
        allowed = path.name in {"progress.py", "pages.py", "window.py"}
        wanted = ["artifact"] * allowed + ["emit_event"] * (path.name == "window.py")
        assert present == wanted, path.name
        assert ("send_event(" in text) == (path.name in {"window.py", "signals.py"}), path.name


@pytest.mark.slow
def test_prefect_sends_and_stores_nothing_by_default():
    """Rows 2, 4, 37: results, logs, analytics and resource metrics are switched off."""
    wanted = {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        "PREFECT_TASKS_DEFAULT_NO_CACHE": "true",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
    }
    assert {key: flows.PREFECT_DEFAULTS[key] for key in wanted} == wanted
    code = (
        "import flows, json, prefect.settings as s; c = s.get_current_settings();"
        "print(json.dumps([c.results.persist_by_default, c.tasks.default_no_cache,"
        " c.logging.to_api.enabled, c.server.analytics_enabled]))"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
    clean["PREFECT_HOME"] = tempfile.mkdtemp()
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT,
        env=clean,
    )  # fmt: skip
    assert json.loads(completed.stdout.splitlines()[-1]) == [False, True, False, False]


# Rows 6, 7: keys and names do not follow from the table


@pytest.mark.slow
def test_a_changed_table_is_not_noticed_by_a_finished_run(finished):
    """Row 7: nothing is looked up by content; the same run is the same run."""
    workplace, run, folder = finished
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    kept = workplace.source.rename(workplace.root / "kept.csv")
    workplace.source.write_text("age,income,region,ill\n1,2,north,true\n")
    again, same = published(workplace)
    assert (again.key, same) == (run.key, folder)
    assert {path.name: path.read_bytes() for path in same.iterdir()} == before
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2
    kept.rename(workplace.source)


# Row 10: levels that were found


def test_a_level_of_one_person_stays_in_the_private_folder(make_workplace):
    """Each canary is a level of one row; what many rows hold is published, whatever it looks like.

    Somebody has paid by then, so no level may end a publication.
    """
    odd = "$x_{ <b> %s"
    place = without_list(make_workplace(), rare=(*tokens("levels"), *[odd] * 60))
    run, folder = published(place)
    assert {"smith", odd} <= set(pq.read_table(folder / "synthetic.parquet")["trade"].to_pylist())
    assert len({token for token, _ in hits(everything([run.private]), tokens("levels"))}) == 20
    outside = [path for path in files_outside(place, run) if path != place.source]
    assert hits(everything(outside), tokens("levels")) == []


def files_outside(place, run):
    """Every file but those of the run's private folder."""
    return [p for p in place.root.rglob("*") if p.is_file() and run.private not in p.parents]


# Row 15: verdicts stay where they were made


@pytest.mark.slow
def test_verdicts_of_great_expectations_stay_in_the_private_folder(finished):
    workplace, run, folder = finished
    verdicts = json.loads((run.private / "validation.json").read_bytes())
    values = verdicts["values"]
    assert {type(value) for value in values.values()} == {bool}
    outside = files_outside(workplace, run)
    for path in outside:
        assert b"expect_column_" not in path.read_bytes(), path.name
    assert folder.exists()


@pytest.mark.slow
def test_counts_of_cells_stay_in_the_private_folder(finished):
    workplace, run, _ = finished
    statement = run.private / "cells.txt"
    assert "column income: 37 of 437 cells" in statement.read_text()
    assert statement.stat().st_mode & 0o777 == 0o600
    outside = files_outside(workplace, run)
    for path in outside:
        content = path.read_bytes()
        assert b"rows read" not in content, path.name
        assert b"could not be read" not in content, path.name


def test_a_terminal_shows_the_place_of_those_counts_and_nothing_of_them(finished):
    from flows.summary import summary

    workplace, run, folder = finished
    statement = run.private / "cells.txt"
    shown = summary(folder, asked(workplace.spec), 1.0)
    (line,) = [line for line in shown.splitlines() if "how cells were read" in line]
    assert line.endswith(os.path.relpath(statement))
    kept = statement.rename(statement.with_name("kept"))
    for change in (lambda: statement.write_text("other counts"), statement.unlink):
        change()
        assert summary(folder, asked(workplace.spec), 1.0) == shown
    kept.rename(statement)


# Rows 39-41: what a release says about itself


MANIFEST = {
    "columns", "constraints_digest", "cumulative_delta", "cumulative_epsilon", "delta", "epsilon",
    "files", "format", "format_version", "key_id", "ledger_head", "mechanisms",
    "population", "previous", "public_key", "published_at", "release_id", "rows", "unit",
    "versions",
}  # fmt: skip


def test_a_manifest_has_declared_fields_and_no_trace_of_the_source(finished):
    workplace, run, folder = finished
    text = "".join(
        path.read_text() for path in folder.iterdir() if path.suffix in {".json", ".html"}
    )
    source = workplace.source
    data = source.read_bytes()
    traces = [
        str(workplace.root), source.name, hashlib.sha256(data).hexdigest(),
        hashlib.md5(data).hexdigest(), str(source.stat().st_mtime_ns)[:13],
        hashlib.sha256(run.snapshot.read_bytes()).hexdigest(), "scaled.parquet",
    ]  # fmt: skip
    assert [trace for trace in traces if trace in text] == []
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert set(manifest) == MANIFEST
    assert manifest["published_at"].endswith("T00:00:00Z")  # the day, no time


# Row 43: temporary files, modes, arguments


def test_arguments_of_a_stage_are_its_name_and_folder(workplace, monkeypatch):
    """What any user of the host can list."""
    from dpiw.run import launch as stages

    calls = []

    done = SimpleNamespace(wait=lambda: 0, poll=lambda: 0)
    monkeypatch.setattr(
        stages.subprocess,
        "Popen",
        lambda arguments, **rest: calls.append((arguments, rest)) or done,
    )
    run = ReleaseRun.prepare(workplace.spec, period=None)
    stages_run = ("ingest", *PRIVATE_STAGES)
    for stage in stages_run:
        launch_stage(stage, run.directory)
    for (arguments, rest), stage in zip(calls, stages_run, strict=True):
        (pipe,) = rest["pass_fds"]  # of its word and its progress
        assert arguments[1:] == ["-m", "dpiw.run.process", stage, str(run.directory), str(pipe)]
        assert set(rest["env"]) <= {
            *stages._INHERITED, "HOME", "TMPDIR", "OMP_NUM_THREADS", "GX_ANALYTICS_ENABLED",
            "DO_NOT_TRACK",
        }  # fmt: skip
        assert str(run.private) == rest["env"]["TMPDIR"]


# Rows 24-27: randomness


@pytest.mark.slow
def test_two_runs_of_the_same_spec_share_no_noise(finished, workplace):
    """Row 25: the same table, spec and period twice; every drawn number differs."""
    drawn = []
    workplace.source.write_bytes(finished[0].source.read_bytes())
    for run in (finished[1], published(workplace)[0]):
        with np.load(run.measurement("fit_weights"), allow_pickle=False) as stored:
            arrays = [v for v in stored.values() if v.dtype.kind == "f" and v.size > 1]
        drawn.append(np.concatenate([array.ravel() for array in arrays]))
    assert len(drawn[0]) >= 5
    assert not np.any(drawn[0] == drawn[1])


SEEDED = re.compile(r"np\.random\.(?!Generator\b)|\bnumpy\.random\b|\bimport random\b|"
                    r"\bfrom random\b|\btorch\.Generator\b|\bRandomState\b")  # fmt: skip
MECHANISMS = {"privacy/mechanisms.py", "privacy/gaussian.py"}
MAY_SEED = {
    # post-processing of released measurements, from a seed the operating system gives
    "run/weigh.py", "run/publish.py",
    # post-processing as well, from the digest of the measurement
    "methods/weights/measured/weighing.py",
    # one public row, before a draw
    "methods/neural/clipping.py",
    # public random features, from a public seed in the spec
    "methods/weights/measured/fourier.py",
    # public starting networks, latents and reference rows, from digests of public settings;
    # simulation of a training on public rows
    "methods/generators/gan/training.py", "methods/weights/paper/mlp.py",
    # rehearsal on public stand-ins
    "plan/rehearsal/rehearsal.py",
    # rows of the data dictionary alone, from the digest of its constraints
    "data/schema/rules.py",
    # public reference rows of a forecast, before data is read
    "plan/forecast.py",
    # noise that cannot be published (`publishable` is False), for tests
    "privacy/randomness.py",
}  # fmt: skip


def _without_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return tree


@pytest.mark.slow
def test_no_generator_is_made_where_privacy_noise_is_drawn():
    files = set()
    for path in (ROOT / "dpiw").rglob("*.py"):
        text = path.read_text()
        if SEEDED.search(text) and SEEDED.search(ast.unparse(_without_docstrings(ast.parse(text)))):
            files.add(path.relative_to(ROOT / "dpiw").as_posix())
    assert not files & MECHANISMS
    assert "privacy/randomness.py" in files  # the search finds what is there
    unexplained = files - MAY_SEED
    assert not unexplained, unexplained


def test_secrets_never_choose_a_noise_value():
    """`secrets` names files and tokens and seeds post-processing; noise comes from one module."""
    for path in sorted((ROOT / "dpiw").rglob("*.py")):
        name = path.relative_to(ROOT / "dpiw").as_posix()
        if "secrets." in path.read_text():
            assert name in {
                "cli/rehearse.py", "data/files.py",
                "data/source/ingest.py", "data/source/public_rows.py",
                "ledger/ledger.py", "local/client.py",
                "privacy/randomness.py", "release/publication.py",
                "run/publish.py", "run/run.py", "run/weigh.py",
            }, name  # fmt: skip
    assert "secrets" not in Path(mechanisms.__file__).read_text()
