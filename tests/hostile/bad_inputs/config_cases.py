"""Bad specs and schemas, by row of the table."""

PASSWORD = "hunter2-bad52"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nname: *c\n"
SPEC = {
    # 31: names are plain
    "31 traversal": ("name: town", "name: ../town", "name"),
    "31 absolute": ("name: town", "name: /etc/town", "name"),
    "31 a home of nobody": ("path: data.csv", "path: ~nobody-x/d.csv", "source.path"),
    # 35: epsilon
    "35 zero": ("epsilon: 2", "epsilon: 0", "epsilon"),
    "35 a comma": ("epsilon: 2", "epsilon: 1,0", "epsilon"),
    # 36: the policy's maximum
    "36 above": ("epsilon: 2", "epsilon: 10.000000000001", "epsilon"),
    # 37: delta
    "37 one": ("delta: 1e-6", "delta: 1", "delta"),
    "37 above 1/N": ("delta: 1e-6", "delta: 0.00251", "delta"),
    "37 zero for Gaussian noise": ("delta: 1e-6", "delta: 0", "generator.settings.noise: "),
    # 39: penalty
    "39 no penalty": (
        "method: beta_debiased", "method: beta_debiased, settings: {penalty: 0}", "penalty"),
    "39 no debias factor": (
        "method: beta_debiased",
        "method: beta_debiased, settings: {noise: laplace, penalty: 0.001}", "weights"),
    # 46: relations and unit
    "46 unknown relation": ("add_or_remove_one", "both", "relation"),
    # 47: mechanisms
    "47 unknown generator": ("method: histogram", "method: magic", "generator.method"),
    # 50: YAML
    "50 a bomb": ("format: 1\n", BOMB + "format: 1\n", "anchors and aliases"),
    "50 a key twice": ("epsilon: 2", "epsilon: 2\nepsilon: 1", "duplicate key"),
    "50 a tag": ("name: town", "name: !!python/object/apply:os.getcwd []", "tags"),
    "50 no is no boolean": ("max_attempts: 1", "max_attempts: no", "max_attempts"),
    "50 a date is text": ("epsilon: 2", "epsilon: 2026-11-30", "epsilon"),
    # 51: secrets
    "51 a password": (
        "state: state\n", f"state: state\nledger: postgresql://me:{PASSWORD}@host/db\n",
        "ledger: holds a password"),
    "51 a field for it": (
        "path: data.csv", f"path: data.csv, password: {PASSWORD}", "source.password"),
}  # fmt: skip
BOUNDS = {
    "40 equal": ("upper: 100}", "upper: 0}", "lower < upper"),
    "40 the wrong way": ("lower: 0, upper: 100}", "lower: 9, upper: 1}", "lower < upper"),
    "40 NaN": ("upper: 1000,", "upper: .nan,", "finite"),
    "40 infinite": ("upper: 1000,", "upper: .inf,", "finite"),
    "40 to be inferred": (", lower: 0, upper: 100}", "}", "required and never inferred"),
    "40 text": ("upper: 1000,", "upper: auto,", "no continuous value"),
    "40 levels to be inferred": (", levels: [north, south, other], other: other", "", "required"),
    "15 names that differ by case": ("name: income", "name: AGE", "equal up to case"),
    "15 names that differ by Unicode form": ("name: income", "name: ａge", "equal up to case"),
    "13 a name twice": ("name: income", "name: age", "equal up to case"),
}
