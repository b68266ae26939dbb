"""A run's own copies of the public files that its plan names by their SHA-256."""

import contextlib
import json
import secrets
from pathlib import Path

from dpiw.data.files import write_durably
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.snapshots import write_snapshot
from dpiw.data.source.copy import copy_source
from dpiw.data.source.public_rows import read_public_rows
from dpiw.errors import SourceError, SpecError
from dpiw.methods.generators.base import MadeElsewhere
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.plan.plan import Plan
from dpiw.plan.spec import ReleaseSpec

PUBLIC_ROWS = "public_rows.parquet"

MADE_ELSEWHERE = "made_elsewhere.parquet"


def keep_public_files(plan: Plan, directory: Path) -> None:
    """Copy the public files that the run lacks, checked against the plan, before it reserves.

    Raises SpecError if a needed file is gone, has changed, or is not as declared. Kept rows made
    elsewhere are checked by digest; the original may be gone.
    """
    _keep_rows_of_calibration(plan, directory)
    _keep_rows_made_elsewhere(plan, directory)


def remembered(spec: ReleaseSpec, schema: PublicSchema, period: str, *, state: Path) -> ReleaseSpec:
    """Return the spec with the SHA-256 of missing calibration rows, as one of its runs kept it.

    Unchanged if no digest is open, or unless the runs below `state` hold exactly one that fits this
    spec and period.
    """
    spec_steps = spec.weights.post_processing
    if all(not step.get("rows") or step.get("sha256") for step in spec_steps):
        return spec
    specs_by_digest = {}
    for path in state.glob(f"workspace/{spec.population}/*/run.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            record = json.loads(path.read_bytes())
            run_steps = record["spec"]["weights"]["post_processing"]
            (digest,) = (step["sha256"] for step in run_steps if step["step"] == "beta_calibrate")
            steps = [step | {"sha256": digest} if step.get("rows") else step for step in spec_steps]
            weights = spec.weights.model_copy(update={"post_processing": steps})
            settled = spec.model_copy(update={"weights": weights})
            if settled.run_key(schema, period) == record["key"]:
                specs_by_digest[digest] = settled
    return next(iter(specs_by_digest.values())) if len(specs_by_digest) == 1 else spec


def _keep_rows_of_calibration(plan: Plan, directory: Path) -> None:
    step = parse_post_processing(plan.spec.weights.post_processing).calibrate
    snapshot = directory / PUBLIC_ROWS
    if step is None or snapshot.exists():
        return
    scaled = read_public_rows(
        Path(step.rows), sha256=str(step.sha256), schema=plan.schema,
        directory=directory / "private", limits=plan.spec.source.limits,
    )  # fmt: skip
    write_snapshot(scaled, snapshot)


def _keep_rows_made_elsewhere(plan: Plan, directory: Path) -> None:
    target, source = directory / MADE_ELSEWHERE, Path(plan.spec.source.path)
    if not isinstance(plan.generator, MadeElsewhere):
        return
    if target.exists():
        plan.generator.at(target).check_file(source)
        return
    plan.generator.check_file(source)
    copy = directory / f".{MADE_ELSEWHERE}-{secrets.token_hex(8)}"
    try:
        copy_source(Path(plan.spec.generator.settings["rows"]), copy)
        plan.generator.at(copy).kept(plan.schema)
        write_durably(target, copy.read_bytes())
    except SourceError:
        allowed = "a readable, uncompressed file that nobody changes meanwhile, and no link"
        raise SpecError(field="generator.settings.rows", allowed=allowed) from None
    finally:
        copy.unlink(missing_ok=True)
