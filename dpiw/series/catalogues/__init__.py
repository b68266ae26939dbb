"""A release's metadata in the forms that data catalogues take.

`catalogues` is a pure function of a verified release: the same release gives the same bytes. All of
it is post-processing of signed public files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpiw.release.verification import VerifiedRelease

CATALOGUES = {
    "croissant": "croissant.json",
    "dcat": "dcat.jsonld",
    "ddi": "ddi.xml",
    "prov": "prov.jsonld",
    "registry": "registry.yaml",
    "sp800-226": "sp800-226.html",
}
"""Name of each form, and of its file."""


def catalogue(verified: VerifiedRelease, form: str, *, base_url: str | None = None) -> bytes:
    """Return one form (a key of `CATALOGUES`) of a release's metadata.

    Args:
        verified: what `dpiw.release.verification.verify` returned.
        form: which form.
        base_url: the address of the published folder; None: files have no address, and are named
            by their SHA-256.

    Raises:
        SpecError: `base_url` is no address.
        ReleaseError: a file was changed since `verify`, or Jinja2 is missing, which some forms
            need and an analyst need not have.

    Privacy: reads public files only; costs nothing.
    """
    from dpiw.series.catalogues.forms import written

    return written(form, verified, base_url)


def catalogues(verified: VerifiedRelease, *, base_url: str | None = None) -> dict[str, bytes]:
    """Return every form by file name; arguments and errors are those of `catalogue`."""
    return {name: catalogue(verified, form, base_url=base_url) for form, name in CATALOGUES.items()}
