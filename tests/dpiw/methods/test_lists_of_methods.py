"""Hand-made lists of methods in the tests: complete, or partial for a reason that is written down.

A method that is registered makes `test_reasons_are_of_today_s_methods` fail until somebody has
gone through the reasons: does each list need it, or is it left out for the same reason?
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS

TESTS = Path(__file__).resolve().parents[2]
FEWEST = 3
"""Names from which on a list is taken for one of methods; two are a pair to compare."""

JUDGED = {
    "privbayes", "histogram", "mst", "aim", "bayes", "dpgan", "dpcgan", "pategan", "external",
    "levels", "measured", "beta_debiased", "beta_noised", "output_noised", "dp_mlp",
    "discriminator",
}  # fmt: skip
"""The methods for which the reasons below were written."""

PARTIAL = {
    "dpiw/methods/generators/test_contract.py": "settings that keep networks small; count methods",
    "dpiw/methods/generators/test_games.py": "methods that play a game of networks",
    "dpiw/methods/generators/test_dpgan.py": "networks that are given a histogram",
    "dpiw/methods/neural/test_every_method.py": "methods of networks; it finds those itself",
    "dpiw/methods/test_kinds.py": "settings that methods need; the table takes both registries",
    "dpiw/methods/weights/test_contract.py": "settings that methods need; cases take the registry",
    "dpiw/plan/test_rehearsal.py": "generators that a rehearsal compares",
    "dpiw/plan/test_running.py": "methods whose forecast was measured; the rest are not forecast",
    "dpiw/run/test_as_drawn.py": "methods that train, and may be resumed",
    "proof/blind.py": "what draws: test_every_method_that_draws_is_compared compares the registry",
    "proof/bugs.py": "methods in which bugs are planted",
    "proof/test_sensitivity_counts.py": "methods of counts; test_contract.py asks every method",
    "support/draws.py": "exceptions with their tests: test_contract.py asks all others",
    "support/kinds.py": "narrow methods; the table takes both registries",
    "support/small.py": "settings that keep networks small",
    "dpiw/run/test_certifiable.py": "settings that methods need; the test takes both registries",
    "dpiw/run/test_interrupted_draws.py": "settings and slow methods; cases take both registries",
    "golden/make_releases.py": "same settings; test_fenced_releases.py wants a folder of each",
}


def lists_of(path: Path) -> Iterator[set[str]]:
    """Every literal of a file that lists at least `FEWEST` methods, by name or by class."""
    classes = {kind.__name__: name for name, kind in (*GENERATORS.items(), *WEIGHTS.items())}
    known, text = GENERATORS.keys() | WEIGHTS.keys(), path.read_text()
    if sum(name in text for name in (*known, *classes)) < FEWEST:
        return  # parsing takes long
    for node in ast.walk(ast.parse(text)):
        elements = getattr(node, "keys" if isinstance(node, ast.Dict) else "elts", [])
        names = set()
        for element in elements:
            item = element.func if isinstance(element, ast.Call) else element
            if isinstance(item, ast.Constant) and item.value in known:
                names.add(str(item.value))
            elif isinstance(item, ast.Name) and item.id in classes:
                names.add(classes[item.id])
        if len(names) >= FEWEST:
            yield names


@pytest.mark.slow
def test_every_list_of_methods_is_complete_or_has_a_reason() -> None:
    partial = set()
    for path in TESTS.rglob("*.py"):
        own = path.relative_to(TESTS).as_posix()
        for names in lists_of(path) if path != Path(__file__).resolve() else ():
            complete = names >= GENERATORS.keys() or names >= WEIGHTS.keys()
            partial |= set() if complete else {own}
    assert partial == PARTIAL.keys()


def test_reasons_are_of_today_s_methods() -> None:
    assert GENERATORS.keys() | WEIGHTS.keys() == JUDGED


@pytest.mark.parametrize(
    "text", ["X = ['mst', 'aim', 'bayes']", "X = {'mst': 1, 'aim': 2, 'bayes': 3}",
             "X = (MST, AIM(), Bayes)"],
)  # fmt: skip
def test_a_list_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(text)
    assert list(lists_of(tmp_path / "t.py")) == [{"mst", "aim", "bayes"}]
