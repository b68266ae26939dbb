"""docs/year.md: its commands are typed in their order, from the folder of a spec."""

import contextlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from dpiw.audit import audit
from dpiw.cli.main import main
from dpiw.ledger import Ledger, RunState
from dpiw.release.signing import create_key_pair
from flows import console, series
from tests.support.documented_desk import shell
from tests.support.documents import blocks, lines_of
from tests.support.undrawn import draw_no_figures
from tests.support.whole_runs import publish_run

PAGE = "docs/year.md"
CALENDAR = "cadence: monthly\nseries: {first: 2026-01, last: 2026-03, retention: 1000}"
"""As the page's, for any year: the periods of the page stay within retention."""

ENDS = {
    "dpiw series release.yaml": 61,
    "dpiw series release.yaml --fill": 61,  # 2026-03 has no table
}
"""Exit codes other than 0."""


@pytest.fixture
def desk(make_workplace, monkeypatch):
    """A folder with a spec, a registered population, a curator's key and two periods' tables."""
    place = make_workplace(weights="none", epsilon="40")
    monkeypatch.chdir(place.root)
    Path("keys").mkdir(mode=0o700)
    create_key_pair(Path("keys"), "curator")
    place.rewrite("cadence: once", CALENDAR)
    place.rewrite("path: data.csv", 'path: "tables/{period}.csv"')
    place.rewrite("signing_key: state/keys/test.key", "signing_key: keys/curator.key")
    place.rewrite("publish_to: state/releases", "publish_to: releases")
    Path("tables").mkdir()
    for label in ("2026-01", "2026-02"):
        shutil.copyfile("data.csv", f"tables/{label}.csv")
    draw_no_figures(monkeypatch.setattr)
    monkeypatch.setattr(series, "prefect_server", contextlib.nullcontext)
    monkeypatch.setattr("flows.server.prefect_server", contextlib.nullcontext)
    monkeypatch.setattr(
        console, "release_flow", lambda spec, period: str(publish_run(Path(spec), period=period)[1])
    )
    return place


def typed(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Type a line of the page, with today's names of releases; its exit code is the page's."""
    for name in re.findall(r"releases/(town-\S+)-[0-9a-f]{8}", line):
        (folder,) = Path("releases").glob(f"{name}-*")
        line = re.sub(rf"releases/{name}-[0-9a-f]{{8}}", str(folder), line)
    if line.startswith("mv "):
        assert shell(line, Path.cwd()).returncode == 0
        return
    capsys.readouterr()
    command, _, target = line.partition(" > ")
    words = shlex.split(command)[1:]
    if words[0] == "release":
        publish_run(Path(words[1]), period=words[3])
    elif words[0] == "audit":
        keys = [Path(word) for word in words if word.endswith(".pub")]
        report = audit("sqlite:///state/ledger.sqlite", sorted(Path("releases").iterdir()), keys)
        assert report.ok, [str(finding) for finding in report.findings]
        assert any(finding.code == "withdrawn" for finding in report.findings)
    else:
        run = series.main if "--fill" in words else main
        code = run(words[1:] if "--fill" in words else words)
        assert code == ENDS.get(command, 0), (line, capsys.readouterr())
    if target:
        Path(target).write_text(capsys.readouterr().out)


@pytest.mark.slow
def test_the_year_is_walked_in_the_page_s_order(desk, capsys):
    lines = [line for block in blocks(PAGE, "sh") for line in lines_of(block)]
    for line in (line for line in lines if line.startswith(("dpiw ", "mv "))):
        typed(line, capsys)
    runs = {run.period: run for run in Ledger.open(desk.ledger).runs("town")}
    assert {label: run.state for label, run in runs.items()} == {
        "2026-01": RunState.WITHDRAWN, "2026-02": RunState.PUBLISHED,
    }  # fmt: skip
    index = Path("public/index.html").read_text()
    for words in ("2026-03", "missing", "withdrawn"):
        assert words in index
    assert "<script" not in index
    assert json.loads(Path("public/index.json").read_text())["incidents"] == []
    assert os.path.getsize("head.tsq") > 0
