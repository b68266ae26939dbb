"""Run the long suites of a checkout by `make`, as the weekly deployment does.

The checkout needs the test tools (`make test` installs them) and nothing confidential: tests make
their own data. A run that stopped goes on where it stopped (docs/operations.md).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from dpiw.errors import DPIWError
from tasks.failures import only_our_own

CHECKOUT = Path(__file__).resolve().parents[1]
SUITES = ("proof", "nightly")
"""Targets of the Makefile; `nightly` includes `test-crash`."""


class AssuranceFailedError(DPIWError):
    """A suite has parts that failed or did not run; `build/suites` holds their logs."""

    exit_code = 34


@flow(name="dpiw-assurance", retries=0, persist_result=False, log_prints=False)
@only_our_own("assurance")
def assurance(suites: Sequence[str] = SUITES) -> None:
    """Run the suites one after the other, each to its end.

    Args:
        suites: targets of this checkout's Makefile.

    Raises:
        AssuranceFailedError: `make` ended with an error, or a suite is unknown.
    """
    if not suites or not set(suites) <= set(SUITES):
        raise AssuranceFailedError(f"suites: expected some of {', '.join(SUITES)}")
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT")}
    failed = [
        suite
        for suite in suites
        if subprocess.run(["make", suite], cwd=CHECKOUT, env=clean, check=False).returncode != 0  # noqa: S603, S607 - our own targets
    ]
    if failed:
        raise AssuranceFailedError(f"{', '.join(failed)}: see build/suites in the checkout")
