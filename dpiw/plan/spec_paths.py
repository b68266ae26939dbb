"""Where the files of a spec lie: from the spec's own folder, as absolute paths."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.data.confidential import Confidential
from dpiw.data.public_rows import FIELD, named_file
from dpiw.errors import SpecError
from dpiw.ledger.location import absolute_location
from dpiw.methods.generators.registry import public_settings
from dpiw.methods.weights.paper.steps import files_of

if TYPE_CHECKING:
    from dpiw.plan.sections import GeneratorSpec
    from dpiw.plan.spec import ReleaseSpec


_Public = Callable[[str, str], str]
"""The absolute path of a field's public file, which is none of the confidential ones."""

_FOLDER = "releases or state/releases"
"""What `publish_to` may say, for people."""


def located_spec(spec: ReleaseSpec, base: Path) -> ReleaseSpec:
    """The spec with absolute paths, and the SHA-256 of public rows for a calibration.

    Raises:
        SpecError: a path that cannot be resolved, a public file that is confidential, or a file
            that is not the one meant.
    """

    def absolute(field: str, text: str) -> str:
        return str(located(base, field, text).resolve(strict=False))

    # The source's last component is not resolved: a symbolic link is refused at ingest.
    source = located(base, "source.path", spec.source.path)
    places = {
        "source": spec.source.model_copy(
            update={"path": str(source.parent.resolve() / source.name)}
        ),
        "schema_path": absolute("schema", spec.schema_path),
        "state": absolute("state", spec.state),
        "signing_key": absolute("signing_key", spec.signing_key),
        "publish_to": absolute("publish_to", spec.publish_to),
        "ledger": None if spec.ledger is None else absolute_location(spec.ledger, base),
    }
    spec = spec.model_copy(update=places)

    def public(field: str, text: str) -> str:
        path = located(base, field, text)
        confidential(spec).refuse(path, field=field)
        return str(path.resolve(strict=False))

    truth = spec.public_truth
    return spec.model_copy(
        update={
            "generator": _located_generator(spec, public),
            "weights": spec.weights.model_copy(
                update={"post_processing": _located_steps(spec, public)}
            ),
            "public_truth": None if truth is None else public("public_truth", truth),
        }
    )


def confidential(spec: ReleaseSpec) -> Confidential:
    """Where no public file of a spec may lie.

    Args:
        spec: with absolute paths.
    """
    return Confidential(
        source=Path(spec.source.path), state=Path(spec.state), releases=Path(spec.publish_to)
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


def _located_generator(spec: ReleaseSpec, public: _Public) -> GeneratorSpec:
    """The generator with the absolute path of rows that were made elsewhere, if it has such.

    They are not looked at: a run that keeps a copy of them goes on without them.
    """
    method, settings = spec.generator.method, spec.generator.settings
    places = settings.keys() - public_settings(method, settings).keys()
    placed = {
        name: public(f"generator.settings.{name}", settings[name])
        for name in places
        if isinstance(settings[name], str)
    }
    if not placed:
        return spec.generator
    return spec.generator.model_copy(update={"settings": settings | placed})


def _located_steps(spec: ReleaseSpec, public: _Public) -> list[dict[str, Any]]:
    """The post-processing steps, with path and SHA-256 of a file of public rows."""
    return [
        named_file(step, Path(public(FIELD, step["rows"])))
        if "rows" in files_of(step) and step.get("rows")
        else step
        for step in spec.weights.post_processing
    ]


def located(base: Path, field: str, text: str) -> Path:
    """A path of a spec from the spec's own folder, `~` expanded."""
    with contextlib.suppress(RuntimeError, OSError):  # no such user; a loop of links
        path = base / Path(text).expanduser()
        path.resolve(strict=False)
        return path
    raise SpecError(f"{field}: expected a path that can be resolved")
