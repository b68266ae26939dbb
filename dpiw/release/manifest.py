"""The signed manifest of a release folder: every file with size and SHA-256, to verify offline.

It names no source path, host, user or seed, and holds no digest of anything confidential: hashing
candidates would reveal the content.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, get_type_hints

from dpiw.data.documents import (
    Count,
    DecimalText,
    Document,
    Label,
    Sha256,
    document_json,
    parse_canonical,
    plain,
    record,
    settle,
)
from dpiw.data.files import open_regular
from dpiw.errors import (
    ManifestError,
    ReleaseError,
    SignatureError,
    SpecError,
    nearest,
    shown,
)
from dpiw.privacy.units import PrivacyUnit
from dpiw.release.signing import PublicKey

FORMAT = "dpiw-release"
LOCAL_FORMAT = "dpiw-local-release"
FORMAT_VERSION = 1

MANIFEST_LIMIT = 16 * 2**20
"""Most bytes of a manifest, a certificate or a tombstone."""

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
SYNTHETIC = "synthetic.parquet"
REPLICATES = "replicate_weights.parquet"
CERTIFICATE = "certificate.json"
SCHEMA = "schema.json"
REPORT = "report.html"
CROISSANT = "croissant.json"

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MORE_ROWS = re.compile(r".+-rows[0-9]{1,12}-[0-9a-f]{8}")
MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
"""A UTC time in whole seconds."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Size in bytes and SHA-256 (hexadecimal) of a file of a release."""

    size: int
    sha256: Sha256


@dataclass(frozen=True, kw_only=True)
class FileBytes:
    """A file read once, or its end: the parsed bytes are the compared ones."""

    name: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class ArrowField:
    """One column of the Parquet file: name, Arrow type as text, and whether nulls may occur."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Public facts of every manifest besides files and key; epsilon and delta are of this release.

    Attributes:
        mechanisms: readers of confidential values, as `stage:method`.
        columns: the Arrow schema of the Parquet file.
        published_at: scheduled time, `2027-01-31T06:00:00Z`.
    """

    release_id: Label
    unit: PrivacyUnit
    epsilon: DecimalText
    delta: DecimalText
    mechanisms: tuple[str, ...]
    rows: Count
    columns: tuple[ArrowField, ...]
    versions: Mapping[str, str]
    published_at: str

    def __post_init__(self) -> None:
        settle(self, what=MANIFEST)
        if MOMENT.fullmatch(self.published_at) is None:
            allowed = "a UTC time such as 2027-01-31T06:00:00Z"
            raise ManifestError(field=f"{MANIFEST} published_at", allowed=allowed)

    @classmethod
    def of(cls, certificate: Document, **others: Any) -> Self:
        """Return the `others`, and for each other fact what a certificate states by its name."""
        same = [field.name for field in fields(cls) if field.name not in others]
        return cls(**{name: getattr(certificate, name) for name in same}, **others)


@dataclass(frozen=True, kw_only=True)
class ManifestFacts(Facts):
    """Facts of synthetic rows from a table that a ledger paid for.

    Attributes:
        cumulative_epsilon, cumulative_delta: of the population's whole life, this release included.
        constraints_digest: SHA-256 of the public constraints (`schema.json`).
        previous: SHA-256 of the manifest of the population's previous release (None: first); for
            more rows from the same draws, of the release that paid for them.
    """

    population: Label
    cumulative_epsilon: DecimalText
    cumulative_delta: DecimalText
    constraints_digest: Sha256
    ledger_head: Sha256
    previous: Sha256 | None

    @property
    def rows_of(self) -> str | None:
        """SHA-256 of the manifest of the release to which this one adds rows, or None."""
        return self.previous if _MORE_ROWS.fullmatch(self.release_id) else None


