"""The confidential file: its copy, its batches, checks and limits."""
