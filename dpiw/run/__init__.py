"""One run of a release. Each of its draws is made at most once for each time it is paid."""
