"""Everything that is fitted: generators, weights, and the networks both may use."""
