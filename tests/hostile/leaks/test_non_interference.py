"""What is public and not drawn is the same for neighbouring tables.

Two tables that differ by one person, and the same stubbed noise. Everything public that was not
drawn must then be equal byte for byte: how each step ends, which files a release has, the ledger
but for digests, the data dictionary, manifest, certificate and Parquet footer but for the fields
listed here, which are functions of released values.
"""

import dataclasses
import functools
import shutil
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpiw.errors import StageFailedError
from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.hostile.leaks.neighbours import (
    HOSTILE,
    INGEST,
    PUBLISH,
    differences,
    fix_draws,
    neighbour,
    public_view,
    released,
    run_world,
    table,
    template_of,
)


@pytest.fixture(scope="module", autouse=True)
def fixed_draws():
    with pytest.MonkeyPatch.context() as patch:
        fix_draws(patch)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return template_of(tmp_path_factory)


@functools.cache
def base_view(template, base):
    """What is public of a table that nothing was done to."""
    return public_view(template.world(base * 100, table(base)))


def compare(template, bases, numbers, figures):
    rng = np.random.default_rng(11)
    started, pairs, violations = time.time(), 0, []
    for base in range(bases):
        lines = table(base)
        expected = base_view(template, base)
        assert expected["ends"] == ["ok"] * 8
        for number in numbers:
            world = template.world(base * 100 + 1 + number, neighbour(lines, number + base, rng))
            differing = differences(expected, public_view(world))
            pairs += 1
            violations += [(base, number, *item) for item in differing]
            shutil.rmtree(world)
    figures("non-interference", pairs=pairs, violations=len(violations),
            seconds=round(time.time() - started))  # fmt: skip
    message = "\n".join(map(str, violations[:12]))
    assert not violations, message


@pytest.mark.slow
def test_public_fields_are_equal_for_neighbours(template, figures):
    """A hostile person more."""
    compare(template, 1, (2,), figures)


@pytest.mark.crash
def test_public_fields_are_equal_for_many_neighbours(template, figures):
    compare(template, 20, range(10), figures)


# What failed before is not published
def torn(root):
    """A line too many, which ends the read."""
    lines = (root / "data.csv").read_text()
    (root / "data.csv").write_text(lines + "30,100.0,north,true,1\n")
    _, ends = run_world(root)
    assert ends == ["ok", "SourceError"]
    (root / "data.csv").write_text(lines)


def crashed(root):
    """A read that ends without a word, under code 70."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(INGEST, "open_csv", lambda *_, **__: 1 / 0)
        run = ReleaseRun.prepare(root / "release.yaml", period=None)
        steps.reserve(run)
        with pytest.raises(ZeroDivisionError):
            steps.ingest(run)


def given_back(root):
    """A read that went well, and whose reservation was voided."""
    run = ReleaseRun.prepare(root / "release.yaml", period="earlier")
    steps.reserve(run)
    steps.ingest(run)
    run.open_ledger().void(run.key, 1)


def elsewhere(root):
    """Another population of the same ledger."""
    ledger = Ledger.open(root / "state" / "ledger.sqlite")
    ledger.register(dataclasses.replace(ledger.population("town"), name="village"))


@pytest.mark.slow
def test_what_failed_before_is_not_published(template):
    detour = template.world(80_000, table(0))
    for failure in (elsewhere, torn, given_back, crashed, torn):
        failure(detour)
    assert differences(released(base_view(template, 0)), released(public_view(detour))) == []


@pytest.mark.slow
def test_a_published_number_of_the_ledger_s_entry_is_seen(template, monkeypatch):
    """The control: what certificates carried once."""
    real = PUBLISH.certify

    def telling(run, ledger):
        return dataclasses.replace(real(run, ledger), nominal_rows=ledger.head().seq)

    monkeypatch.setattr(PUBLISH, "certify", telling)
    straight, detour = (template.world(81_000 + n, table(5)) for n in (0, 1))
    torn(detour)
    differing = differences(released(public_view(straight)), released(public_view(detour)))
    assert ("certificate.json", "nominal_rows") in [difference[:2] for difference in differing]


# Controls: the comparison sees an interference
@pytest.mark.nightly
def test_a_row_count_in_the_certificate_is_seen(template, monkeypatch):
    real = PUBLISH.certify

    def telling(run, ledger):
        rows = pq.ParquetFile(run.snapshot).metadata.num_rows
        return dataclasses.replace(real(run, ledger), nominal_rows=rows)

    monkeypatch.setattr(PUBLISH, "certify", telling)
    lines = table(99)
    first = public_view(template.world(90_000, lines))
    second = public_view(template.world(90_001, [*lines, HOSTILE[2]]))
    assert "certificate.json" in [name for name, *_ in differences(first, second)]


@pytest.mark.slow
def test_an_abort_on_a_value_is_seen(template, monkeypatch):
    real = INGEST.canonical_frame

    def reading(frame, *arguments):
        if (frame["region"] == "mars").any():
            raise StageFailedError("ingest", 70)
        return real(frame, *arguments)

    monkeypatch.setattr(INGEST, "canonical_frame", reading)
    hostile = public_view(template.world(91_000, [*table(0), HOSTILE[2]]))
    assert "ends" in [name for name, *_ in differences(base_view(template, 0), hostile)]
