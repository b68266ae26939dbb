"""A Bayesian model of one's own: whatever it returns, a draw keeps its event or there is none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpiw.errors import LedgerConflictError, SpecError
from dpiw.methods.generators import registry
from dpiw.methods.generators.bayes import GridBayes
from dpiw.methods.generators.pseudo_posterior import GridLaw
from dpiw.release.verification import verify
from dpiw.run import steps
from tests.proof.generator_worlds import Laws
from tests.support.documents import python_of
from tests.support.whole_runs import prepared, publish_run
from tests.support.worlds import UNITS, coded, declared

SCHEMA = declared({"name": "x", "kind": "categorical", "levels": ["a", "b"], "nullable": True})
TOLD = np.log(np.arange(1.0, 7.0).reshape(3, 2))
ANY = st.floats(-50, 50) | st.floats() | st.sampled_from([np.inf, np.nan, 1e308, -1e308])


def calibrated(told, prior, *, unit=UNITS[0]):
    class Own(GridBayes):
        method = "own"

        def laws(self, domain):
            return {"x": GridLaw(log_likelihood=told, log_prior=prior)}

    return Own().calibrate(rho=0.5, schema=SCHEMA, unit=unit, nominal_rows=9)


def law(ready, codes):
    noise = Laws()
    ready.measure(coded(SCHEMA, np.reshape(np.array(codes, int), (-1, 1))), noise=noise)
    return noise.laws[0]


@settings(deadline=None, max_examples=50)
@given(told=arrays(float, (3, 2), elements=ANY), prior=arrays(float, 2, elements=ANY),
       codes=st.lists(st.integers(-1, 1), max_size=9), unit=st.sampled_from(UNITS))  # fmt: skip
def test_whatever_is_returned_neighbours_differ_by_the_event_at_most(told, prior, codes, unit):
    try:
        ready = calibrated(told, prior, unit=unit)
    except SpecError:
        return
    fewer = codes if unit.relation is UNITS[0].relation else [*codes, *[0] * unit.max_rows]
    for code in (-1, 0, 1):
        loss = law(ready, [*codes, *[code] * unit.max_rows]) - law(ready, fewer)
        assert np.ptp(loss) <= ready.parameters()["draw_epsilon"] * (1 + 1e-6)


def test_a_model_s_own_array_is_copied_and_the_claim_is_reached():
    before = law(ready := calibrated(told := 1000 * TOLD, np.zeros(2)), [0])
    assert np.ptp(before - law(ready, [])) > 0.99 * ready.parameters()["draw_epsilon"]
    told[:] = 0
    assert np.array_equal(law(ready, [0]), before)


@pytest.mark.parametrize(("told", "prior"), [
    *((np.where(TOLD > 1, bad, TOLD), TOLD[0]) for bad in (np.nan, np.inf, -np.inf, -1e7)),
    (TOLD, [0, -np.inf]), (TOLD, [0, 0, 0]), (TOLD.T, [0, 0, 0]), (TOLD[:, :0], []),
    (TOLD + 0j, TOLD[0]), (TOLD.astype(str), TOLD[0]), (np.zeros((3, 5000)), np.zeros(5000)),
])  # fmt: skip
def test_what_is_no_law_is_refused(told, prior):
    with pytest.raises(SpecError) as refused:
        calibrated(told, prior)
    assert refused.value.field == "law of x"


@pytest.mark.slow
def test_the_example_is_published_once_and_not_with_other_laws(make_workplace, monkeypatch):
    names: dict[str, Any] = {"__name__": "model"}
    exec(*python_of("CONTRIBUTING.md"), names)
    monkeypatch.setattr(registry, "GENERATORS", {"visits": names["Visits"]})
    place = make_workplace(generator="visits", weights="none")
    for path in (place.root / "schema.yaml", place.source):
        path.write_text(path.read_text().replace("age", "visits", 1))
    run, folder = publish_run(place.spec)
    assert verify(folder, public_key=place.key).certificate.stages[0].parameters["laws"]
    drawn = run.measurement("fit_generator").read_bytes()
    assert publish_run(place.spec)[1] == folder
    assert run.measurement("fit_generator").read_bytes() == drawn
    other = {"visits": GridLaw(log_likelihood=np.zeros((4, 99)), log_prior=np.zeros(99))}
    monkeypatch.setattr(names["Visits"], "laws", lambda self, domain: other)
    with pytest.raises(LedgerConflictError):
        steps.draw_synthetic(prepared(place, period="once"))
