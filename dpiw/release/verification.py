"""Verification of a release folder, without network or ledger."""

import csv
import hashlib
import io
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dpiw.data.documents import parse_canonical
from dpiw.data.files import open_regular
from dpiw.data.schema.levels import NOISY_COUNT, guarded, level_file
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.threads import in_threads
from dpiw.errors import (
    ChecksumError,
    ManifestError,
    ReleaseError,
    SchemaError,
    SignatureError,
    is_plain,
    shown,
)
from dpiw.privacy.units import rows_caveat
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import (
    CERTIFICATE,
    MANIFEST,
    MANIFEST_LIMIT,
    REPLICATES,
    SCHEMA,
    SIGNATURE,
    FileBytes,
    Manifest,
    SignedManifest,
    listed_row_files,
    no_release,
    read_limited,
)
from dpiw.release.signing import SIGNATURE_BYTES, Keys, PublicKey, load_public_keys, not_by
from dpiw.release.statements import read_keys
from dpiw.release.withdrawal import refuse_withdrawn

_ASK = "; do not use this folder: ask its curator for it again"
_ONE_LISTS = "only one of certificate and manifest lists this file"
_ROUNDED = 0.005
"""Rows that a noisy count can lose when it is written with two decimals."""


def check_levels(lists: Mapping[str, FileBytes], certificate: Certificate) -> None:
    """Raise ManifestError unless each list of found levels is in place and above its threshold."""
    try:
        expected = {
            level_file(place): (column, stage.parameters["threshold"])
            for stage in certificate.stages
            if "threshold" in stage.parameters
            for place, column in enumerate(stage.parameters["columns"], start=1)
        }
    except (KeyError, TypeError) as error:
        what = f"a stage states a threshold without its columns{_ASK}"
        raise ManifestError(what, field="certificate.json") from error
    for name in sorted(lists.keys() ^ expected.keys()):
        raise ManifestError(f"{_ONE_LISTS}{_ASK}", field=name)
    for name, (column, threshold) in expected.items():
        try:
            low = not _reaches(lists[name], column, threshold)
        except (ValueError, TypeError, csv.Error) as error:
            raise ManifestError(field=name, allowed=f"a list of levels and counts{_ASK}") from error
        if low:
            raise ManifestError(f"a level is below the certificate's threshold{_ASK}", field=name)


def _reaches(file: FileBytes, column: str, threshold: float) -> bool:
    """Whether all counts reach the threshold. A name or level that is a formula may be guarded."""
    lines = csv.reader(io.StringIO(file.data.decode(), newline=""), strict=True)
    if next(lines, None) not in ([column, NOISY_COUNT], [guarded(column), NOISY_COUNT]):
        raise ValueError
    pairs = list(lines)
    if not all(is_plain(level) for level, _ in pairs):
        raise ValueError
    return all(float(count) + _ROUNDED >= threshold for _, count in pairs)


STAGING_PREFIX = ".staging-"
"""Folders of this name are being built and are never a release, however complete they look."""

AnyManifest = TypeVar("AnyManifest", bound=SignedManifest)

GET_AGAIN = "; do not use this folder: get it again from its publisher"
"""Advice to a reader of a folder that is not as it was signed."""

NOBODY = (
    "nobody vouches for this folder: no public key was given, and its maker signed it with a"
    " key of their own"
)
"""Precedes everything that such a folder says of itself."""

REQUIRED = (CERTIFICATE, SCHEMA)

FOOTER = 64 * 2**20
"""Bytes at the end of a Parquet file that may hold its footer."""

