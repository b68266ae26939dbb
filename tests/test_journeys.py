"""docs/journeys.md: what it prints is typed from an empty folder, and says what the page says."""

import html
import json
import re
import shlex
from pathlib import Path

import pytest

from docs import journeys
from dpiw.audit import audit, write_report
from dpiw.audit.auditing import AuditReport
from dpiw.cli.main import main
from dpiw.data.yaml import load_file
from tests.support.documented_desk import shell
from tests.support.documents import blocks, filled, lines_of
from tests.support.whole_runs import publish_run

PAGE = journeys.PAGE.read_text()


def audited(line: str) -> AuditReport:
    """What a line with `dpiw audit` finds; its report is written where the line says."""
    _, command, *words = shlex.split(line)
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert (command, set(options)) == ("audit", {"--ledger", "--releases", "--key", "--out"})
    folders = sorted(Path(options["--releases"]).iterdir())
    report = audit(options["--ledger"], folders, [Path(options["--key"])])
    write_report(report, Path(options["--out"]))
    return report


@pytest.mark.slow
def test_the_journeys_are_walked_from_an_empty_folder(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DPIW_ACTOR", "ada@clinic")
    draft, rest, checked = blocks(journeys.PAGE, "sh")
    exec(journeys.table_maker(), {})
    assert "12 columns, 16 open fields" in shell(draft.text, folder).stdout
    journeys.settle(folder)
    for line in lines_of(rest)[:-1]:
        assert main(shlex.split(line)[1:]) == 0
    assert "3 more such releases fit" in capsys.readouterr().out
    assert lines_of(rest)[-1] == "dpiw release clinic/release.yaml"
    spec = Path("clinic/release.yaml").absolute()
    smaller = {
        "synthetic_rows": 4000,
        "generator": {"method": "privbayes"},
    }  # the walk as it stands: `test_documents_at_length.py`
    spec.write_text(json.dumps(load_file(spec, what="release.yaml") | smaller, default=str))
    _, published = publish_run(spec)

    assert audited(*lines_of(checked)).ok
    page = re.sub(r"<[^>]+>", " ", Path("audit/audit.html").read_text())
    report = " ".join(html.unescape(page).split())
    answers = [row.split("|")[1:4] for row in re.findall(r"^\| .*\? \|.*$", PAGE, re.M)]
    assert len(answers) == 10
    for question, _, answer in answers:
        for words in re.findall(r"`([^`]+)`", answer):
            assert words in report, question

    named = {journeys.NAMED: published.relative_to(folder)}
    exec(filled(blocks(journeys.PAGE, "python")[1].text, named), {})
    printed = capsys.readouterr().out.splitlines()
    (output,) = [block.text for block in blocks(journeys.PAGE) if not block.language]
    # A verdict that is not `use`, which noise decides, is followed by a line that says why.
    shown_lines, expected = (
        [line.split()[:1] for line in text if "(expected " not in line]
        for text in (printed, output.splitlines())
    )
    assert shown_lines == expected


def test_the_stopwatch_counts_what_the_page_prints():
    draft, rest, checked = blocks(journeys.PAGE, "sh")
    typed = {
        "curator": journeys.typed(draft, rest, files=blocks(journeys.PAGE, "yaml")),
        "auditor": journeys.typed(checked),
        "analyst": {"commands": 1, "characters": len(blocks(journeys.PAGE, "python")[1].text)},
    }
    for who, counts in typed.items():
        row = re.search(rf"^\| {who} \| (\d+) \| ([\d,]+) \| .* ([\d.]+) \|$", PAGE, re.M)
        assert int(row[1]) == counts["commands"]
        assert int(row[2].replace(",", "")) == pytest.approx(counts["characters"], abs=30)
        assert float(row[3]) < 15
    lines = [line for line in blocks(journeys.PAGE, "python")[1].text.splitlines() if line]
    assert len(lines) == 5
