"""A release rehearsed on public stand-ins: what it plays, what it finds, what it recommends."""

import dataclasses
import hashlib
import multiprocessing

import numpy as np
import pytest

from dpiw.data import yaml
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import WeightError
from dpiw.methods.generators.histogram import Histogram
from dpiw.plan.plan import compile_plan
from dpiw.plan.rehearsal import candidates as candidates_module
from dpiw.plan.rehearsal import rehearsal as module
from dpiw.plan.rehearsal import report
from dpiw.plan.rehearsal.candidates import MEASURED, Candidate, candidates, played_spec
from dpiw.plan.rehearsal.populations import KINDS, WeightedRows, random_law
from dpiw.plan.rehearsal.rehearsal import FAILED, FLOOR, Rehearsal, rehearse, rehearse_release
from dpiw.plan.spec import parse_spec
from tests.support import specs
from tests.support.worlds import declared

SCHEMA = declared(
    {"name": "x", "kind": "continuous", "lower": 0, "upper": 1},
    {"name": "z", "kind": "continuous", "lower": 0, "upper": 1, "nullable": True},
    {"name": "y", "kind": "boolean", "role": "target"},
    name="pair",
)


def spec(**changes):
    usual = {
        "epsilon": "3", "nominal_rows": 3000, "synthetic_rows": 1500,
        "generator": {"method": "histogram", "settings": {"bins": 8}},
        "weights": {"method": "beta_debiased"},
    }  # fmt: skip
    return specs.spec(**usual | changes)


def rehearsal(base, *, schema=SCHEMA, names=("none", "spec"), kinds=("strong",), runs=6, seed=1):
    chosen = tuple(c for c in candidates(base, schema) if c.name in names)
    return Rehearsal(schema=schema, candidates=chosen, populations=kinds, runs=runs, seed=seed)


def planned(base, name="spec"):
    return next(c.plan for c in candidates(base, SCHEMA) if c.name == name)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(8)
    return random_law(SCHEMA, KINDS["strong"], rng=rng).draw(3000, rng=rng)


@pytest.mark.slow
def test_candidates_cost_the_same_and_none_has_it_all():
    plans = {c.name: c.plan for c in candidates(spec(), SCHEMA)}
    splits = ["fourier", "fourier 50:50", "fourier 30:70"]
    generators = ["privbayes", "mst", "aim"]
    assert list(plans) == ["none", "spec", "linear", *splits, *generators]
    assert plans["none"].weights is None
    for plan in plans.values():
        assert plan.spec.epsilon == 3
        assert 2.9 < plan.composed["pld"] <= 3
    multiplier = {name: plan.stages[0].events[0].noise_multiplier for name, plan in plans.items()}
    own = plans.keys() - {"none", *generators}
    assert all(multiplier["none"] < multiplier[name] for name in own)
    assert [plans[name].spec.shares.weights for name in splits] == [0.3, 0.5, 0.7]
    weights = {name: plans[name].stages[1].events[0].noise_multiplier for name in splits}
    assert sorted(splits, key=weights.__getitem__) == splits[::-1]
    assert sorted(splits, key=multiplier.__getitem__) == splits
    asked = candidates(spec(shares={"generator": 0.6, "weights": 0.4}), SCHEMA)
    assert next(c.plan.spec.shares.weights for c in asked if c.name == "fourier") == 0.4


def test_candidates_keep_infeasible_weights_and_say_why_others_are_not_played():
    poor = spec(epsilon="0.3", nominal_rows=100, generator={"method": "histogram"})
    by_name = {c.name: c for c in candidates(poor, SCHEMA)}
    assert all(c.plan is None or c.plan.weights is not None or c.name == "none"
               for c in by_name.values())  # fmt: skip
    feasible = [c.plan.forecast.feasible for c in by_name.values() if c.plan and c.plan.forecast]
    assert not all(feasible)
    wide = declared({"name": "g", "kind": "categorical", "levels": ["only"]}, name="one")
    lacking = {c.name: c.reason for c in candidates(spec(weights={"method": "none"}), wide)}
    assert next(iter(lacking)) == "none"
    assert "spec" not in lacking
    assert lacking["linear"]
    assert lacking["fourier"]


