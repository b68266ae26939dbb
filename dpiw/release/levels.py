"""Lists of found levels: one for each column that the certificate states, and none too rare."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from dpiw.data.levels import NOISY_COUNT, level_file
from dpiw.errors import ManifestError
from dpiw.release.certificate import Certificate

_ROUNDED = 0.005
"""What a noisy count, written with two decimals, may have lost; in rows."""


def check_levels(folder: Path, certificate: Certificate, *, listed: Iterable[str]) -> None:
    """Compare a release's lists of found levels with the threshold that its certificate states.

    Args:
        folder: the release.
        certificate: its own.
        listed: names of its files.

    Raises:
        ManifestError: a list is missing or extra, is no list of its column, or shows a level whose
            noisy count is below the threshold.
    """
    try:
        expected = {
            level_file(place): (column, stage.parameters["threshold"])
            for stage in certificate.stages
            if "threshold" in stage.parameters
            for place, column in enumerate(stage.parameters["columns"], start=1)
        }
    except (KeyError, TypeError) as error:
        raise ManifestError("certificate.json: a threshold without columns of levels") from error
    for name in sorted({file for file in listed if file.startswith("levels-")} ^ expected.keys()):
        raise ManifestError(f"{name}: certificate and manifest disagree on whether it exists")
    for name, (column, threshold) in expected.items():
        try:
            low = not _reaches(folder / name, column, threshold)
        except (OSError, ValueError, TypeError, csv.Error) as error:
            raise ManifestError(f"{name}: expected a list of levels and noisy counts") from error
        if low:
            raise ManifestError(f"{name}: a level is below the certificate's threshold")


def _reaches(path: Path, column: str, threshold: float) -> bool:
    with path.open(encoding="utf-8", newline="") as stream:
        lines = csv.reader(stream, strict=True)
        if next(lines, None) != [column, NOISY_COUNT]:
            raise ValueError
        return all(float(count) + _ROUNDED >= threshold for _, count in lines)