_BLOCK = 2**20


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What parses a compared file, from `last` bytes at its end; None: all, held in memory."""

    parse: Callable[[FileBytes], Any]
    last: int | None = None


Readers = Mapping[str, Reader]


@dataclass(frozen=True, kw_only=True)
class VerifiedRelease:
    """A folder that passed every check; if its key was not `pinned`, anyone could have made it."""

    folder: Path
    manifest: Manifest
    certificate: Certificate
    key_id: str
    pinned: bool

    @property
    def statement(self) -> str:
        """Describe the release, and which other release paid or which cost is only declared."""
        lines = [signed_statement("release", self.manifest, pinned=self.pinned)]
        if (first := self.certificate.more_rows_of) is not None:
            lines.append(
                f"more rows of the draws of {shown(first.get('release_id'))} (manifest"
                f" {shown(str(first.get('manifest'))[:12])}), whose cost this one states: no"
                " further cost"
            )
        if (other := self.certificate.revises) is not None:
            lines.append(
                f"revises {shown(other.get('release_id'))} (manifest"
                f" {shown(str(other.get('manifest'))[:12])}): use this release instead"
            )
        declared = self.certificate.declared
        return "\n".join(lines if declared is None else [*lines, shown(declared)])

    def described(self) -> list[str]:
        """Return lines for people: what the release promises, its cost, columns and weights."""
        certificate, facts = self.certificate, self.manifest.facts
        size = certificate.diagnostics.get("effective_sample_size")
        return [
            self.statement,
            f"population {certificate.population}, period {certificate.period}, {facts.rows} rows",
            *filter(None, [rows_caveat(certificate.unit.max_rows)]),
            "columns: " + ", ".join(shown(column.name) for column in facts.columns),
            f"spent: epsilon={certificate.epsilon}, delta={certificate.delta}"
            f" under {certificate.relation.value}",
            f"population so far: epsilon={certificate.spent_epsilon}"
            f" of {certificate.budget_epsilon}, delta={certificate.spent_delta}"
            f" of {certificate.budget_delta}",
            f"weights: {shown(certificate.weights_are)}"
            + (f", effective sample size {size:.0f}" if isinstance(size, float) else ""),
            *(f"  {shown(reason)}" for reason in certificate.diagnostics.get("reasons", ())),
            *([f"  {certificate.unseen}"] if certificate.unseen else ()),
        ]


def signed_statement(what: str, manifest: SignedManifest, *, pinned: bool) -> str:
    """Describe a verified folder in a line; without a pinned key, first say that nobody vouches."""
    trust = "the expected key" if pinned else "not pinned: name the key with --key"
    key_id = manifest.signer.key_id
    line = f"{what} {manifest.facts.release_id}: signed by key id {key_id} ({trust})"
    return line if pinned else f"{NOBODY}\n{line}"


def verify(
    folder: Path,
    *,
    public_key: Keys = None,
    keys: Path | None = None,
    then: str = GET_AGAIN,
) -> VerifiedRelease:
    """Check signature, manifest, files and facts of a release folder, in this order.

    Args:
        folder: the release.
        public_key: file of the curator's public key, obtained apart from the release, or several.
            None: the key inside the manifest, which proves nothing about who signed.
        keys: file of the curator's statement of keys, obtained apart from the release; with
            `public_key`, one of these must have signed it. A release that a key signed after its
            end is refused.
        then: ends the message about a folder that is not as it was signed.

    Raises:
        WithdrawnError: the release was withdrawn; it has `reason` and `replaced_by`.
        SignatureError: no signature, a wrong one, or not by an expected key (there may be none).
        ManifestError: a malformed manifest, missing or extra files, or contradicting ones.
        ChecksumError: a file's bytes differ from the manifest.
        ReleaseError: the key file cannot be read.
    """
    if keys is None:
        return _verified(folder, public_key=public_key, then=then, rows=False)[0]
    statement = read_keys(keys, expected=load_public_keys(public_key))
    verified = _verified(folder, public_key=statement.public_keys, then=then, rows=False)[0]
    statement.check(verified.manifest)
    return verified


def verify_and_read(
    folder: Path, *, public_key: Path | None
) -> tuple[VerifiedRelease, Any, list[Any]]:
    """Verify a folder; return it, its dictionary as JSON values, and the Arrow tables of its rows.

    Each file is read once and parsed from the compared bytes, so replacing it has no effect.
    Without a public key, files with far more cells than bytes are refused. Raises ReleaseError as
    `verify`.
    """
    verified, contents = _verified(folder, public_key=public_key, then=GET_AGAIN, rows=True)
    rows = [contents[name].table for name in listed_row_files(verified.manifest.files)]
    return verified, contents[SCHEMA], rows


def _verified(
    folder: Path, *, public_key: Keys, then: str, rows: bool
) -> tuple[VerifiedRelease, dict[str, Any]]:
    folder = Path(folder)

    def readers(manifest: Manifest) -> Readers:
        return _readers(manifest, trusted=public_key is not None, rows=rows)

    manifest, contents = verified_contents(
        folder, kind=Manifest, public_key=public_key, readers=readers, then=then
    )
    certificate = _check_agreement(contents, manifest)
    verified = VerifiedRelease(
        folder=folder,
        manifest=manifest,
        certificate=certificate,
        key_id=manifest.signer.key_id,
        pinned=public_key is not None,
    )
    return verified, contents


def verified_contents(
    folder: Path,
    *,
    kind: type[AnyManifest],
    public_key: Keys,
    readers: Callable[[AnyManifest], Readers],
    then: str = GET_AGAIN,
) -> tuple[AnyManifest, dict[str, Any]]:
    """Verify a folder as `verify` does; return its manifest and by name what readers returned."""
    if folder.name.startswith(STAGING_PREFIX):
        raise ManifestError("this folder is being built; expected a published release")
    manifest = read_signed(folder, kind=kind, expected=load_public_keys(public_key), then=then)
    return manifest, check_files(folder, manifest, readers=readers(manifest), then=then)


def read_signed_manifest(folder: Path) -> Manifest:
    """Return a release's manifest, withdrawn or not, if the key that it embeds signed it."""
    return signed_manifest(folder, kind=Manifest, expected=None)


