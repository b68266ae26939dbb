"""A measurement: what a mechanism drew, with the law of its noise, as one file.

The file is the only thing that leaves a confidential stage. Everything after it (models, weights,
samples) is post-processing of these bytes and may be repeated for ever at no cost.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = "header"
_GRANT, _SETTINGS = "grant", "planned_settings"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Noisy values and public facts about them.

    Attributes:
        kind: which method drew it (`privbayes`, `histogram`, `beta`, ...).
        arrays: noisy values by name; plain numeric arrays of any shape.
        facts: public facts, JSON values only (noise law, sizes, structure, settings).
        publishable: False when the noise was seeded or absent; such a measurement cannot be
            released (`NotPublishableError`).
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    publishable: bool

    def under(self, grant: str, *, settings: str) -> Measurement:
        """As drawn under an arm of the ledger and the settings of a plan.

        A file found after a crash is committed only under the arm it was drawn under, and published
        only under the plan that it was drawn by.

        Args:
            grant: the SHA-256 that the arm's entry holds.
            settings: digest of the planned stage's method and parameters.
        """
        return replace(self, facts={**self.facts, _GRANT: grant, _SETTINGS: settings})

    @property
    def grant(self) -> str | None:
        """What `under` was told; None: nothing."""
        grant = self.facts.get(_GRANT)
        return grant if isinstance(grant, str) else None

    @property
    def settings(self) -> str | None:
        """Likewise, of the settings; None: nothing, or by an earlier version of dpiw."""
        settings = self.facts.get(_SETTINGS)
        return settings if isinstance(settings, str) else None

    def to_bytes(self) -> bytes:
        """The same bytes for the same measurement, on every run (fixed order, no timestamps)."""
        header = {"kind": self.kind, "facts": dict(self.facts), "publishable": self.publishable}
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
        stored = {name: np.asarray(self.arrays[name]) for name in sorted(self.arrays)}
        stored[_HEADER] = np.frombuffer(text.encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **stored)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Measurement:
        """Read what `to_bytes` wrote; never unpickles."""
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files if name != _HEADER}
            header = json.loads(stored[_HEADER].tobytes().decode())
        return cls(
            kind=header["kind"],
            arrays=arrays,
            facts=header["facts"],
            publishable=header["publishable"],
        )

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes()`, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()
