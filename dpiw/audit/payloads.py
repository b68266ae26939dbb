"""What an entry's payload says, read by the audit's own rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dpiw.audit.records import PopulationTally, Units
from dpiw.privacy.renyi import ORDERS

Fields = Mapping[str, Any]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TERMS = {"steps", "every", "resumes"}


class IllegalError(Exception):
    """An entry that may not stand where it stands."""


def units(payload: Fields) -> Units:
    """What a payload charges, as it is written there."""
    epsilon, delta = payload["epsilon_units"], payload["delta_units"]
    renyi = tuple(payload.get("renyi", {}).get("units", ()))
    lost = payload.get("renyi", {}).get("lost_delta_units", 0)
    if any(type(one) is not int or one < 0 for one in (epsilon, delta, lost, *renyi)):
        raise IllegalError("its cost is not in whole units >= 0")
    return Units(epsilon=epsilon, delta=delta, renyi=renyi, lost_delta=lost)


def cost_of(payload: Fields, population: PopulationTally) -> Units:
    """What an entry charges, in the form that the population's rule adds up."""
    cost = units(payload)
    if len(cost.renyi) != (len(ORDERS) if population.composition == "renyi" else 0):
        raise IllegalError(f"its cost is not one that {population.composition} composition adds")
    return cost


def check_repeats(payload: Fields) -> None:
    """What resumed trainings may repeat must be among the draws that were charged."""
    for name, terms in payload.get("resumable", {}).items():
        if set(terms) != _TERMS or any(type(one) is not int or one < 1 for one in terms.values()):
            raise IllegalError(f"stage {name}: its terms of resumption are no whole numbers >= 1")
        drawn = terms["steps"] + terms["every"] * terms["resumes"]
        counts = [event["count"] for event in payload["stages"][name]]
        whole = all(type(count) is int and count in (1, drawn) for count in counts)
        if not whole or counts.count(drawn) != 1:
            raise IllegalError(f"stage {name}: what a resume may repeat is not charged")


def digest(entry: Fields, name: str) -> str:
    """A SHA-256 that an entry states."""
    stated = entry["payload"][name]
    if not isinstance(stated, str) or not _DIGEST.fullmatch(stated):
        raise IllegalError(f"its {name} is no SHA-256")
    return stated
