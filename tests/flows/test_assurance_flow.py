"""The weekly flow calls `make` for every suite, and fails when one of them does."""

from __future__ import annotations

import pytest

import flows.assurance
from flows.assurance import CHECKOUT, SUITES, AssuranceFailedError, assurance

MAKEFILE = """
proof:
\t@env | grep -c ^PREFECT > seen || true
\t@exit {code}
nightly:
\t@touch nightly
"""


@pytest.mark.parametrize("code", [0, 1])
def test_every_suite_runs_and_a_red_one_fails_the_flow(tmp_path, monkeypatch, code) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(code=code))
    monkeypatch.setattr(flows.assurance, "CHECKOUT", tmp_path)
    if code:
        with pytest.raises(AssuranceFailedError):
            assurance.fn()
    else:
        assurance.fn()
    assert (tmp_path / "nightly").exists()
    assert (tmp_path / "seen").read_text() == "0\n"


@pytest.mark.parametrize("suites", [[], ["clean"], ["proof", "release"]])
def test_other_targets_are_refused(suites: list[str]) -> None:
    with pytest.raises(AssuranceFailedError):
        assurance.fn(suites=suites)


def test_the_makefile_has_the_suites() -> None:
    targets = (CHECKOUT / "Makefile").read_text()
    assert all(f"\n{suite}: " in targets for suite in SUITES)
