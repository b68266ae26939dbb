"""What every method that trains networks keeps to: one table of them, one set of promises."""

import contextlib
import importlib.util
import inspect
import logging
import sys
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch

from dpiw.errors import SpecError, StageFailedError
from dpiw.methods.base import own_libraries
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.neural import backend
from dpiw.methods.neural import row_norms as convolutions
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.generators import image_world, neural_world, pate_world
from tests.dpiw.methods.neural import mlp_world
from tests.support.devices import torch_state


@contextlib.contextmanager
def as_default(torch):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    yield
    torch.set_default_dtype(before)


READY = {
    "dpgan": neural_world.ready, "dpcgan": partial(neural_world.ready, DPCGAN),
    "images": image_world.ready, "pategan": pate_world.ready, "dp_mlp": mlp_world.ready,
}  # fmt: skip
methods = pytest.mark.parametrize("name", READY)


def used(name):
    """Train, and make of the result what leaves the stage."""
    method, noise = READY[name](), SeededNoise(1)
    if name == "dp_mlp":
        rows, made = mlp_world.real_rows(40, 1), mlp_world.uniform(50, 2)
        measurement = method.measure(
            mlp_world.private(rows), mlp_world.synthetic(made), noise=noise
        )
        ratio = method.ratio(measurement, schema=mlp_world.SCHEMA)
        return ratio.logits(mlp_world.synthetic(made))
    world = image_world if name == "images" else neural_world
    model = method.model(method.measure(world.table(40), noise=noise), schema=world.SCHEMA)
    drawn = model.sample(20, rng=np.random.default_rng(3))
    return model.critic(drawn.scaled)


@methods
def test_nothing_of_torch_is_left_changed_and_nothing_of_it_decides(name):
    """Threads and random numbers of the process are its own, before and after."""
    torch = backend.library()
    threads, found = torch.get_num_threads(), []
    try:
        for seed, own in ((1, 2), (5, 3)):
            torch.set_num_threads(own)
            torch.manual_seed(seed)
            before = torch_state()
            found.append(used(name))
            assert torch_state() == before
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(*found)


MODES = {
    "no derivatives": lambda torch: torch.no_grad(),
    "inference": lambda torch: torch.inference_mode(),
    "half precision": lambda torch: torch.autocast("cpu", dtype=torch.bfloat16),
    "another device": lambda torch: torch.device("meta"),
    "another type": as_default,
}  # fmt: skip


@methods
@pytest.mark.nightly_cases("[images]")
def test_no_mode_of_torch_s_decides(name):
    """Whatever the caller chose for its own networks; and its choice is still there afterwards."""
    torch, expected = backend.library(), used(name)
    for chosen in MODES.values():
        with chosen(torch):
            before = torch_state()
            READY[name]().check_fits()
            np.testing.assert_array_equal(used(name), expected)
            assert torch_state() == before


@methods
@pytest.mark.parametrize("missing", ["torch", "opacus"])
def test_without_a_library_the_plan_is_refused(name, missing, monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted: None if wanted == missing else object()
    )
    with pytest.raises(SpecError, match=r"need torch and Opacus.* pip install './dpiw\[neural\]'"):
        READY[name]()


@methods
def test_a_library_that_does_not_work_is_found_before_the_draw(name, monkeypatch):
    """As one that was installed for another machine, or has no memory to be loaded."""
    method = READY[name]()
    method.check_fits()
    monkeypatch.setattr(backend, "library", mock.Mock(side_effect=OSError("undefined symbol")))
    with pytest.raises(StageFailedError, match="fit_weights" if name == "dp_mlp" else "fit_gen"):
        method.check_fits()


def doubled(*arguments):
    return {
        key: 2 * rows for key, rows in convolutions.samplers()[torch.nn.Conv2d](*arguments).items()
    }


@pytest.mark.parametrize("found", [{}, {torch.nn.Conv2d: doubled}], ids=["other names", "wrong"])
def test_an_opacus_of_another_version_is_found_before_the_draw(found, monkeypatch):
    monkeypatch.setitem(vars(convolutions), "samplers", lambda: found)
    with pytest.raises(StageFailedError):
        READY["images"]().check_fits()
    READY["dpgan"]().check_fits()


def test_a_library_that_sets_up_the_log_of_the_process_is_undone(monkeypatch):
    """As Opacus 1.6 does when it is imported first."""

    class Posed:
        @property
        def GradSampleModule(self):
            logging.basicConfig()
            return SimpleNamespace(GRAD_SAMPLERS={})

    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setitem(sys.modules, "opacus.grad_sample", Posed())
    assert convolutions.samplers.__wrapped__() == {}
    assert logging.root.handlers == []


@methods
def test_certificates_name_the_libraries_that_bound_a_row(name):
    expected = ("opacus", "torch") if name == "images" else ("torch",)
    assert own_libraries(READY[name](), None) == own_libraries(None, READY[name]()) == expected


def test_facts_of_a_run_are_its_settings_and_no_other_member_of_the_class():
    """They stand in plans and in ledgers: one more is another plan, and resumes are refused."""
    kinds = {"pategan": PATEGAN, "dpgan": DPGAN, "dpcgan": DPCGAN}
    settings = {name: {field.name for field in fields(kind)} for name, kind in kinds.items()}
    more = {"pategan": {"method", "private"}, "dpgan": {"conditional"}, "dpcgan": {"conditional"}}
    expected = {
        name: found - {"calibrated", "image"} | more[name] | kinds[name].retired.keys()
        for name, found in settings.items()
    }
    expected["dpgan"] -= {"proportions", "proportions_share"}
    assert {name: set(kind().parameters()) for name, kind in kinds.items()} == expected


def test_every_method_that_imports_the_engine_is_in_the_table():
    networks = {
        name
        for name, kind in {**GENERATORS, **WEIGHTS}.items()
        if any("from dpiw.methods.neural." in source(base) for base in kind.__mro__)
    }
    assert networks == set(READY) - {"images"}


def source(kind):
    return inspect.getsource(sys.modules[kind.__module__]) if kind is not object else ""
