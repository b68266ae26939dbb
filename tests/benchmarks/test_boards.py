"""NIST's board: its scores, releases by use of weights, and the page."""

import numpy as np
import pandas as pd
import pytest

from tests.benchmarks.scripts import load, rows, schema, study

boards, nist = load("boards"), load("nist")


def test_parts_have_equal_frequency_and_a_full_income_is_one_by_itself():
    ages = np.repeat(np.arange(40.0), 5)
    cut = nist.ends(ages)
    assert np.bincount(np.searchsorted(cut, ages)).tolist() == [10] * nist.PARTS
    incomes = np.append(ages, [nist.RICH] * 50)
    cut = nist.ends(np.append(incomes, -1e9))
    assert np.bincount(np.searchsorted(cut, incomes)).tolist() == [10] * nist.PARTS + [50]


def test_scores_are_nist_s_by_hand_and_weights_are_repeated_rows():
    real = {"A": np.array([0.0, 0, 1, 1]), "B": np.array([0.0, 1, 0, 1]), "C": np.zeros(4)}
    found = {"A": np.array([0.0, 1, 1, 1]), "B": np.array([0.0, 1, 1, -1e9]), "C": np.zeros(4)}
    ones = np.ones(4)
    same = nist.scores(real, ones, real)
    assert same == {"k_marginal": 1000, "propensity": 0}
    # Total variation: of A and B 1/2 (0 + 1/4 + 1/4 + 1/4 + 1/4), of A and C 1/4, of B and C 1/4.
    assert nist.scores(found, ones, real)["k_marginal"] == pytest.approx(1000 * (1 - 1 / 3))
    apart = nist.scores({name: each + 5 for name, each in real.items()}, ones, real)
    assert apart == {"k_marginal": pytest.approx(0), "propensity": pytest.approx(0.25)}
    repeated = {name: np.repeat(each, [1, 2, 3, 2]) for name, each in found.items()}
    weighted = nist.scores(found, np.array([1.0, 2, 3, 2]), real)["k_marginal"]
    assert weighted == pytest.approx(nist.scores(repeated, np.ones(8), real)["k_marginal"])


def test_real_samples_of_made_up_rows_are_scored_in_nist_s_columns(tmp_path):
    rng, dictionary = np.random.default_rng(1), nist.PublicSchema.from_yaml(nist.ROOT / nist.SCHEMA)
    frame = pd.DataFrame(
        {
            column.name: rng.choice(column.levels, 400)
            if column.levels
            else rng.integers(column.lower, column.upper, 400, endpoint=True)
            for column in dictionary.columns
        }
    ).astype(str)
    frame["MSP"] = frame["MSP"].where(frame["AGEP"].astype(int) > 15, "N")
    frame.to_csv(tmp_path / nist.FILE, index=False)
    scaled = nist.truth("all", tmp_path)
    values = nist.values(*scaled)
    assert len(nist.DENSITY) == len(dictionary.columns[0].levels)
    assert nist.codes(values, values).shape == (400, 22), "NIST's 24 but area and industry"
    assert (values["MSP"] == -1).sum() == (frame["MSP"] == "N").sum() > 0
    store = study.Store(folder=tmp_path / "cache", data=tmp_path)
    found = nist.compute(boards.Cell(run=0, table="ten"), store)["metrics"]
    scores = [found[f"sample, {share}%"]["k_marginal"] for share in nist.SAMPLES]
    assert 0 < scores[0] < scores[-1] < 1000
    assert scores == sorted(scores)


def test_a_release_is_used_unweighted_weighted_or_resampled(rng):
    every = rows(rng, 400)
    plain, none = boards.released(
        boards.Cell(run=0, table="shop", method="privbayes"), schema(), every, delta=1e-6
    )
    assert ([*plain], none) == (["unweighted"], None)
    for weights in ("measured", "chosen"):
        cell = boards.Cell(run=0, table="shop", method="privbayes", weights=weights)
        made, verdict = boards.released(cell, schema(), every, delta=1e-6)
        (weighted, w), (resampled, ones) = made.values()
        assert verdict in ("use", "use with care", "do not use")
        assert weighted.rows == resampled.rows == 400 == ones.sum()
        assert w.std() > 0
        mean = np.average(weighted.columns["size"], weights=w)
        assert resampled.columns["size"].mean() == pytest.approx(mean, abs=0.01)


@pytest.mark.usefixtures("one_digest")
def test_a_board_resumes_and_its_page_is_made_of_its_record(tmp_path):
    made = []

    def compute(cell, store):
        made.append(cell.name)
        use = "unweighted" if cell.weights == "none" else f"{cell.weights}, resampled"
        metrics = dict.fromkeys(nist.TITLES, 90.0 + cell.run + len(cell.weights))
        verdict = "use" if cell.run else "do not use"
        return vars(cell) | {"metrics": {use: metrics}, "verdict": verdict}

    words = ["--data", str(tmp_path), "--out", str(tmp_path), "--methods", "mst"]
    assert boards.main(words, "nist", compute, nist.page, ("ten", "all"), runs=3) == 0
    assert len(made) == len(set(made)) == 3 * 4 * 2
    text = (tmp_path / "nist.md").read_text()
    assert text.count("| mst | unweighted | 95 ± 0.6 | 95 ± 0.6 | 3 |  |") == 2
    assert text.count("| mst | chosen, resampled | 97 ± 0.6 | 97 ± 0.6 | 3 | 2 |") == 2
    (tmp_path / "nist.md").unlink()
    assert boards.main(["--page", *words[2:4]], "nist", compute, nist.page, ("ten",), runs=3) == 0
    assert (tmp_path / "nist.md").read_text() == text


@pytest.mark.usefixtures("one_digest")
def test_some_lines_made_again_vouch_for_a_record_only_if_no_digit_differs(tmp_path, monkeypatch):
    scores = {"ten": 90.0, "all": 80.0}

    def compute(cell, store):
        metrics = dict.fromkeys(nist.TITLES, scores[cell.table] + cell.run)
        return vars(cell) | {"metrics": {"unweighted": metrics}, "verdict": None}

    def run(*words):
        every = ["--data", str(tmp_path), "--out", str(tmp_path), "--methods", "mst", *words]
        return boards.main(every, "nist", compute, nist.page, ("ten", "all"), runs=1)

    monkeypatch.setenv("DPIW_COMMIT", "first")
    assert run() == 0
    before, kept = study.read(tmp_path, "nist"), (tmp_path / "nist.json").read_text()
    monkeypatch.setenv("DPIW_COMMIT", "later")
    scores["all"] += 1e-3
    with pytest.raises(SystemExit, match="2 of 2 lines are not the record"):
        run("--tables", "all", "--again")
    assert (tmp_path / "nist.json").read_text() == kept
    assert run("--tables", "ten", "--again") == 0
    after = study.read(tmp_path, "nist")
    assert after.pop("again") == {"lines": 2, "commit": "later", "code": before["code"]}
    assert str(after) == str(before), "as text, since nan is not nan"
    assert "made 2 of the 4 lines again" in (tmp_path / "nist.md").read_text()
