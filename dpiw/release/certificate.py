"""The certificate: the guarantee, its cost, and the quality of the weights.

All public. Numbers of the guarantee are decimal text, never floats, which could round them down.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.data.documents import Count, DecimalText, Document, Label, Sha256, record, settle
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

NO_WEIGHTS = "none"
"""The method of rows that are published unweighted."""

_NAME = "certificate.json"
ACCOUNT = ("composition", "held", "drawn", "max_unpaid_reads")


@dataclass(frozen=True, kw_only=True)
class CertifiedStage:
    """What one stage did to the confidential table.

    Attributes:
        events: as JSON values (`dpiw.privacy.accounting.event_to_json`).
        noise: per group of released values `law`, `scale`, `sensitivity` and `event`, an index in
            `events` (`dpiw.privacy.measurement.ReleasedNoise`); earlier versions lack the last two.
        standalone_epsilon: of this stage alone at the release's delta.
    """

    stage: Label
    method: Label
    events: tuple[Mapping[str, Any], ...]
    parameters: Mapping[str, Any]
    noise: tuple[Mapping[str, Any], ...] = ()
    standalone_epsilon: float | None = None

    def __post_init__(self) -> None:
        settle(self, what=f"{_NAME} stages")


@dataclass(frozen=True, kw_only=True)
class Certificate(Document):
    """The public record of one release.

    Attributes:
        unit: the privacy unit; its relation applies to every number here.
        epsilon, delta: of this release, rounded up.
        attempts: per paid reservation `epsilon`, `delta`, the state of its `stages`, and `resumed`,
            how often a killed training went on. Their sum is the release's total. Reservations
            returned before a draw are left out: they would reveal how reads of the table ended.
        spent_epsilon, spent_delta: of the population's whole life, this release included.
        account: the ledger's account in its own whole units: `composition`, `held`, `drawn`
            (`dpiw.ledger.values.Charge.to_payload`), `max_unpaid_reads`. Recovers a lost ledger.
        accountants: epsilon of one complete attempt: `pld` is the guarantee, `rdp` a check.
        plan_digest: SHA-256 of the plan that was fixed before any data was read.
        generator: method and settings; `made_elsewhere`: the declared cost of another tool's rows;
            `more_rows_of`: the earlier release from whose draws these rows are made; `revises`: the
            release that this one replaces.
        post_processing: steps after the measurements, in order; they cost nothing.
        diagnostics: computed from released values only; numbers JSON cannot hold are text.
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

    name = _NAME
    states = (("format_version", FORMAT_VERSION),)

    def __post_init__(self) -> None:
        settle(self, what=_NAME)
        record(self.account, ACCOUNT, what=f"{_NAME} account")
        reasons = self.diagnostics.get("reasons", [])
        if not (isinstance(reasons, list) and all(isinstance(text, str) for text in reasons)):
            raise ManifestError(field=f"{_NAME} diagnostics.reasons", allowed="a list of texts")
        try:
            _ = self.declared
        except (KeyError, TypeError, ValueError):
            what = "lacks a value that dpiw writes there; do not use this folder"
            raise ManifestError(what, field=f"{_NAME} generator.made_elsewhere") from None

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
        """`release_id` and `manifest` of the release that paid for these rows' draws, or None."""
        first = self.generator.get("more_rows_of")
        return first if isinstance(first, Mapping) else None

    @property
    def revises(self) -> Mapping[str, str] | None:
        """`release_id` and `manifest` of the release that this one replaces, or None."""
        other = self.generator.get("revises")
        return other if isinstance(other, Mapping) else None

    def _alone(self, costs: Mapping[str, Any]) -> str:
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
    def is_weighted(self) -> bool:
        """Whether the rows have weights that differ."""
        settings = self.weights
        return settings.get("method") != NO_WEIGHTS and settings.get("published") is not False

    @property
    def weights_are(self) -> str:
        """The verdict in words: `use` means better than none; each answer has its own verdict."""
        return "better than none" if self.verdict == "use" else self.verdict

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


def flat(diagnostics: Mapping[str, Any]) -> dict[str, Any]:
    """Diagnostics in one level; a method's own may be nested once."""
    values = dict(diagnostics)
    for nested in diagnostics.values():
        if isinstance(nested, Mapping):
            values = {k: v for k, v in nested.items() if k != "rows"} | values
    return values
