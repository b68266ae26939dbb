"""Shapes of a generator and a discriminator on a public schema, and between rows and networks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import SpecError, setting_error
from dpiw.methods.base import OTHER_SCHEMA
from dpiw.methods.generators.gan.heads import TEMPERATURE, ColumnDistributions, Heads
from dpiw.methods.neural.networks import Architecture, Layered

Array = NDArray[np.float64]

_SHAPES = ("conditional", "latent", "generator", "discriminator", "label_scale")

IMAGE_LAYOUT = 2
"""Version of image networks' parameter order; other versions, of the same size, are refused."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """Public shapes of generator and discriminator on a schema.

    Attributes:
        conditional: whether the generator gets the target as input instead of making it.
        latent: normal inputs of the generator.
        generator, discriminator: widths of the hidden layers.
        label_scale: factor on the one-hot label that the discriminator sees.
        image: rows and columns of pixels for convolutions (`images`); empty: no image.
        distributions: known laws of the made columns; None: the networks learn them.

    Raises:
        SpecError: the target or the columns do not suit `conditional` or `image`.
    """

    schema: PublicSchema
    conditional: bool
    latent: int
    generator: tuple[int, ...]
    discriminator: tuple[int, ...]
    label_scale: float = 1.0
    image: tuple[int, ...] = ()
    distributions: ColumnDistributions | None = None

    def __post_init__(self) -> None:
        if self.conditional:
            self._check_target()
        if self.image:
            self._check_image()

    def _check_target(self) -> None:
        target = self.schema.target
        if target is None or target.is_numeric:
            raise SpecError(
                "this method needs a column with role: target, of kind boolean, categorical or"
                " ordinal; declare one in the dictionary, or use dpgan",
                field="generator.method",
            )
        if len(self.schema.released) < 2:
            raise SpecError(
                "this method needs a column beside the target", field="generator.method"
            )

    def _check_image(self) -> None:
        pixels = math.prod(self.image)
        is_plain = all(part.numeric and not part.column.nullable for part in self.made.parts)
        if self.made.width != pixels or not is_plain:
            raise setting_error(
                self,
                "generator.settings.image",
                f"{pixels} columns of numbers without missing cells, one for each"
                " pixel, and no other (but the target of dpcgan)",
            )
        half = 2 ** len(self.generator)
        if not self.generator or any(side % half for side in self.image):
            raise setting_error(
                self,
                "generator.settings.image",
                f"sides divisible by {half}, as each layer of the generator"
                " doubles them; one layer at least",
            )

    @property
    def label(self) -> Column | None:
        """The column that the generator is given."""
        return self.schema.target if self.conditional else None

    @cached_property
    def made(self) -> Heads:
        """Heads of the columns that the generator makes."""
        columns = tuple(c for c in self.schema.released if c is not self.label)
        return Heads(columns=columns, distributions=self.distributions)

    @cached_property
    def given(self) -> Heads:
        """Head of the column that the generator is given, if any."""
        columns = () if self.label is None else (self.label,)
        return Heads(columns=columns, levels=True)

    @cached_property
    def generator_architecture(self) -> Layered:
        """Latents and label to the outputs of `made`."""
        inputs = self.latent + self.given.width
        if self.image:
            from dpiw.methods.generators.gan.images import ImageGenerator

            return ImageGenerator(sides=self.image, given=inputs, channels=self.generator)
        return Architecture(widths=(inputs, *self.generator, self.made.width))

    @cached_property
    def discriminator_architecture(self) -> Layered:
        """A row, the label last, to one output."""
        if self.image:
            from dpiw.methods.generators.gan.images import ImageDiscriminator

            return ImageDiscriminator(
                sides=self.image, labels=self.given.width, channels=self.discriminator
            )
        inputs = self.made.width + self.given.width
        return Architecture(widths=(inputs, *self.discriminator, 1), activation="tanh")

    def encode(self, scaled: ScaledTable) -> Array:
        """Input of the discriminator for rows, shape (n, width); row by row."""
        labels = self.label_scale * self.given.encode(scaled)
        return np.hstack([self.made.encode(scaled), labels])

    def decode(self, rows: Array) -> ScaledTable:
        """Drawn rows as scaled values, in released order."""
        middle = self.made.width
        columns = self.made.decode(rows[:, :middle]) | self.given.decode(rows[:, middle:])
        return ScaledTable({c.name: columns[c.name] for c in self.schema.released}, len(rows))

    def to_json(self) -> dict[str, Any]:
        """Everything except marginals; of the schema, columns and widths."""
        image = {"image": list(self.image), "layout": IMAGE_LAYOUT} if self.image else {}
        shapes = {name: getattr(self, name) for name in _SHAPES}
        return image | {
            "columns": [column.name for column in self.schema.released],
            "widths": [self.made.width, self.given.width],
            "temperature": TEMPERATURE,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in shapes.items()},
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], *, schema: PublicSchema) -> Self:
        """Read what `to_json` wrote; SpecError where it was of another schema."""
        shapes = {name: facts[name] for name in _SHAPES} | {"image": facts.get("image", [])}
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in shapes.items()
        }
        design, layout = cls(schema=schema, **values), facts.get("layout", 1)
        if design.image and layout != IMAGE_LAYOUT:
            raise SpecError(
                f"found image networks of layout {layout}",
                field="measurement",
                allowed=f"{IMAGE_LAYOUT}. Use the dpiw that drew it, or start a new run",
            )
        stored = {**facts, "layout": layout, "temperature": TEMPERATURE}  # of training alone
        if any(stored[key] != value for key, value in design.to_json().items()):
            raise SpecError(OTHER_SCHEMA, field="measurement")
        return design

    def labels(self, rows: int, proportions: Array, rng: np.random.Generator) -> Array:
        """Labels by proportion, one-hot, shape (rows, given.width)."""
        labels = np.zeros((rows, self.given.width))
        if self.given.width:
            steps = np.cumsum(proportions)
            place = np.searchsorted(steps / steps[-1], rng.random(rows), side="right")
            labels[np.arange(rows), np.minimum(place, self.given.width - 1)] = 1.0
        return labels
