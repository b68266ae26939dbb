"""The audit flow under a real Prefect server: a report, an exit code, and nothing but counts."""

import json
import shutil
import subprocess
import sys

import pytest

from dpiw.audit import AuditFailedError
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.flows.conftest import ROOT
from tests.hostile.leaks.canaries import hits

NAME = "Quillonworth7731"
"""Of a folder among the releases: a copy, which is warned of."""

pytestmark = pytest.mark.flow


def publish(place):
    run = ReleaseRun.prepare(place.spec, period=None)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.debias(run)
    steps.diagnose(run)
    return steps.publish(run)


def run_audit(server, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "flows.audit", *map(str, arguments)],
        capture_output=True, text=True, cwd=ROOT, env=server.environment(), check=False,
    )  # fmt: skip


@pytest.mark.crash
def test_a_clean_audit_ends_well_and_a_tampered_one_alarms(prefect_server, make_workplace):
    place = make_workplace(weights="none")
    folder = publish(place)
    key, out = place.root / "state" / "keys" / "test.pub", place.root / "audit"
    where = ("--ledger", f"sqlite:///{place.ledger}", "--releases", place.releases)
    clean = run_audit(prefect_server, *where, "--key", key, "--out", out)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert "no errors" in clean.stdout
    assert json.loads((out / "audit.json").read_bytes())["ok"] is True
    for path in (out, out / "audit.json", out / "audit.html"):
        assert path.stat().st_mode & 0o077 == 0
    assert prefect_server.newest_run()["state_type"] == "COMPLETED"

    (folder / "report.html").write_text("other")
    _, second = create_key_pair(place.root, "second")
    keys = ("--key", second, "--key", key)
    failed = run_audit(prefect_server, "--ledger", place.spec, *keys, "--out", out)
    assert failed.returncode == AuditFailedError.exit_code == 33
    assert "1 error found" in failed.stdout
    assert f"error: release {folder.name}: " in failed.stdout
    facts = json.loads((out / "audit.json").read_bytes())
    assert [finding["code"] for finding in facts["findings"]] == ["folder_unsound"]
    assert len(facts["given_keys"]) == 2
    assert prefect_server.newest_run()["state_type"] == "FAILED"


def test_prefect_keeps_no_name_of_a_folder_of_an_audit_that_ends_well(
    prefect_server, make_workplace
):
    """What the flow returns is for a person's terminal: no table, log or result holds it."""
    place = make_workplace(weights="none")
    folder = publish(place)
    shutil.copytree(folder, place.releases / NAME)
    done = run_audit(prefect_server, "--ledger", place.spec, "--out", place.root / "audit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert NAME in done.stdout
    assert prefect_server.newest_run()["state_type"] == "COMPLETED"
    stored = prefect_server.everything_stored()
    assert b"dpiw-audit" in stored
    assert hits(stored, [NAME, folder.name]) == []
