"""The certificate: the guarantee, its cost, and the quality of the weights.

Analysts cite it and auditors recompute it: every number is public, and the noise in the release
follows from it. Numbers of the guarantee are decimal text, never floats, so that nobody rounds them
in our favour.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpiw.data.documents import (
    Count,
    DecimalText,
    Label,
    Sha256,
    document_json,
    parse_canonical,
    plain,
    record,
    settle,
)
from dpiw.errors import ManifestError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

FORMAT_VERSION = 1

DO_NOT_USE = "do not use"
"""The verdict at which `load_release` warns."""

UNSEEN = (
    "nothing to correct was seen: the generator may be right already, or the noise hides what it"
    " lost; more epsilon would tell"
)
"""For weights whose test saw nothing to correct; other unusable weights are too noisy."""

CHANCE = {"evidence_p_value": 0.05, "signal_p_value": 0.03}
"""By test: the p-value above which a signal counts as chance, `do not use`."""

_NAME = "certificate.json"
ACCOUNT = ("composition", "held", "drawn", "max_unpaid_reads")


@dataclass(frozen=True, kw_only=True)
class CertifiedStage:
    """What one stage did to the confidential table.

    Attributes:
        stage: `fit_generator` or `fit_weights`.
        method: the registry's name of the method.
        events: the privacy events, as JSON values (`dpiw.privacy.accounting.event_to_json`).
        parameters: public settings of the mechanism, as JSON values.
        noise: for each group of released values `law`, `scale`, the `sensitivity` that the scale
            covers and the index in `events` of the accounting `event`; earlier versions lack the
            last two (`dpiw.privacy.measurement.ReleasedNoise`).
        standalone_epsilon: cost of this stage alone at the release's delta; stages compose to less
            than the sum. None: not computed.
    """

    stage: Label
    method: Label
    events: tuple[Mapping[str, Any], ...]
    parameters: Mapping[str, Any]
    noise: tuple[Mapping[str, Any], ...] = ()
    standalone_epsilon: float | None = None

    def __post_init__(self) -> None:
        settle(self, what=f"{_NAME} stages", error=ManifestError)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The public record of one release.

    Attributes:
        release_id: name of the release; unique in its population.
        population: the population whose budget paid.
        period: the period that the rows describe, as declared (`2027-Q1`).
        unit: the privacy unit; its relation applies to every number here.
        epsilon: of this release, decimal text, rounded up.
        delta: of this release, decimal text, rounded up.
        attempts: what each reservation of the run held: `epsilon`, `delta`, the state of its
            `stages`, and `resumed`, how often a killed training went on within its events. If there
            are several, a draw was lost and paid again, and the release's total is their sum.
            Reservations returned before a draw are left out: they would reveal how reads of the
            table ended.
        spent_epsilon: of the population over its whole life, this release included.
        spent_delta: the same.
        account: the ledger's account behind these sums, in its own whole units: `composition`, the
            sum `held`, the part `drawn` that can never be returned
            (`dpiw.ledger.charges.Charge.to_payload`), and the registered `max_unpaid_reads`. A lost
            ledger is recovered from it.
        budget_epsilon: lifetime budget of the population.
        budget_delta: the same.
        accountants: epsilon of one complete attempt by accountant (`pld`, `rdp`); the first is the
            guarantee, the second a check.
        plan_digest: SHA-256 of the plan that was fixed before any data was read.
        nominal_rows: the public nominal size n0 used in every formula.
        stages: stages that read the confidential table, in order.
        generator: method and settings of the generator, JSON values; `made_elsewhere`: the declared
            cost of another tool's rows (see `declared`); `more_rows_of`: the earlier release from
            whose draws these rows are made.
        weights: method and settings of the weight estimator, JSON values.
        post_processing: steps after the measurements, in order; they cost nothing.
        diagnostics: computed from released values only (`effective_sample_size`, `k_hat`,
            `design_effect`, `tau`, ...); numbers JSON cannot hold are text.
        verdict: whether the weights may be used (`do not use` makes readers warn).
        verdict_rule: the public rule that gave the verdict.
        assumptions: sentences on which the guarantee rests.
        caveats: sentences about the use of this release.
        versions: of the software that made it.
        ledger_head: hash of the ledger entry before this was written.
    """

    release_id: Label
    population: Label
    period: Label
    unit: PrivacyUnit
    epsilon: DecimalText
    delta: DecimalText
    attempts: tuple[Mapping[str, Any], ...]
    spent_epsilon: DecimalText
    spent_delta: DecimalText
    account: Mapping[str, Any]
    budget_epsilon: DecimalText
    budget_delta: DecimalText
    accountants: Mapping[str, Any]
    plan_digest: Sha256
    nominal_rows: Count
    stages: tuple[CertifiedStage, ...]
    generator: Mapping[str, Any]
    weights: Mapping[str, Any]
    post_processing: tuple[str, ...]
    diagnostics: Mapping[str, Any]
    verdict: str
    verdict_rule: str
    assumptions: tuple[str, ...]
    caveats: tuple[str, ...]
    versions: Mapping[str, str]
    ledger_head: Sha256

    def __post_init__(self) -> None:
        """Check every field, in writing as in reading."""
        settle(self, what=_NAME, error=ManifestError)
        record(self.account, ACCOUNT, what=f"{_NAME} account", error=ManifestError)
        reasons = self.diagnostics.get("reasons", [])
        if not (isinstance(reasons, list) and all(isinstance(text, str) for text in reasons)):
            raise ManifestError(f"{_NAME} diagnostics: reasons: expected a list of texts")
        try:
            _ = self.declared
        except (KeyError, TypeError, ValueError):
            raise ManifestError(
                f"{_NAME} generator: made_elsewhere: not what dpiw states of such rows"
            ) from None

    @property
    def relation(self) -> NeighbouringRelation:
        """The neighbouring relation of every number in this certificate."""
        return self.unit.relation

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Stages that read the confidential table, as `stage:method`, in order."""
        return tuple(f"{record.stage}:{record.method}" for record in self.stages)

    @property
    def declared(self) -> str | None:
        """Which cost is declared and which dpiw promises; None: nothing is declared."""
        costs = self.generator.get("made_elsewhere")
        if costs is None:
            return None
        settings = self.generator["settings"]
        paid = "in the total" if costs["charged"] else f"paid by run {settings['counted_by']}"
        return (
            f"declared by {settings['declared_by']}, not promised: epsilon={costs['epsilon']:.6g},"
            f" delta={costs['delta']:.6g} for rows of {settings['tool']}"
            f" {settings['version']}, {paid};"
            f" promised by dpiw: epsilon={costs['promised_epsilon']:.6g},"
            f" delta={costs['promised_delta']:.6g}{self._alone(costs)}"
        )

    @property
    def more_rows_of(self) -> Mapping[str, str] | None:
        """`release_id` and `manifest` of the release whose draws these rows are made of, or None.

        If set, every number of the guarantee is that release's, which paid; nothing was added.
        """
        first = self.generator.get("more_rows_of")
        return first if isinstance(first, Mapping) else None

    def _alone(self, costs: Mapping[str, Any]) -> str:
        """Why a plan states another epsilon for our own stage alone; empty if it does not."""
        epsilons = [
            stage.standalone_epsilon
            for stage in self.stages
            if all(event.get("type") != "declared" for event in stage.events)
        ]
        if not (costs["charged"] and costs["delta"] and epsilons and epsilons[0]):
            return ""
        return (
            ", the delta that the declared part leaves (a plan's `alone`,"
            f" epsilon={epsilons[0]:.4g}, is at the whole delta)"
        )

    @property
    def self_normalised(self) -> bool:
        """Whether the column `weight` has mean one; otherwise its weights are for totals."""
        return bool(self.weights.get("normalisation", "self") != "unnormalised")

    @property
    def usable(self) -> bool:
        """Whether the verdict allows using the weights."""
        return self.verdict != DO_NOT_USE

    @property
    def unseen(self) -> str:
        """What it means that the weights' test saw nothing to correct; empty if it did."""
        facts = flat(self.diagnostics)
        pairs = [(facts.get(name), most) for name, most in CHANCE.items()]
        chance = any(isinstance(p, int | float) and p > most for p, most in pairs)
        return UNSEEN if chance else ""

    def to_json(self) -> bytes:
        """Write canonical JSON; the same certificate always gives the same bytes."""
        return document_json({**plain(self), "format_version": FORMAT_VERSION})

    @classmethod
    def from_json(cls, data: bytes) -> Certificate:
        """Read what `to_json` wrote.

        Raises:
            ManifestError: not canonical JSON, another format version, an unknown or missing key, or
                a value of the wrong kind.
        """
        value = parse_canonical(data, what=_NAME, error=ManifestError)
        names = [field.name for field in fields(cls)]
        record(value, [*names, "format_version"], what=_NAME, error=ManifestError)
        if value.pop("format_version") != FORMAT_VERSION:
            raise ManifestError(f"{_NAME} format_version: this reader knows {FORMAT_VERSION}")
        return cls(**value)

    @property
    def digest(self) -> str:
        """SHA-256 of `to_json()`, hexadecimal."""
        return hashlib.sha256(self.to_json()).hexdigest()


def flat(diagnostics: Mapping[str, Any]) -> dict[str, Any]:
    """Diagnostics in one level; a method's own may be nested once."""
    values = dict(diagnostics)
    for nested in diagnostics.values():
        if isinstance(nested, Mapping):
            values = {k: v for k, v in nested.items() if k != "rows"} | values
    return values
