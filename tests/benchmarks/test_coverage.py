"""Coverage of intervals: a small study from beginning to end, resumed, and its page."""

import json

import pytest

from tests.benchmarks.scripts import load, study

RESULTS = load("provenance").RESULTS
populations = load("coverage_populations")
coverage = load("coverage", "interval_coverage")


@pytest.mark.usefixtures("one_digest")
@pytest.mark.slow
def test_a_small_study_resumes_and_its_page_holds_its_record(tmp_path, monkeypatch):
    monkeypatch.setattr(populations, "TRUTH_ROWS", 20_000)
    words = ["--rows", "300", "--synthetic", "200", "--populations", "tilt", "--generators",
             "histogram", "--features", "measured", "none", "--jobs", "1", "--cache",
             str(tmp_path / "cache"), "--out", str(tmp_path)]  # fmt: skip
    monkeypatch.setitem(
        coverage.MAPS, "measured", ("measured", {"omega_seed": 1, "frequencies": 20})
    )
    for releases in ("1", "2"):
        assert coverage.main([*words, "--releases", releases]) == 0
    assert len([*(tmp_path / "cache").glob("*/tilt-histogram-measured-*/[01].json")]) == 2
    record = json.loads((tmp_path / "coverage.json").read_text())
    verdicts = record["sections"]["By verdict of the interval"]
    count = verdicts[0].index("intervals")
    law = populations.truth(populations.POPULATIONS[0])
    assert sum(int(row[count]) for row in verdicts[1:]) == 2 * len(law)
    text = (tmp_path / "coverage.md").read_text()
    for section in record["sections"].values():
        for line in section:
            shown = "| " + " | ".join(line) + " |" if isinstance(line, list) else line
            assert shown in text
    assert record["releases"] == record["weighted"] == 2
    assert record["code"] in text


@pytest.mark.parametrize("population", populations.EVERY, ids=lambda p: p.name)
def test_every_law_fits_its_schema(population, rng):
    table = population.table(50, rng)
    assert list(table.columns) == [column.name for column in population.schema.released]


PAGES = {
    **dict.fromkeys(
        ("coverage_measured", "coverage_large", "coverage_several_rows"), coverage.page
    ),
    "local": load("local_iwp").page,
    "measured_peers": load("measured_peers").page,
    "mnist": load("mnist_page").page,
    "paper": load("paper_page").page,
    "questions": load("questions").page,
    **dict.fromkeys(load("weights_table").STUDIES, load("weights_table").page),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_repository_is_that_of_its_record(name):
    record, text = study.read(RESULTS, name), (RESULTS / f"{name}.md").read_text()
    assert study.text(record, PAGES[name]) == text
