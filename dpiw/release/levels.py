"""Lists of found levels: one for each column that the certificate states, and none too rare."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from dpiw.data.levels import NOISY_COUNT, guarded, level_file
from dpiw.errors import ManifestError, is_plain
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import FileBytes

_ROUNDED = 0.005
"""What a noisy count, written with two decimals, may have lost; in rows."""


def check_levels(lists: Mapping[str, FileBytes], certificate: Certificate) -> None:
    """Compare a release's lists of found levels with the threshold that its certificate states.

    Args:
        lists: by name, those that the release holds.
        certificate: of the release.

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
    for name in sorted(lists.keys() ^ expected.keys()):
        raise ManifestError(f"{name}: certificate and manifest disagree on whether it exists")
    for name, (column, threshold) in expected.items():
        try:
            low = not _reaches(lists[name], column, threshold)
        except (ValueError, TypeError, csv.Error) as error:
            raise ManifestError(f"{name}: expected a list of levels and noisy counts") from error
        if low:
            raise ManifestError(f"{name}: a level is below the certificate's threshold")


def _reaches(file: FileBytes, column: str, threshold: float) -> bool:
    """Whether all its counts do, of a list that a name or level which is a formula may guard."""
    lines = csv.reader(io.StringIO(file.data.decode(), newline=""), strict=True)
    if next(lines, None) not in ([column, NOISY_COUNT], [guarded(column), NOISY_COUNT]):
        raise ValueError
    pairs = list(lines)
    if not all(is_plain(level) for level, _ in pairs):
        raise ValueError
    return all(float(count) + _ROUNDED >= threshold for _, count in pairs)
