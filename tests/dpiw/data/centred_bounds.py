"""Bounds of the centred features from the schema alone: a second way to those of `features`."""

from dpiw.data.schema.schema import PublicSchema


def squared_norm(schema: PublicSchema) -> float:
    """Sup over rows: 1/4 a value, (1 - 1/L)/2 a block."""
    return float(sum((1 - 1 / b.width) / 2 if b.indicator else 0.25 for b in schema.blocks))


def squared_diameter(schema: PublicSchema) -> float:
    """Sup over pairs of rows of the squared distance.

    Per column: numeric 1; levels 1 (0 if there is only one); nullable numeric 5/4, a present value
    at a bound against a missing one.
    """
    total = 0.0
    for column in schema.released:
        if column.is_numeric:
            total += 1.25 if column.nullable else 1.0
        else:
            total += float(column.cardinality + column.nullable > 1)
    return total


def reference_squared_norm(schema: PublicSchema) -> float:
    """Expected squared norm for a uniform row: the sum of its coordinates' variances.

    Value 1/12; each of a block's L coordinates (1/L)(1 - 1/L)/2.
    """
    return sum((1 - 1 / b.width) / 2 if b.indicator else b.width / 12 for b in schema.blocks)
