"""A second implementation of the ledger's sums and rules, over exported entries.

It shares no code with `dpiw.ledger.book`, on purpose. Illegal entries become findings.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dpiw.audit.entry_signatures import Fields
from dpiw.audit.records import (
    AttemptTally,
    IllegalError,
    PopulationTally,
    RecoveredTally,
    RunTally,
    StageTally,
    Tally,
    Units,
    WithdrawnTally,
    cost_of,
    fits,
    least_loss,
    units,
)
from dpiw.audit.rings import MOMENT


def tally(entries: Sequence[Fields]) -> Tally:
    """Count exported entries (`Ledger.export`): hashes, transitions, attempts, sums, budgets."""
    counted = Tally()
    previous = "0" * 64
    for number, entry in enumerate(entries, start=1):
        subject = f"entry {entry['seq']}"
        if not _chained(entry, number, previous):
            counted.tell("chain_broken", subject, "its number, link or hash does not hold")
        previous = entry["hash"]
        counted.places[entry["hash"]] = entry["seq"]
        _check_clock(counted, entry)
        try:
            _take(counted, entry)
        except IllegalError as error:
            counted.tell("illegal_step", subject, str(error))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError):
            counted.tell("illegal_step", subject, f"unreadable fields of kind {entry.get('kind')}")
    for population in counted.populations.values():
        for subject, text in population.ring.suspects():
            counted.tell("key_revoked_since", subject, text)
    return counted


def _chained(entry: Fields, number: int, previous: str) -> bool:
    fields = {name: value for name, value in entry.items() if name != "hash"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    digest = hashlib.sha256(b"dpiw.ledger.entry.v1\x00" + text.encode("ascii")).hexdigest()
    return (entry["seq"], entry["previous"], entry["hash"]) == (number, previous, digest)


def _check_clock(counted: Tally, entry: Fields) -> None:
    before = counted.times.get(entry["seq"] - 1, "")
    if entry["at"] < before:
        counted.tell("clock_backwards", f"entry {entry['seq']}", f"{entry['at']}, after {before}")
    counted.times[entry["seq"]] = entry["at"]


def _take(counted: Tally, entry: Fields) -> None:
    kind = entry["kind"]
    if kind == "genesis":
        if entry["payload"]["format"] not in (2, 3, 4):
            raise IllegalError("its ledger format is not 2, 3 or 4, which this audit knows")
        return
    if kind == "register":
        _register(counted, entry)
        return
    if kind in _SIGNED:
        _check_signature(counted, entry)
    if kind == "recover":
        _recover(counted, entry)
        return
    if kind in ("key", "revoke", "approve"):
        return
    if kind == "withdraw":
        _withdraw(counted, entry)
        return
    if kind == "publish" and counted.withdrawn.keys() & {
        entry["payload"]["manifest_digest"],
        entry["payload"].get("rows_of"),
    }:
        raise IllegalError("it publishes, or adds rows to, a release that was withdrawn before")
    if kind == "reserve":
        run, before = _reserve(counted, entry)
    elif kind in _STEPS:
        run = counted.runs[entry["run_key"]]
        if entry["population"] != run.population:
            raise IllegalError("it names another population than its run's reservation")
        before, drawn = run.held, run.drawn
        if kind in ("read", "arm", "resume", "void"):
            _not_recovered(counted, run)
        if kind in ("arm", "resume"):
            _check_drawable(counted, entry, counted.populations[run.population])
        if kind in ("read", "arm", "resume"):
            _check_reads(counted, entry, run)
        _STEPS[kind](run, entry)
        _draw(counted.populations[run.population], entry, run.drawn.beyond(drawn))
    else:
        counted.tell("unknown_entry", f"entry {entry['seq']}", f"of kind {kind}; not counted")
        return
    run.last_at = entry["at"]
    run.history.append((entry["seq"], run.snapshot))
    _add(counted, counted.populations[run.population], entry, run.held.plus(before.times(-1)))


def _check_signature(counted: Tally, entry: Fields) -> None:
    ring, subject = counted.populations[entry["population"]].ring, f"entry {entry['seq']}"
    if fault := ring.take(entry):
        counted.tell("key_not_valid", subject, fault)
    elif entry["kind"] == "reserve" and not ring.approved(entry):
        text = "no second key, valid then, approved this run and its terms"
        counted.tell("not_approved", subject, text)


def _register(counted: Tally, entry: Fields) -> None:
    name, payload = entry["population"], entry["payload"]
    if name in counted.populations:
        raise IllegalError(f"population {name} is registered a second time")
    composition, budget = str(payload.get("composition", "basic")), units(payload).amount
    if composition not in ("basic", "renyi") or (composition == "renyi" and budget.delta == 0):
        raise IllegalError(f"population {name}: composition must be basic, or renyi with a delta")
    if type(payload["max_unpaid_reads"]) is not int or payload["max_unpaid_reads"] < 1:
        raise IllegalError(f"population {name}: max_unpaid_reads is no whole number >= 1")
    if payload["id_column"] is None and payload["max_rows"] != 1:
        raise IllegalError(f"population {name}: max_rows is above 1 without an id_column")
    same = ("relation", "max_rows", "id_column", "max_unpaid_reads")
    counted.populations[name] = PopulationTally(
        name=name,
        budget=budget,
        composition=composition,
        at=entry["at"],
        history=[(entry["seq"], Units())],
        **{term: payload[term] for term in same},
    )


def _add(counted: Tally, population: PopulationTally, entry: Fields, charge: Units) -> None:
    total = population.spent.plus(charge)
    population.history.append((entry["seq"], total))
    if (charge.epsilon > 0 or charge.delta > 0) and not fits(population, total):
        place = f"entry {entry['seq']} ({entry['kind']})"
        text = f"with {place} its charges exceed its lifetime budget"
        counted.tell("overspent", f"population {population.name}", text)


def _draw(population: PopulationTally, entry: Fields, charge: Units) -> None:
    if any((charge.epsilon, charge.delta, *charge.renyi)):
        before = population.drawn[-1][1] if population.drawn else Units()
        population.drawn.append((entry["seq"], before.plus(charge)))


def _check_reads(counted: Tally, entry: Fields, run: RunTally) -> None:
    """Before a table is opened: may this end without a draw, too? An arm continues a read."""
    population, attempt = counted.populations[run.population], _attempt(run, entry)
    goes_on = entry["kind"] != "read" and attempt.reads > 0 and not attempt.committed
    most = population.max_unpaid_reads
    if counted.unpaid_reads(population.name) - goes_on >= most:
        place = f"entry {entry['seq']} ({entry['kind']})"
        text = f"{place} reads its table after {most} reads without a draw, the most for life"
        counted.tell("too_many_reads", f"population {population.name}", text)


def _check_drawable(counted: Tally, entry: Fields, population: PopulationTally) -> None:
    if not fits(population, population.spent):
        place = f"entry {entry['seq']} ({entry['kind']})"
        text = f"{place} draws although its charges exceed its lifetime budget"
        counted.tell("overspent", f"population {population.name}", text)


def _recover(counted: Tally, entry: Fields) -> None:
    payload, population = entry["payload"], counted.populations[entry["population"]]
    rule = population.composition
    charged, loss = (cost_of(fields, composition=rule) for fields in (payload, payload["loss"]))
    releases_charge = Units()
    for item in payload["releases"]:
        digest, lost = item["manifest_digest"], RecoveredTally.stated(entry, item, composition=rule)
        if lost.head in counted.places or digest in counted.recovered:
            raise IllegalError("it recovers a release that was not lost, or was recovered before")
        if lost.after is not None and not (lost.previous and lost.after in counted.places):
            raise IllegalError("it names an earlier release whose entry this ledger lacks")
        if not lost.held.covers(lost.drawn):
            raise IllegalError("it states more as drawn than as charged")
        releases_charge = releases_charge.plus(_charge_of(counted, population, lost))
        counted.recovered[digest] = lost
    reads = payload["reads"]
    if type(reads) is not int or not 0 <= reads <= 10**6:
        raise IllegalError("its number of reads is no whole number from 0 to 1000000")
    if not payload["releases"] and loss.amount == Units() and not reads:
        raise IllegalError("it recovers neither a release, nor a loss, nor a read")
    if loss.amount != Units():
        counted.losses.append((entry["seq"], population.name, loss.amount))
    population.recovered_reads += reads
    before = population.spent.plus(releases_charge)
    _add(counted, population, entry, charged)
    _draw(population, entry, charged)
    if population.composition == "renyi":
        delta_left = max(0, population.budget.delta - before.lost_delta)
        if not loss.covers(least_loss(loss, delta_left=delta_left)):
            raise IllegalError("it charges less than what its loss states")
    if not charged.covers(releases_charge.plus(loss)):
        raise IllegalError("it charges less than what its releases and its loss state")


def _charge_of(counted: Tally, population: PopulationTally, lost: RecoveredTally) -> Units:
    """What its run held, or more if more was spent beyond what is surely counted here.

    Less what its own reservation holds, if it drew nothing and did not pay before.
    """
    before = counted.recovered.get(lost.previous or "")
    if before is not None and before.population == population.name:
        continued = any(other.previous == lost.previous for other in counted.recovered.values())
        floor = before.drawn if continued else before.held
    else:
        floor = Units() if lost.after is None else population.drawn_by(counted.places[lost.after])
    charge = lost.cost.plus(lost.held.beyond(floor).beyond(lost.cost))
    for run in counted.runs_of(population.name):
        paid = any(other.is_of(run) for other in counted.recovered.values())
        if lost.is_of(run) and not paid and run.drawn == Units():
            return charge.beyond(run.held)
    return charge


def _not_recovered(counted: Tally, run: RunTally) -> None:
    if any(release.is_of(run) for release in counted.recovered.values()):
        raise IllegalError("it continues or voids a run whose release was recovered")


def _reserve(counted: Tally, entry: Fields) -> tuple[RunTally, Units]:
    payload, key, number = entry["payload"], entry["run_key"], entry["attempt"]
    population = counted.populations[entry["population"]]
    if payload["relation"] != population.relation:
        raise IllegalError("its cost is under another relation than the population's")
    cost = cost_of(payload, composition=population.composition)
    if cost.lost_delta:
        raise IllegalError(
            "it reserves a delta for draws that a lost ledger forgot; only a recovery may state one"
        )
    resumable = payload.get("resumable", {})
    stages = {
        name: StageTally(state="reserved", events=list(events), resumption=resumable.get(name))
        for name, events in payload["stages"].items()
    }
    _check_repeats(payload)
    terms = (payload["plan_digest"], payload["period"], payload["max_attempts"])
    run = counted.runs.get(key)
    if run is None:
        run = RunTally(
            key=key, population=population.name, plan_digest=terms[0], period=terms[1],
            max_attempts=terms[2],
        )  # fmt: skip
    known = (run.population, run.plan_digest, run.period, run.max_attempts)
    if known != (population.name, *terms):
        raise IllegalError("it reserves a known run under other terms")
    if number != len(run.attempts) + 1 or not stages:
        raise IllegalError("its attempt is not the run's next one, or has no stages")
    _not_recovered(counted, run)
    _check_again(counted, run, stages, entry)
    counted.runs[key] = run
    before = run.held
    run.attempts.append(AttemptTally(
        number=number, cost=cost, stages=stages, seq=entry["seq"], at=entry["at"], stated=payload
    ))  # fmt: skip
    if sum(not attempt.voided for attempt in run.attempts) > run.max_attempts:
        text = f"attempt {number} where max_attempts={run.max_attempts}"
        counted.tell("too_many_attempts", f"run {key[:12]}", text)
    return run, before


def _check_repeats(payload: Fields) -> None:
    for name, terms in payload.get("resumable", {}).items():
        if set(terms) != {"steps", "every", "resumes"} or any(
            type(number) is not int or number < 1 for number in terms.values()
        ):
            raise IllegalError(f"stage {name}: its terms of resumption are no whole numbers >= 1")
        draws = terms["steps"] + terms["every"] * terms["resumes"]
        counts = [event["count"] for event in payload["stages"][name]]
        valid = all(type(count) is int and count in (1, draws) for count in counts)
        if not valid or counts.count(draws) != 1:
            raise IllegalError(f"stage {name}: its events do not pay for what a resume may repeat")


def _check_again(
    counted: Tally, run: RunTally, stages: Mapping[str, StageTally], entry: Fields
) -> None:
    if not run.attempts:
        return
    before = run.latest
    for name, stage in stages.items():
        prior = before.get(name)
        if prior is None or prior.state not in ("lost", "voided"):
            raise IllegalError(f"it reserves stage {name} again, which is neither lost nor voided")
        if (prior.events, prior.resumption) != (stage.events, stage.resumption):
            text = f"attempt {entry['attempt']} declares other events for {name} than before"
            counted.tell("events_changed", f"run {run.key[:12]}", text)


def _attempt(run: RunTally, entry: Fields) -> AttemptTally:
    number = entry["attempt"]
    if type(number) is not int or number < 1:
        raise IllegalError(f"the run has no attempt {number}")
    return run.attempts[number - 1]


def _moved(run: RunTally, entry: Fields, before: str, after: str) -> StageTally:
    name, kind = entry["stage"], entry["kind"]
    stage = _attempt(run, entry).stages[name]
    if stage.state != before:
        raise IllegalError(f"{kind} needs a stage that is {before}; {name} is {stage.state}")
    stage.state = after
    return stage


def _digest(entry: Fields, name: str) -> str:
    digest: object = entry["payload"][name]
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise IllegalError(f"its {name} is no SHA-256")
    return digest


def _read(run: RunTally, entry: Fields) -> None:
    attempt = _attempt(run, entry)
    if not any(stage.state == "reserved" for stage in attempt.stages.values()):
        raise IllegalError("it reads the table although no stage waits for a draw")
    attempt.reads += 1


def _arm(run: RunTally, entry: Fields) -> None:
    token = _digest(entry, "token_digest")
    _moved(run, entry, "reserved", "armed").tokens.append(token)


def _checkpoint(run: RunTally, entry: Fields) -> None:
    stage, step = _moved(run, entry, "armed", "armed"), entry["payload"]["step"]
    if stage.resumption is None:
        raise IllegalError(f"stage {entry['stage']} was reserved without terms of resumption")
    _digest(entry, "digest")
    before = -1 if stage.checkpoint is None else stage.checkpoint
    apart = 1 if stage.checkpoint is None else stage.resumption["every"]
    admissible = type(step) is int and 0 < step - before <= apart
    if not admissible or step > stage.resumption["steps"]:
        raise IllegalError(f"stage {entry['stage']} may have no checkpoint at this step")
    stage.checkpoint = int(step)


def _resume(run: RunTally, entry: Fields) -> None:
    stage, step = _moved(run, entry, "armed", "armed"), entry["payload"]["step"]
    token = _digest(entry, "token_digest")
    if token in stage.tokens:
        raise IllegalError(f"stage {entry['stage']} is resumed under a token it had before")
    stage.tokens.append(token)
    allowed = 0 if stage.resumption is None else stage.resumption["resumes"]
    if type(step) is not int or step != stage.checkpoint:
        raise IllegalError(f"stage {entry['stage']} is not resumed from its last checkpoint")
    if stage.resumes > allowed:
        raise IllegalError(f"stage {entry['stage']} is resumed more often than was reserved")


def _conflict(run: RunTally, entry: Fields) -> None:
    if units(entry["payload"]) != _attempt(run, entry).cost:
        raise IllegalError("a conflict charges the attempt's cost again, no other")
    _moved(run, entry, "committed", "committed").conflicts += 1


def _void(run: RunTally, entry: Fields) -> None:
    attempt = _attempt(run, entry)
    if attempt.voided or any(s.state != "reserved" for s in attempt.stages.values()):
        raise IllegalError("it gives back an attempt that may have drawn, or was given back")
    if units(entry["payload"]) != attempt.cost:
        raise IllegalError("a void gives back the attempt's cost, no other")
    attempt.voided = True
    for stage in attempt.stages.values():
        stage.state = "voided"


def _certify(run: RunTally, entry: Fields) -> None:
    if run.state != "committed":
        raise IllegalError(f"it certifies a run that is {run.state}, not committed")
    _digest(entry, "nonce")
    run.certified.append(int(entry["seq"]))


def _publish(run: RunTally, entry: Fields) -> None:
    if "rows_of" in entry["payload"]:
        _publish_rows(run, entry)
        return
    if run.state != "committed":
        raise IllegalError(f"it publishes a run that is {run.state}, not committed")
    run.manifest_digest = _digest(entry, "manifest_digest")
    run.published = int(entry["seq"])


def _publish_rows(run: RunTally, entry: Fields) -> None:
    if run.manifest_digest is None or entry["payload"]["rows_of"] != run.manifest_digest:
        raise IllegalError("it adds rows to a release that the run has not published")
    digest = _digest(entry, "manifest_digest")
    if digest in (run.manifest_digest, *run.further):
        raise IllegalError("it publishes a manifest twice")
    run.further.append(digest)


def _withdraw(counted: Tally, entry: Fields) -> None:
    """A withdrawal moves no charge, and names a publication, or more rows of a recovered one."""
    stated = {name: value for name, value in entry["payload"].items() if name != "by"}
    if set(stated) != _WITHDRAWAL or not MOMENT.fullmatch(stated["withdrawn_at"]):
        raise IllegalError("it does not state a withdrawal")
    digest, first, other = _digest(entry, "manifest"), stated["rows_of"], stated["replaced_by"]
    runs = [r for r in counted.runs_of(entry["population"]) if r.manifest_digest is not None]
    lost = {d for d, r in counted.recovered.items() if r.population == entry["population"]}
    releases = dict.fromkeys([*lost, *(run.manifest_digest for run in runs)])
    known = releases | {rows: run.manifest_digest for run in runs for rows in run.further}
    is_ours = known[digest] == first if digest in known else first in lost
    named = [stated] if other is None else [stated, other]
    if not all(isinstance(one["release_id"], str) for one in named) or not (
        other is None or set(other) == {"release_id", "manifest"}
    ):
        raise IllegalError("it does not name its release, or the one that replaces it")
    if entry["run_key"] is not None or not is_ours or digest in counted.withdrawn:
        raise IllegalError("it withdraws what was not published, or was withdrawn before")
    if stated["reason"] not in ("error", "disclosure", "superseded", "request"):
        raise IllegalError("its reason is none that this audit knows")
    if other is not None and other["manifest"] not in releases.keys() - {digest}:
        raise IllegalError("the release that replaces it is not published")
    counted.withdrawn[digest] = WithdrawnTally(seq=entry["seq"], stated=stated)
    for run in runs:
        if run.manifest_digest == digest:
            run.withdrawn = str(stated["reason"])


_WITHDRAWAL = {"release_id", "manifest", "rows_of", "reason", "replaced_by", "withdrawn_at"}
_SIGNED = ("key", "revoke", "approve", "reserve", "publish", "withdraw", "recover")
_STEPS: dict[str, Callable[[RunTally, Fields], object]] = {
    "read": _read,
    "arm": _arm,
    "checkpoint": _checkpoint,
    "resume": _resume,
    "commit": partial(_moved, before="armed", after="committed"),
    "lose": partial(_moved, before="armed", after="lost"),
    "conflict": _conflict,
    "void": _void,
    "certify": _certify,
    "publish": _publish,
}
