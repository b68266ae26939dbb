"""Drafts of a data dictionary and a first spec, from public metadata; no table is ever read."""
