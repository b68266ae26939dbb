"""What a torch module must be for Opacus' norms to bound a row: checked once, on public rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.validators import ModuleValidator
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.engine import AnyArchitecture, BackwardPass
from dpiw.methods.neural.row_norms import LAYERS, trainable

_CLOSE = 1e-8
"""Relative difference that the checks allow: far above rounding in doubles, below anything else."""

_FACTORS = (-1.0, *(2.0**power for power in (-300, -100, -20, 20, 100, 300)))
"""By which slopes are multiplied: the gradient is multiplied by them, to the last bit but one."""

_HOOKS = (
    torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook,
    torch.Tensor.grad_fn.__get__,
)  # fmt: skip
"""The ways to a hook on a tensor."""

_OWN = (
    "network: expected every trainable parameter in the forward pass of its own layer alone, no"
    " other tensor with a gradient, and a bias in every layer that normalises"
)


class Architecture(AnyArchitecture, Protocol):
    """A module's."""

    @property
    def example(self) -> NDArray[np.float64]:
        """Public rows that it is made for, shape (m, inputs)."""
        ...

    @property
    def module(self) -> Any:
        """The module at its first parameters."""
        ...

    def network(self, parameters: Array) -> Any:
        """As a network's, which can make the module at other parameters too."""
        ...


def check_layers(module: Any) -> None:
    """SpecError for a layer, or an option of one, for which Opacus' norms are not tested."""
    layers = list(module.modules())
    kinds = sorted({type(layer).__name__ for layer in layers if _is_refused(layer)})
    if kinds:
        names = ", ".join(kind.__name__ for kind in LAYERS)
        raise SpecError(
            f"network: {', '.join(kinds)}: expected parameters in these layers alone: {names};"
            " convolutions padded with a number of zeros; embeddings without options; no BatchNorm"
        )
    owned = [id(p) for layer in layers for p in layer.parameters(recurse=False)]
    if len(owned) > len(set(owned)):
        raise SpecError("network: expected every parameter in one layer only")
    if any(value for layer in layers for name, value in vars(layer).items() if _holds_hooks(name)):
        raise SpecError("network: expected layers without hooks")


def _is_refused(layer: Any) -> bool:
    refuse = ModuleValidator.VALIDATORS.get(type(layer))
    if refuse and refuse(layer):
        return True  # also without parameters, as a BatchNorm may be
    if isinstance(layer, torch.nn.Embedding):
        options = (layer.padding_idx, layer.max_norm, layer.scale_grad_by_freq, layer.sparse)
        return type(layer) not in LAYERS or options != (None, None, False, False)
    if not list(layer.parameters(recurse=False)):
        return False
    is_known = type(layer) in LAYERS and "forward" not in vars(layer)
    is_numbered = not isinstance(getattr(layer, "padding", None), str)
    return not (is_known and is_numbered and getattr(layer, "padding_mode", "zeros") == "zeros")


def _holds_hooks(name: str) -> bool:
    """Of a layer's own attributes; a parameter's hooks are lost where it is copied."""
    return name.endswith("_hooks")


