"""Where a training stands: what is shown of it, what is not believed, and what may go wrong."""

import contextlib
import io
import logging
import re
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console

from dpiw.errors import StageFailedError
from dpiw.methods.generators.gan.dpgan import DPGAN
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.mlp import DensityNetwork
from dpiw.plan.plan import Plan
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.run.run import ReleaseRun
from flows import release, step_log
from flows.console import StepLog, suit_the_terminal
from flows.release import gpu_tags
from tasks.progress import TrainingProgress, trained_steps
from tasks.stages import fit_generator
from tasks.step import StepFailedError, step
from tasks.window import Window
from tests.flows.conftest import DESCRIPTION, answer_json, answering, free_port
from tests.support.patience import until

COST = "epsilon 2 (delta 0.000001)"


def training(window):
    return TrainingProgress("fit_generator", 800, COST, window)


class Shown:
    """A window whose only artefact is the training's."""

    def __init__(self):
        self.seen = []

    def artifact(self, key, kind, percent, description):
        assert (key.endswith("-progress"), kind, self.seen) == (True, "progress", [])
        self.seen.append((percent, description))
        return UUID(int=1)

    def update(self, artifact, percent, description):
        assert artifact == UUID(int=1)
        self.seen.append((percent, description))


@pytest.mark.parametrize(
    ("step", "steps", "expected"),
    [
        (0, 800, True), (40, 800, True), (800, 800, True),
        (41, 800, False), (-40, 800, False), (840, 800, False),
        (40, 801, False), (40, 80, False), (613, 374951, False), (0, 0, False),
    ],
)  # fmt: skip
def test_only_what_the_plan_foretells_is_believed(step, steps, expected):
    shown = Shown()
    training(shown)(step, steps)
    assert bool(shown.seen) is expected


def test_each_step_is_shown_once_and_in_order(caplog):
    shown = Shown()
    tell = training(shown)
    with caplog.at_level(logging.INFO, "dpiw.progress"):
        for step in [613, 0, 7, 0, 40, 0, 40, *range(0, 4000, 10), 80]:
            tell(step, 800)
            tell(step, 374951)
    at = list(range(0, 801, 40))
    assert [record.getMessage() for record in caplog.records] == [
        f"at fit_generator {step} 800" for step in at
    ]
    assert [percent for percent, _ in shown.seen] == [step / 8 for step in at]
    for step, (_, description) in zip(at, shown.seen, strict=True):
        assert re.fullmatch(DESCRIPTION, description)
        assert f"step {step} of 800" in description


def test_a_training_that_ends_between_two_steps_is_shown_complete():
    shown = Shown()
    tell = TrainingProgress("fit_weights", 510, COST, shown)
    tell.finish()  # it told nothing: the draw was there already
    assert shown.seen == []
    tell(0, 510)
    tell(494, 510)
    tell.finish()
    tell.finish()
    assert [percent for percent, _ in shown.seen] == [0, 100 * 494 / 510, 100]


def test_a_stage_that_does_not_train_shows_nothing(workplace):
    plan = ReleaseRun.prepare(workplace.spec, period=None).plan
    for stage in PRIVATE_STAGES:
        assert trained_steps(plan, stage) is None
    assert Window.of_this_task() is None  # outside a task


@pytest.mark.parametrize(
    ("generator", "weights", "expected"),
    [
        (Histogram(), BetaDebiased(), (set(), set())),
        (Histogram(), None, (set(), set())),
        (DPGAN(), DensityNetwork(), (set(), set())),
        (DPGAN(device="auto"), DiscriminatorWeights(), ({"gpu"}, set())),
        (DPGAN(device="cuda"), DensityNetwork(), ({"gpu"}, set())),
        (Histogram(), DensityNetwork(device="auto"), (set(), {"gpu"})),
        (DPGAN(), DensityNetwork(device="cuda"), (set(), {"gpu"})),
    ],
)
def test_a_task_bears_the_tag_if_its_method_may_use_a_gpu(generator, weights, expected):
    methods = {"generator": generator, "weights": weights}
    plan = Plan(**dict.fromkeys(Plan.__dataclass_fields__) | methods)
    assert (gpu_tags(plan, "fit_generator"), gpu_tags(plan, "fit_weights")) == expected


def test_a_tagged_task_still_stores_caches_and_retries_nothing():
    tagged = fit_generator.with_options(tags={"gpu"})
    assert tagged.tags == {"gpu"}
    assert fit_generator.with_options(tags=set()).tags == set()
    assert (tagged.name, tagged.fn) == (fit_generator.name, fit_generator.fn)
    assert tagged.cache_policy == NO_CACHE
    assert (tagged.retries, tagged.persist_result, tagged.log_prints) == (0, False, False)


@pytest.mark.parametrize(
    ("code", "goes_on", "expected"),
    [(70, True, ["gpu", "cpu"]), (2, True, ["gpu", "cpu"]), (70, False, ["gpu"]),
     (10, True, ["gpu"])],
)  # fmt: skip
def test_a_fit_that_ended_unexpectedly_goes_on_once_without_a_gpu(
    monkeypatch, code, goes_on, expected
):
    ran = []

    class Fit:
        def with_options(self, *, tags):
            assert tags == {"gpu"}
            return self

        def __call__(self, run, *, without_gpu=False):
            ran.append("cpu" if without_gpu else "gpu")
            if not without_gpu:
                raise StageFailedError("fit_generator", code)
            return run

    planned = SimpleNamespace(plan=SimpleNamespace(device=lambda stage: "auto"))
    monkeypatch.setattr(ReleaseRun, "load", lambda run: planned)
    monkeypatch.setattr(release, "goes_on_without_gpu", lambda run, stage: goes_on)
    ends = contextlib.nullcontext() if len(expected) == 2 else pytest.raises(StageFailedError)
    with ends:
        assert release.fitted(Fit(), Path("run"), "fit_generator") == Path("run")
    assert ran == expected


