"""The local example: people whose clients report, and an analyst who sees the reports alone.

`make local` runs both halves, with the collector's flow between them:

    report: public parameters, a key, and a report of each simulated person, drawn as a client does
    analyse: the verified release; what is estimated from it beside the truth of the simulation
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.cli.main import main as dpiw
from dpiw.local import privatise, told_numbers
from dpiw.local.collector import LocalSpec, load_local_spec, read_parameters
from dpiw.local.estimate import frequencies, least_squares, load_local, means
from dpiw.local.learn import feasibility, fit_margin
from dpiw.privacy.randomness import SecureNoise

SPEC = Path(__file__).with_name("collection.yaml")
PEOPLE = 200_000


def people(count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Ages and distances, shape (count, 2), and who works at home: the truth, from a fixed seed."""
    rng = np.random.default_rng(2026)
    ages = rng.uniform(18, 78, size=count)
    distances = np.minimum(rng.exponential(12, size=count), 30.0)
    likely = 1 / (1 + np.exp(1 - distances / 12))
    return np.column_stack([ages, distances]), (rng.random(count) < likely).astype(np.int64)


def report(spec: LocalSpec, count: int = PEOPLE) -> None:
    """What happens at people's own devices, in one call for all of them."""
    key = Path(spec.signing_key)
    Path(spec.parameters).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not key.exists():
        dpiw(["key", "new", str(key)])
    dpiw(["local", "plan", str(SPEC)])
    if Path(spec.reports).exists():
        return  # each person reports once
    parameters, (numbers, labels) = read_parameters(spec), people(count)
    features = told_numbers(numbers, parameters)
    told, answers = privatise(features, labels, parameters=parameters, noise=SecureNoise())
    frame = pd.DataFrame(told, columns=["age", "distance"])
    frame["at_home"] = [parameters.levels[answer] for answer in answers]
    frame["report_id"] = [secrets.token_hex(16) for _ in range(count)]
    frame.assign(parameters=parameters.digest).to_csv(spec.reports, index=False)


def analyse(spec: LocalSpec) -> None:
    """Estimates from the verified release, and the truth."""
    folder, key = Path(spec.publish_to) / spec.name, Path(spec.signing_key).with_suffix(".pub")
    sample = load_local(folder, key)
    numbers, labels = people(len(sample))
    design = np.column_stack([np.ones(len(sample)), numbers])
    slopes = np.linalg.lstsq(design, labels, rcond=None)[0]
    learnt = fit_margin(sample, "yes", norm=0.2, penalty=4.0, rng=np.random.default_rng(1))
    told = (
        ("reports", sample, ""),
        ("means", means(sample).interval(), numbers.mean(axis=0)),
        ("shares", frequencies(sample).interval(), 1 - labels.mean()),
        ("at home by least squares", least_squares(sample, "at_home", level="yes").interval(),
         slopes),
        ("what a classifier may ask", feasibility(sample.parameters, norm=0.2, rows=len(sample)),
         ""),
        ("a classifier by exponential loss", learnt.interval(), ""),
    )  # fmt: skip
    for title, shown, truth in told:
        print(f"\n{title}\n{shown}" + ("" if isinstance(truth, str) else f"\ntruth {truth}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("half", choices=["report", "analyse"])
    spec = load_local_spec(SPEC)
    {"report": report, "analyse": analyse}[parser.parse_args().half](spec)


if __name__ == "__main__":
    main()
