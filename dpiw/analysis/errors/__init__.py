"""Errors of estimates: the weights' law, intervals and verdicts."""
