"""What a draw that holds all rows at once takes of memory: public facts, told of every failure."""

from __future__ import annotations

from dpiw.methods.base import ReadsBatches
from dpiw.plan.plan import Plan
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE


def held_rows(plan: Plan, stage: str) -> str:
    """A sentence on the memory of a stage's draw; empty where it reads the rows in batches.

    It says the same whatever the table is, so that it tells nothing of a draw that failed.
    """
    method = {GENERATOR_STAGE: plan.generator, WEIGHTS_STAGE: plan.weights}.get(stage)
    if method is None or isinstance(method, ReadsBatches):
        return ""
    # Read once, and put together once: scaled numbers have 8 bytes, levels 4.
    least = 2 * sum(8 if column.is_numeric else 4 for column in plan.schema.released)
    limit = plan.spec.source.max_memory_bytes
    return (
        f"{method.method} holds all rows at once, at least {least} bytes each:"
        f" source.max_memory_bytes={limit} admits {limit // least:,} rows at most, and fewer with"
        " what it computes of them"
    )
