"""Lists of found levels against the threshold of their certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpiw.errors import ManifestError
from dpiw.release.manifest import FileBytes
from dpiw.release.verification import check_levels
from tests.dpiw.release.release_example import example_certificate

STATED = {"columns": ["trade", "a,b"], "threshold": 20.0}
LISTS = {"levels-001.csv": 'trade,noisy_count\nsmith,19.995\n"Baker, Jr.",190.40\n',
         "levels-002.csv": '"a,b",noisy_count\n'}  # fmt: skip


def check(parameters: Any, lists: dict[str, str]) -> None:
    files = {name: FileBytes(name=name, data=text.encode()) for name, text in lists.items()}
    certificate = example_certificate()
    stage = replace(certificate.stages[0], parameters=parameters)
    check_levels(files, replace(certificate, stages=(stage,)))


def test_lists_that_keep_to_their_threshold_pass() -> None:
    check(STATED, LISTS)
    check({"degree": 2}, {})


@pytest.mark.parametrize(
    ("parameters", "changes", "said"),
    [
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,19.99\n"}, "levels-001.csv: a level is"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,nan\n"}, "levels-001.csv: a level is"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,many\n"}, "001.csv: expected a list"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith\n"}, "001.csv: expected a list"),
        ({}, {"levels-001.csv": "title,noisy_count\n"}, "001.csv: expected a list"),
        ({}, {"levels-002.csv": ""}, "002.csv: expected a list"),
        ({}, {"levels-001.csv": "trade,noisy_count\n\x1b[2J,99\n"}, "001.csv: expected a list"),
        ({}, {"levels-001.csv": "trade,noisy_count\na\u202eb,99\n"}, "001.csv: expected a list"),
        ({}, {"levels-003.csv": ""}, "levels-003.csv: certificate and manifest disagree"),
        ({"columns": ["trade", "a,b", "c"]}, {}, "levels-003.csv: certificate and manifest"),
        ({"columns": None}, {}, "a threshold without columns"),
        ({"threshold": "high"}, {}, "001.csv: expected a list"),
        ({"threshold": float("nan")}, {}, "001.csv: expected a list"),
    ],
)
def test_what_does_not_is_refused(
    parameters: dict[str, Any], changes: dict[str, str], said: str
) -> None:
    with pytest.raises(ManifestError, match=said):
        check(STATED | parameters, LISTS | changes)


def test_lists_of_a_certificate_without_a_threshold_are_refused() -> None:
    with pytest.raises(ManifestError, match=r"levels-001.csv: certificate and manifest disagree"):
        check({"degree": 2}, LISTS)
