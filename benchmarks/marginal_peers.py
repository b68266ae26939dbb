"""MST and AIM, the peers, in an environment of their own: fits of public codes, and rows of them.

The environment is made in a cache folder from `peers/requirements.txt` (about 1.1 GB with JAX; no
torch) and is no dependency of `dpiw`. Rows of a fit are drawn independently from the fitted model
(`peers/sampling.py`). Their noise cannot be seeded: rows cannot be made again to the digit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_record import NotRunError

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.methods.generators.marginal_noise import useful_bins

HERE = Path(__file__).resolve().parent / "peers"
BINS = 16
LIMIT_S = 1800
SINGLE = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


class PeerError(NotRunError):
    """An environment or a fit that fails, or a fit that runs into the time limit; the reason."""


def environment(folder: Path, name: str = "peers", requirements: str = "requirements.txt") -> Path:
    """The Python of a peer's environment in that folder, made on the first call.

    Raises:
        PeerError: it cannot be made.
    """
    place, wanted = folder / name, (HERE / requirements).read_text()
    python, ready = place / "bin" / "python", place / ".ready"
    if ready.exists() and ready.read_text() == wanted:
        return python
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]
    made_by = ([sys.executable, "-m", "venv", place], [python, *install, HERE / requirements])
    try:
        for words in made_by:
            subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerError(f"{requirements}: the environment could not be made") from error
    ready.write_text(wanted)
    return python


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One fit by a peer, and rows to draw; the seed is of selection and draws, not of the noise."""

    method: str
    epsilon: float
    delta: float
    rows: int
    seed: int


def made(python: Path, script: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What `peers/SCRIPT.py` makes in a peer's environment, and `wall` and `cpu`; no imports.

    Raises:
        PeerError: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, **given)
        command = [str(python), str(HERE / "timed.py"), script, str(source), str(target)]
        try:
            done = subprocess.run(
                command, env=os.environ | SINGLE, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"not done in {LIMIT_S} s") from error
        if done.returncode:
            why = done.stderr.strip().splitlines() or ["no reason given"]
            raise PeerError(why[-1][:120])
        with np.load(target) as archive:
            return dict(archive)


def fitted(
    python: Path, private: ScaledTable, schema: PublicSchema, nominal_rows: int, asked: Asked
) -> SyntheticTable:
    """Rows of a fit of our PrivBayes' public codes.

    Raises:
        PeerError: there are no rows.
    """
    domain = Domain.from_schema(schema, bins=useful_bins(BINS, nominal_rows))
    given = {**vars(asked), "codes": domain.codes(private), "sizes": np.array(domain.sizes)}
    codes = made(python, "marginals", given)["rows"]
    filled = domain.fill(codes, rng=np.random.default_rng([asked.seed, 2]))
    return SyntheticTable(schema=schema, scaled=filled)
