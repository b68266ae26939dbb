"""Lists of found levels against the threshold of their certificate."""

from dataclasses import replace

import pytest

from dpiw.errors import ManifestError
from dpiw.release.manifest import FileBytes
from dpiw.release.verification import check_levels
from tests.dpiw.release.release_example import example_certificate

STATED = {"columns": ["trade", "a,b"], "threshold": 20.0}
LISTS = {"levels-001.csv": 'trade,noisy_count\nsmith,19.995\n"Baker, Jr.",190.40\n',
         "levels-002.csv": '"a,b",noisy_count\n'}  # fmt: skip


def check(parameters, lists):
    files = {name: FileBytes(name=name, data=text.encode()) for name, text in lists.items()}
    certificate = example_certificate()
    stage = replace(certificate.stages[0], parameters=parameters)
    check_levels(files, replace(certificate, stages=(stage,)))


def test_lists_that_keep_to_their_threshold_pass():
    check(STATED, LISTS)
    check({"degree": 2}, {})


@pytest.mark.parametrize(
    ("parameters", "changes", "file"),
    [
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,19.99\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,nan\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith,many\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\nsmith\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "title,noisy_count\n"}, "levels-001.csv"),
        ({}, {"levels-002.csv": ""}, "levels-002.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\n\x1b[2J,99\n"}, "levels-001.csv"),
        ({}, {"levels-001.csv": "trade,noisy_count\na\u202eb,99\n"}, "levels-001.csv"),
        ({}, {"levels-003.csv": ""}, "levels-003.csv"),
        ({"columns": ["trade", "a,b", "c"]}, {}, "levels-003.csv"),
        ({"columns": None}, {}, "threshold"),
        ({"threshold": "high"}, {}, "levels-001.csv"),
        ({"threshold": float("nan")}, {}, "levels-001.csv"),
        ({"columns": None, "threshold": None}, {}, "levels-001.csv"),
    ],
)
def test_what_does_not_is_refused(parameters, changes, file):
    stated = {key: value for key, value in (STATED | parameters).items() if value is not None}
    with pytest.raises(ManifestError, match=file):
        check(stated, LISTS | changes)
