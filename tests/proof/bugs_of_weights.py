"""Bugs of regressions and sums under noise, and the checks that must find them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.measured import choice
from dpiw.methods.weights.measured import method as measured
from dpiw.methods.weights.measured.features import Stack
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.paper import beta, regression
from dpiw.methods.weights.paper.beta import BetaNoised
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.proof import blind as noninterference
from tests.proof import weight_worlds as weights
from tests.proof.attacks import assault
from tests.proof.bugs import ADD, REPLACE
from tests.proof.neighbours import Plant, instead, scaled
from tests.support.draws import Still, check_draws, drawn
from tests.support.worlds import coded, flags


# Checks
def check_weights_draw_once():
    """One draw of the coefficients, of the event's multiplier times the stated sensitivity."""
    world, public_schema = weights.regression(BetaNoised, 2, tight=0), weights.schema(2)
    laws, _ = drawn(lambda noise: world.attack(True, noise))
    ready = weights.calibrated(BetaNoised(penalty=20.0), public_schema)
    assert len(laws) == sum(e.count for e in ready.events(schema=public_schema, unit=ADD)) == 1
    wanted = ready.calibrated.multiplier * ready.calibrated.sensitivity
    assert laws[0].scale == pytest.approx(wanted, rel=1e-6)


def private(public_schema: Any, rows: Any, kind: Any = PrivateTable) -> Any:
    columns = len(public_schema.columns)
    return kind(schema=public_schema, scaled=weights.scaled(*rows, columns=columns))


def ends_of(columns: int, *values: float) -> list[tuple[float, ...]]:
    """Rows of one value each."""
    return [(value,) * columns for value in values]


def crowd_of(columns: int) -> list[tuple[float, ...]]:
    return [tuple(row) for row in np.random.default_rng(columns).random((25, columns))]


def check_exact_sensitivity():
    """Exact coefficients of neighbours, in the norm that the noise pays for: corners and crowds."""
    for columns in (1, 6, 13):
        public_schema, crowd = weights.schema(columns), crowd_of(columns)
        top, low, middle = ends_of(columns, 1.0, 0.0, 0.5)
        pairs = {ADD: [([], [top]), (crowd, [*crowd, top])], REPLACE: [([low], [top])]}
        synthetic = private(public_schema, [middle], SyntheticTable)
        for unit, kind in ((u, k) for u in (ADD, REPLACE) for k in NoiseKind):
            ready = BetaNoised(noise=kind, penalty=float(columns)).calibrate(
                rho=5.0, schema=public_schema, unit=unit, nominal_rows=10**9
            )
            for pair in pairs[unit]:
                ends = [
                    ready.solution(ready.regression(private(public_schema, rows), synthetic))
                    for rows in pair
                ]
                order = 1 if kind is NoiseKind.LAPLACE else 2
                moved = float(np.linalg.norm(ends[1] - ends[0], order))
                assert moved <= ready.calibrated.sensitivity * (1 + 1e-9)


PEOPLE = (ADD, REPLACE, weights.THREE_ROWS)
FLAGS = flags("c0", "c1", "c2")
SHARES = dict.fromkeys(("linear", "squares", "products", "fourier"), 0.5)
"""Of a stack of norm 1 on several columns; a row then counts 1/2 beside it."""


def measuring(unit: Any, columns: int) -> tuple[Any, Any]:
    public_schema = weights.schema(columns)
    ready = Measured(features=SHARES, frequencies=3, omega_seed=2).calibrate(
        rho=2.0, schema=public_schema, unit=unit, nominal_rows=500
    )
    return ready, public_schema


