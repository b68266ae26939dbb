"""docs/local.md and its example: every block runs, in order, from an empty folder."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.cli.main import main
from dpiw.local import LocalParameters
from dpiw.local.collector import load_local_spec, publish_reports, read_parameters, read_reports
from dpiw.privacy.mechanisms import lattice_step
from tests.support.documents import ROOT, blocks, lines_of, python_of
from tests.support.local import people, told

PAGE = "docs/local.md"


def collect(path: Path) -> None:
    """The flow without Prefect, which `flows/test_local_flow.py` has."""
    spec = load_local_spec(path)
    publish_reports(spec, read_reports(spec))


def send(parameters: LocalParameters, path: Path, count: int) -> None:
    """Reports of simulated people, on the lattice, with the one that the page drew."""
    rng = np.random.default_rng(4)
    features, labels = people(count, 3, rng)
    sample, step = told(parameters, features, labels, rng), lattice_step(parameters.stddev)
    values = np.where(parameters.private, np.rint(sample.features / step) * step, sample.features)
    frame = pd.DataFrame(values, columns=sample.names)
    frame["at_home"] = np.array(parameters.levels)[sample.labels]
    frame["report_id"] = [f"{row:032x}" for row in range(count)]
    own_report = json.loads(Path("me.report.json").read_bytes())
    frame = frame.assign(parameters=parameters.digest)
    pd.concat([frame, pd.DataFrame([own_report])]).to_csv(path, index=False)


@pytest.mark.slow
def test_the_guide_runs_from_an_empty_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (settings,) = blocks(PAGE, "yaml")
    Path("collection.yaml").write_text(settings.text)
    person = re.search(r"`(\{\"age\".*?\})`", (ROOT / PAGE).read_text())
    assert person
    Path("me.json").write_text(person[1])
    client, statistics, learning = python_of(PAGE)
    for line in (line for block in blocks(PAGE, "sh") for line in lines_of(block)):
        program, *words = shlex.split(line)
        assert program == "dpiw"
        if words[:2] == ["local", "collect"]:
            parameters = read_parameters(load_local_spec(Path(words[2])))
            send(parameters, Path("reports.csv"), 60_000)
            collect(Path(words[2]))
            continue
        assert main(words) == 0, line
    names: dict[str, object] = {}
    exec(client, names)
    assert names["report"] == json.loads(Path("me.report.json").read_bytes())
    capsys.readouterr()
    exec(statistics, names)
    shown = capsys.readouterr().out
    assert "net of the noise" in shown  # least squares of two features wants more reports than this
    exec(learning, names)
    shown = capsys.readouterr().out
    assert len(names["sample"]) == 60_001
    assert "usable=True" in shown
    assert "logistic within" in shown
    assert "do not use" not in shown


@pytest.mark.slow
def test_the_example_s_people_report_and_are_estimated(tmp_path, monkeypatch, capsys):
    path = ROOT / "examples" / "local" / "commute.py"
    spec_of = importlib.util.spec_from_file_location("commute", path)
    assert spec_of
    assert spec_of.loader
    commute = importlib.util.module_from_spec(spec_of)
    spec_of.loader.exec_module(commute)
    text = commute.SPEC.read_text().replace("../../.dpiw/", "")
    (tmp_path / "collection.yaml").write_text(text)
    monkeypatch.setattr(commute, "SPEC", tmp_path / "collection.yaml")
    spec = load_local_spec(commute.SPEC)
    for _ in range(2):  # the second time nobody reports again
        commute.report(spec, 300)
    assert len(read_reports(spec).features) == 300
    reports = Path(spec.reports)
    rows = pd.read_csv(reports, dtype=str)
    many = pd.concat([rows] * 40)  # repeated to stand for 12,000: their law is not looked at
    many["report_id"] = [f"{row:032x}" for row in range(len(many))]
    many.to_csv(reports, index=False)
    collect(commute.SPEC)
    capsys.readouterr()
    # of copies of 300 reports the noise outweighs everything: not what is looked at here
    monkeypatch.setattr(commute, "least_squares", lambda sample, *_, **__: commute.means(sample))
    commute.analyse(spec)
    shown = capsys.readouterr().out
    assert "truth" in shown
    assert "a classifier by exponential loss" in shown
