"""The private stages of a run: `fit_generator` and `fit_weights`, calibrated before data is read.

A plan lacks the first if another run paid for rows made elsewhere, and the second if rows are
published unweighted. One effort is shared among them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Self

from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import NotPublishableError, SpecError
from dpiw.methods.generators.base import FindsLevels, MadeElsewhere, Synthesizer
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.weights.base import Normalisation, Weighing, WeightEstimator
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.methods.weights.questions import Question, parse_questions
from dpiw.methods.weights.registry import make_weights
from dpiw.plan.spec import ReleaseSpec, compact_json
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import ReleasedNoise
from dpiw.privacy.resumption import Resumption, Watched

GENERATOR_STAGE = "fit_generator"
WEIGHTS_STAGE = "fit_weights"

PRIVATE_STAGES = (GENERATOR_STAGE, WEIGHTS_STAGE)
"""Every stage that a run may draw, in their only order."""


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One private stage.

    Attributes:
        resumption: terms on which a killed training goes on, paid by its events; None: it is lost.
        noise: as the certificate will state it; an upper bound where it depends on rows.
    """

    name: str
    method: str
    parameters: Mapping[str, Any]
    events: tuple[PrivacyEvent, ...]
    resumption: Resumption | None = None
    noise: tuple[ReleasedNoise, ...] = ()

    @property
    def settings(self) -> str:
        """SHA-256 of method and parameters, hexadecimal."""
        text = compact_json({"method": self.method, "parameters": self.parameters})
        return hashlib.sha256(b"dpiw-stage-settings-v1\n" + text.encode()).hexdigest()


def rehearsable(generator: Synthesizer) -> bool:
    """Whether stand-ins can play the release: not with rows or levels of the real population."""
    return not isinstance(generator, MadeElsewhere | FindsLevels)


def _refuse_repeated(questions: Sequence[Question]) -> None:
    """Refuse a question that an earlier entry asks: it would be counted and printed twice."""
    asked = [*map(str, questions)]
    for place, text in enumerate(asked):
        if (first := asked.index(text)) < place:
            raise SpecError(
                f"asks the same as questions[{first + 1}]",
                field=f"questions[{place + 1}]",
                allowed="each question once; `weight` states its importance",
            )


