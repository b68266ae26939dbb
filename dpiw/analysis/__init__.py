"""What an analyst imports: estimates from weighted synthetic rows, with honest intervals."""

from dpiw.analysis.bayes import (
    linear_posterior,
    logistic_nuts,
    logistic_posterior,
    multinomial_posterior,
)
from dpiw.analysis.bootstrap import rehearse
from dpiw.analysis.descriptive import correlation, crosstab, mean, quantile, total
from dpiw.analysis.estimates import (
    Resampling,
    resample,
    weighted_mean,
    weighted_mean_standard_error,
)
from dpiw.analysis.intervals import Interval, confidence_interval, unshrunk
from dpiw.analysis.learners import fit_sklearn, to_statsmodels
from dpiw.analysis.regression import linear_regression, logistic_regression
from dpiw.analysis.sample import Estimate, WeightedSample, weighted_sample

__all__ = [
    "Estimate", "Interval", "Resampling", "WeightedSample", "confidence_interval", "correlation",
    "crosstab", "fit_sklearn", "linear_posterior", "linear_regression", "logistic_nuts",
    "logistic_posterior", "logistic_regression", "mean", "multinomial_posterior", "quantile",
    "rehearse", "resample", "to_statsmodels", "total", "unshrunk", "weighted_mean",
    "weighted_mean_standard_error", "weighted_sample",
]  # fmt: skip
