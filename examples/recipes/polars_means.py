"""Weighted means by group with polars.

Arguments: the file `synthetic.parquet` of a release (or `synthetic-*.parquet`), a column, the
column of the groups.
Numbers without errors: for intervals use `dpiw.analysis.mean(release, COLUMN, by=BY)`.
"""

import sys

import polars as pl

if len(sys.argv) != 4:
    sys.exit("usage: python polars_means.py FILE COLUMN BY")
file, column, by = sys.argv[1:]
weighted = pl.col(column) * pl.col("weight")
means = (
    pl.scan_parquet(file)
    .drop_nulls(column)
    .group_by(by)
    .agg((weighted.sum() / pl.col("weight").sum()).alias("mean"))
    .sort(by)
)
print(means.collect().write_csv(), end="")