def read_signed(
    folder: Path, *, kind: type[AnyManifest], expected: Sequence[PublicKey] | None, then: str = ""
) -> AnyManifest:
    """Return a manifest signed by one of the expected keys; None: by the key that it embeds.

    Raises WithdrawnError if the folder has a tombstone.
    """
    refuse_withdrawn(folder, expected)
    return signed_manifest(folder, kind=kind, expected=expected, then=then)


def signed_manifest(
    folder: Path, *, kind: type[AnyManifest], expected: Sequence[PublicKey] | None, then: str = ""
) -> AnyManifest:
    """Return a manifest as `read_signed` does, also that of a withdrawn release."""
    if not (folder / MANIFEST).is_file():
        raise ManifestError(no_release(folder))
    data = read_limited(folder / MANIFEST, limit=MANIFEST_LIMIT, error=ManifestError)
    signature = read_limited(
        folder / SIGNATURE, limit=SIGNATURE_BYTES, error=SignatureError, then=then
    )
    # Nothing in the file is interpreted before an expected key vouches for it.
    keys = [kind.from_bytes(data).signer] if expected is None else expected
    vouching = _vouching(data, signature, keys)
    if vouching is None:
        raise SignatureError(_signed_by(data, signature, kind, keys, then))
    manifest = kind.from_bytes(data)
    if manifest.signer != vouching:
        raise SignatureError(f"the manifest names another key than key id {vouching.key_id}{_ASK}")
    return manifest


def _vouching(data: bytes, signature: bytes, keys: Sequence[PublicKey]) -> PublicKey | None:
    for key in keys:
        with suppress(SignatureError):
            key.check(data, signature)
            return key
    return None


