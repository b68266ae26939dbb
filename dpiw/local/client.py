"""One report for one person, kept in a file: every further draw would cost as much again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dpiw.data.documents import document_json, parse_canonical, record, typed
from dpiw.data.files import sync_directory, write_durably
from dpiw.errors import ManifestError, NotPublishableError, PrivacyError, ReleaseError
from dpiw.local.parameters import NAME, RESERVED, LocalParameters
from dpiw.local.reports import privatise, told_record
from dpiw.privacy.randomness import NoiseSource, SecureNoise


def report_once(
    path: str | Path,
    person: Mapping[str, Any],
    *,
    parameters: LocalParameters,
    bare: Collection[str] = (),
    noise: NoiseSource | None = None,
) -> dict[str, Any]:
    """Return the person's report: draw and keep it, unless the file already holds one.

    The report holds `parameters` (their digest), `report_id` (random; a report that arrives twice
    counts once), and by name the noisy features in [-1, 1] and the label's level.

    Args:
        path: the person's file for this collection; holds the report alone, as it is sent.
        person: numbers of features and the label's level; ignored if a report is there already.
        parameters: of the collection, checked before the draw.
        bare: names of the features that the person agrees to send unprotected.
        noise: None: the operating system's, exact (`SecureNoise`).

    Privacy:
        Unit: one record, replaced by any other. Event: as `privatise`, once for each file.

    Raises:
        PrivacyError: the parameters do not keep their promise, or leave a feature unprotected that
            `bare` does not name.
        NotPublishableError: the noise is from a seed.
        SourceError: a value is missing or not admissible; the text never holds it.
        ManifestError: the file holds something else, or another collection's report.
        ReleaseError: the file cannot be written or read.
    """
    refuse_unnamed(parameters, bare)
    path, source = Path(path), SecureNoise() if noise is None else noise
    try:
        if not os.path.lexists(path):
            _keep(path, _new_report(person, parameters, source))
        data = path.read_bytes()
    except OSError as reason:
        raise ReleaseError(f"{path.name}: {reason.strerror}") from reason
    return _read(data, path.name, parameters)


def refuse_unnamed(parameters: LocalParameters, bare: Collection[str]) -> None:
    """Raise PrivacyError if an unprotected feature is not in `bare` (a single text is one name).

    A mapping agrees to nothing: its values may say no.
    """
    names = () if isinstance(bare, Mapping) else bare
    agreed = {names} if isinstance(names, str) else set(names)
    unnamed = [name for name in parameters.bare if name not in agreed]
    if unnamed:
        raise PrivacyError(
            f"{NAME}: tells {', '.join(map(repr, unnamed))} as it is, without noise: nothing"
            " protects it; expected private features alone, or your word for each: bare=[NAME],"
            " or --bare NAME. Nothing was drawn"
        )


def _new_report(
    person: Mapping[str, Any], parameters: LocalParameters, noise: NoiseSource
) -> dict[str, Any]:
    if not noise.publishable:
        raise NotPublishableError("a report is sent: expected the operating system's noise")
    parameters.check()
    features, labels = told_record(person, parameters)
    reported_features, answers = privatise(features, labels, parameters=parameters, noise=noise)
    values = [*reported_features[0].tolist(), *(parameters.levels[answer] for answer in answers)]
    report = dict(zip(parameters.names, values, strict=True))
    return report | {"parameters": parameters.digest, "report_id": secrets.token_hex(16)}


def _keep(path: Path, report: dict[str, Any]) -> None:
    """Write durably, then link: of two processes at once one report stays, for both."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_durably(draft, document_json(report))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster: use its report
    finally:
        draft.unlink()
        sync_directory(path.parent)


def _read(data: bytes, name: str, parameters: LocalParameters) -> dict[str, Any]:
    value = parse_canonical(data, what=name, error=ManifestError)
    report: dict[str, Any] = typed(value, dict, what=name, error=ManifestError)
    if report.get("parameters") != parameters.digest:
        raise ManifestError(f"{name}: the report of another collection, or of other parameters")
    checked: dict[str, Any] = record(
        report, [*parameters.names, *RESERVED], what=name, error=ManifestError
    )
    return checked