def check_the_sum_draws_once():
    """One draw for all of the sum, of the event's multiplier times a sensitivity of our own."""
    for unit in PEOPLE:
        ready, public_schema = measuring(unit, 4)
        table = private(public_schema, [(1.0,) * 4] * 5)
        laws, _ = drawn(lambda noise, m=ready, t=table: m.measure(t, None, noise=noise))
        assert len(laws) == sum(e.count for e in ready.events(schema=public_schema, unit=unit)) == 1
        replaced = unit is REPLACE
        reach = 2.0 if replaced else math.hypot(1.0, 0.5)
        assert laws[0].dimension == 4 + 4 + 6 + 6 + (not replaced)
        (event,) = ready.events(schema=public_schema, unit=unit)
        wanted = event.noise_multiplier * unit.max_rows * reach
        assert laws[0].scale == pytest.approx(wanted, rel=1e-5)


def check_exact_sums():
    """Sums of neighbours as `measure` has them, against the noise that is drawn for them."""
    for columns, unit in ((c, u) for c in (1, 4) for u in PEOPLE):
        ready, public_schema = measuring(unit, columns)
        crowd, (top, low, middle) = crowd_of(columns), ends_of(columns, 1.0, 0.0, 0.5)
        added, k = [top] * unit.max_rows, unit.max_rows
        pairs = [(crowd, crowd + added), ([], added), ([], [low] * k)]
        if unit is REPLACE:
            pairs = [([low, *crowd], [top, *crowd]), ([middle], [top])]
        for pair in pairs:
            tables = [private(public_schema, rows) for rows in pair]
            laws, _ = drawn(lambda noise, m=ready, t=tables[0]: m.measure(t, None, noise=noise))
            ends = [ready.measure(t, None, noise=Still()).arrays["sum"] for t in tables]
            moved = float(np.linalg.norm(ends[1] - ends[0]))
            assert moved * ready.calibrated.multiplier <= laws[0].scale


def check_a_blind_sum_says_nothing():
    """With the draws replaced by public numbers, nothing of a table is left."""
    noninterference.compare_measurements("measured stack", 6)
    noninterference.compare_measurements("measured chosen", 6)


def choosing(unit: Any) -> tuple[Any, tuple[Callable[..., Any], ...]]:
    """A choice of two of three tables, and its measurements of neighbours: rows join a crowd."""
    ready = Measured(choose=2, omega_seed=2).calibrate(
        rho=2.0, schema=FLAGS, unit=unit, nominal_rows=500
    )
    cells = np.indices((2, 2, 2)).reshape(3, -1).T
    public = SyntheticTable(schema=FLAGS, scaled=coded(FLAGS, cells).confidential())
    crowd, more = [(1, 0, 0)] * 40, [(1, 0, 0)] * unit.max_rows
    before = [(0, 0, 0)] * unit.max_rows if unit is REPLACE else []
    tables = [coded(FLAGS, np.array([*crowd, *last])) for last in (before, more)]
    return ready, tuple(
        lambda noise, table=table: ready.measure(table, public, noise=noise) for table in tables
    )


def check_choices_are_the_events():
    """As many selections as are charged, each of the epsilon that is charged."""
    for unit in PEOPLE:
        ready, neighbours = choosing(unit)
        check_draws(ready, schema=FLAGS, unit=unit, neighbours=neighbours)


def check_exact_scores():
    """Scores of neighbours as the selection reads them, against the sensitivity it gets."""
    for unit in PEOPLE:
        _, neighbours = choosing(unit)
        told = []
        for measure in neighbours:
            with mock.patch.object(mechanisms, "select", return_value=0) as select:
                measure(Still())
            told.append(select.call_args_list[0])
        moved = np.abs(told[0].args[0] - told[1].args[0]).max()
        assert 0 < moved <= min(each.kwargs["sensitivity"] for each in told)


def check_a_choice_hides_a_canary():
    """The attacker assumes a choice without noise."""
    world = weights.chosen(rho=0.3, sharp=1e3, tight=0.0)
    bound = assault(world, runs=200, noise=SeededNoise(20_241_130))
    assert bound.lower <= bound.claimed


# Bugs
def best_of_three(real, vector, **rest):
    """Three draws, and the one that fits the private rows best."""
    drawn = [real(vector, **rest) for _ in range(3)]
    return min(drawn, key=lambda draw: np.linalg.norm(draw - vector))