def test_what_to_type_for_a_candidate_is_the_candidate():
    """Put into the spec, the lines give the plan that was played; of weights not worth it, too."""
    low_budget = spec(epsilon="0.3", nominal_rows=100, generator={"method": "histogram"})
    post = [{"step": "clip", "at": 3}]
    post_processed = spec(
        weights={"method": "beta_debiased", "settings": {"tau": 1e-3}, "post_processing": post}
    )
    for base in (
        spec(), spec(shares={"generator": 0.6, "weights": 0.4}), low_budget, post_processed,
    ):  # fmt: skip
        offered = candidates(base, SCHEMA)
        assert len(offered) > 4
        for candidate in offered:
            if candidate.plan is None:
                assert candidate.spec_lines() == []
                continue
            lines = yaml.load_text("\n".join(candidate.spec_lines()), what="lines")
            typed = parse_spec(base.model_dump(by_alias=True) | lines)
            assert typed.shares == candidate.plan.spec.shares or not typed.weights.wanted
            plan = compile_plan(typed, SCHEMA)
            assert plan.stages == candidate.plan.stages
            assert plan.recipe.weighing == candidate.plan.recipe.weighing


@pytest.mark.slow
def test_other_generators_are_played_with_the_weights_of_the_spec(monkeypatch):
    """Those that a plan admits and that are fast; the screen says which one the spec has."""
    every = {"privbayes", "mst", "aim"}

    def others(base, schema=SCHEMA):
        found = [c for c in candidates(base, schema) if c.is_generator]
        for candidate in found:
            assert candidate.plan.generator.method == candidate.name
            assert (candidate.plan.weights is None) is (base.weights.method == "none")
            if candidate.plan.weights is not None:
                assert candidate.plan.weights.method == base.weights.method
            assert candidate.plan.spec.shares == base.shares
        return {candidate.name for candidate in found}

    assert others(spec()) == every
    assert others(spec(weights={"method": "none"})) == every
    assert others(spec(generator={"method": "mst"})) == every - {"mst"}
    assert others(spec(delta="0", weights={"method": "none"})) == every - {"aim"}
    wide = declared(*({"name": f"c{n}", "kind": "boolean"} for n in range(12)), name="wide")
    assert others(spec(), wide) == every - {"aim"}  # too slow
    weights = {"method": "none", "when_infeasible": "refuse"}
    auto = played_spec(spec(generator={"method": "auto"}, weights=weights), SCHEMA, rows=100)
    assert (auto.generator.method, auto.synthetic_rows) == ("aim", 100)
    assert auto.weights.when_infeasible == "refuse"
    assert others(auto) == every - {"aim"}
    named = rehearsal(auto, names=("none", "privbayes", "mst"))
    assert report.generator_lines(named) == [
        "rows are of the spec's generator, `aim`; `privbayes`, `mst`: the spec with that generator"
    ]
    assert report.generator_lines(rehearsal(auto)) == []


@pytest.mark.slow
def test_splits_of_a_slow_generator_are_not_played():
    """They alone of the spec's generator need fits of their own beside that of no weights."""
    wide = declared(*({"name": f"c{n}", "kind": "boolean"} for n in range(12)), name="wide")
    slow = candidates(spec(generator={"method": "aim"}), wide)
    assert {c.name for c in slow if c.plan is None} == {"fourier 50:50", "fourier 30:70"}
    assert all("a fit of `aim` of their own" in c.reason for c in slow if c.plan is None)
    fast = candidates(spec(generator={"method": "mst"}), wide)
    assert all(c.plan is not None for c in fast)


@pytest.mark.slow
def test_candidates_share_the_fit_of_a_generator_at_the_same_effort(monkeypatch):
    """One fit for each effort, and the same scores to the bit as with a fit for each candidate."""
    real, release, calls = Histogram.measure, module.rehearse_release, []

    def counted(self, table, *, noise):
        calls.append(noise)
        return real(self, table, noise=noise)

    monkeypatch.setattr(Histogram, "measure", counted)
    few = {"omega_seed": 1, "frequencies": 5, "base_rows": 300}
    shares = {name: shares for name, (_, shares) in MEASURED.items() if name != "linear"}
    monkeypatch.setattr(
        candidates_module, "MEASURED", {name: (few, split) for name, split in shares.items()}
    )
    small = spec(nominal_rows=300, synthetic_rows=200)
    names = ("none", "spec", "fourier", "fourier 50:50")
    design = rehearsal(small, names=names, runs=5)
    shared, fits = rehearse(design), len(calls)
    assert [score.candidate for score in shared[:5]] == [FLOOR, *names]
    assert fits == 3 * 5  # of `none`, of the 50:50 split, and of the others
    monkeypatch.setattr(module, "rehearse_release", lambda *a, fits, **given: release(*a, **given))
    assert rehearse(design) == shared
    assert len(calls) - fits == 4 * 5


