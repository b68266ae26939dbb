"""Bad cells, by row of the table."""

import pandas as pd

from tests.hostile.bad_inputs.workbench import CANARY

MISSING = object()


def stamp(text):
    return pd.Timestamp(text, tz="UTC")


VALUES = [
    # 1: missing in a column that is not nullable: the declared fill; in a nullable one: missing
    (1, "age", "", 7), (1, "income", "", MISSING), (1, "region", "", "other"), (1, "age", "NaN", 7),
    # 2: infinite: the bound
    (2, "income", "inf", 1000.0), (2, "income", "-Infinity", 0.0), (2, "age", "inf", 100),
    # 3: outside the bounds: the bound
    (3, "age", "101", 100), (3, "age", "-1", 0), (3, "income", "1000.01", 1000.0),
    # 4: negative zero and subnormal numbers: one zero
    (4, "income", "-0.0", 0.0), (4, "income", "5e-324", 0.0), (4, "income", "-1e-320", 0.0),
    # 5: unknown category: the declared catch-all
    (5, "region", "mars", "other"), (5, "region", CANARY, "other"), (5, "trade", "x", "other"),
    # 6: near-duplicates: the declared normaliser, else the catch-all; padding is always dropped
    (6, "region", "North", "other"), (6, "region", " north\t", "north"),
    (6, "region", "su\u0308d", "s\xfcd"), (6, "trade", "BA\u0308CKER ", "Bäcker"),
    # 17: unparsable: fill or missing
    (17, "age", "abc", 7), (17, "income", "12..5", MISSING), (17, "age", CANARY, 7),
    # 18: huge numbers, exactly: never through a float that would be wrong or overflow
    (18, "age", str(2**63), 100), (18, "age", "-" + "9" * 400, 0), (18, "income", "1e400", 1000.0),
    (18, "income", "-1e400", 0.0), (18, "age", "1e99999999999999999999", 100),
    # 19: a whole number above 2^53 in a column of reals: on the declared grid
    (19, "wealth", str(2**53 + 1), 9007199254740000.0),
    # 20: booleans: the declared words, else missing
    (20, "ill", "0", False), (20, "ill", "1", True), (20, "ill", "YES", True),
    (20, "ill", "maybe", MISSING), (20, "ill", "2", MISSING),
    # 21: decimal comma and thousands separators are not numbers
    (21, "income", "1,5", MISSING), (21, "income", "1.000,5", MISSING), (21, "age", "1_0", 7),
    # 22: dates: bounds, leap day, a gap in summer time, zoned beside naive
    (22, "born", "0001-01-01", pd.Timestamp("1900-01-01")),
    (22, "born", "9999-12-31", pd.Timestamp("2020-12-31")), (22, "born", "1900-02-29", MISSING),
    (22, "seen", "2000-03-26T02:30:00", stamp("2000-03-26T01:30:00")),
    (22, "seen", "2000-01-01T12:00:00-05:00", stamp("2000-01-01T17:00:00")),
    (22, "seen", "9999-12-31T23:59:59", stamp("2020-12-30T23:00:00")),
    # 23: the letter that stands for invalid bytes
    (23, "region", "s\ufffdd", "other"),
    # 24: NUL bytes and newlines inside quotes
    (24, "region", "nor\x00th", "other"), (24, "region", "north\nsouth", "other"),
    (24, "age", "3\x000", 7),
    # 25: formulas
    (25, "region", f"=cmd|'/C {CANARY}'!A0", "other"), (25, "age", "=1+1", 7),
    (25, "region", '@SUM("A1")', "other"),
]  # fmt: skip