@dataclass(frozen=True, kw_only=True)
class PrivateMethods:
    """The methods of a run that read the table; `weights` None publishes rows unweighted."""

    generator: Synthesizer
    weights: WeightEstimator | None

    @classmethod
    def of_spec(cls, spec: ReleaseSpec, schema: PublicSchema) -> Self:
        """Return the methods that a spec names, not calibrated.

        Raises:
            SpecError: a method or a setting is unknown, or they do not fit each other.
            NotPublishableError: a method is not private.
        """
        pure = spec.delta == 0
        generator = make_generator(spec.generator.method, spec.generator.settings, pure=pure)
        weights = make_weights(
            spec.weights.method, spec.weights.settings, pure=pure, rows=spec.synthetic_rows
        )
        if isinstance(generator, MadeElsewhere):
            check_generator(spec, generator, weights)
        questions = parse_questions(spec.questions, schema)
        _refuse_repeated(questions)
        if questions and weights is None:
            allowed = "weights.method: measured, or no questions"
            raise SpecError("weights.method=none measures none", field="questions", allowed=allowed)
        weights = weights and weights.declared(questions, seed=public_seed(spec, schema))
        for part, method in (("generator", generator), ("weights", weights)):
            if method is not None and not method.private:
                raise NotPublishableError(
                    f"{method.method} has no privacy guarantee, so no release may hold its result",
                    field=f"{part}.method",
                    allowed="a method whose class states `private = True`, such as those of"
                    " docs/spec.md",
                )
        if weights is not None:
            weights.check_critic(generator.critic)
            weights.check_release(weighing_of(spec), schema)
        return cls(generator=fitting(spec, schema, generator, weights), weights=weights)

    def generator_alone(self) -> Self:
        """Return the same generator, with the whole effort and without weights."""
        return replace(self, weights=None)

    def calibrate(self, spec: ReleaseSpec, schema: PublicSchema, rho: float) -> Self:
        """Calibrate every method to its share of the zCDP-equivalent effort `rho`."""
        shares = {GENERATOR_STAGE: spec.shares.generator, WEIGHTS_STAGE: spec.shares.weights}
        total = sum(shares[name] for name in self.by_stage)

        def facts(stage: str) -> dict[str, Any]:
            return {
                "rho": rho * shares[stage] / total,
                "schema": schema,
                "unit": spec.privacy_unit,
                "nominal_rows": spec.nominal_rows,
            }

        return replace(
            self,
            generator=self.generator.calibrate(**facts(GENERATOR_STAGE)),
            weights=self.weights and self.weights.calibrate(**facts(WEIGHTS_STAGE)),
        )

    @property
    def noisy(self) -> bool:
        """Whether any noise depends on the effort."""
        return WEIGHTS_STAGE in self.by_stage or not isinstance(self.generator, MadeElsewhere)

    @property
    def by_stage(self) -> dict[str, Synthesizer | WeightEstimator]:
        """Return the methods that draw, by the name of their stage, in order."""
        methods: dict[str, Synthesizer | WeightEstimator] = {}
        if not (isinstance(self.generator, MadeElsewhere) and self.generator.counted_by):
            methods[GENERATOR_STAGE] = self.generator
        if self.weights is not None and self.weights.draws:
            methods[WEIGHTS_STAGE] = self.weights
        return methods

    def events(self, spec: ReleaseSpec, schema: PublicSchema) -> list[PrivacyEvent]:
        """Return every event of the calibrated methods, in order."""
        unit, methods = spec.privacy_unit, self.by_stage.values()
        return [event for method in methods for event in method.events(schema=schema, unit=unit)]

    def stages(self, spec: ReleaseSpec, schema: PublicSchema) -> tuple[StagePlan, ...]:
        """Return the stages of the calibrated methods, in order."""
        return tuple(
            StagePlan(
                name=name,
                method=method.method,
                parameters=method.parameters(),
                events=method.events(schema=schema, unit=spec.privacy_unit),
                resumption=method.resumption if isinstance(method, Watched) else None,
                noise=method.released_noise(schema=schema, unit=spec.privacy_unit),
            )
            for name, method in self.by_stage.items()
        )