def free_intercept(patch):
    """The constant's coefficient is not penalised."""

    def gradient(real, self, b):
        adjusted = real(self, b)
        adjusted[-1] -= self.penalty * (1 - 1e-6) * b[-1]
        return adjusted

    def hessian(real, self, b):
        adjusted = real(self, b)
        adjusted[-1, -1] -= self.penalty * (1 - 1e-6)
        return adjusted

    instead(regression.Regression, "gradient", gradient)(patch)
    instead(regression.Regression, "hessian", hessian)(patch)


def half_for_replace(bounds, unit):
    return 1 / 2 if unit.relation is REPLACE.relation else 1


def normaliser_from_private_rows(real, self, table, synthetic):
    """Synthetic rows weigh N_D/N_G, not n0/N_G."""
    problem = real(self, table, synthetic)
    share = max(1, table.confidential().rows) / synthetic.scaled.rows
    return replace(problem, synthetic_weight=1e4 * share)


def drawn_at(scale: Callable[..., float]) -> Plant:
    """The noise of a sum at another scale: of what was due, and of what it was due for."""

    def change(real, stack, **facts):
        due = real(stack, **facts)
        return replace(due, law=replace(due.law, scale=scale(due, stack, **facts)))

    return instead(measured, "sum_noise", change)


def of_the_features(due, stack, *, multiplier, unit, **_):
    """As if the count were not measured."""
    reach = unit.max_rows * stack.norm * (1 + (unit.relation is REPLACE.relation))
    return multiplier * min(due.sensitivity, reach * (1 + 1e-6))


def one_row_a_person(real, stack, *, unit, **rest):
    """A person's further rows are not paid for."""
    return replace(real(stack, unit=replace(unit, max_rows=1, id_column=None), **rest), unit=unit)


def exact_count(real, self, table, synthetic, *, noise):
    """The number of rows is released as it is: sums are private, sizes are thought not to be."""
    measurement = real(self, table, synthetic, noise=noise)
    total = measurement.arrays["sum"].copy()
    total[-1] = self.calibrated.constant * table.confidential().rows
    return replace(measurement, arrays={"sum": total})


def credit_from_private_rows(real, self, table, synthetic, *, noise):
    """alpha by the exact means of the private rows, told beside the noisy sum."""
    measurement = real(self, table, synthetic, noise=noise)
    credit = noninterference.private_credit(self, measurement, table.batches(), synthetic)
    return replace(measurement, facts={**measurement.facts, "credit": credit})


def ranges_from_private_rows(real, self, table, synthetic, *, noise):
    """Features within the range of the private rows, which the measurement states."""
    rows = SyntheticTable(schema=table.schema, scaled=table.confidential())
    return real(self.for_rows(rows), table, synthetic, noise=noise)


def rows_counted_twice(real, self, table, synthetic, *, noise):
    """Where a person has several rows, each is added for every one of them."""
    many = ScaledTable.concatenate([table.confidential()] * self.calibrated.unit.max_rows)
    table = PrivateTable(schema=table.schema, scaled=many)
    return real(self, table, synthetic, noise=noise)


def blocks_that_fit_left_out(real, every, table, synthetic, *, unit, **rest):
    """What is chosen and no further off than its noise is dropped: by the exact scores, again."""
    chosen = real(every, table, synthetic, unit=unit, **rest)
    with mock.patch.object(mechanisms, "select", return_value=0) as select:
        real(every, table, synthetic, unit=unit, **rest)
    exact = select.call_args_list[0].args[0]
    worth = dict(zip((*every.tables, *every.bundles), exact, strict=True))
    return replace(
        chosen,
        tables=tuple(each for each in chosen.tables if worth[each] > 0),
        bundles=tuple(each for each in chosen.bundles if worth[each] > 0),
    )


def half_of_what_is_replaced(unit):
    return 0.5 if unit.relation is REPLACE.relation else 1