def _signed_by(
    data: bytes, signature: bytes, kind: type[SignedManifest], expected: Sequence[PublicKey],
    then: str,
) -> str:  # fmt: skip
    ids = list(dict.fromkeys(key.key_id for key in expected))
    if not ids:
        return "no public key was given; name the curator's .pub file"
    with suppress(ReleaseError):
        signer = kind.from_bytes(data).signer
        signer.check(data, signature)
        return (
            f"signed by key id {signer.key_id}, {not_by(ids)}, id {', '.join(ids)}: ask the"
            " curator which key is theirs, not through this folder"
        )
    return f"the signature does not verify under key id {' or '.join(ids)}{then}"


def check_files(
    folder: Path, manifest: SignedManifest, *, readers: Readers | None = None, then: str = ""
) -> dict[str, Any]:
    """Compare names, kinds, sizes and digests of a folder's files with the manifest.

    Readers get the compared bytes; their results are returned by file name. Raises ManifestError
    for a missing, extra or irregular file, ChecksumError for other bytes.
    """
    statuses = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(folder)}
    listed = {*manifest.files, MANIFEST, SIGNATURE}
    for name in sorted(listed - set(statuses)):
        raise ManifestError(f"listed in the manifest and missing in the folder{then}", field=name)
    for name in sorted(set(statuses) - listed):
        raise ManifestError(
            f"in the folder and not listed in the manifest{then}", field=f"{name!r}"
        )
    for name, status in statuses.items():
        if not stat.S_ISREG(status.st_mode):
            raise ManifestError(
                "a link, folder, pipe or device", field=name, allowed=f"a regular file{then}"
            )
    for name, expected in sorted(manifest.files.items()):
        if statuses[name].st_size != expected.size:
            raise ChecksumError(f"its size differs from the manifest{then}", field=name)
    names = sorted(manifest.files)

    def compared(name: str) -> Any:
        if (reader := (readers or {}).get(name)) is not None:
            return reader.parse(signed_bytes(folder, manifest, name, last=reader.last, then=then))
        if file_digest(folder / name) != manifest.files[name].sha256:
            raise ChecksumError(f"its SHA-256 differs from the manifest{then}", field=name)
        return None

    with closing(in_threads(compared, names, is_large=True)) as contents:  # and no thread reads on
        return dict(zip(names, contents, strict=True))


def signed_bytes(
    folder: Path,
    manifest: SignedManifest,
    name: str,
    *,
    last: int | None = None,
    then: str = GET_AGAIN,
) -> FileBytes:
    """Read a listed file once and return its bytes, or the `last` of them; else ChecksumError."""
    expected = manifest.files[name]
    digest, left = hashlib.sha256(), expected.size
    try:
        with open_regular(folder / name) as stream:
            while last and left > last and (block := stream.read(min(left - last, _BLOCK))):
                digest.update(block)
                left -= len(block)
            data = stream.read(left + 1)
    except OSError as reason:
        raise ChecksumError(f"{reason.strerror}{then}", field=name) from reason
    digest.update(data)
    if len(data) != left or digest.hexdigest() != expected.sha256:
        raise ChecksumError(f"its SHA-256 differs from the manifest{then}", field=name)
    return FileBytes(name=name, data=data)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a regular file, hexadecimal. Raises OSError; a link is not followed."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def manifest_digest(folder: Path) -> str | None:
    """Return the SHA-256 of a folder's manifest, or None without one.

    Links are not followed: a digest reveals content, and a link could lead to a file outside.
    """
    if folder.is_symlink():
        return None
    try:
        data = read_limited(folder / MANIFEST, limit=MANIFEST_LIMIT, error=ManifestError)
    except ManifestError:
        return None
    return hashlib.sha256(data).hexdigest()


