"""What all adversarial generators share: a planned total, labels, public starts."""

import numpy as np
import pytest

from dpiw.errors import SpecError
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.training import make_batch
from dpiw.methods.generators.registry import make_generator
from dpiw.plan.plan import compile_plan
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.generators.neural_world import SCHEMA, UNIT, spec, table

SMALL = {"steps": 5, "lot": 10, "batch": 6, "generator": [4], "discriminator": [4]}


def test_it_is_planned_at_the_spec_s_total():
    plan = compile_plan(spec("dpcgan", SMALL), SCHEMA)
    assert plan.epsilon_pld == pytest.approx(1, rel=2e-4)
    assert plan.epsilon_pld <= 1
    assert plan.stages[0].parameters["training"]["noise_multiplier"] > 0


def test_a_scaled_label_is_what_the_discriminator_sees_and_no_row_holds():
    """Real and made rows carry the same scale; decoding, settings and measurement keep it."""
    plain, scaled = (
        make_generator("dpcgan", SMALL | {"label_scale": scale}, pure=False).design(SCHEMA)
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
    [("dpgan", SMALL), ("dpcgan", SMALL),
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


@pytest.mark.parametrize("method", ["dpgan", "pategan"])
@pytest.mark.parametrize("start", [-1, 2**63, 1.0, True, "0"])
def test_a_start_is_a_whole_number(method, start):
    with pytest.raises(SpecError, match=r"generator\.settings\.start: expected a whole number"):
        make_generator(method, {"start": start}, pure=False)
