"""`report.html`: the release in words and plots."""
