"""Constants of the law of measured weights and of its verdict, studied on simulated populations.

To measure coverage again, on releases that chose nothing: `python benchmarks/coverage.py --releases
500 --jobs 2`; for other releases, `--seed`. To vary a constant, edit it here.
"""

from __future__ import annotations

MOST_FITTED = 100_000
"""Rows that a tilting is solved on, by passes over their features."""

STEP = 16.0
"""Divisor of the prior variance of a quantile in a known bin, whose influence steps between rows.

Features see 3% of a step inside a bin (docs/method.md section 14), and the error inside a bin is
added apart. Without a known bin nothing divides it. No study of it is kept; the command above
checks it on quantiles."""

PULL = 16.0
"""Divisor of the credit that gives the pull: less omits shrinkage, more adds noise.

No study of it is kept; the command above checks it."""

PULLED = 0.5
"""Share of the squared pull that counts as variance, as the means' noise pulls as well.

Chosen, with `MOVED`, on 9,000 intervals of twelve populations, on other releases than those of
benchmarks/results/coverage_measured.md."""

MOVED = 0.02
"""Share of a row's squared log ratio that is added to its prior variance; study as of `PULLED`.

Where a generator was wrong, it is more likely to be wrong in what no feature reaches."""

FAR = 4.0
"""Largest log ratio, natural log, that `MOVED` counts: a cap, so that no row decides alone."""

SUPPORT_USE, SUPPORT_CARE = 0.5, 0.3
"""Least support, a share of the prior variance, for `use` and `use with care`.

Our choice after looking at simulations; the command above prints coverage by band of support."""

GUESSED = 0.6
"""Largest share of the variance in the part `prior` for `use`; not asked of quantiles.

Varied on 240 releases of two populations with heavy tails and gaps, which chose nothing else: at
0.6, means and linear coefficients with `use` held the truth 95.5% of the time, `use with care` 88%.
The prior of a quantile is small where the quantile fell wrong."""

ROWS_USE, ROWS_CARE = 500.0, 50.0
"""Least effective base rows for `use` and `use with care`: with fewer, linearisation fails.

Our choice, without a study."""

P_VALUE_USE, P_VALUE_CARE = 0.001, 0.05
"""Largest p-value of the evidence test for `use` and `use with care`: our choice of error rate."""

GAIN_USE = 0.2
"""Least expected gain, a share of the means' squared error, for `use`: our choice."""

MOST_CREDIT = 0.2
"""Largest credit by evidence, as a share of the private rows: features without misfit would allow
any. Chosen on the populations of benchmarks/results/coverage_measured.md, on other releases."""

FORCED = 0.05
"""Largest noise variance of a mean that was asked for, in that of its feature among weighted rows,
for which the weights keep to it; nor may it exceed the prior's, which would then know more."""

KEPT = 0.2
"""Largest distance of such a mean from its noisy value, in standard deviations of the noise: its
square then adds 4% to the noise (docs/method.md section 14)."""
