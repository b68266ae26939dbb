"""Privacy events as JSON for certificates, plans and the ledger, and back."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dpiw.errors import PrivacyError
from dpiw.privacy.events import EVENT_TYPES, PrivacyEvent, check_event


def event_to_json(event: PrivacyEvent) -> dict[str, Any]:
    """Return a JSON mapping with a `type` of `EVENT_TYPES`."""
    check_event(event)
    name = next(name for name, kind in EVENT_TYPES.items() if kind is type(event))
    fields = dataclasses.asdict(event)
    count = fields.pop("count")
    return {"type": name, **{key: float(value) for key, value in fields.items()}, "count": count}


def events_text(events: Iterable[Mapping[str, Any]]) -> str:
    """Return how often each mechanism draws, and its noise, for people; numbers may be unsound."""
    draws: Counter[str] = Counter()
    for event in events:
        scale = ", ".join(
            f"{name.replace('_', ' ')} {_short(value)}"
            for name, value in sorted(event.items())
            if name not in ("type", "count")
        )
        count = event.get("count")
        mechanism = f"{event.get('type')} ({scale})" if scale else str(event.get("type"))
        draws[mechanism] += count if isinstance(count, int) else 1
    return ", ".join(f"{count} × {label}" for label, count in draws.items())


def _short(value: Any) -> str:
    """In full: a rounded noise multiplier would not reproduce the promised cost."""
    try:
        return repr(float(value)).removesuffix(".0")
    except (TypeError, ValueError):
        return str(value)


def event_from_json(data: Mapping[str, Any]) -> PrivacyEvent:
    """Read what `event_to_json` wrote; PrivacyError for an unknown type or fields."""
    kind = EVENT_TYPES.get(str(data.get("type")))
    if kind is None:
        raise PrivacyError(
            f"type must be one of {', '.join(sorted(EVENT_TYPES))}", field="privacy event"
        )
    fields = {key: value for key, value in data.items() if key != "type"}
    if set(fields) != {field.name for field in dataclasses.fields(kind)}:
        raise PrivacyError(f"fields are not those of {kind.__name__}", field="privacy event")
    for value in fields.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PrivacyError(field="privacy event", allowed="numbers")
    event = kind(**fields)
    check_event(event)
    return event


def stored_event(data: Mapping[str, Any]) -> PrivacyEvent:
    """Read an event of the ledger, floats as shortest decimal texts, else PrivacyError."""
    try:
        numbers = {
            key: float(value) if key != "type" and isinstance(value, str) else value
            for key, value in data.items()
        }
    except ValueError:
        raise PrivacyError(field="privacy event", allowed="numbers") from None
    return event_from_json(numbers)
