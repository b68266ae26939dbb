"""What a forked child does: the real steps of one run, watched, and killed where it is told.

Nothing in dpiw knows of this. The child replaces functions in its own memory after the fork, so
that they report where they are, and sends itself SIGKILL when it gets to the point of its task.
"""

import contextlib
import hashlib
import json
import os
import pickle
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from dpiw.data.source import validation
from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.methods.weights.measured import method as measured_weights
from dpiw.privacy.randomness import SecureNoise
from dpiw.release import publication
from dpiw.run import draw as confidential
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.around import around
from tests.support.undrawn import draw_no_figures

STAGES = ("fit_generator", "fit_weights")
_replace = os.replace
SAMPLERS = ("discrete_gaussian", "discrete_laplace", "spherical_laplace", "noisy_argmax")


def path_of(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def _appended(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


class Watch:
    """Reports where the child is, writes the noise log, and kills the child at its point.

    `log` gets a line for each real noise draw, before it, and `openings.log` beside `source` one
    for each opening of that file; the pipe `signal_to` a byte at each milestone.
    """

    def __init__(
        self, *, point: str | None, log: Path, source: Path, signal_to: int | None
    ) -> None:
        self.point = point
        self.signal_to = signal_to
        self.armed: tuple[str, int] = ("none", 0)
        self._log = _appended(log)
        self._source, self._openings = str(source), _appended(source.with_name("openings.log"))

    def here(self, point: str) -> None:
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def milestone(self, letter: str) -> None:
        if self.signal_to is not None:
            os.write(self.signal_to, letter.encode())

    def note(self, **facts: Any) -> None:
        stage, attempt = self.armed
        line = {"stage": stage, "attempt": attempt, "pid": os.getpid(), **facts}
        os.write(self._log, (json.dumps(line) + "\n").encode())

    def install(self) -> None:
        self._ledger()
        self._noise()
        self._files()
        sys.addaudithook(self._opened)
        self._publication()

    def _ledger(self) -> None:
        def in_transaction(entry, *_, **__):
            kind = entry.kind.value
            staged = f":{entry.stage}" if kind in ("arm", "commit") else ""
            self.here(f"in_{kind}_tx{staged}")

        def armed(_, ledger, run_key, attempt, stage, **__):
            self.armed = (stage, attempt)
            self.milestone("a")
            self.here(f"after_arm:{stage}")

        around(Ledger, "_append", after=in_transaction)
        around(Ledger, "arm", after=armed)
        around(Ledger, "reserve", before=lambda *_, **__: self.here("before_reserve"))
        for name in ("reserve", "read", "lose", "certify", "publish"):
            around(Ledger, name, after=lambda *_, at=f"after_{name}", **__: self.here(at))
        around(
            Ledger, "commit",
            before=lambda _, grant, *__: self.here(f"before_commit:{grant.stage}"),
            after=lambda _, __, grant, *___: self.here(f"after_commit:{grant.stage}"),
        )  # fmt: skip
        around(
            Ledger, "commit_found",
            before=lambda _, __, ___, stage, *____: self.here(f"before_commit:{stage}"),
            after=lambda _, __, ___, ____, stage, *_____: self.here(f"after_commit:{stage}"),
        )  # fmt: skip

    def _noise(self) -> None:
        for name in SAMPLERS:
            around(
                SecureNoise, name,
                before=lambda *_, name=name, **__: self.note(noise=name),
                after=lambda *_, **__: self.here(f"mid_draw:{self.armed[0]}"),
            )  # fmt: skip
        around(
            measured_weights, "chosen_blocks",
            after=lambda *_, **__: self.here(f"after_choice:{self.armed[0]}"),
        )  # fmt: skip

    def _files(self) -> None:
        fsync, fdopen = os.fsync, os.fdopen

        def measured(path, data, **_):
            self.note(measured=hashlib.sha256(data).hexdigest(), file=path.name)
            self.here(f"after_draw:{path.stem}")

        def synced(descriptor):
            name = path_of(descriptor).name
            fsync(descriptor)
            self.here(f"after_stage_fsync:{_temporary(name)}")

        def opened(descriptor, *args, **kwargs):
            name = path_of(descriptor).name
            stream = fdopen(descriptor, *args, **kwargs)
            torn = self.point == f"mid_stage_write:{_temporary(name)}"
            return _Torn(stream) if torn else stream

        around(confidential, "write_durably", before=measured)
        os.fsync, os.fdopen = synced, opened
        around(
            os, "rename",
            after=lambda _, __, to, **___: self.here(f"after_stage_rename:{Path(to).stem}"),
        )  # fmt: skip

    def _opened(self, event: str, args: tuple[Any, ...]) -> None:
        """Python itself tells of every `open`, whoever calls it."""
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = os.fsdecode(args[0])
            if path == self._source:
                line = {"opened": path, "pid": os.getpid()}
                os.write(self._openings, (json.dumps(line) + "\n").encode())

    def _publication(self) -> None:
        visible: list[Path] = []

        def at(moment, target):
            self.here(f"{moment}_build_rename" if target.name == "built" else f"{moment}_rename")

        def renamed(_, source, target):
            visible.append(target.parent)
            at("after", target)

        def synced(_, folder):
            if folder in visible and folder.name == "releases":
                self.here("after_dirsync")

        around(
            publication, "move_exclusively",
            before=lambda source, target: at("before", target), after=renamed,
        )  # fmt: skip
        around(publication, "sync_directory", after=synced)


class _Torn:
    """A file that writes half of what it is given and kills its process."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> "_Torn":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, data: bytes) -> NoReturn:
        self._stream.write(data[: len(data) // 2])
        self._stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")


def _temporary(name: str) -> str:
    """`fit_weights` for `.fit_weights.npz.0123abcd`, else an empty text."""
    stage = name.removeprefix(".").split(".npz.")[0]
    return stage if stage in STAGES else ""


def keep_verdicts(folder: Path) -> None:
    """Ask Great Expectations once for the same frame and the same checks: half a run's work.

    A verdict is a function of both. Stages in processes of their own ask it every time.
    """
    real = validation.run_checks

    def run_checks(frame, checks):
        key = hashlib.sha256(pickle.dumps(frame) + repr(checks).encode()).hexdigest()
        path = folder / f"{key}.json"
        if not path.exists():
            written = folder / f"{key}.{os.getpid()}"
            written.write_text(json.dumps(real(frame, checks)))
            _replace(written, path)
        return json.loads(path.read_text())  # type: ignore[no-any-return]

    validation.run_checks = run_checks


def take_all_steps(run: ReleaseRun, watch: Watch | None = None) -> None:
    noise = SecureNoise()
    tell = watch.milestone if watch is not None else (lambda letter: None)
    tell("s")
    steps.reserve(run)
    steps.ingest(run)
    tell("i")
    steps.fit_generator(run, noise=noise)
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise)
    steps.debias(run)
    steps.diagnose(run)
    tell("p")
    steps.publish(run)


def life(task: dict[str, Any], signal_to: int | None) -> int:
    """Do the task in this process; the exit code is 0, an error's own, or 1."""
    root = Path(task["root"])
    with Path(task.get("said") or root / "child.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    watch = Watch(
        point=task.get("point"), log=root / "noise.log", source=root / "data.csv",
        signal_to=signal_to,
    )  # fmt: skip
    watch.install()
    draw_no_figures(setattr)
    try:
        for name in task.get("changes", ()):
            module, function = name.split(":")
            getattr(__import__(module, fromlist=["x"]), function)(watch, task)
        take_all_steps(ReleaseRun.prepare(root / "release.yaml", period=task.get("period")), watch)
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            (root / "error.txt").write_text(f"{type(error).__name__}: {error}")
        return error.exit_code if isinstance(error, DPIWError) else 1
    return 0