class _Watch(TorchFunctionMode):  # type: ignore[misc]
    """Sees every call of torch in one pass, and which layer with parameters makes it.

    Args:
        module: a copy, which is used up.
        rows: how many rows it is given.

    Raises:
        SpecError: a parameter is used outside of its layer; a layer is given other than one tensor
            with the rows along its first axis; a tensor gets a hook.
    """

    def __init__(self, module: Any, rows: int) -> None:
        super().__init__()
        self.rows, self.inside = rows, 0
        self.parameters = {id(parameter) for parameter in trainable(module)}
        for layer in (submodule for submodule in module.modules() if type(submodule) in LAYERS):
            layer.register_forward_pre_hook(self.enter, with_kwargs=True)
            layer.register_forward_hook(self.leave)

    def enter(self, _layer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.inside += 1
        if named or len(given) != 1 or given[0].shape[:1] != (self.rows,):
            raise SpecError("network: expected layers that are given one tensor, its rows first")

    def leave(self, *_: Any) -> None:
        self.inside -= 1

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        if not self.inside and any(id(leaf) in self.parameters for leaf in leaves):
            raise SpecError(_OWN)
        if function in _HOOKS:
            raise SpecError("network: expected tensors without hooks")
        return function(*args, **(kwargs or {}))


def _check_pass(module: Any, rows: Array) -> None:
    """One plain pass on public rows; SpecError for what no norm could know of."""
    generator = torch.get_rng_state()
    with _Watch(module, len(rows)):
        outputs = module(rows)
    if not torch.equal(generator, torch.get_rng_state()):
        raise SpecError("network: expected layers without random numbers, as Dropout draws them")
    nodes, seen = [outputs.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise SpecError("network: expected torch's own derivatives, no autograd.Function")
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]


def check_rows(architecture: Architecture) -> None:
    """SpecError unless example rows alone and together agree; one of them is there twice.

    At random parameters, none of which is zero.
    """
    if len(np.unique(architecture.example, axis=0)) < len(architecture.example):
        raise SpecError("network: expected example rows of which no two are equal")
    try:
        _check_rows(architecture)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise SpecError(
            f"network: {type(error).__name__} on its example rows: expected a module that takes"
            " one row or several and changes no tensor in its place"
        ) from None


def _check_rows(architecture: Architecture) -> None:
    example = torch.as_tensor(np.concatenate([architecture.example, architecture.example[:1]]))
    rng = np.random.default_rng(0)
    network = architecture.network(
        architecture.initial(rng) + 0.1 * rng.normal(size=architecture.size)
    )
    _check_pass(network.module(), example.clone().requires_grad_())
    together = network.forward(example, by_rows=True)
    if together.outputs.dim() != 2 or together.outputs.dtype != torch.float64:
        raise SpecError("network: expected outputs of shape (rows, outputs) in double precision")
    slopes = torch.linspace(0.5, 1.5, together.outputs.numel(), dtype=torch.float64)
    slopes = slopes.reshape(together.outputs.shape)
    backward = together.backward(slopes)
    private, second = (network.forward(example).backward(slopes) for _ in range(2))
    try:  # the norms first: a gradient behind them is made of what they leave
        found = [backward.norms, private.norms]
    except AttributeError:
        raise SpecError(_OWN) from None
    _check_gradient(architecture, second, len(example))
    for place in range(len(example)):
        row = slice(place, place + 1)
        forward = network.forward(example[row])
        alone = forward.backward(slopes[row])
        gradient, indicator = alone.gradient(), torch.eye(len(example), dtype=torch.float64)[place]
        if not (
            _agree(together.outputs[row], forward.outputs)
            and all(
                _agree(one.gradient(indicator), gradient) for one in (backward, private, second)
            )
            and _agree(backward.row_gradients()[row], alone.row_gradients())
        ):
            raise SpecError(
                "network: expected layers in which a row's output and gradient depend on that row"
                " alone, without random numbers (no batch statistics, no dropout)"
            )
        if not all(
            norms.shape == (len(example),) and _agree(norms[place], gradient.norm())
            for norms in found
        ):
            raise SpecError(
                "network: expected layers whose row gradients Opacus knows; of these it finds"
                " another norm than they have"
            )


def _check_gradient(architecture: Architecture, backward: BackwardPass, rows: int) -> None:
    """SpecError unless it is linear in the slopes, and no parameter's is zero."""
    gradient = backward.gradient()
    for factor in _FACTORS:
        factors = torch.full((rows,), factor, dtype=torch.float64)
        if not _agree(backward.gradient(factors) / factor, gradient):
            raise SpecError("network: expected derivatives that are linear in the slopes")
    sizes = [parameter.numel() for parameter in trainable(architecture.module)]
    if not all(part.any() for part in gradient.split(sizes)):
        raise SpecError("network: expected example rows on which no parameter's gradient is zero")


def _agree(value: Array, reference: Array) -> bool:
    return bool(
        (value - reference).abs().max() <= _CLOSE * max(1e-300, float(reference.abs().max()))
    )
