"""Confidence intervals for estimates from weighted synthetic rows."""

from __future__ import annotations