@pytest.mark.slow
def test_a_generator_that_helps_is_recommended_with_its_line():
    """Columns that depend on each other, which a histogram forgets; weighted or not."""
    for weights, words in (("none", "no weights"), ("beta_debiased", "the spec's own weights")):
        base = spec(weights={"method": weights}, epsilon="6")
        design = rehearsal(base, names=("none", "spec", "mst"), runs=5)
        lines = report.summarise(design, rehearse(design))
        assert next(line for line in lines if line.candidate == "mst").outcome == "helps"
        assert report.recommended(lines) == "mst"
        told = report.recommendation_lines(design, lines, spec="r.yaml")
        assert told[0].startswith(f"recommendation: publish rows of `mst`, with {words}: they help")
        assert told[1].endswith("replaced its `generator`, `weights` and `shares`:")
        assert told[2] == "  generator: {method: mst}"
        row = next(row for row in report.table_rows(design, lines) if row[1] == "mst")
        assert (row[-3:-1] == ["", ""]) is (weights == "none")


def test_a_play_does_what_the_spec_says(table, tmp_path):
    def played(**weights):
        debiased = spec(weights={"method": "beta_debiased"} | weights)
        return rehearse_release(
            planned(debiased), table, labelled=table, rng=np.random.default_rng(2)
        )

    plain = played()
    assert plain.rows.scaled.rows == 1500
    assert plain.played.weights.steps == ("debias b(x - mu)", "self-normalise")
    assert plain.verdict == plain.played.weights.diagnostics.verdict.value
    assert plain.rows.weights.sum() == pytest.approx(1)
    assert played(normalisation="unnormalised").played.weights.steps == ("debias b(x)",)
    steps = [{"step": "clip", "at": 5}, {"step": "resample", "rows": 70}]
    resampled = played(post_processing=steps)
    assert any("clip at 5" in step for step in resampled.played.weights.steps)
    assert resampled.rows.scaled.rows == 70
    named = {"step": "beta_calibrate", "rows": str(tmp_path / "r.csv"), "declared": "a census"}
    (tmp_path / "r.csv").touch()  # compared by its digest; the play is given its rows
    named["sha256"] = hashlib.sha256(b"").hexdigest()
    public = played(post_processing=[named])
    assert any(
        "beta calibration" in step and "census" in step for step in public.played.weights.steps
    )
    unweighted = rehearse_release(
        planned(spec(), "none"), table, labelled=table, rng=np.random.default_rng(2)
    )
    assert unweighted.verdict == "none"
    assert np.ptp(unweighted.rows.weights) == 0
    few = {"method": "output_noised", "settings": {"rows": 8, "allow_more_rows": True}}
    published = planned(spec(weights=few, synthetic_rows=8))
    found = rehearse_release(published, table, labelled=table, rng=np.random.default_rng(2))
    assert found.rows.scaled.rows == 8


@pytest.mark.slow
def test_rows_are_used_as_their_verdict_says(table):
    weights = {"method": "measured", "settings": {"omega_seed": 1, "frequencies": 50}}
    noisy = spec(epsilon="0.05", weights=weights)
    played = rehearse_release(planned(noisy), table, labelled=table, rng=np.random.default_rng(2))
    assert played.verdict == "do not use"
    assert np.ptp(played.played.weights.log_weights) > 0
    assert np.ptp(played.rows.weights) == 0
    found = planned(spec(epsilon="8", weights=weights))
    good = rehearse_release(found, table, labelled=table, rng=np.random.default_rng(2))
    assert good.verdict != "do not use"
    assert np.ptp(good.rows.weights) > 0


def test_rows_that_constraints_forced_count_as_a_release_counts_them():
    """Weights alone would be used; hardly any row of the model satisfies the constraint."""
    never = {"name": "narrow", "never": {"x": {"lower": 0.002}}}
    x, *others = SCHEMA.to_mapping()["columns"]
    columns = [x | {"decimals": 4}, *others]
    narrow = PublicSchema.from_mapping({"name": "n", "columns": columns, "constraints": [never]})
    rng = np.random.default_rng(8)
    rows = random_law(narrow, KINDS["strong"], rng=rng).draw(3000, rng=rng)
    plans = [c.plan for c in candidates(spec(), narrow) if c.name == "spec"]
    played = rehearse_release(plans[0], rows, labelled=rows, rng=np.random.default_rng(2))
    assert played.played.weights.facts["constraints"]["forced"] > 1500
    assert played.verdict == "do not use"
    assert np.ptp(played.rows.weights) == 0


