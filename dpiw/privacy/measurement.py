"""A measurement: what a mechanism drew, with the law of its noise, as one file.

Only this file leaves a confidential stage; everything after it is post-processing, free.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import UncalibratedError
from dpiw.privacy.units import NoiseKind

_HEADER = "header"
_GRANT, _SETTINGS = "grant", "planned_settings"


@dataclass(frozen=True, kw_only=True)
class ReleasedNoise:
    """Noise of a group of released values, as certified; UncalibratedError unless finite and > 0.

    Attributes:
        scale: > 0, in units of the values (`dpiw.privacy.units.NoiseLaw`).
        sensitivity: of the values to one privacy unit, L1 for Laplace noise, else L2; None: an
            earlier version of dpiw did not state it.
        event: index of its event among the stage's events; None as above.
    """

    values: str
    law: NoiseKind
    scale: float
    sensitivity: float | None = None
    event: int | None = None

    def __post_init__(self) -> None:
        numbers = [self.scale] if self.sensitivity is None else [self.scale, self.sensitivity]
        if not all(
            isinstance(number, int | float) and math.isfinite(number) and number > 0
            for number in numbers
        ):
            raise UncalibratedError(
                field=f"noise of {self.values}", allowed="a finite scale and sensitivity > 0"
            )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; omit what is not stated."""
        stated = {"sensitivity": self.sensitivity, "event": self.event}
        return {"values": self.values, "law": self.law.value, "scale": self.scale} | {
            name: value for name, value in stated.items() if value is not None
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReleasedNoise:
        """Read what `to_json` wrote."""
        return cls(**{**data, "law": NoiseKind(data["law"])})


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Noisy values and public facts about them.

    Attributes:
        facts: public facts, JSON values only (noise law, sizes, structure, settings).
        publishable: False when the noise was seeded or absent (`NotPublishableError`).
        threshold: the least noisy count that is shown; None where nothing is left out.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    publishable: bool
    noise: tuple[ReleasedNoise, ...] = ()
    threshold: float | None = None

    def under(self, grant: str, *, settings: str) -> Measurement:
        """Record the ledger's arm (SHA-256) and the settings' digest under which it was drawn.

        After a crash a file is committed only under its arm and published only under its plan.
        """
        return replace(self, facts={**self.facts, _GRANT: grant, _SETTINGS: settings})

    @property
    def stated_noise(self) -> tuple[ReleasedNoise, ...]:
        """`noise`, or what an earlier version of dpiw stored of it among the facts."""
        if self.noise or "noise" not in self.facts:
            return self.noise
        return tuple(
            ReleasedNoise(
                values=name.removesuffix("scale").strip("_") or self.kind,
                law=NoiseKind(self.facts["noise"]),
                scale=value,
            )
            for name, value in sorted(self.facts.items())
            if name.endswith("scale") and name != "frequency_scale" and isinstance(value, float)
        )

    @property
    def grant(self) -> str | None:
        """The grant given to `under`, or None."""
        grant = self.facts.get(_GRANT)
        return grant if isinstance(grant, str) else None

    @property
    def settings(self) -> str | None:
        """The settings given to `under`; None if none, or by an earlier version of dpiw."""
        settings = self.facts.get(_SETTINGS)
        return settings if isinstance(settings, str) else None

    def to_bytes(self) -> bytes:
        """Return the same bytes for the same measurement (fixed order, no timestamps)."""
        header = {"kind": self.kind, "facts": dict(self.facts), "publishable": self.publishable}
        if self.noise:
            header["noise"] = [law.to_json() for law in self.noise]
        if self.threshold is not None:
            header["threshold"] = self.threshold
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
            noise=tuple(map(ReleasedNoise.from_json, header.get("noise", ()))),
            # Earlier versions kept it among the facts.
            threshold=header.get("threshold", header["facts"].get("threshold")),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes()`, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()