def _readers(manifest: Manifest, *, trusted: bool, rows: bool) -> Readers:
    """Return the parser of each file. Without a trusted signer, file sizes limit the rows."""
    from dpiw.release.parquet import RowReader, read_footer, stored_footer

    for name in REQUIRED:
        if name not in manifest.files:
            raise ManifestError("not listed in the manifest; every release lists it", field=name)
    names = listed_row_files(manifest.files)
    if rows:
        sizes = sum(manifest.files[name].size for name in names)
        reader = Reader(parse=RowReader(manifest.facts, size=None if trusted else sizes))
    else:
        reader = Reader(parse=read_footer, last=FOOTER)
    lists = [name for name in manifest.files if name.startswith("levels-")]
    return {
        CERTIFICATE: Reader(parse=_certificate),
        SCHEMA: Reader(parse=lambda file: parse_canonical(file.data, what=SCHEMA)),
        REPLICATES: Reader(parse=partial(stored_footer, what=REPLICATES), last=FOOTER),
        **dict.fromkeys(lists, Reader(parse=lambda file: file)),
        **dict.fromkeys(names, reader),
    }


def _certificate(file: FileBytes) -> Certificate:
    if len(file.data) > MANIFEST_LIMIT:
        raise ManifestError(f"larger than {MANIFEST_LIMIT} bytes, the most", field=file.name)
    return Certificate.from_json(file.data)


def _check_agreement(contents: Mapping[str, Any], manifest: Manifest) -> Certificate:
    """Compare certificate, Parquet footer and manifest, which a signer could have mixed up."""
    from dpiw.release.parquet import arrow_fields, arrow_schema, footer_facts
    from dpiw.release.replicate_weights import check_replicates, replicates_promised

    certificate: Certificate = contents[CERTIFICATE]
    facts = manifest.facts
    footers = [contents[name] for name in listed_row_files(manifest.files)]
    try:
        declared = arrow_fields(arrow_schema(PublicSchema.from_mapping(contents[SCHEMA])))
    except (SchemaError, KeyError, TypeError, ValueError, AttributeError):
        raise ManifestError(field=SCHEMA, allowed="a data dictionary of this version") from None
    check_facts(manifest, certificate)
    pairs = {
        "constraints digest": (facts.constraints_digest, manifest.files[SCHEMA].sha256),
        "row count": (facts.rows, sum(footer.rows for footer in footers)),
        "Arrow schema": ({facts.columns}, {footer.columns for footer in footers}),
        "data dictionary": (facts.columns, declared),
        "facts in the Parquet footer": (
            [footer.facts for footer in footers],
            [footer_facts(certificate)] * len(footers),
        ),
    }
    _check_equal(pairs)
    check_levels({name: file for name, file in contents.items() if isinstance(file, FileBytes)},
                 certificate)  # fmt: skip
    if (replicates_promised(certificate) > 0) is not (REPLICATES in manifest.files):
        raise ManifestError(f"{_ONE_LISTS}{_ASK}", field=REPLICATES)
    if REPLICATES in manifest.files:
        check_replicates(contents[REPLICATES], certificate, rows=facts.rows)
    return certificate


def check_facts(manifest: Manifest, certificate: Certificate) -> None:
    """Raise ManifestError unless the two state the same release, cost and ledger head."""
    facts = manifest.facts
    same = ("release_id", "population", "unit", "epsilon", "delta", "mechanisms")
    pairs = {
        **{name: (getattr(facts, name), getattr(certificate, name)) for name in same},
        "cumulative epsilon": (facts.cumulative_epsilon, certificate.spent_epsilon),
        "cumulative delta": (facts.cumulative_delta, certificate.spent_delta),
        "ledger head": (facts.ledger_head, certificate.ledger_head),
        "release whose draws these rows are": (
            facts.rows_of,
            (certificate.more_rows_of or {}).get("manifest"),
        ),
    }
    _check_equal(pairs)


def _check_equal(pairs: Mapping[str, tuple[Any, Any]]) -> None:
    for name, (one, other) in pairs.items():
        if one != other:
            from dpiw.release.parquet import DISAGREE

            raise ManifestError(DISAGREE, field=name)
