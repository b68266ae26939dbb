"""Lists of methods in the tests that are made by hand: looked through when a method is registered.

`test_contract.py`, `test_kinds.py`, `test_admission.py` and `tests/proof/blind.py` ask the
registries. What names methods by hand, complete or partial for a reason, is found by their names:
settings of small networks (`tests/support/small.py`), methods whose draws have tests of their own
(`tests/support/draws.py`), narrow methods (`tests/support/kinds.py`), planted bugs
(`tests/proof/bugs.py`), forecasts, resumes and golden releases.
"""

from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS

JUDGED = {
    "privbayes", "histogram", "mst", "aim", "bayes", "dpgan", "dpcgan", "pategan", "external",
    "levels", "measured", "beta_debiased", "beta_noised", "output_noised", "dp_mlp",
    "discriminator",
}  # fmt: skip


def test_every_list_was_looked_through_for_today_s_methods():
    assert GENERATORS.keys() | WEIGHTS.keys() == JUDGED
