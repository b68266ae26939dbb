"""Weights fitted to one noisy sum of features: the recommended method."""
