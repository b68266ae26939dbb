"""A release in this process, for tests that need one and not the way to it."""

import argparse
import contextlib
import io
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpiw.analysis.release import Release, UnreliableWeightsWarning, load_release
from dpiw.cli.workspace import add_workspace_commands
from dpiw.ledger import Ledger
from dpiw.privacy.randomness import NoiseSource, SecureNoise
from dpiw.privacy.units import PrivacyCost
from dpiw.run import steps
from dpiw.run.run import ReleaseRun, RunRequest
from dpiw.series.completeness import read_series


def asked(spec: Path, period: str | None = None) -> RunRequest:
    """What a person asks for with a spec and a period."""
    return RunRequest.read(spec, period=period)


def prepared(place: Any, *, period: str | None = None, **settings: Any) -> ReleaseRun:
    """The run of a workplace's spec."""
    return ReleaseRun.prepare(place.spec, period=period, **settings)


def reserved(place: Any, *, period: str | None = None) -> ReleaseRun:
    """A run whose cost the ledger holds."""
    run = prepared(place, period=period)
    steps.reserve(run)
    return run


def ingested(place: Any, *, period: str | None = None) -> ReleaseRun:
    """A run that is ready to draw."""
    run = reserved(place, period=period)
    steps.ingest(run)
    return run


def fitted(place: Any, *, period: str | None = None) -> ReleaseRun:
    """A run whose generator is drawn, and nothing else."""
    return fit(reserved(place, period=period))


def fit(run: ReleaseRun) -> ReleaseRun:
    """Read the table of a run that holds its cost, and draw its generator."""
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    return run


def reloaded(run: ReleaseRun, **changes: Any) -> ReleaseRun:
    """The run, from a record that says otherwise."""
    path = run.directory / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return ReleaseRun.load(run.directory)


def draw(run: ReleaseRun, *, noise: NoiseSource | None = None) -> ReleaseRun:
    """Reserve, and draw everything that the run's plan asks for."""
    noise = noise or SecureNoise()
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=noise)
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise)
    return run


def diagnosed(run: ReleaseRun) -> ReleaseRun:
    """A run, all of which is drawn, at its last step."""
    steps.debias(run)
    steps.diagnose(run)
    return run


def finish(run: ReleaseRun) -> Path:
    """The folder that a run publishes, all of which is drawn."""
    return steps.publish(diagnosed(run))


def publish_run(spec: Path, *, period: str | None = None) -> tuple[ReleaseRun, Path]:
    """The run of a spec, and the folder it published."""
    run = draw(ReleaseRun.prepare(spec, period=period))
    return run, finish(run)


@contextlib.contextmanager
def killed_at(owner: Any, name: str, *, behind: bool = False) -> Iterator[None]:
    """What is done inside ends before a call of this, or behind it, as by Ctrl-C."""
    real = getattr(owner, name)

    def dies(*words: Any, **options: Any) -> None:
        if behind:
            real(*words, **options)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(KeyboardInterrupt):
            yield


def once(place: Any, kept: Path, make: Callable[[], object]) -> None:
    """Let `make` fill a workplace's state folder, or put back there what it made the first time."""
    if kept.exists():
        shutil.rmtree(place.root / "state")
        shutil.copytree(kept, place.root / "state")
    else:
        make()
        shutil.copytree(place.root / "state", kept)


def loaded(folder: Path) -> Release:
    """A release of so few rows may well say `do not use`: here that is not the matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        return load_release(folder)


def spent(place: Any, population: str = "town") -> PrivacyCost:
    return Ledger.open(place.ledger).spent(population)


def workspace_command(*arguments: object) -> tuple[int, str]:
    """What `dpiw workspace` with these words ends with and prints."""
    parser = argparse.ArgumentParser()
    add_workspace_commands(parser.add_subparsers())
    parsed = parser.parse_args(["workspace", *map(str, arguments)])
    parsed.stream = io.StringIO()
    return parsed.handler(parsed), parsed.stream.getvalue()


def statuses(place: Any, first: str, last: str) -> list[str]:
    """Statuses of the periods of a calendar that a copy of a workplace's spec states."""
    spec = place.spec.with_name("calendar.yaml")
    spec.write_text(f'{place.spec.read_text()}\nseries: {{first: "{first}", last: "{last}"}}\n')
    return [state.status.value for state in read_series(spec)[1].periods]
