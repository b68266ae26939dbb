"""Differentially private synthetic data with importance weights.

>>> import dpiw
>>> release = dpiw.load_release("census-2027-q1", public_key="curator.pub")  # doctest: +SKIP
>>> release.mean("age")  # doctest: +SKIP

Analysts need `load_release` and `dpiw.analysis`. Names are resolved on first use, so that
`import dpiw` costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpiw.analysis.release import Release, load_release

__version__ = "0.1.0"

__all__ = ["Release", "__version__", "load_release"]


def __getattr__(name: str) -> Any:
    if name in {"Release", "load_release"}:
        from dpiw.analysis import release

        return getattr(release, name)
    raise AttributeError(f"module 'dpiw' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
