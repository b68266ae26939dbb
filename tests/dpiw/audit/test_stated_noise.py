"""Stated noise as the audit sees it: less than was charged is found; what is not stated is said."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.audit.folders import FolderFacts
from dpiw.audit.stated_noise import check_stated_noise
from dpiw.methods.generators.histogram import Histogram
from dpiw.privacy import accounting
from dpiw.privacy.events import (
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
)
from dpiw.release.certificate import CertifiedStage
from dpiw.release.verification import verify
from tests.support.whole_runs import publish_run

GAUSSIAN = GaussianEvent(noise_multiplier=5.0, count=4)
LAPLACE = LaplaceEvent(noise_multiplier=5.0)
STEPS = PoissonSampledGaussianEvent(noise_multiplier=5.0, sampling_probability=0.1, count=9)
CHOICE = ExponentialMechanismEvent(epsilon=0.1)
SOUND = {"values": "counts", "law": "gaussian", "scale": 10.0, "sensitivity": 2.0, "event": 0}
SMALL, OPEN = "noise_too_small", "noise_not_checked"


def told(events: Any, *noise: Any) -> list[str]:
    """The codes of what the audit says of a stage."""
    stage = CertifiedStage(
        stage="fit_generator",
        method="toy",
        events=tuple(map(accounting.event_to_json, events)),
        parameters={},
        noise=noise,
    )
    release: Any = SimpleNamespace(certificate=SimpleNamespace(stages=[stage]))
    folder = FolderFacts(name="r", manifest_digest=None, run_key=None, release=release)
    return [finding.code for finding in check_stated_noise(folder)]


@pytest.mark.parametrize(
    ("events", "changes", "codes"),
    [
        ([GAUSSIAN], {}, []),
        ([STEPS], {}, []),
        ([LAPLACE], {"law": "laplace"}, []),
        ([LAPLACE], {"law": "spherical"}, []),
        ([CHOICE, GAUSSIAN], {"event": 1}, []),
        ([GAUSSIAN, dataclasses.replace(GAUSSIAN, count=1)], {}, []),  # of the same noise
        ([GAUSSIAN], {"scale": 10 * (1 - 1e-12)}, []),
        ([GAUSSIAN], {"scale": 10 * (1 - 1e-6)}, [SMALL]),
        ([GAUSSIAN], {"scale": 10 / 3}, [SMALL]),
        ([STEPS], {"scale": 10 / 3}, [SMALL]),
        ([LAPLACE], {"law": "laplace", "scale": 9.0}, [SMALL]),
        ([LAPLACE], {"law": "gaussian"}, [SMALL]),
        ([GAUSSIAN], {"law": "laplace"}, [SMALL]),
        ([CHOICE, GAUSSIAN], {}, [SMALL, OPEN]),  # names the selection
        ([GAUSSIAN, LAPLACE], {}, [OPEN]),
        *(
            ([GAUSSIAN], {name: value}, [SMALL])
            for name in ("scale", "sensitivity", "event")
            for value in (-1, True, "9", None, [])
        ),
        ([GAUSSIAN], {"event": 1}, [SMALL]),
    ],
)
def test_a_scale_is_compared_with_its_event(events, changes, codes):
    assert told(events, SOUND | changes) == codes


def test_an_earlier_certificate_is_not_checked_and_says_so():
    earlier = {"values": "counts", "law": "gaussian", "scale": 1.0}
    assert told([GAUSSIAN], earlier) == told([GAUSSIAN]) == [OPEN]
    assert told([CHOICE]) == []
    nothing = FolderFacts(name="r", manifest_digest=None, run_key=None, release=None)
    assert check_stated_noise(nothing) == []


MEASURE = Histogram.measure


def third(self: Histogram, *args: Any, **rest: Any) -> Any:
    assert self.calibrated is not None
    low = dataclasses.replace(self.calibrated, multiplier=self.calibrated.multiplier / 3)
    return MEASURE(dataclasses.replace(self, calibrated=low), *args, **rest)


@pytest.mark.parametrize("measure", [MEASURE, third])
def test_a_release_drawn_with_a_third_of_its_noise_is_found(make_workplace, monkeypatch, measure):
    """The certificate states what was drawn, beside the sensitivity and what was charged."""
    monkeypatch.setattr(Histogram, "measure", measure)
    place = make_workplace(weights="none")
    _, folder = publish_run(place.spec)
    key: Path = place.root / "state" / "keys" / "test.pub"
    report = audit(f"sqlite:///{place.ledger}", [folder], [key])
    assert [finding.code for finding in report.findings] == [SMALL] * (measure is third)
    (stage,) = verify(folder, public_key=[key]).certificate.stages
    (law,) = stage.noise
    assert json.dumps(sorted(law)) == '["event", "law", "scale", "sensitivity", "values"]'
    share = law["scale"] / law["sensitivity"] / stage.events[law["event"]]["noise_multiplier"]
    assert share == pytest.approx(1 / 3 if measure is third else 1)
