"""Weighted means by group with DuckDB.

Arguments: the file `synthetic.parquet` of a release (or `synthetic-*.parquet`), a column, the
column of the groups.
Numbers without errors: for intervals use `dpiw.analysis.mean(release, COLUMN, by=BY)`.
"""

import sys

import duckdb

if len(sys.argv) != 4:
    sys.exit("usage: python duckdb_means.py FILE COLUMN BY")
file, column, by = sys.argv[1:]
value, group = (f'"{name.replace(chr(34), chr(34) * 2)}"' for name in (column, by))
means = duckdb.execute(
    f"select {group}, sum(cast({value} as double) * weight) / sum(weight) as mean"
    f" from read_parquet(?) where {value} is not null group by {group} order by {group}",
    [file],
)
print(means.df().to_csv(index=False), end="")