@pytest.fixture
def broken():
    """A server that answers everything with an error."""
    with answering(lambda request: answer_json(request, None, 503)) as found:
        yield found


@pytest.fixture
def dripping():
    """A server whose answers never end, one byte of a header after the other."""
    over, ends = threading.Event(), time.monotonic() + 60

    def drip(request):
        with contextlib.suppress(OSError):
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.05) and time.monotonic() < ends:
                request.wfile.write(b"x")

    with answering(drip) as found:
        yield found
        over.set()


@pytest.fixture
def absent():
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}/api", None


@pytest.mark.parametrize("kind", ["broken", "dripping", "absent"])
def test_a_server_that_does_not_take_it_costs_two_short_waits(kind, request, monkeypatch):
    monkeypatch.setattr("tasks.window.TIMEOUT_SECONDS", 0.3)
    url, met = request.getfixturevalue(kind)
    started = time.monotonic()
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        task_window = Window(task_run=uuid4(), flow_run=None, client=client)
        tell = training(task_window)
        tell(0, 800)
        tell(40, 800)
        first = 0 if met is None else len(met)
        for step in range(80, 801, 40):
            tell(step, 800)
        tell.finish()
    assert time.monotonic() - started < 40  # far below one of Prefect's own timeouts, 120 s
    if met is not None:
        assert first >= 2  # it was asked twice
        assert len(met) == first  # and then left alone


def say(log, *lines):
    for line in lines:
        log.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))


def test_without_a_terminal_there_are_plain_lines(capsys):
    screen = io.StringIO()
    log = StepLog(Console(file=screen))
    say(log, "start plan", "done plan 0.2", "start reserve", "told reserve paid once more",
        "done reserve 0.1", "start fit_generator", "at fit_generator 0 800",
        "at fit_generator 40 800", "start fit_generator",
        "told fit_generator goes on from its checkpoint, without a GPU",
        "done fit_generator 7.0")  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "  ✓ plan               0.2 s", "    reserve         paid once more",
        "  ✓ reserve            0.1 s", "    fit_generator        0 of 800 steps",
        "    fit_generator       40 of 800 steps",
        "    fit_generator   goes on from its checkpoint, without a GPU",
        "  ✓ fit_generator      7.0 s",
    ]  # fmt: skip
    assert screen.getvalue() == ""  # and no bar


def test_without_a_terminal_a_long_step_says_that_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr(step_log, "FIRST", 0.02)
    monkeypatch.setattr(step_log, "PACE", 0.05)
    before, log = heartbeats(), StepLog(Console(file=io.StringIO()))
    shown = []

    def twice():
        shown.extend(capsys.readouterr().out.splitlines())
        return sum("so far" in line for line in shown) >= 2

    say(log, "start fit_weights")
    assert until(twice)
    say(log, "done fit_weights 0.2")
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().out == ""
    assert all(re.fullmatch(r"  … fit_weights {6,}\d+ s so far", line) for line in shown)
    assert until(lambda: heartbeats() <= before)


def heartbeats():
    return {thread for thread in threading.enumerate() if thread.name == "heartbeat"}


def test_a_step_that_fails_is_over(capsys, caplog):
    before, log = heartbeats(), StepLog(Console(file=io.StringIO()))
    logger = logging.getLogger("dpiw.progress")
    logger.addHandler(log)
    try:
        with caplog.at_level(logging.INFO, "dpiw.progress"), pytest.raises(StepFailedError):
            step("ingest", done="done")(lambda: 1 / 0).fn()
        assert caplog.messages == ["start ingest", "failed ingest"]
        assert until(lambda: heartbeats() <= before)
    finally:
        logger.removeHandler(log)
        log.settle()
    assert capsys.readouterr().out == ""


def test_a_terminal_that_lacks_a_sign_is_shown_another_one(monkeypatch):
    """Under a locale such as de_DE.ISO-8859-1, where a step would fail after its draw."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    control = StepLog(Console(file=io.StringIO()))
    say(control, "done plan 0.2")
    sys.stdout.flush()
    assert written.getvalue() == b""  # no step fails of it, and nobody is told
    suit_the_terminal()
    say(control, "done plan 0.2")
    sys.stdout.flush()
    assert written.getvalue().decode("latin-1") == "  ? plan               0.2 s\n"


@pytest.mark.parametrize("fails", [False, True])
def test_on_a_terminal_a_training_has_one_bar_until_it_ends(capsys, fails):
    screen = io.StringIO()
    log = StepLog(Console(file=screen, force_terminal=True, width=100))
    say(log, "start fit_generator", "at fit_generator 0 800", "at fit_generator 400 800")
    bar = log._bar[0]
    say(log, "at fit_generator 800 800")
    assert log._bar[0] is bar
    assert bar.live.is_started
    if fails:
        log.settle()
    else:
        say(log, "done fit_generator 7.0")
    assert not bar.live.is_started
    assert "800 of 800 steps" in screen.getvalue()
    assert "\x1b[?25h" in screen.getvalue()  # the cursor is back
    assert "of 800" not in capsys.readouterr().out  # no lines beside it
