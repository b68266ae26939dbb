"""What benchmarks/bayes.py compares Bayesian synthesis with, against exact numbers."""

from itertools import product

import numpy as np
import pytest

from tests.benchmarks.scripts import load

bayes = load("bayes")


@pytest.mark.parametrize(("rows", "epsilon"), [(1, 0.5), (3, 1.0), (4, 2.0)])
def test_predictive_rows_cost_exactly_their_epsilon(rows, epsilon):
    """Every data set of three records in three bins, one replaced: the worst log ratio is epsilon.

    A prior of less breaks the claim.
    """
    cells = [np.array(c) for c in product(range(rows + 1), repeat=3) if sum(c) == rows]
    counted = [np.array(c) for c in product(range(4), repeat=3) if sum(c) == 3]

    def worst(alpha):
        laws = [[bayes.log_dirichlet_multinomial(s, n, alpha) for s in cells] for n in counted]
        assert np.allclose(np.exp(laws).sum(axis=1), 1)
        pairs = product(range(len(counted)), repeat=2)
        near = [(i, j) for i, j in pairs if np.abs(counted[i] - counted[j]).sum() == 2]
        return max(np.abs(np.subtract(laws[i], laws[j])).max() for i, j in near)

    least = bayes.dirichlet_prior(rows, epsilon)
    assert worst(least) == pytest.approx(epsilon, abs=1e-6)
    assert worst(0.9 * least) > epsilon + 1e-3


def test_the_order_of_utility_is_the_sources():
    """At epsilon 0.5: the weak posterior, then weights and censoring, then censoring alone."""
    table = bayes.one_column(4)[0.5]
    assert table["no privacy"] <= table["pseudo posterior (weak)"] + 0.02
    assert table["pseudo posterior (weak)"] < table["weights, then censored"]
    assert table["weights, then censored"] < table["censored, symmetric"]
    assert table["window, public weights"] < table["censored, symmetric"]
    assert table["perturbed histogram, 50"] < table["window, public weights"]


def test_a_chain_that_has_not_converged_costs_more_than_it_says():
    costs = bayes.chain_costs((2, 100, 10_000))
    assert costs.epsilon["2"] == np.inf
    assert costs.delta["2"] > 0.1
    assert costs.epsilon["exact draw"] <= 1
    assert costs.epsilon["10000"] == pytest.approx(costs.epsilon["exact draw"], abs=1e-2)
