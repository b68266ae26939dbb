"""What an analyst imports: estimates from weighted synthetic rows."""

from dpiw.analysis.estimates import (
    Resampling,
    resample,
    weighted_mean,
    weighted_mean_standard_error,
)

__all__ = ["Resampling", "resample", "weighted_mean", "weighted_mean_standard_error"]
