"""Where a column's public bounds and levels were taken from, in the curator's words.

Nothing can check that a bound is public. A stated provenance lets a reader judge it: it stands in
the data dictionary, in the plan, and in the `schema.json` of a release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dpiw.errors import nearest

PROVENANCES = ("law", "codebook", "earlier release", "other")
"""What public knowledge a bound or a level may come from."""

_MAX_LENGTH = 500


def provenance_fault(text: object) -> str | None:
    """What is wrong with a provenance; None for the empty text (not stated) and for a good one."""
    kind, _, words = text.partition(":") if isinstance(text, str) else ("", "", "")
    well_formed = kind in PROVENANCES and (kind != "other" or bool(words.strip()))
    if text == "" or (well_formed and len(str(text)) <= _MAX_LENGTH and str(text).isprintable()):
        return None
    near = "" if kind in PROVENANCES else nearest(kind, PROVENANCES)
    return (
        f"expected one of {', '.join(PROVENANCES)}, then perhaps a colon and words (after `other`"
        f" always), {_MAX_LENGTH} printable characters at most, not {text!r:.40}{near}"
    )


def provenance_summary(stated: Iterable[str]) -> str:
    """How many columns have which provenance, as one line; empty if none states any."""
    kinds = Counter(text.partition(":")[0] for text in stated)
    if not kinds.keys() - {""}:
        return ""
    parts = [f"{kinds[kind]} from {kind}" for kind in PROVENANCES if kinds[kind]]
    return ", ".join(parts + ([f"{kinds['']} not stated"] if kinds[""] else []))