BUGS: dict[str, tuple[Plant, Callable[[], None], str]] = {
    "noise of the mean on the sum": (
        drawn_at(lambda due, *_, **__: due.law.scale / due.nominal_rows), check_the_sum_draws_once,
        "DataResponsibly/DataSynthesizer#34 is of this kind: noise of shares on counts"),
    "count released without noise": (
        instead(Measured, "measure", exact_count), check_a_blind_sum_says_nothing,
        "known class: an exact total beside noisy sums"),
    "count measured and not paid for": (
        drawn_at(of_the_features), check_exact_sums, "known class"),
    "a stack's noise from its largest part": (
        lambda patch: patch.setattr(
            Stack, "norm", property(lambda self: max(self.shares[p] for p in self.parts))),
        check_the_sum_draws_once,
        "known class: opendp/smartnoise-sdk#472 (all columns on one column's budget)"),
    "sums under replace-one paid as add/remove": (
        drawn_at(lambda due, *_, **__: due.law.scale / (1 if due.constant else 2)),
        check_exact_sums, "google/differential-privacy#378"),
    "credit from private rows": (
        instead(Measured, "measure", credit_from_private_rows), check_a_blind_sum_says_nothing,
        "known class: a tuning constant from exact private statistics"),
    "ranges of features from private rows": (
        instead(Measured, "measure", ranges_from_private_rows), check_a_blind_sum_says_nothing,
        "alan-turing-institute/reprosyn#38, sassoftware/dpmm#18: a domain from the data"),
    "sums of a person's rows paid as one row": (
        instead(measured, "sum_noise", one_row_a_person), check_exact_sums,
        "known class: OpenMined/PipelineDP#263"),
    "sums with a person's rows added twice": (
        instead(Measured, "measure", rows_counted_twice), check_exact_sums, "known class"),
    "choices of blocks not charged": (
        instead(Measured, "events", lambda real, self, **of: real(self, **of)[:1]),
        check_choices_are_the_events, "tensorflow/privacy#76 (selection not accounted)"),
    "blocks chosen without noise": (
        lambda patch: patch.setattr(
            SeededNoise, "noisy_argmax", lambda _, scores, *, scale: int(np.argmax(scores))),
        check_a_choice_hides_a_canary, "known class: features chosen by exact scores"),
    "blocks chosen under replace-one as under add/remove": (
        scaled(choice, "score_sensitivity", half_of_what_is_replaced), check_exact_scores,
        "google/differential-privacy#378"),
    "scores of a person's rows paid as one row": (
        scaled(choice, "score_sensitivity", lambda unit: 1 / unit.max_rows), check_exact_scores,
        "known class: OpenMined/PipelineDP#263"),
    "chosen blocks looked at again": (
        instead(measured, "chosen_blocks", blocks_that_fit_left_out),
        check_a_blind_sum_says_nothing, "known class: scores as evidence after the choice"),
    "best of three draws": (
        instead(beta, "noisy_vector", best_of_three), check_weights_draw_once,
        "tensorflow/privacy#76 (selection not accounted); sarus-tech/dp-xgboost#3"),
    "Laplace noise at the L2 sensitivity": (
        instead(regression, "l1_reach", lambda _, *given: regression.l2_reach(*given)),
        check_exact_sensitivity, "arXiv 2108.10934, section 3 (docs/method.md section 4)"),
    "intercept not penalised": (
        free_intercept, check_exact_sensitivity,
        "default of scikit-learn's LogisticRegression (docs/method.md section 3)"),
    "half the sensitivity under replace-one": (
        scaled(regression, "l2_reach", half_for_replace), check_exact_sensitivity,
        "google/differential-privacy#378"),
    "sensitivity from one end of the bounds": (  # from the lower ends: 0 each, and the constant
        instead(regression, "l2_reach", lambda _, bounds, unit: 0.5 * unit.max_rows),
        check_exact_sensitivity, "IBM/differential-privacy-library#105; interpretml/interpret#523"),
    "weights normalised by the private row count": (
        instead(BetaNoised, "regression", normaliser_from_private_rows), check_exact_sensitivity,
        "known class: class_weight='balanced' (docs/method.md sections 2 and 3)"),
}  # fmt: skip