def public_seed(spec: ReleaseSpec, schema: PublicSchema) -> int:
    """A number below 2^63 for public chance, of population and data dictionary; never for noise."""
    text = compact_json({"population": spec.population, "schema": schema.to_mapping()})
    digest = hashlib.sha256(b"dpiw-public-seed-v1\n" + text.encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def weighing_of(spec: ReleaseSpec) -> Weighing:
    """Return how a spec makes weights of a measurement."""
    return Weighing(
        rows=spec.synthetic_rows,
        post_processing=parse_post_processing(spec.weights.post_processing),
        normalisation=Normalisation(spec.weights.normalisation),
    )


# --- what rows made elsewhere and found levels ask of a spec ---

_LEAST_BASE = 100


def check_generator(
    spec: ReleaseSpec, generator: MadeElsewhere, weights: WeightEstimator | None
) -> None:
    """Refuse weights and totals that rows made elsewhere cannot have.

    Raises NotPublishableError without a declared epsilon; SpecError for weights that need fresh
    rows, a declared cost that uses up the total, or a release that draws nothing.
    """
    declared = generator.declared(spec.privacy_unit)
    draws = weights is not None and weights.draws
    if weights is not None and weights.sampled(spec.synthetic_rows)[1]:
        raise SpecError(
            f"needs rows that a model draws, and generator.method={spec.generator.method} takes"
            " rows from a file",
            field=f"weights.method={spec.weights.method}",
            allowed="measured or none",
        )
    if generator.counted_by is not None:
        if not draws:
            raise SpecError(
                "another run paid for the rows, and with these weights nothing else is drawn",
                field="generator.settings.counted_by",
                allowed="weights.method: measured, or no counted_by where this release pays",
            )
        return
    remaining = spec.epsilon - written(declared.epsilon), spec.delta - written(declared.delta)
    fits, spends_all = min(remaining) >= 0, min(remaining) == 0
    if not fits or (draws and spends_all):
        raise SpecError(
            f"the rows' declared cost for one person is epsilon={declared.epsilon:.6g},"
            f" delta={declared.delta:.6g}, and the spec's total must cover it"
            f"{' and leave some of both for the weights' * draws}",
            field=f"epsilon={spec.epsilon}, delta={spec.delta}",
            allowed="an epsilon and a delta above these" if draws else "at least these",
        )


def written(value: float) -> Decimal:
    """Return the decimal of a float's shortest text, as in specs, ledgers and certificates."""
    return Decimal(repr(value))


def check_rows(
    spec: ReleaseSpec,
    schema: PublicSchema,
    generator: MadeElsewhere,
    weights: WeightEstimator | None,
) -> list[str]:
    """Refuse (SpecError) too few rows in the public file or undeclared cells; warn of a small base.

    Without a stated `base_rows`, all rows of a smaller file are weighted (`Recipe.draw`).
    """
    rows, published = generator.kept(schema)["rows"], spec.synthetic_rows
    usual = published if weights is None else weights.sampled(published)[0]
    is_set = "base_rows" in spec.weights.settings
    least = usual if is_set else published if usual == published else max(published, _LEAST_BASE)
    if least > rows:
        cause = (
            f"synthetic_rows={published}"
            if least == published
            else f"weights.settings.base_rows={usual}"
            if is_set
            else f"weights.method={spec.weights.method}"
        )
        raise SpecError(
            f"needs at least {least} rows; generator.settings.rows holds {rows}, and each is used"
            " at most once",
            field=cause,
            allowed=f"synthetic_rows and base_rows of at most {rows}, or a file with more rows",
        )
    if usual <= rows:
        return []
    return [
        f"generator.settings.rows holds {rows} rows, and the {published} published ones are chosen"
        f" among all of them; usual are {usual} (weights.settings.base_rows). A file with more rows"
        " gives better weights"
    ]


def fitting(
    spec: ReleaseSpec, schema: PublicSchema, generator: Synthesizer, weights: WeightEstimator | None
) -> Synthesizer:
    """Return the generator; one that finds levels gets the total delta.

    Raises SpecError for unseen levels without a method that finds them, or the reverse; and for
    found levels with weights or constraints.
    """
    unseen = [column.name for column in schema.released if column.unseen]
    if not isinstance(generator, FindsLevels):
        if unseen:
            raise SpecError(
                f"column {unseen[0]} is declared `unseen: true`, and this method needs its"
                " levels; find them in a release of their own (generator.method: levels)"
                " and name its levels_file",
                field=f"generator.method={spec.generator.method}",
            )
        return generator
    if not unseen:
        raise SpecError(
            "finds the levels of `unseen` columns, and the data dictionary has none",
            field="generator.method=levels",
            allowed="`unseen: true` at a column of the dictionary, or another generator",
        )
    if odd := [name for name in unseen if "=" in name]:  # `a=b` is a name of level b of a
        raise SpecError(field=f"column {odd[0]}: unseen", allowed="a name without = in it")
    if weights is not None:
        raise SpecError(
            "generator.method=levels publishes rows of the `unseen` columns alone, without weights",
            field=f"weights.method={spec.weights.method}",
            allowed="none",
        )
    if schema.constraints:
        raise SpecError(
            "generator.method=levels publishes rows of the `unseen` columns alone, so that no"
            " constraint on other columns can hold",
            field="constraints",
            allowed="a dictionary of its own for this release, without constraints",
        )
    return generator.within(spec.delta)
