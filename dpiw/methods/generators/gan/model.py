"""A fitted GAN: rows to draw, and a discriminator to judge rows by."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.marginals import stored_marginals, with_distributions
from dpiw.methods.generators.gan.training import Array, make_batch
from dpiw.methods.generators.histogram import known_laws
from dpiw.methods.neural.backend import CPU, computing, library
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.measurement import Measurement

_CHUNK = 65536

PUBLIC_PROPORTIONS = "public_proportions"
"""Fact: the label's proportions are the spec's, not a histogram's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GANModel:
    """A generator with its discriminator: a pure function of a measurement.

    Attributes:
        generator, discriminator: parameters, shapes (p_G,) and (p_D,).
        proportions: of the label's levels, shape (levels,); empty without a label.
        ratio: whether the output is a log ratio up to a constant: logistic loss on private rows,
            not a Wasserstein critic or PATE student (docs/method.md section 12).
        one_way: measured distributions of its rows, or None. Excludes the label's if its shares are
            the spec's, which measure nothing.
    """

    design: Design
    generator: Array
    discriminator: Array
    proportions: Array
    ratio: bool
    one_way: OneWayMarginals | None = None

    at_hand: ClassVar[None] = None

    @property
    def judge(self) -> Self:
        """Itself."""
        return self

    @computing()
    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` >= 0 independent synthetic rows; the same `rng` state gives the same rows."""
        parts, most = [], min(_CHUNK, self.design.generator_architecture.rows_at_once)
        for start in range(0, max(rows, 1), most):
            size = min(most, rows - start)
            batch = make_batch(self.design, self.generator, self.proportions, size, rng)
            parts.append(self.design.decode(batch.rows))
        schema = self.design.schema
        return SyntheticTable(schema=schema, scaled=ScaledTable.concatenate(parts))

    @computing()
    def critic(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """The discriminator's output for synthetic rows, shape (rows,): higher where more real."""
        network = self.design.discriminator_architecture.network(self.discriminator)
        size = min(_CHUNK, self.design.discriminator_architecture.rows_at_once)
        parts = []
        with library().no_grad():
            for chosen in np.array_split(np.arange(scaled.rows), scaled.rows // size + 1):
                rows = CPU.array(self.design.encode(scaled.take(chosen)))
                parts.append(CPU.to_numpy(network.outputs(rows)[:, 0]))
        return np.concatenate(parts)


def gan_model(measurement: Measurement, *, kind: str, schema: PublicSchema) -> GANModel:
    """Build the model of a measurement; SpecError if it has another method or schema."""
    if measurement.kind != kind:
        raise SpecError(
            field="measurement.kind", allowed=f"{kind}; found a measurement of another method"
        )
    facts, arrays = measurement.facts, measurement.arrays
    design = Design.from_json(facts["design"], schema=schema)

    one_way: OneWayMarginals | None = None
    histogram = stored_marginals(measurement)
    if histogram is not None:
        design = with_distributions(design, histogram)
        assert design.distributions is not None
        offsets, knots = arrays["offsets"], arrays["knots"]
        distributions = replace(design.distributions, offsets=offsets, knots=knots)
        design = replace(design, distributions=distributions)
        _, _, one_way = known_laws(histogram, schema=schema)
        if facts.get(PUBLIC_PROPORTIONS) and design.label is not None:
            names = [column.name for column in schema.released]
            one_way = one_way.without(names.index(design.label.name))

    return GANModel(
        design=design,
        generator=arrays["generator"],
        discriminator=arrays["discriminator"],
        proportions=arrays["proportions"],
        ratio=bool(facts["ratio"]),
        one_way=one_way,
    )


def game_measurement(
    design: Design,
    learned: tuple[Array, Array, Array],
    *,
    marginals: Measurement | None,
    facts: Mapping[str, Any],
    **measured: Any,
) -> Measurement:
    """What `gan_model` reads of a settled design, and further facts and fields.

    `learned` are parameters of generator and discriminator, and proportions of labels.
    """
    arrays = dict(zip(("generator", "discriminator", "proportions"), learned, strict=True))
    facts = {**facts, "design": design.to_json()}
    laws = design.distributions
    if marginals is not None and laws is not None:
        arrays |= {**marginals.arrays, "offsets": laws.offsets, "knots": laws.knots}
        facts |= {"marginals": dict(marginals.facts), "marginals_scale": marginals.facts["scale"]}
    return Measurement(arrays=arrays, facts=facts, **measured)
