"""The steps of a release as Prefect tasks: each only wraps one function of dpiw.

Import `flows` first: it sets Prefect's confidential defaults. Every entry point does.
"""
