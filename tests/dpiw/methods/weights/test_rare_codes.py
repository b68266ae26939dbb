"""What in rows may be rare: levels, and codes of known marginals; no code is of two columns."""

import numpy as np

from dpiw.data.discretisation import Domain
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.measured.scoring import RareCodes
from tests.support.worlds import mixed, numbers, uniform_rows


def test_codes_are_those_of_the_domain_one_column_after_the_other():
    schema = mixed()
    rows = uniform_rows(schema, 500, np.random.default_rng(1))
    numbers = [j for j, column in enumerate(schema.released) if column.is_numeric]
    labels = [j for j, column in enumerate(schema.released) if not column.is_numeric]
    assert numbers
    assert labels
    law = OneWayLaw(
        schema=schema, bins=7, columns=(numbers[0],), variances=(1.0,), total_variance=0.0
    )
    for known, columns, bins in ((None, labels, 3), (law, sorted([numbers[0], *labels]), 7)):
        domain = Domain.from_schema(schema, bins=bins)
        found = RareCodes(schema=schema, known=known)(rows)
        starts = np.cumsum([0, *(domain.sizes[j] for j in columns)])[:, None]
        assert np.array_equal(found - starts[:-1], domain.codes(rows)[:, columns].T)
        assert np.all((starts[:-1] <= found) & (found < starts[1:]))


def test_numbers_alone_have_none():
    schema = numbers(3)
    rows = uniform_rows(schema, 9, np.random.default_rng(1))
    assert RareCodes(schema=schema)(rows).shape == (0, 9)
