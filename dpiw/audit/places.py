"""Which ledger and which releases are meant."""

from __future__ import annotations

from pathlib import Path

from dpiw.errors import SpecError

_SPEC_FILES = (".yaml", ".yml")


def places(ledger: str, releases: str | None) -> tuple[str, Path]:
    """The ledger's path or URL, and the folder in which releases are published.

    Args:
        ledger: a path or URL, or the path of a release spec, whose `ledger` and `publish_to` are
            meant.
        releases: a folder; None: the spec's.

    Raises:
        SpecError: neither a folder nor a spec was given, or the spec is not admissible.
    """
    if ledger.endswith(_SPEC_FILES):
        from dpiw.plan.spec import load_spec
        from dpiw.run.run import ledger_url

        spec = load_spec(Path(ledger))
        return ledger_url(spec), Path(releases or spec.publish_to)
    if releases is None:
        raise SpecError("releases: name the folder of published releases, or give a release spec")
    return ledger, Path(releases)
