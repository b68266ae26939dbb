"""Where the files of a spec lie: from the spec's own folder, as absolute paths."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.data.public_rows import named_file
from dpiw.errors import SpecError
from dpiw.ledger.location import absolute_location
from dpiw.methods.generators.registry import public_settings
from dpiw.methods.weights.post_processing import files_of

if TYPE_CHECKING:
    from dpiw.plan.sections import GeneratorSpec
    from dpiw.plan.spec import ReleaseSpec


_FOLDER = "releases or state/releases"
"""What `publish_to` may say, for people."""


def located_spec(spec: ReleaseSpec, base: Path) -> ReleaseSpec:
    """The spec with absolute paths, and the SHA-256 of public rows for a calibration.

    Raises:
        SpecError: a path that cannot be resolved, or a file that is not the one meant.
    """

    def absolute(field: str, text: str) -> str:
        return str(located(base, field, text).resolve(strict=False))

    # The source's last component is not resolved: a symbolic link is refused at ingest.
    source = located(base, "source.path", spec.source.path)
    truth = spec.public_truth
    return spec.model_copy(
        update={
            "source": spec.source.model_copy(
                update={"path": str(source.parent.resolve() / source.name)}
            ),
            "generator": _located_generator(spec, base),
            "weights": spec.weights.model_copy(
                update={"post_processing": _located_steps(spec, base, source)}
            ),
            "schema_path": absolute("schema", spec.schema_path),
            "state": absolute("state", spec.state),
            "signing_key": absolute("signing_key", spec.signing_key),
            "publish_to": absolute("publish_to", spec.publish_to),
            "public_truth": None if truth is None else absolute("public_truth", truth),
            "ledger": None if spec.ledger is None else absolute_location(spec.ledger, base),
        }
    )


def check_publish_to(spec: ReleaseSpec) -> None:
    """Refuse to publish where confidential files lie, or where no folder of releases can be.

    Whoever may read releases would look among them; and whatever else lies beside releases is
    taken for one that cannot be read, so that every release would be refused.

    Args:
        spec: with absolute paths.

    Raises:
        SpecError: `publish_to` is a file, holds the source, or is the state folder or its
            workspace.
    """
    releases, state = Path(spec.publish_to), Path(spec.state)
    source = Path(spec.source.path)
    fault = ""
    if os.path.exists(releases) and not os.path.isdir(releases):  # False where nobody may look
        fault = "is a file"
    elif source.parent == releases:
        fault = "is the folder of source.path, the confidential table"
    elif releases == state:
        fault = "is the state folder, in which the ledger and the confidential workspace lie"
    elif releases.is_relative_to(state / "workspace"):
        fault = "lies in the confidential workspace of the state folder"
    elif any(place.is_relative_to(releases) for place in (source, state)):
        fault = "holds the folder of source.path, or the state folder"
    if fault:
        raise SpecError(
            f"publish_to: {fault}; expected a folder of releases alone, such as {_FOLDER},"
            " which is made if it is not there"
        )


def _located_generator(spec: ReleaseSpec, base: Path) -> GeneratorSpec:
    """The generator with the absolute path of rows that were made elsewhere, if it has such.

    They are not looked at: a run that keeps a copy of them goes on without them.
    """
    method, settings = spec.generator.method, spec.generator.settings
    places = settings.keys() - public_settings(method, settings).keys()
    placed = {
        name: str(located(base, f"generator.settings.{name}", settings[name]).resolve())
        for name in places
        if isinstance(settings[name], str)
    }
    if not placed:
        return spec.generator
    for name, path in placed.items():
        _refuse_workspace(spec, base, f"generator.settings.{name}", Path(path))
    return spec.generator.model_copy(update={"settings": settings | placed})


def _refuse_workspace(spec: ReleaseSpec, base: Path, field: str, path: Path) -> None:
    """A run's folder holds confidential rows, too, and no file of it is public."""
    state, releases = (
        located(base, name, getattr(spec, name)).resolve() for name in ("state", "publish_to")
    )
    if path.is_relative_to(state) and not path.is_relative_to(releases):
        raise SpecError(f"{field}: lies in the spec's state folder, the confidential workspace")


def _located_steps(spec: ReleaseSpec, base: Path, source: Path) -> list[dict[str, Any]]:
    """The post-processing steps, with path and SHA-256 of a file of public rows."""

    def settled(step: dict[str, Any]) -> dict[str, Any]:
        if "rows" not in files_of(step) or not step.get("rows"):
            return step
        path = located(base, "weights.post_processing: beta_calibrate.rows", step["rows"])
        return named_file(step, path.resolve(strict=False), source=source)

    return [settled(step) for step in spec.weights.post_processing]


def located(base: Path, field: str, text: str) -> Path:
    """A path of a spec from the spec's own folder, `~` expanded."""
    with contextlib.suppress(RuntimeError, OSError):  # no such user; a loop of links
        path = base / Path(text).expanduser()
        path.resolve(strict=False)
        return path
    raise SpecError(f"{field}: expected a path that can be resolved")