@pytest.mark.slow
def test_weights_that_clearly_help_are_recommended():
    """An independent generator and strong dependence: seeded, so there is no false alarm."""
    weights = {"method": "measured", "settings": {"omega_seed": 1, "frequencies": 50}}
    design = rehearsal(spec(epsilon="6", weights=weights))
    lines = report.summarise(design, rehearse(design))
    line = next(line for line in lines if line.candidate == "spec")
    assert line.outcome == "helps"
    assert line.changes["two_way"].gains
    assert line.changes["coefficients"].gains
    assert sum(line.verdicts.values()) == 6
    assert "do not use" not in line.verdicts
    assert 0 < line.ess_share < 1
    assert report.recommended(lines) == "spec"


@pytest.mark.slow
def test_weights_that_cannot_help_are_not_recommended():
    """Independent columns, which the generator keeps: nothing to repair, at a price."""
    design = rehearsal(spec(nominal_rows=300, epsilon="1"), kinds=("independent",), runs=8)
    lines = report.summarise(design, rehearse(design))
    line = next(line for line in lines if line.candidate == "spec")
    assert line.outcome == "hurts"
    assert line.changes["one_way"].loses
    assert report.recommended(lines) == "none"


@pytest.mark.slow
def test_the_floor_is_the_stand_in_table_itself_and_no_plan_is_not_played():
    progress = []
    base = rehearsal(spec(nominal_rows=2000), names=("none",), runs=5)
    absent = Candidate(name="fourier", plan=None, reason="because")
    design = dataclasses.replace(base, candidates=(*base.candidates, absent))
    scores = rehearse(design, progress=lambda done, total: progress.append((done, total)))
    assert progress == [(n, 5) for n in range(1, 6)]
    lines = {line.candidate: line for line in report.summarise(design, scores)}
    assert set(lines) == {FLOOR, "none"}
    for measure in design.scorer.measures:
        assert lines[FLOOR].changes[measure].mean < lines["none"].changes[measure].mean
    assert lines["none"].changes["one_way"].difference == 0
    assert not lines["none"].changes["one_way"].gains
    assert "because" in report.recommendation_lines(design, lines.values(), spec="s")[0]


@pytest.mark.nightly
def test_a_seed_decides_everything_and_the_number_of_processes_nothing():
    small = spec(nominal_rows=300, synthetic_rows=200)
    scores = rehearse(rehearsal(small, runs=5))
    assert rehearse(rehearsal(small, runs=5), jobs=2) == scores
    assert rehearse(rehearsal(small, runs=5, seed=2)) != scores


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.crash)])
def test_a_stopped_rehearsal_leaves_no_process(jobs):
    def stop(done, total):
        assert len(multiprocessing.active_children()) == (jobs if jobs > 1 else 0)
        raise KeyboardInterrupt

    design = rehearsal(spec(nominal_rows=200, synthetic_rows=100), names=("none",), runs=5)
    with pytest.raises(KeyboardInterrupt):
        rehearse(design, jobs=jobs, progress=stop)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_release_that_would_fail_is_counted_and_left_out(monkeypatch):
    real, calls = module.rehearse_release, []

    def failing(plan, table, **given):
        if plan.weights is not None:
            calls.append(1)
            if len(calls) == 2:
                raise WeightError("no")
        return real(plan, table, **given)

    monkeypatch.setattr(module, "rehearse_release", failing)
    design = rehearsal(spec(nominal_rows=200, synthetic_rows=100), runs=5)
    lines = {line.candidate: line for line in report.summarise(design, rehearse(design))}
    assert lines["spec"].verdicts[FAILED] == 1


def line(population, candidate, *differences, error=1.0):
    names = ("one_way", "two_way", "wasserstein", "coefficients", "means")
    changes = {
        name: report.Change(mean=10 + d, error=1, difference=d, difference_error=error)
        for name, d in zip(names, differences, strict=True)
    }
    return report.Line(population=population, candidate=candidate, changes=changes,
                       verdicts={"use": 5}, ess_share=0.5)  # fmt: skip


HELP, TRADE, HURT, NOTHING = (0, -3, 0, -3, 1), (3, 0, 3, -3, 0), (3, 0, 1, 0, 0), (1, -1, 2, -2, 0)


