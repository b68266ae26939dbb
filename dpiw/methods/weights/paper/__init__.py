"""The paper's weights: reference implementations, for comparison; `measured` is what to use."""
