"""Releases that find levels: what a plan refuses, and what a certificate says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.base import FindsLevels, Synthesizer
from dpiw.methods.weights.base import WeightEstimator

if TYPE_CHECKING:
    from dpiw.plan.spec import ReleaseSpec

ASSUMPTION = (
    "Levels were shown where their noisy count reached a public threshold; that a level of one"
    " person alone did has the probability that delta pays for. How many different texts occur"
    " shows in run time, which is not protected."
)


def fitting(
    spec: ReleaseSpec,
    schema: PublicSchema,
    generator: Synthesizer,
    weights: WeightEstimator | None,
) -> Synthesizer:
    """The generator, told of the total delta if it finds levels.

    Raises:
        SpecError: unseen levels and a method that needs to know them, or the other way round; or
            what rows of found levels cannot have: weights, or the dictionary's constraints.
    """
    unseen = [column.name for column in schema.released if column.unseen]
    if not isinstance(generator, FindsLevels):
        if unseen:
            raise SpecError(
                f"generator.method={spec.generator.method}: column {unseen[0]} is declared"
                " `unseen: true`, and this method needs its levels; find them in a release of"
                " their own (generator.method: levels) and name its levels_file"
            )
        return generator
    if not unseen:
        raise SpecError(
            "generator.method=levels: finds the levels of columns that the data dictionary declares"
            " `unseen: true`; it has none"
        )
    if odd := [name for name in unseen if "=" in name]:  # `a=b` is a name of level b of a
        raise SpecError(f"column {odd[0]}: unseen: expected a name without = in it")
    if weights is not None:
        raise SpecError(
            f"weights.method={spec.weights.method}: rows of found levels are of these columns"
            " alone; expected none"
        )
    if schema.constraints:
        raise SpecError(
            "constraints: rows of found levels lack the dictionary's other columns; expected a"
            " dictionary without constraints for generator.method=levels"
        )
    return generator.within(spec.delta)
