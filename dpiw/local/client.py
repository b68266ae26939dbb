"""One report for one person, kept in a file: every further draw would cost as much again."""

import contextlib
import math
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.documents import document_json, parse_canonical, record, typed
from dpiw.data.files import sync_directory, write_durably
from dpiw.errors import ManifestError, NotPublishableError, PrivacyError, ReleaseError, SourceError
from dpiw.local.parameters import NAME, RESERVED, LocalParameters
from dpiw.privacy.mechanisms import noisy_vector
from dpiw.privacy.randomised_response import respond
from dpiw.privacy.randomness import NoiseSource, SecureNoise


def told_record(
    record: Mapping[str, Any], parameters: LocalParameters
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a record's features, shape (1, features), and label, for `privatise`.

    Features are clipped and scaled to [-1, 1]; the label is an index, shape (1,), or (0,) without a
    label. Raises SourceError for a missing or inadmissible value; the text never holds the value.
    """
    numbers = [_number(record, feature.name) for feature in parameters.features]
    labels = [] if parameters.label is None else [_level(record, parameters)]
    return told_numbers(np.array([numbers]), parameters), np.array(labels, dtype=np.int64)


def told_numbers(numbers: NDArray[np.float64], parameters: LocalParameters) -> NDArray[np.float64]:
    """Clip features, shape (records, features), to public bounds; scale them to [-1, 1].

    Raises SourceError if a number is not finite.
    """
    if not np.isfinite(numbers).all():
        raise SourceError(field="features", allowed="finite numbers")
    low = np.array([feature.low for feature in parameters.features])
    high = np.array([feature.high for feature in parameters.features])
    inside = np.clip(numbers, low, high)
    return np.asarray(np.clip(2 * ((inside - low) / (high - low)) - 1, -1.0, 1.0))


def projected(private: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Project rows onto the ball; SourceError if a number is not finite."""
    if not np.isfinite(private).all():
        raise SourceError(field="features", allowed="finite numbers")
    largest = np.abs(private).max(axis=1, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)  # squares of it neither overflow nor vanish
    norm = scale * np.linalg.norm(private / scale, axis=1, keepdims=True)
    return np.asarray(private * np.minimum(1.0, radius / np.maximum(norm, radius)))


def privatise(
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    parameters: LocalParameters,
    noise: NoiseSource,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Add noise to features, and draw labels by randomised response; shapes stay.

    `features`: shape (records, p), in [-1, 1]; `labels`: indices, shape (records,), or (0,) without
    a label. Private features are projected onto the ball and become multiples of the lattice step.

    Raises:
        SourceError: another shape, or a number that is not finite.
        PrivacyError: a label is no level.

    Privacy:
        Unit: one record, replaced by any other with the same features that are not private.
        L2 sensitivity of the private features: twice the radius. Event: a Gaussian mechanism and a
        randomised response, together (`parameters.epsilon`, `parameters.delta`).
    """
    records = len(features)
    reported_features = np.array(features, dtype=np.float64)
    if reported_features.shape != (records, len(parameters.features)):
        raise SourceError(field="features", allowed="one column for each feature of the parameters")
    response = parameters.response
    if labels.shape != ((0,) if response is None else (records,)):
        allowed = "none, as no label is asked" if response is None else "one index for each record"
        raise SourceError(field="labels", allowed=allowed)
    if not np.isfinite(reported_features).all():
        raise SourceError(field="features", allowed="finite numbers")
    if parameters.dimension and records:
        private = projected(reported_features[:, parameters.private], parameters.radius)
        noisy = noisy_vector(private.ravel(), law=parameters.law(records), noise=noise)
        reported_features[:, parameters.private] = noisy.reshape(private.shape)
    if response is None:
        return reported_features, np.empty(0, dtype=np.int64)
    answers = respond(labels.tolist(), response=response, noise=noise)
    return reported_features, np.array(answers, dtype=np.int64)


def _number(record: Mapping[str, Any], name: str) -> float:
    value, number = record.get(name), math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise SourceError(field=f"feature {name}", allowed="a finite number")
    return number


def _level(record: Mapping[str, Any], parameters: LocalParameters) -> int:
    value = record.get(str(parameters.label))
    if not isinstance(value, str) or value not in parameters.levels:
        allowed = f"under this name one of {', '.join(parameters.levels)}"
        raise SourceError(field=f"label {parameters.label}", allowed=allowed)
    return parameters.levels.index(value)


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

    Raises PrivacyError for parameters that do not keep their promise or leave a feature unprotected
    that `bare` does not name; NotPublishableError for noise from a seed; SourceError for a missing
    or inadmissible value, which its text never holds; ManifestError if the file holds something
    else; ReleaseError if it cannot be written or read.
    """
    refuse_unnamed(parameters, bare)
    path, source = Path(path), SecureNoise() if noise is None else noise
    try:
        if not os.path.lexists(path):
            _keep(path, _new_report(person, parameters, source))
        data = path.read_bytes()
    except OSError as reason:
        found = f"the report's file cannot be written or read: {reason.strerror}"
        raise ReleaseError(found, field=path.name) from reason
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
            f"asks for {', '.join(map(repr, unnamed))} without noise, so nothing would protect your"
            " answer. Nothing was drawn",
            field=NAME,
            allowed=f"your consent to each: --bare NAME, or in Python bare={unnamed}",
        )


def _new_report(
    person: Mapping[str, Any], parameters: LocalParameters, noise: NoiseSource
) -> dict[str, Any]:
    if not noise.publishable:
        raise NotPublishableError("noise from a seed protects no report: leave out `noise`")
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
    value = parse_canonical(data, what=name)
    report: dict[str, Any] = typed(value, dict, what=name)
    if report.get("parameters") != parameters.digest:
        found = "it holds the report of another collection, or of other parameters"
        raise ManifestError(found, field=name, allowed="a file of this collection, or a new name")
    checked: dict[str, Any] = record(report, [*parameters.names, *RESERVED], what=name)
    return checked
