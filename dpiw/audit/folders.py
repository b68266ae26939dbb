"""Published folders: is each whole, signed, paid for, and consistent with the ledger?"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, localcontext
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from dpiw.audit.findings import Finding
from dpiw.audit.records import RecoveredTally, RunTally, Snapshot, Tally, Units, total, worth
from dpiw.data.documents import plain
from dpiw.errors import ReleaseError, SignatureError
from dpiw.ledger.accounts import column_label
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT
from dpiw.release.certificate import Certificate
from dpiw.release.signing import load_public_key, not_by
from dpiw.release.verification import VerifiedRelease, manifest_digest
from dpiw.release.withdrawn import WithdrawnRelease, verify_charged

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """One folder, as far as it could be read.

    Attributes:
        name: the folder's name; never its path, which is the auditor's own.
        run_key: the run that published its manifest; None: no run did.
        release: what passed `dpiw.release.verification.verify`; None: it failed.
        other_key: id of the key inside the folder, if it signed and is not among those given.
        tombstone: of a withdrawn release, whose `release` is then what it keeps: manifest and
            certificate.
    """

    name: str
    manifest_digest: str | None
    run_key: str | None
    release: VerifiedRelease | None
    other_key: str | None = None
    tombstone: WithdrawnRelease | None = None


def check_folders(
    folders: Sequence[Path], *, public_keys: Mapping[str, Path], counted: Tally | None
) -> tuple[tuple[FolderFacts, ...], list[Finding]]:
    """Check every folder, and that folders and publishing entries belong together.

    `public_keys`: the curators', from elsewhere; without them anybody could have signed.
    """
    runs = {} if counted is None else _published(counted)
    lost = {} if counted is None else counted.recovered
    findings: list[Finding] = []
    facts = []
    for path in folders:
        folder, fault = check_folder(path, tuple(public_keys.values()), runs)
        findings += fault
        facts.append(folder)
    findings = by_one_other_key(facts, findings, public_keys)
    heads = _heads(facts)
    for folder in facts:
        if counted is not None:
            findings += _check_against(folder, counted, heads)
        if counted is not None and folder.release is not None:
            findings += _check_withdrawal(folder, folder.release, counted)
    findings += signers(facts, pinned=bool(public_keys))
    findings += _twice(facts)
    seen = {folder.manifest_digest for folder in facts}
    named = [(digest, run.key[:12], "published") for digest, run in runs.items()]
    named += [(digest, recovered.run, "recovered") for digest, recovered in lost.items()]
    findings += [
        Finding("folder_missing", f"run {run}", f"{how} as {digest[:12]}; no folder given")
        for digest, run, how in named
        if digest not in seen
    ]
    return tuple(facts), findings


def _published(counted: Tally) -> dict[str, RunTally]:
    return {
        digest: run
        for run in counted.runs.values()
        if run.manifest_digest is not None
        for digest in (run.manifest_digest, *run.further)
    }


def _twice(facts: Sequence[FolderFacts]) -> list[Finding]:
    first: dict[str | None, str] = {}
    return [
        Finding("folder_twice", f"release {folder.name}", f"the same as {original}")
        for folder in facts
        if folder.manifest_digest is not None
        and (original := first.setdefault(folder.manifest_digest, folder.name)) != folder.name
    ]


def _heads(facts: Iterable[FolderFacts]) -> dict[str, str]:
    return {
        folder.manifest_digest: folder.release.certificate.ledger_head
        for folder in facts
        if folder.manifest_digest is not None and folder.release is not None
    }


def _check_against(folder: FolderFacts, counted: Tally, heads: Mapping[str, str]) -> list[Finding]:
    subject = f"release {folder.name}"
    recovered = counted.recovered.get(folder.manifest_digest or "")
    findings: list[Finding] = []
    first = None if folder.release is None else folder.release.manifest.facts.rows_of
    if recovered is None and first in counted.recovered:
        # Its entry was lost; it carries the head of what was recovered, and no cost of its own.
        return findings if counted.recovered[first].head == _head(folder) else [Finding(
            "certificate_disagrees", subject, "its head is not that of the release it adds rows to"
        )]  # fmt: skip
    if folder.manifest_digest is not None and folder.run_key is None and recovered is None:
        text = f"no entry of the ledger published its manifest {folder.manifest_digest[:12]}"
        if folder.release is not None:
            text += _published_otherwise(folder.release.certificate, counted)
        findings.append(Finding("folder_unknown", subject, text))
    if folder.release is None:
        return findings
    certificate = folder.release.certificate
    if folder.name != certificate.release_id:
        text = f"its certificate names it {certificate.release_id}"
        findings.append(Finding("folder_renamed", subject, text))
    if recovered is not None:
        if not _recovered_as_stated(recovered, folder.release, heads):
            text = f"its head, cost or account is not what entry {recovered.seq} recovered"
            findings.append(Finding("certificate_disagrees", subject, text))
    elif certificate.ledger_head not in counted.places:
        text = f"the ledger lacks its certificate's head {certificate.ledger_head[:12]}"
        findings.append(Finding("head_missing", subject, text))
    elif folder.run_key is not None:
        run = counted.runs[folder.run_key]
        differences = _differences(certificate, run, counted)
        if first != (run.manifest_digest if folder.manifest_digest in run.further else None):
            differences.append("more_rows_of")
        for name in differences:
            text = f"it states another {name} than the ledger"
            findings.append(Finding("certificate_disagrees", subject, text))
        ring = counted.populations[run.population].ring
        by = ring.published.get(folder.manifest_digest or "")
        if ring.roles and by != folder.release.key_id:
            text = f"signed by key id {folder.release.key_id}, and on record by {by or 'nobody'}"
            findings.append(Finding("key_not_valid", subject, text))
        findings += _check_previous(folder.release, run, counted)
    return findings


def _head(folder: FolderFacts) -> str | None:
    return None if folder.release is None else folder.release.certificate.ledger_head


def _recovered_as_stated(
    recovered: RecoveredTally, release: VerifiedRelease, heads: Mapping[str, str]
) -> bool:
    """Whether a recovery states the release's own head, cost and account.

    From a folder of more rows, no earlier release is known, and all that was spent is charged.
    """
    certificate, previous = release.certificate, release.manifest.facts.previous
    return (
        recovered.head == certificate.ledger_head
        and recovered.population == certificate.population
        and (recovered.previous or previous) == previous
        and recovered.after in (None, heads.get(previous or "", recovered.after))
        and recovered.cost.amount == _units(certificate.epsilon, certificate.delta)
        and recovered.held == _stated_account(certificate, "held")
        and recovered.drawn == _stated_account(certificate, "drawn")
    )


def _stated_account(certificate: Certificate, part: str) -> Units | None:
    try:
        charge = certificate.account[part]
        vector = charge.get("renyi", {})
        return Units(
            epsilon=charge["epsilon_units"],
            delta=charge["delta_units"],
            renyi=tuple(vector.get("units", ())),
            lost_delta=vector.get("lost_delta_units", 0),
        )
    except (KeyError, AttributeError, TypeError):
        return None


def _writing_interval(certificate: Certificate, run: RunTally, counted: Tally) -> tuple[int, int]:
    return counted.places[certificate.ledger_head], run.published or 0


def _differences(certificate: Certificate, run: RunTally, counted: Tally) -> list[str]:
    """Names of certificate fields that differ from the ledger when it was written.

    It was written between the head it carries (`first`, of its own run) and its publishing entry
    (`last`); a sum over all runs may be that of any moment in this interval.
    """
    population = counted.populations[run.population]
    first, last = _writing_interval(certificate, run, counted)
    if first not in run.certified or first >= last:
        return ["ledger_head"]
    moments = between(run.history, first, last)
    attempts = stated_attempts(certificate)
    budget = _units(certificate.budget_epsilon, certificate.budget_delta)
    checks = {
        "population": certificate.population == run.population,
        "period": certificate.period == run.period,
        "plan_digest": certificate.plan_digest == run.plan_digest,
        "unit": (certificate.relation.value, certificate.unit.max_rows, _column(certificate))
        == (population.relation, population.max_rows, population.id_column),
        "account": certificate.account["composition"] == population.composition
        and certificate.account["max_unpaid_reads"] == population.max_unpaid_reads
        and _stated_account(certificate, "held") in between(population.history, first, last)
        and _stated_account(certificate, "drawn") in between(population.drawn, first, last),
        "epsilon and delta": _units(certificate.epsilon, certificate.delta)
        in [total(held for held, _ in moment) for moment in moments],
        "attempts": attempts in moments,
        "resumed": [dict(attempt.get("resumed", {})) for attempt in certificate.attempts]
        == _resumes(run, certificate),
        "spent_epsilon and spent_delta": _units(certificate.spent_epsilon, certificate.spent_delta)
        in [worth(population, held) for held in between(population.history, first, last)],
        "budget_epsilon and budget_delta": budget == population.budget,
        "revises": (certificate.revises or {}).get("manifest") in _known(counted),
        "stages and events": {stage.stage: _texts(stage.events) for stage in certificate.stages}
        == {name: _texts(stage.events) for name, stage in run.latest.items()},
    }
    return [name for name, same in checks.items() if not same]


def _known(counted: Tally) -> set[str | None]:
    return {None, *counted.recovered, *(run.manifest_digest for run in counted.runs.values())}


def _column(certificate: Certificate) -> str | None:
    name = certificate.unit.id_column
    return None if name is None else column_label(name)


def between(history: Sequence[tuple[int, _Value]], first: int, last: int) -> list[_Value]:
    """The values that held at some moment from entry `first` on and before entry `last`."""
    before = [value for seq, value in history if seq <= first][-1:]
    return before + [value for seq, value in history if first < seq < last]


def stated_attempts(certificate: Certificate) -> Snapshot | None:
    """The attempts that a certificate states; None: unreadable."""
    try:
        return tuple(
            (_units(a["epsilon"], a["delta"]), tuple(sorted(a["stages"].items())))
            for a in certificate.attempts
        )
    except (KeyError, AttributeError, TypeError, ValueError, ArithmeticError):
        return None


def _resumes(run: RunTally, certificate: Certificate) -> list[object]:
    return [
        {name: stage.resumes for name, stage in attempt.stages.items() if stage.resumes}
        for attempt in [a for a in run.attempts if not a.voided][: len(certificate.attempts)]
    ]


def _units(epsilon: str, delta: str) -> Units:
    with localcontext() as context:
        context.prec = 80
        parts = Decimal(epsilon) / EPSILON_UNIT, Decimal(delta) / DELTA_UNIT
        # A number between two units is none of the ledger's.
        units = [int(part) if part == int(part) else -1 for part in parts]
    return Units(epsilon=units[0], delta=units[1])


def _texts(events: Iterable[object]) -> list[object]:
    return [
        {name: repr(v) if isinstance(v, float) else v for name, v in event.items()}
        if isinstance(event, dict)
        else event
        for event in events
    ]


def _check_previous(release: VerifiedRelease, run: RunTally, counted: Tally) -> list[Finding]:
    """Check that the manifest names the population's latest publication before it, if any."""
    if release.manifest.facts.rows_of is not None:
        return []
    others = sorted(
        (other.published or 0, other.manifest_digest)
        for other in counted.runs_of(run.population)
        if other.manifest_digest is not None and other.key != run.key
    )
    # A recovery puts its releases, in their order, before all that is published after it.
    lost = [
        (recovered.seq, digest)
        for digest, recovered in counted.recovered.items()
        if recovered.population == run.population
    ]
    history: list[tuple[int, str | None]] = [(0, None), *sorted(others + lost, key=itemgetter(0))]
    possible = between(history, *_writing_interval(release.certificate, run, counted))
    if release.manifest.facts.previous in possible:
        return []
    text = "it names another release as the one before it than the ledger"
    return [Finding("previous_disagrees", f"release {release.folder.name}", text)]


