"""How far unbiased estimates from noised features can reach before their variance is hopeless."""

from __future__ import annotations

USABLE = 1.5
"""Largest sigma times norm of the parameters: a variance of e^(1.5^2) = 9.5 times the clean one."""


def largest_norm(stddev: float) -> float:
    """Of parameters that can be learnt under noise of that standard deviation.

    Source: docs/method.md section 15: the variance of the corrected exponential loss grows as
    exp(sigma^2 norm^2).
    """
    return USABLE / stddev
