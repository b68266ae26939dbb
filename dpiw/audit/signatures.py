"""Published folders by themselves: is each whole, and who signed it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpiw.audit.findings import Finding
from dpiw.audit.records import RunTally
from dpiw.errors import ReleaseError, SignatureError
from dpiw.release.signing import not_by
from dpiw.release.verification import VerifiedRelease, manifest_digest, verify


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """One folder, as far as it could be read.

    Attributes:
        name: the folder's name; never its path, which is the auditor's own.
        manifest_digest: SHA-256 of the manifest's bytes; None: there is none that could be read.
        run_key: the run that published this digest; None: no run did.
        release: what passed `dpiw.release.verification.verify`; None: it did not.
        other_key: id of the key inside the folder, if that signed it and is none of those given.
    """

    name: str
    manifest_digest: str | None
    run_key: str | None
    release: VerifiedRelease | None
    other_key: str | None = None


def check_folder(
    folder: Path, public_keys: Sequence[Path], runs: Mapping[str, RunTally]
) -> tuple[FolderFacts, list[Finding]]:
    """Check one folder by itself.

    Args:
        folder: of a release.
        public_keys: the curators', from elsewhere, under one of which it must verify; none: anybody
            could have signed.
        runs: the ledger's, by the digest of what they published.
    """
    digest = manifest_digest(folder)
    run = runs.get(digest or "")
    release, other_key, text = None, None, ""
    try:
        if folder.is_symlink():  # it could lead into a workspace, which an audit never reads
            raise ReleaseError("a link; expected a folder")
        release = verify(folder, public_key=public_keys or None)
    except ReleaseError as error:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, SignatureError) and public_keys:
            other_key = _own_key(folder)
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
    facts = FolderFacts(
        name=folder.name,
        manifest_digest=digest,
        run_key=None if run is None else run.key,
        release=release,
        other_key=other_key,
    )
    if not text:
        return facts, []
    subject, code = f"release {folder.name}", "folder_unsound"
    if other_key is not None:
        code, text = "other_key", f"whole, and signed by key id {other_key}, {not_by(public_keys)}"
    return facts, [Finding(code=code, subject=subject, text=text)]


def _own_key(folder: Path) -> str | None:
    """The id of the key inside a folder that is whole under it."""
    try:
        return verify(folder).key_id
    except (ReleaseError, OSError):
        return None


def by_one_other_key(
    facts: Sequence[FolderFacts], findings: list[Finding], given: Collection[str]
) -> list[Finding]:
    """Say it once if every folder is whole under one and the same key that was not given."""
    keys = {folder.other_key for folder in facts}
    if len(keys) != 1 or None in keys:
        return findings
    text = f"all {len(facts)} are whole, and signed by key id {keys.pop()}, {not_by(given)}"
    return [Finding(code="other_key", subject="releases", text=text)]


def folders_of_keys(facts: Iterable[FolderFacts], keys: Iterable[str]) -> dict[str, int]:
    """How many whole folders each of these keys signed, by its id."""
    counts = Counter(folder.release.key_id for folder in facts if folder.release is not None)
    return {key: counts[key] for key in keys}


def signers(facts: Iterable[FolderFacts], *, pinned: bool) -> list[Finding]:
    """What is to be said of the keys that signed the whole folders, if none was given."""
    keys = sorted({folder.release.key_id for folder in facts if folder.release is not None})
    if pinned or not keys:
        return []
    text = "whole, but no public key was given: nothing shows who signed them"
    findings = [Finding(code="key_not_pinned", subject="releases", text=text)]
    if len(keys) > 1:
        text = f"signed by key ids {', '.join(keys)}"
        findings.append(Finding(code="several_keys", subject="releases", text=text))
    return findings
