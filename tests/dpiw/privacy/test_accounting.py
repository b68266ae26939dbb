"""Totals against golden numbers, closed forms and independent roads."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from dpiw.errors import PrivacyError
from dpiw.privacy import accounting
from dpiw.privacy.accounting import (
    LATTICE_MARGIN,
    calibrate,
    compose_privacy_losses,
    epsilon,
    epsilon_rdp,
    event_from_json,
    event_privacy_loss,
    gaussian_noise_multiplier,
)
from dpiw.privacy.events import PrivacyEvent, merge_events
from dpiw.privacy.gaussian import gaussian_delta, gaussian_epsilon, selection_curve
from tests.support.events import gaussian, laplace, selection, sgd

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "accounting.json").read_text())
GENERATOR = event_from_json(GOLDEN["generator"])


def plan(rho: float) -> list[PrivacyEvent]:
    """14 selections, 14 noisy marginals and noisy weights, as a typical plan makes them."""
    return [
        selection(math.sqrt(8 * 0.2 * rho / 14), count=14),
        gaussian(math.sqrt(14 / rho), count=14),
        gaussian(math.sqrt(1 / (0.6 * rho))),
    ]


@pytest.mark.parametrize("row", GOLDEN["gaussian_noise_multiplier"]["rows"])
def test_gaussian_noise_multiplier_is_the_golden_kappa(row):
    value = gaussian_noise_multiplier(row["epsilon"], row["delta"])
    tolerance = GOLDEN["gaussian_noise_multiplier"]["tolerance"]
    assert value == pytest.approx(row["value"], abs=tolerance)
    assert gaussian_delta(value, row["epsilon"]) <= row["delta"]


@pytest.mark.parametrize("row", GOLDEN["totals"]["rows"], ids=lambda row: row["name"])
def test_totals_of_the_worked_example(row):
    events = [GENERATOR, *map(event_from_json, row["with"])]
    if "with_gaussian" in row:
        of = row["with_gaussian"]
        events.append(gaussian(gaussian_noise_multiplier(of["epsilon"], of["delta"])))
    tolerance = GOLDEN["totals"]["tolerance"]
    assert epsilon(events, delta=1e-6) == pytest.approx(row["value"], abs=tolerance)
    if "rdp" in row:
        assert epsilon_rdp(events, delta=1e-6) == pytest.approx(row["rdp"], abs=tolerance)


@pytest.mark.slow
def test_total_of_the_second_generator():
    golden = GOLDEN["other_generator"]
    events = [event_from_json(golden["event"])]
    for found, known in ((epsilon, "value"), (epsilon_rdp, "rdp")):
        total = found(events, delta=1e-6)
        assert total == pytest.approx(golden[known], abs=golden["tolerance"])


@pytest.mark.nightly_cases("row0", "row1", "row3")
@pytest.mark.parametrize("row", GOLDEN["turned_round"]["rows"])
@pytest.mark.slow
def test_noise_that_meets_a_total(row):
    make = gaussian if row["law"] == "gaussian" else laplace
    make_all = lambda rho: [GENERATOR, make((2 * rho) ** -0.5)]  # noqa: E731
    rho = calibrate(make_all, epsilon=row["epsilon"], delta=1e-6)
    tolerance = GOLDEN["turned_round"]["relative_tolerance"]
    assert (2 * rho) ** -0.5 == pytest.approx(row["noise_multiplier"], rel=tolerance)


def delta(event: PrivacyEvent, order: float) -> float:
    """Of the event alone, as its privacy losses are composed."""
    return float(compose_privacy_losses([event], 1e-4).get_delta_for_epsilon(order))


def spherical_delta(dimension: int, order: float) -> float:
    """Hockey stick of exp(-norm(z)) against its shift by one unit, by quadrature over the norm
    and the angle to the shift."""
    radius = np.linspace(0, 70, 14001)[1:]
    radial = np.exp((dimension - 1) * np.log(radius) - radius - math.lgamma(dimension))
    # The loss exceeds the order where the angle is beyond this one.
    cosine = (radius**2 + 1 - (radius + order) ** 2) / (2 * radius)
    start = np.arccos(np.clip(cosine, -1, 1))
    angle = start[:, None] + (math.pi - start)[:, None] * np.linspace(0, 1, 401)
    loss = np.sqrt(np.maximum(0.0, (r := radius[:, None]) ** 2 - 2 * r * np.cos(angle) + 1)) - r
    inner = np.sin(angle) ** (dimension - 2) * np.maximum(0.0, -np.expm1(order - loss))
    beta = math.sqrt(math.pi) * math.exp(
        math.lgamma((dimension - 1) / 2) - math.lgamma(dimension / 2)
    )
    return float(np.trapezoid(radial * np.trapezoid(inner, angle, axis=1) / beta, radius))


@pytest.mark.nightly_cases("[14]", "[3]")
@pytest.mark.parametrize("dimension", [2, 3, 14])
@pytest.mark.slow
def test_spherical_noise_costs_less_than_its_laplace_event(dimension):
    golden = GOLDEN["delta_at_half"]
    exact = spherical_delta(dimension, 0.5)
    assert exact == pytest.approx(golden["spherical"][str(dimension)], abs=5e-5)
    expected = golden["spherical_quadrature"][str(dimension)]
    assert exact == pytest.approx(expected, abs=golden["tolerance"])
    assert exact <= delta(laplace(1.0), 0.5)
    for order in (0.05, 0.9):
        assert spherical_delta(dimension, order) <= delta(laplace(1.0), order)


def test_laplace_and_pure_curves():
    golden = GOLDEN["delta_at_half"]
    assert delta(laplace(1.0), 0.5) == pytest.approx(golden["laplace"], abs=1e-4)
    pure = (math.exp(1) - math.exp(0.5)) / (1 + math.exp(1))
    assert pure == pytest.approx(golden["pure"], abs=golden["tolerance"])
    assert delta(selection(1.0), 0.5) < golden["laplace"]


@pytest.mark.parametrize(("multiplier", "at"), [(0.7, 1e-3), (4.2247, 1e-6), (30.0, 1e-10)])
def test_gaussian_closed_form_equals_its_pld(multiplier, at):
    by_pld = event_privacy_loss(gaussian(multiplier), 1e-4).get_epsilon_for_delta(at)
    closed = gaussian_epsilon(multiplier, at)
    total = epsilon([gaussian(multiplier)], delta=at)
    assert total == pytest.approx(gaussian_epsilon(multiplier / (1 + LATTICE_MARGIN), at))
    assert total > closed
    assert closed <= by_pld * (1 + 1e-9) + 1e-9
    assert by_pld == pytest.approx(closed, rel=1e-3, abs=1e-5)


def test_the_margin_covers_the_lattice():
    """Exact curve of the discrete Gaussian, even on a lattice 1000 times coarser than ours."""
    scale = 2.0**10
    for shift in (1, 17, 300, 1024, 4096):
        points = np.arange(-14 * scale, 14 * scale + shift)
        mass = np.exp(-0.5 * (points / scale) ** 2)
        mass /= mass.sum()
        loss = shift * (shift - 2 * points) / (2 * scale**2)
        margined = scale / shift / (1 + LATTICE_MARGIN)
        for at in (1e-2, 1e-4, 1e-6, 1e-9):
            order = gaussian_epsilon(margined, at)
            exact = np.sum(np.maximum(0.0, -np.expm1(order - loss)) * mass)
            assert exact <= gaussian_delta(margined, order)


def laplace_and_gaussian_delta(b: float, multiplier: float, order: float) -> float:
    """Exact delta of one Laplace and one Gaussian mechanism, by conditioning on the first."""

    def inner(x: float) -> float:
        loss = (abs(x - 1) - abs(x)) / b
        return math.exp(-abs(x) / b) / (2 * b) * gaussian_delta(multiplier, order - loss)

    pieces = [(-40 * b, 0.0), (0.0, 1.0), (1.0, 40 * b + 1)]
    return sum(quad(inner, *piece, epsabs=1e-14, epsrel=1e-10)[0] for piece in pieces)


@pytest.mark.parametrize(("b", "multiplier"), [(1.0, 2.0), (3.0, 5.0), (0.5, 1.0)])
def test_a_mixed_total_equals_its_integral(b, multiplier):
    total = epsilon([laplace(b), gaussian(multiplier)], delta=1e-6)
    exact = laplace_and_gaussian_delta(b, multiplier, total)
    assert exact <= 1e-6
    assert laplace_and_gaussian_delta(b, multiplier, total * 0.998) > 1e-6


def test_a_selection_beside_a_gaussian_costs_at_least_its_worst_fixed_pair():
    e, multiplier = 0.8, 3.0
    total = epsilon([selection(e), gaussian(multiplier)], delta=1e-6)

    def fixed_pair(t: float, order: float) -> float:
        share = math.expm1(t - e) / math.expm1(-e)
        return share * gaussian_delta(multiplier, order - t) + (1 - share) * gaussian_delta(
            multiplier, order - t + e
        )

    assert max(fixed_pair(t, total) for t in np.linspace(0, e, 101)) <= 1e-6
    assert max(fixed_pair(t, total * 0.9) for t in np.linspace(0, e, 101)) > 1e-6


def test_selections_cost_less_than_a_black_box_of_their_epsilon():
    from dp_accounting.pld import privacy_loss_distribution as pld

    black_box = pld.from_privacy_parameters(
        pld.common.DifferentialPrivacyParameters(0.3, 0.0), value_discretization_interval=1e-4
    ).self_compose(14)
    for order in (0.0, 0.2, 0.45):  # a single one has its curve
        exact = float(selection_curve(0.5, np.array([order]))[0])
        assert delta(selection(0.5), order) == pytest.approx(exact, rel=1e-3)
    ours = epsilon([selection(0.3, count=14)], delta=1e-6)
    assert ours < 0.75 * black_box.get_epsilon_for_delta(1e-6)


@pytest.mark.parametrize(
    "events",
    [plan(0.03), [GENERATOR, laplace(3.0)], [laplace(5.0, count=20)], [sgd(1.0, 500), gaussian(4)]],
)
def test_renyi_accounting_agrees_from_above(events):
    merged = accounting._with_margin(merge_events(events))
    by_pld = compose_privacy_losses(merged, 1e-4).get_epsilon_for_delta(1e-6)
    by_rdp = epsilon_rdp(events, delta=1e-6)
    assert by_pld < by_rdp < 1.2 * by_pld
    assert epsilon(events, delta=1e-6) == by_pld


def test_pure_total_is_the_exact_sum():
    total = epsilon([laplace(4.0, count=2), selection(0.25, count=4)], delta=0)
    assert total == pytest.approx(1.5, rel=1e-14)
    assert total >= 1.5
    assert epsilon([laplace(4.0)], delta=1e-6) <= 0.25 * (1 + 1e-12)
    assert epsilon([], delta=0) == epsilon([], delta=1e-6) == 0.0


def test_extremes_fall_back_to_the_renyi_bound():
    tiny = epsilon([gaussian(3.0), laplace(3.0)], delta=1e-15)
    assert tiny == epsilon_rdp([gaussian(3.0), laplace(3.0)], delta=1e-15)
    loud = [gaussian(0.01), laplace(3.0)]
    assert epsilon(loud, delta=1e-6) == epsilon_rdp(loud, delta=1e-6)


@pytest.mark.nightly_cases("30.0", "0.1")
@pytest.mark.parametrize("target", [0.005, 0.1, 1.0, 4.0, 30.0, 200.0])
def test_calibration_meets_the_total_and_never_exceeds_it(target):
    total = epsilon(plan(calibrate(plan, epsilon=target, delta=1e-6)), delta=1e-6)
    assert target * (1 - 1e-4) <= total <= target


@pytest.mark.parametrize("bad", [-0.1, 1.0, math.nan])
def test_delta_outside_its_range_is_refused(bad):
    for act in (
        lambda: epsilon([gaussian(1.0)], delta=bad),
        lambda: epsilon_rdp([gaussian(1.0)], delta=bad),
        lambda: gaussian_noise_multiplier(1.0, bad),
        lambda: calibrate(plan, epsilon=1.0, delta=bad),
    ):
        with pytest.raises(PrivacyError, match="delta"):
            act()


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.nan, math.inf])
def test_epsilon_outside_its_range_is_refused(bad):
    with pytest.raises(PrivacyError, match="epsilon"):
        calibrate(plan, epsilon=bad, delta=1e-6)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (plan, "delta = 0 cannot be met"),
        (lambda rho: [laplace(0.5), laplace(rho**-0.5)], "no noise level"),  # one is fixed
        (lambda rho: [laplace(10.0)], "no noise level"),  # it ignores the effort
    ],
)
def test_what_no_noise_meets_without_a_delta_is_refused(make, match):
    with pytest.raises(PrivacyError, match=match):
        calibrate(make, epsilon=1.0, delta=0)


def test_calibration_without_delta_is_exact():
    rho = calibrate(lambda rho: [gaussian((2 * rho) ** -0.5)], epsilon=1.0, delta=1e-6)
    assert (2 * rho) ** -0.5 == pytest.approx(4.2247, rel=3e-4)  # kappa
    rho = calibrate(lambda rho: [laplace((2 * rho) ** -0.5)], epsilon=1.0, delta=0)
    total = epsilon([laplace((2 * rho) ** -0.5)], delta=0)
    assert 1 - 1e-4 <= total <= 1


def test_calibration_at_a_jump_stays_below_it():
    rho = calibrate(lambda rho: [laplace(2.0 if rho < 0.07 else 0.5)], epsilon=1.0, delta=0)
    assert 0.07 * (1 - 1e-6) < rho < 0.07


def test_only_one_block_of_selections_uses_the_sharper_curve():
    """Two blocks of different epsilon: the weaker one is composed by its single-selection pair."""
    strong, weak = selection(0.4, count=5), selection(0.1, count=20)
    block = event_privacy_loss(strong, 1e-4, as_block=True)
    expected = block.compose(event_privacy_loss(weak, 1e-4)).get_epsilon_for_delta(1e-6)
    ours = compose_privacy_losses(merge_events([strong, weak]), 1e-4).get_epsilon_for_delta(1e-6)
    assert ours == pytest.approx(expected, rel=1e-9)
