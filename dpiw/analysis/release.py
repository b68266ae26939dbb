"""A verified release: rows, weights and certificate.

>>> from dpiw import load_release
>>> release = load_release("census-2027-q1", public_key="curator.pub")  # doctest: +SKIP
>>> release.mean("age")  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpiw.analysis import export_files
from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.estimators import means, quantiles, tables
from dpiw.analysis.names import spelt
from dpiw.analysis.questions import answers, asked_of
from dpiw.analysis.sample import Published, WeightedSample, sample_of
from dpiw.errors import nearest
from dpiw.methods.weights.weigh import resample
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import REPLICATES
from dpiw.release.parquet import as_frame
from dpiw.release.verification import VerifiedRelease, signed_bytes, verify_and_read

if TYPE_CHECKING:
    from dpiw.data.row_weights import ReplicateWeights


class UnreliableWeightsWarning(UserWarning):
    """The certificate says the weights of this release must not be used."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedRows(Published):
    """`Published` rows with the law of their weights' noise."""

    @cached_property
    def sample(self) -> WeightedSample:
        """Rows, weights and the law of the weights' noise, computed on first use.

        Unnormalised weights are debiased for totals, not for ratios (docs/method.md section 5).
        """
        top, law = float(self.log_weights.max()), law_of_release(self)
        scaled_weights, factor = np.exp(self.log_weights - top), np.exp(top)
        sample = sample_of(self.table, scaled_weights, factor=factor, law=law, release=self)
        if self.certificate.self_normalised:
            return sample
        return replace(sample, totals=sample.weights)


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(ReleasedRows):
    """A verified release.

    Attributes:
        verified: the checks that the folder passed, and the id of the key that signed it.
    """

    verified: VerifiedRelease

    def __repr__(self) -> str:
        rows, columns = self._table.shape
        return (
            f"Release({self.certificate.release_id!r}, {rows} rows, {columns} columns, "
            f"epsilon={self.certificate.epsilon}, delta={self.certificate.delta}, "
            f"weights: {self.certificate.weights_are})"
        )

    @cached_property
    def replicate_weights(self) -> ReplicateWeights | None:
        """Replicate weights in the rows' order, or None; ChecksumError if the file changed."""
        from dpiw.release.replicate_weights import read_replicates

        manifest = self.verified.manifest
        if REPLICATES not in manifest.files:
            return None
        file = signed_bytes(self.verified.folder, manifest, REPLICATES)
        return read_replicates(file, self.certificate, rows=len(self._table))

    # The functions of `dpiw.analysis` with this release as their source: `release.mean("age")`.
    # Estimates print with their interval and its verdict; `.value` is the number alone.
    correlation = means.correlation
    crosstab = tables.crosstab
    describe = tables.describe
    export = export_files.export
    mean = means.mean
    median = quantiles.median
    quantile = quantiles.quantile
    std = means.std
    total = means.total
    value_counts = tables.value_counts
    variance = means.variance

    def questions(self) -> pd.DataFrame:
        """Answer each question that the release declared: `analysis.questions.answers`."""
        return answers(self, asked_of(self))

    if not TYPE_CHECKING:  # hidden from mypy, which else accepts any name

        def __getattr__(self, name: str) -> Any:
            """Say where an analyst finds a name that a release lacks."""
            if hasattr(type(self), name):  # a property that raised: raise its error again
                return object.__getattribute__(self, name)
            raise AttributeError(f"release: no {name!r}{_lies(name)}", name=name, obj=self)

    def resample(self, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        """Return `rows` rows drawn in proportion to their weights, to be used without weights.

        Warns:
            UserWarning: `rows` exceeds Kish's effective sample size.
        """
        worth = int(np.ceil(self.weights.sum() ** 2 / (self.weights**2).sum() - 1e-6))
        if isinstance(rows, int | np.integer) and rows > worth:
            warnings.warn(
                f"resample: {rows:,} rows exceed the effective sample size, {worth:,}: many repeat"
                f" others, and tools count each as a person; draw at most {worth:,}",
                stacklevel=2,
            )
        chosen = resample(self.log_weights, rows, rng=rng)
        return self._table.iloc[chosen].reset_index(drop=True)


def _lies(name: str) -> str:
    from dpiw import analysis

    if name.startswith("_"):
        return ""
    if name in analysis.__all__:
        return f"; from dpiw import analysis; analysis.{name}(release, ...)"
    if hasattr(Certificate, name) or name in Certificate.__dataclass_fields__:
        return f"; it is in release.certificate.{name}"
    if hasattr(pd.DataFrame, name):
        return f"; release.table.{name} is of the rows alone, without their weights"
    own = [*Release.__dataclass_fields__, *(name for name in dir(Release) if name[0] != "_")]
    return nearest(name, [*filter(str.islower, analysis.__all__), *own])


@spelt(key="public_key")
def load_release(folder: str | Path, public_key: str | Path | None = None) -> Release:
    """Verify a release folder and read it.

    Args:
        folder: the release.
        public_key: file of the curator's public key, obtained apart from the release. None: checks
            the folder's integrity, but not who made it.

    Raises:
        ReleaseError: as `dpiw.release.verification.verify`; nothing is read from such a folder.

    Warns:
        UnreliableWeightsWarning: the certificate says that the weights must not be used.
    """
    key = None if public_key is None else Path(public_key)
    verified, schema, rows = verify_and_read(Path(folder), public_key=key)
    table, weights, log_weights = as_frame(rows)
    del rows
    if not verified.certificate.usable:
        reasons = verified.certificate.diagnostics.get("reasons", ())
        why = "; ".join(reasons) or verified.certificate.verdict_rule
        bias = verified.certificate.unseen or "they may be biased"
        warnings.warn(
            f"release {verified.certificate.release_id}: do not use the weights ({why}). "
            f"Without weights the rows keep the privacy promise; {bias}",
            UnreliableWeightsWarning,
            stacklevel=3,
        )
    weights.setflags(write=False)
    log_weights.setflags(write=False)
    return Release(
        _table=table,
        weights=weights,
        log_weights=log_weights,
        certificate=verified.certificate,
        schema=schema,
        verified=verified,
    )