def check_folder(
    folder: Path, public_keys: Sequence[Path], runs: Mapping[str, RunTally]
) -> tuple[FolderFacts, list[Finding]]:
    """Check one folder by itself; it must verify under one of the given keys, if any."""
    digest = manifest_digest(folder)
    run = runs.get(digest or "")
    subject, code = f"release {folder.name}", "folder_unsound"
    release, tombstone, other_key, text = None, None, None, ""
    try:
        if folder.is_symlink():  # it could lead into a workspace, which an audit never reads
            raise ReleaseError("a link", allowed="a folder")
        release, tombstone = verify_charged(folder, public_key=public_keys or None)
    except ReleaseError as error:
        text = error.message
        if isinstance(error, SignatureError) and public_keys:
            with suppress(ReleaseError, OSError):
                other_key = _foreign(folder, public_keys)
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
    facts = FolderFacts(
        name=folder.name,
        manifest_digest=digest,
        run_key=None if run is None else run.key,
        release=release,
        other_key=other_key,
        tombstone=tombstone,
    )
    if other_key is not None:
        code, text = "other_key", f"whole, and signed by key id {other_key}, {not_by(public_keys)}"
    return facts, [Finding(code, subject, text)] if text else []


def _foreign(folder: Path, given: Sequence[Path]) -> str | None:
    """The key that signed a whole folder, or its tombstone, and is none of the given ones."""
    ours = {load_public_key(path).key_id for path in given}
    release, withdrawn = verify_charged(folder)
    signers = [release.key_id, *([withdrawn.tombstone.signer.key_id] if withdrawn else [])]
    return next((key for key in signers if key not in ours), None)


