"""The audit's page as people see it, in a real browser; every column of its tables included."""

from __future__ import annotations

import dataclasses

import pytest

from dpiw.audit.findings import KINDS, Finding
from dpiw.audit.report import build_page
from tests.support.browser import CORNERS, VIEWS

ONE_EACH = tuple({kind.severity: code for code, kind in KINDS.items()}.values())


@pytest.mark.nightly_cases("-all_views]")
@pytest.mark.parametrize(
    ("codes", "views"),
    [((), VIEWS), (ONE_EACH, CORNERS), (tuple(KINDS), VIEWS)],
    ids=["in_order-all_views", "each_severity-corners", "every_finding-all_views"],
)
def test_nothing_is_cut_off_or_hard_to_read_at_any_width(site, look_at, codes, views):
    long = "of a long, long name_" + 20 * "without_a_blank_"
    findings = tuple(Finding(code=code, subject=long, text=long) for code in codes)
    report = dataclasses.replace(site.audit(), findings=findings)
    if findings:
        report = dataclasses.replace(report, ledger=long)
    assert look_at(build_page(report), views) == []
