"""Estimators of weighted rows: means, quantiles, tables, models and tests."""