def _check_withdrawal(
    folder: FolderFacts, release: VerifiedRelease, counted: Tally
) -> Iterator[Finding]:
    """Do tombstone and entry belong together? Further rows are withdrawn by themselves."""
    subject, record = f"release {folder.name}", counted.withdrawn.get(release.manifest.digest)
    if folder.tombstone is None:
        first = counted.withdrawn.get(release.manifest.facts.rows_of or "")
        if record is not None:
            text = f"withdrawn by entry {record.seq}, and still whole"
            yield Finding("withdrawal_unfinished", subject, text)
        elif first is not None:
            text = f"more rows of a release that entry {first.seq} withdrew"
            yield Finding("rows_not_withdrawn", subject, text)
        return
    stated = folder.tombstone.tombstone.statement
    if record is None:
        text = f"a tombstone (reason {stated.reason}), and no entry of the ledger withdrew it"
        yield Finding("tombstone_unknown", subject, text)
        return
    if record.stated != plain(stated):
        text = f"its tombstone states something else than entry {record.seq}"
        yield Finding("tombstone_disagrees", subject, text)
    if folder.tombstone.left:
        text = f"withdrawn, and still holds {', '.join(folder.tombstone.left)}"
        yield Finding("withdrawal_unfinished", subject, text)
    text = f"withdrawn by entry {record.seq}, reason {record.reason}; its cost stays charged"
    yield Finding("withdrawn", subject, text)


