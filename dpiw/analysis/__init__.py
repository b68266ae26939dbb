"""Estimates from weighted synthetic rows, with noise-aware intervals: what analysts import.

Invalid arguments raise ReleaseError; invalid weights, and fits without a solution, WeightError.
"""

from dpiw.analysis.changes import Change, change
from dpiw.analysis.errors.intervals import Interval, confidence_interval
from dpiw.analysis.estimators.bayes import dirichlet_posterior, linear_posterior, logistic_posterior
from dpiw.analysis.estimators.estimates import Estimate, joint
from dpiw.analysis.estimators.learners import fit_sklearn, to_statsmodels
from dpiw.analysis.estimators.means import correlation, mean, std, total, variance
from dpiw.analysis.estimators.models import (
    gamma_regression,
    linear_regression,
    logistic_regression,
    poisson_regression,
)
from dpiw.analysis.estimators.quantiles import median, quantile
from dpiw.analysis.estimators.tables import crosstab, describe, value_counts
from dpiw.analysis.estimators.wald import WaldTest, chi_square_test, t_test, wald_test
from dpiw.analysis.export_files import export
from dpiw.analysis.plots import box, histogram, pairs
from dpiw.analysis.sample import WeightedSample, weighted_sample
from dpiw.methods.weights.weigh import resample

__all__ = [
    "Change", "Estimate", "Interval", "WaldTest", "WeightedSample", "box",
    "change", "chi_square_test", "confidence_interval", "correlation", "crosstab", "describe",
    "dirichlet_posterior", "export", "fit_sklearn", "gamma_regression", "histogram", "joint",
    "linear_posterior", "linear_regression", "logistic_posterior", "logistic_regression", "mean",
    "median", "pairs", "poisson_regression", "quantile", "resample", "std", "t_test",
    "to_statsmodels", "total", "value_counts",
    "variance", "wald_test", "weighted_sample",
]  # fmt: skip
