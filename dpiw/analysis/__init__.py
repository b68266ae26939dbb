"""What an analyst imports: estimates from weighted synthetic rows."""

from dpiw.analysis.descriptive import correlation, crosstab, mean, quantile, total
from dpiw.analysis.estimates import (
    Resampling,
    resample,
    weighted_mean,
    weighted_mean_standard_error,
)
from dpiw.analysis.learners import fit_sklearn, to_statsmodels
from dpiw.analysis.regression import linear_regression, logistic_regression
from dpiw.analysis.sample import Estimate, WeightedSample, weighted_sample

__all__ = [
    "Estimate", "Resampling", "WeightedSample", "correlation", "crosstab", "fit_sklearn",
    "linear_regression", "logistic_regression", "mean", "quantile", "resample", "to_statsmodels",
    "total", "weighted_mean", "weighted_mean_standard_error", "weighted_sample",
]  # fmt: skip