def test_outcomes_by_hand():
    unclear = "no clear change"
    for differences, outcome in ((HELP, "helps"), (TRADE, "trades"), (HURT, "hurts"),
                                 (NOTHING, unclear), ((-3, 0, 0, 0, 0), unclear),
                                 ((-3, -3, 3, 3, 0), "trades")):  # fmt: skip
        assert line("weak", "spec", *differences).outcome == outcome
    # Sure, but a trifle of none's error, 10: more runs must not make every loss count.
    small = line("weak", "spec", 0.4, -3, 0.4, -3, 0.4, error=0.01)
    assert small.outcome == "helps"
    assert line("weak", "spec", 0.6, -3, 0.6, -3, 0.6, error=0.01).outcome == "trades"


def test_weights_are_recommended_that_help_on_every_kind_with_dependence():
    hurting = line("weak", "spec", *HURT)
    for lines, name in (
        ([line("independent", "spec", *HURT), line("weak", "spec", *HELP)], "spec"),
        ([line("independent", "spec", *HELP)], "spec"),  # the only kind that was played
        ([hurting, line("strong", "spec", *HELP)], "none"),
        ([hurting, line("weak", "fourier", *TRADE)], "none"),
        ([line("weak", "none", *HELP), line("weak", FLOOR, *HELP)], "none"),
        ([hurting, line("weak", "fourier", *HELP), line("strong", "spec", *HELP),
          line("strong", "fourier", *HELP)], "fourier"),
        ([line("weak", "linear", 0, -3, 0, -3, 0), line("weak", "fourier", 0, -6, 0, -6, 0)],
         "fourier"),
    ):  # fmt: skip
        assert report.recommended(lines) == name


def test_a_recommendation_comes_with_what_to_type_and_the_next_command():
    name = "fourier 50:50"
    played = rehearsal(spec(), names=("none", "spec", name), kinds=("weak",))
    without = rehearsal(spec(weights={"method": "none"}), names=("none", name), kinds=("weak",))
    measured = ["  weights: {method: measured, settings: {omega_seed: 1}}",
                "  shares: {generator: 0.5, weights: 0.5}"]  # fmt: skip
    for design, found, typed in (
        (played, line("weak", name, *HELP), measured), (played, line("weak", "spec", *HELP), []),
        (played, line("weak", "spec", *HURT), ["  weights: {method: none}"]),
        (without, line("weak", name, *HURT), []),
    ):  # fmt: skip
        first, after, *lines = report.recommendation_lines(design, [found], spec="r.yaml")
        assert first.startswith("recommendation: ")
        assert after.startswith("next: dpiw plan r.yaml")
        assert lines == typed


@pytest.mark.slow
def test_a_rehearsal_plays_the_declared_questions_and_compares_their_forecasts():
    even = {"spread": 0.29}  # as the rehearsal's numbers are
    stated = (
        {"mean": "x by y"} | even, {"correlation": ["x", "z"]}, {"share": "y"},
        {"mean": "z"} | even,
    )  # fmt: skip
    few = {"frequencies": 10, "base_rows": 3000, "omega_seed": 1}
    base = spec(weights={"method": "measured", "settings": few}, questions=stated)
    played = rehearsal(base, kinds=("independent",))
    scores = rehearse(played)
    assert all(bool(score.answers) == (score.candidate == "spec") for score in scores)
    heads, *rows = report.question_rows(played, scores)
    assert [row[1] for row in rows] == [str(question) for question in played.questions]
    for row in rows:
        cells = dict(zip(heads, row, strict=True))
        forecast, found = float(cells["forecast"][1:]), float(cells["played"][1:])
        assert forecast == pytest.approx(found, rel=0.5)
        assert float(cells["held"][:-1]) >= 60  # of 6 to 12 intervals; 95% are expected
    assert report.question_rows(rehearsal(spec()), []) == []
    failed = dataclasses.replace(scores[-1], candidate="spec", verdict=FAILED, answers={})
    assert [row[3:] for row in report.question_rows(played, [failed])[1:]] == [["-", "-"]] * 4
    public = random_law(SCHEMA, KINDS["strong"], rng=np.random.default_rng(3))
    rows = WeightedRows.even(public.draw(900, rng=np.random.default_rng(4)))
    given = dataclasses.replace(played, populations=("public",), stand_in=rows)
    own = [row[2] for row in report.question_rows(given, rehearse(given))[1:]]
    assert own != [row[2] for row in report.question_rows(played, scores)[1:]]