@dataclass(frozen=True, kw_only=True)
class SignedManifest:
    """Facts, other files, and the signer's raw key in hexadecimal, which proves only integrity."""

    format = ""  # of the kind, in the file; no field
    facts: Facts
    files: Mapping[str, FileEntry]
    public_key: str

    def __post_init__(self) -> None:
        settle(self, what=MANIFEST)
        if not self.files:
            raise ManifestError(field=f"{MANIFEST} files", allowed="at least one file")
        for name in self.files:
            check_file_name(name)

    @property
    def signer(self) -> PublicKey:
        """The embedded public key."""
        return PublicKey.from_hex(self.public_key)

    def to_bytes(self) -> bytes:
        """Write canonical JSON; the same manifest always gives the same bytes."""
        value = {
            **plain(self.facts),
            "format": self.format,
            "format_version": FORMAT_VERSION,
            "files": plain(self.files),
            "public_key": self.public_key,
            "key_id": self.signer.key_id,
        }
        return document_json(value)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; raises ManifestError if anything else."""
        value = parse_canonical(data, what=MANIFEST)
        kind = get_type_hints(cls)["facts"]
        names = [field.name for field in fields(kind)]
        manifest_keys = ["format", "format_version", "files", "public_key", "key_id"]
        if isinstance(value, dict) and value.get("format", cls.format) != cls.format:
            is_local = value["format"] == LOCAL_FORMAT
            hint = "; this is a local release: use dpiw.local.estimate.load_local" * is_local
            raise ManifestError(field=MANIFEST, allowed=f"format {cls.format!r}{hint}")
        record(value, names + manifest_keys, what=MANIFEST)
        if value["format_version"] != FORMAT_VERSION:
            raise ManifestError(field=f"{MANIFEST} format_version", allowed=str(FORMAT_VERSION))
        manifest = cls(
            facts=kind(**{name: value[name] for name in names}),
            files=value["files"],
            public_key=value["public_key"],
        )
        if value["key_id"] != manifest.signer.key_id:
            allowed = "the id of public_key; somebody changed one of the two"
            raise ManifestError(field="manifest.json key_id", allowed=allowed)
        return manifest

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes()`, hexadecimal; the release's name in the ledger."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Manifest(SignedManifest):
    """The manifest of synthetic rows."""

    format = FORMAT
    facts: ManifestFacts


def read_limited(
    path: Path, *, limit: int, error: type[ManifestError | SignatureError], then: str = ""
) -> bytes:
    """Read a small regular file of a folder that may be hostile; raises `error`."""
    try:
        with open_regular(path) as stream:
            data = stream.read(limit + 1)
    except OSError as reason:
        missing = then if isinstance(reason, FileNotFoundError) else ""
        raise error(f"{reason.strerror}{missing}", field=path.name) from reason
    if len(data) > limit:
        raise error(f"larger than {limit} bytes, the most allowed{then}", field=path.name)
    return data


def row_files(count: int) -> tuple[str, ...]:
    """Names of the files of rows, in order: one, or the parts of a large table."""
    if count == 1:
        return (SYNTHETIC,)
    stem = SYNTHETIC.removesuffix(".parquet")
    return tuple(f"{stem}-{part:05d}-of-{count:05d}.parquet" for part in range(1, count + 1))


def listed_row_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the listed files of rows, in order; raises ManifestError for an incomplete table."""
    stem = SYNTHETIC.removesuffix(".parquet")
    parts = tuple(sorted(name for name in names if name.startswith(stem)))
    if not parts:
        raise ManifestError("not listed in the manifest; every release lists it", field=SYNTHETIC)
    if parts != row_files(len(parts)):
        raise ManifestError("the manifest does not list all parts of the table", field=parts[0])
    return parts


def check_file_name(name: str) -> None:
    """Raise ManifestError for a name that could leave the folder, hide, or replace the manifest."""
    if _FILE_NAME.fullmatch(name) is None or name in {MANIFEST, SIGNATURE}:
        allowed = "a name of at most 100 of A-Z, a-z, 0-9 and `._-`, the first no sign"
        raise ManifestError(f"file {name!r}", field="manifest.json files", allowed=allowed)


def release_folders(root: Path) -> list[Path]:
    """Return the folders in `root` that could be releases; raises ReleaseError if unreadable."""
    try:
        folders = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
        return sorted(folder for folder in folders if not _is_report(folder))
    except OSError as reason:
        near = nearest(root.name, _beside(root)) if isinstance(reason, FileNotFoundError) else ""
        raise ReleaseError(f"{reason.strerror}{near}", field=f"releases {root.name}") from reason


def _is_report(folder: Path) -> bool:
    """Whether it holds only an audit's report, which `--out` may put beside releases."""
    with suppress(OSError):
        return {path.name for path in folder.iterdir()} == {"audit.json", "audit.html"}
    return False


def _beside(root: Path) -> list[str]:
    """Names of folders with releases beside a missing one; never of confidential folders."""
    if any((parent / "workspace").exists() for parent in root.resolve().parents):
        return []
    with suppress(OSError):
        return [path.name for path in root.parent.iterdir() if any(path.glob(f"*/{MANIFEST}"))]
    return []


def refuse_release(path: Path) -> None:
    """Raise SpecError for a path in a published folder, links followed: extra files break it."""
    for folder in (path.resolve(), *path.resolve().parents):
        if any(os.path.lexists(folder / name) for name in (MANIFEST, SIGNATURE)):
            raise SpecError(
                f"is or lies in a published release, {folder.name}, which a further file damages",
                field="out",
                allowed="a folder of its own, such as --out audit",
            )


def publish_anew(folder: Path) -> str:
    """Advise the publisher of a damaged published folder."""
    return (
        f"; {os.path.relpath(folder)} is not as it was published: move it out of"
        f" {os.path.relpath(folder.parent)}, and start the same command again, which publishes the"
        " same bytes at no cost"
    )


def no_release(folder: Path) -> str:
    """Describe what is there instead of a release, and which one may be meant."""
    name = shown(folder.name)
    text = f"{MANIFEST}: not in {name or 'this folder'}; expected the folder of one release"
    if folder.is_file():
        return f"{name}: a file; expected the folder of one release, in which it lies"
    if not folder.is_dir():
        return f"{name}: no such folder; expected the folder of one release"
    inside = sorted(manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST}"))
    return f"{text}, such as {name}/{shown(inside[0])}" if inside else text