def by_one_other_key(
    facts: Sequence[FolderFacts], findings: list[Finding], given: Collection[str]
) -> list[Finding]:
    """Merge the findings if one and the same unknown key signed every folder."""
    keys = {folder.other_key for folder in facts}
    if len(keys) != 1 or None in keys:
        return findings
    text = f"all {len(facts)} are whole, and signed by key id {keys.pop()}, {not_by(given)}"
    return [Finding("other_key", "releases", text)]


def signers(facts: Iterable[FolderFacts], *, pinned: bool) -> list[Finding]:
    """Findings on the keys that signed the whole folders, if none was given."""
    keys = sorted({folder.release.key_id for folder in facts if folder.release is not None})
    if pinned or not keys:
        return []
    text = "whole, but no public key was given: nothing shows who signed them"
    findings = [Finding("key_not_pinned", "releases", text)]
    if len(keys) > 1:
        text = f"signed by key ids {', '.join(keys)}"
        findings.append(Finding("several_keys", "releases", text))
    return findings


def _published_otherwise(certificate: Certificate, counted: Tally) -> str:
    """Text that the run a certificate names has published another manifest; empty if none has."""
    for run in counted.runs_of(certificate.population):
        same = (run.plan_digest, run.period) == (certificate.plan_digest, certificate.period)
        if same and run.manifest_digest is not None:
            return (
                f"; the ledger published its run {run.key[:12]} as {run.manifest_digest[:12]}, so"
                " this folder was changed and signed again, or drawn under another ledger"
            )
    return ""
