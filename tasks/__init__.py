"""The steps of a release as Prefect tasks: each wraps one function of dpiw, and adds nothing.

Importing `flows` first sets Prefect's confidential defaults; so does every entry point.
"""
