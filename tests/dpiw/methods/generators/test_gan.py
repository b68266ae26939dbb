"""gan and cgan: benchmarks that no plan takes and no release can hold."""

import numpy as np
import pytest

from dpiw.errors import NotPublishableError, SpecError, UncalibratedError
from dpiw.methods.generators.adversarial import Design, make_batch
from dpiw.methods.generators.registry import make_generator
from dpiw.plan.plan import compile_plan
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from tests.dpiw.methods.generators.neural_world import SCHEMA, UNIT, spec, table

SMALL = {"steps": 5, "lot": 10, "batch": 6, "generator": [4], "discriminator": [4]}


@pytest.mark.parametrize("method", ["gan", "cgan"])
def test_no_plan_takes_them(method):
    with pytest.raises(NotPublishableError, match=f"{method}: not a private method"):
        compile_plan(spec(method, SMALL), SCHEMA)


def test_their_private_form_is_planned_at_the_spec_s_total():
    plan = compile_plan(spec("dpcgan", SMALL), SCHEMA)
    assert plan.epsilon_pld == pytest.approx(1, rel=2e-4)
    assert plan.epsilon_pld <= 1
    assert plan.stages[0].parameters["training"]["noise_multiplier"] > 0


@pytest.mark.parametrize("method", ["gan", "cgan"])
@pytest.mark.parametrize("loss", ["logistic", "wasserstein"])
@pytest.mark.parametrize("rows", [0, 40])
def test_what_they_measure_is_not_publishable(method, loss, rows):
    one = make_generator(method, SMALL | {"loss": loss}, pure=True)
    assert not one.private
    assert one.events(schema=SCHEMA, unit=UNIT) == ()
    with pytest.raises(UncalibratedError):
        one.measure(table(rows), noise=SecureNoise())
    ready = one.calibrate(rho=1.0, schema=SCHEMA, unit=UNIT, nominal_rows=40)
    measurement = ready.measure(table(rows), noise=SecureNoise())
    assert not measurement.publishable
    model = ready.model(measurement, schema=SCHEMA)
    drawn = model.sample(70_000, rng=np.random.default_rng(0))
    assert drawn.rows == 70_000
    assert model.critic(drawn.scaled).shape == (70_000,)
    assert dict(ready.parameters())["loss"] == loss


def test_a_conditional_one_keeps_the_shares_of_labels():
    ready = make_generator("cgan", SMALL, pure=False).calibrate(
        rho=1.0, schema=SCHEMA, unit=UNIT, nominal_rows=40
    )
    private = table(200)
    share = float(private.confidential().columns["sick"].mean())
    model = ready.model(ready.measure(private, noise=SecureNoise()), schema=SCHEMA)
    sick = model.sample(10_000, rng=np.random.default_rng(0)).frame()["sick"]
    # Standard error 0.0046; six of them.
    assert sick.mean() == pytest.approx(share, abs=0.028)


def test_a_scaled_label_is_what_the_discriminator_sees_and_no_row_holds():
    """Real and made rows carry the same scale; decoding, settings and measurement keep it."""
    plain, scaled = (
        make_generator("cgan", SMALL | {"label_scale": scale}, pure=True).design(SCHEMA)
        for scale in (1.0, 7.0)
    )
    real = table(30).confidential()
    middle = plain.made.width
    one, two = plain.encode(real), scaled.encode(real)
    np.testing.assert_array_equal(two[:, middle:], 7 * one[:, middle:])
    np.testing.assert_array_equal(two[:, :middle], one[:, :middle])
    assert scaled.decode(two).equals(plain.decode(one))
    parameters = plain.generator_architecture.initial(np.random.default_rng(0))
    shares = np.ones(plain.given.width)
    made, louder = (
        make_batch(design, parameters, shares, 20, np.random.default_rng(1)).rows
        for design in (plain, scaled)
    )
    np.testing.assert_array_equal(louder[:, middle:], 7 * made[:, middle:])
    np.testing.assert_array_equal(louder[:, :middle], made[:, :middle])
    assert Design.from_json(scaled.to_json(), schema=SCHEMA) == scaled


@pytest.mark.parametrize(
    ("method", "settings"),
    [("dpgan", SMALL), ("dpcgan", SMALL), ("gan", SMALL),
     ("pategan", {"rounds": 2, "generator": [4], "student": [4], "teacher": 4})],
)  # fmt: skip
def test_the_start_is_public_and_changes_the_training(method, settings):
    """The same noise from another start ends elsewhere; from the same start at the same place."""

    def measured(start):
        one = make_generator(method, settings | {"start": start}, pure=False)
        ready = one.calibrate(rho=1.0, schema=SCHEMA, unit=UNIT, nominal_rows=40)
        assert ready.parameters()["start"] == start
        return ready.measure(table(40), noise=SeededNoise(1)).digest

    assert measured(0) == measured(0)
    assert measured(0) != measured(1)


@pytest.mark.parametrize("method", ["dpgan", "gan", "pategan"])
@pytest.mark.parametrize("start", [-1, 2**63, 1.0, True, "0"])
def test_a_start_is_a_whole_number(method, start):
    with pytest.raises(SpecError, match=r"generator\.settings\.start: expected a whole number"):
        make_generator(method, {"start": start}, pure=False)
