import json
import os
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from dpiw.analysis.release import load_release
from dpiw.data.documents import decimal_of, document_json
from dpiw.errors import ChecksumError, ManifestError, ReleaseError, SignatureError
from dpiw.release.manifest import Manifest, check_file_name
from dpiw.release.publication import build_folder
from dpiw.release.signing import create_key_pair, load_private_key, load_public_key
from dpiw.release.verification import GET_AGAIN, verify
from tests.dpiw.release import release_example


def _sign_again(folder, **changes):
    """Play a curator who signs a manifest that should not be."""
    value = json.loads((folder / "manifest.json").read_bytes()) | changes
    data = document_json(value)
    (folder / "manifest.json").write_bytes(data)
    key = load_private_key(folder.parent / "curator.key")
    (folder / "manifest.sig").write_bytes(key.sign(data))


def _named_signer(key):
    return {"public_key": key.public.raw.hex(), "key_id": key.public.key_id}


def test_a_whole_release_verifies_with_and_without_a_pinned_key(published):
    pinned = verify(published, public_key=published.parent / "curator.pub")
    assert pinned.pinned
    assert pinned.certificate == release_example.example_certificate()
    assert pinned.manifest.facts.rows == 200
    assert pinned.manifest.facts.published_at == release_example.PUBLISHED_AT
    assert f"{pinned.key_id} (the expected key)" in pinned.statement
    loose = verify(published)
    assert not loose.pinned
    assert "not pinned" in loose.statement


def test_one_of_several_keys_must_have_signed(published, tmp_path):
    signer = published.parent / "curator.pub"
    first, second = (create_key_pair(tmp_path, name)[1] for name in ("one", "two"))
    for keys in ([signer], [first, signer], (signer, first, second)):
        release = verify(published, public_key=keys)
        assert (release.pinned, release.key_id) == (True, load_public_key(signer).key_id)
    for none in ([first, second, first], []):
        with pytest.raises(SignatureError):
            verify(published, public_key=none)
    with pytest.raises(ReleaseError):
        verify(published, public_key=[signer, tmp_path / "three.pub"])


def test_a_forger_without_the_key_fails_where_the_key_is_pinned(folder):
    forger = release_example.example_key(folder.parent, "forger")
    _sign_again(folder, **_named_signer(forger))
    (folder / "manifest.sig").write_bytes(forger.sign((folder / "manifest.json").read_bytes()))
    assert not verify(folder).pinned  # whole, but by anyone: the statement says so
    with pytest.raises(SignatureError):
        verify(folder, public_key=folder.parent / "curator.pub")


@pytest.mark.parametrize("known", [["curator.pub"], ["other.pub", "curator.pub"], None])
def test_a_key_that_signed_must_be_the_one_that_is_named(folder, known):
    """Also where both curators are known."""
    _sign_again(folder, **_named_signer(release_example.example_key(folder.parent, "other")))
    keys = None if known is None else [folder.parent / name for name in known]
    with pytest.raises(SignatureError):
        verify(folder, public_key=keys)


def _gone(name):
    return lambda folder: (folder / name).unlink()


def _linked(name):
    def link(folder):
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(folder.parent / name)

    return link


def _piped(name):
    def pipe(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return pipe


def _written(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


HARMS: dict[str, tuple[Callable[[Path], object], type[ReleaseError]]] = {
    "no manifest": (_gone("manifest.json"), ManifestError),
    "no signature": (_gone("manifest.sig"), SignatureError),
    "no rows": (_gone("synthetic.parquet"), ManifestError),
    "no report": (_gone("report.html"), ManifestError),
    "another file": (lambda folder: (folder / "more.txt").touch(), ManifestError),
    "a hidden file": (lambda folder: (folder / ".hidden").touch(), ManifestError),
    "a folder": (lambda folder: (folder / "sub").mkdir(), ManifestError),
    "a link": (_linked("report.html"), ManifestError),
    "a link for the manifest": (_linked("manifest.json"), ManifestError),
    "a link for the signature": (_linked("manifest.sig"), SignatureError),
    "a pipe for the manifest": (_piped("manifest.json"), ManifestError),
    "a pipe for the signature": (_piped("manifest.sig"), SignatureError),
    "longer": (_written("report.html", lambda page: page + b" "), ChecksumError),
    "changed": (_written("report.html", lambda page: page[:-1] + b"x"), ChecksumError),
    "forged": (
        _written("manifest.json", lambda data: data.replace(b"example-2027", b"example-2028")),
        SignatureError,
    ),
    "a long signature": (_written("manifest.sig", lambda mark: mark + b"x"), SignatureError),
    "a huge manifest": (
        _written("manifest.json", lambda data: b" " * (16 * 2**20 + 1)), ManifestError
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMS)
def test_a_folder_that_was_tampered_with_is_refused(folder, name):
    harm, error = HARMS[name]
    harm(folder)
    with pytest.raises(error):
        verify(folder)
    with pytest.raises(error) as told:
        load_release(folder)
    if name in ("longer", "no report", "no signature", "a link", "forged"):
        assert str(told.value).endswith(GET_AGAIN)
    with pytest.raises(error) as plain:  # a curator's own folder is nobody's to send again
        verify(folder, then="")
    assert GET_AGAIN not in str(plain.value)


def test_a_folder_in_the_making_is_no_release(folder):
    hidden = folder.rename(folder.with_name(".staging-1"))
    with pytest.raises(ManifestError):
        verify(hidden)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release_id": "another"}, "release_id"), ({"population": "another"}, "population"),
        ({"epsilon": "0.5"}, "epsilon"), ({"delta": "0"}, "delta"),
        ({"cumulative_epsilon": "1"}, "cumulative epsilon"),
        ({"cumulative_delta": "1E-6"}, "cumulative delta"),
        ({"mechanisms": ["generator:privbayes"]}, "mechanisms"),
        ({"ledger_head": "5" * 64}, "ledger head"), ({"ledger_head": "c" * 64}, "ledger head"),
        ({"constraints_digest": "c" * 64}, "constraints digest"), ({"rows": 199}, "row count"),
        ({"columns": []}, "Arrow schema"),
        ({"unit": {"relation": "replace_one", "max_rows": 1, "id_column": None}}, "unit"),
    ],
)  # fmt: skip
def test_a_signed_manifest_that_contradicts_the_files_is_refused(folder, changes, words):
    _sign_again(folder, **changes)
    with pytest.raises(ManifestError, match=f"^{words}"):
        verify(folder)


@pytest.mark.parametrize(
    "text",
    ["1E99999999999999999999", "1E-99999999999999999999", "1E999999999", "9" * 70, "0." + "1" * 70],
)
def test_a_number_beyond_all_measure_is_malformed_and_no_crash(folder, text):
    """No Decimal holds such an exponent, and no memory such a whole number."""
    _sign_again(folder, epsilon=text)
    with pytest.raises(ManifestError, match="epsilon"):
        verify(folder)


@pytest.mark.parametrize("text", ["0", "1.2", "1E-6", "1.00001E-18", "123456789012.123456789012"])
def test_decimal_text_of_costs_is_read_exactly(text):
    assert decimal_of(text, what="epsilon") == Decimal(text)


def test_rows_of_another_certificate_or_of_no_parquet_are_refused(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    first, facts = release_example.example_contents(work)
    rows = (work / "synthetic.parquet").read_bytes()
    second, _ = release_example.example_contents(
        work, release_example.example_certificate(verdict="use with care")
    )
    key = release_example.example_key(tmp_path)
    for name, files in (
        ("mixed", {**second, "synthetic.parquet": rows}),
        ("text", {**first, "synthetic.parquet": b"text"}),
    ):
        build_folder(tmp_path / name, files=files, facts=facts, key=key)
        with pytest.raises(ManifestError, match="Parquet"):
            verify(tmp_path / name)


@pytest.mark.parametrize("name", ["synthetic.parquet", "certificate.json", "schema.json"])
def test_a_signed_folder_without_a_required_file_is_refused(folder, name):
    (folder / name).unlink()
    files = json.loads((folder / "manifest.json").read_bytes())["files"]
    _sign_again(folder, files={key: entry for key, entry in files.items() if key != name})
    with pytest.raises(ManifestError, match=name):
        verify(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"note": "text"}, "note"), ({"format": "other"}, "dpiw-release"),
        ({"format_version": 2}, "format_version: expected 1"), ({"key_id": "0" * 16}, "key_id"),
        ({"public_key": "0"}, "public_key"), ({"files": {}}, "files"), ({"files": []}, "files"),
        ({"files": {"../x": {"size": 1, "sha256": "a" * 64}}}, "x"),
        ({"files": {"x": {"size": "1", "sha256": "a" * 64}}}, "'x'.size"),
        ({"files": {"x": {"size": 1, "sha256": "a"}}}, "'x'.sha256"),
        ({"files": {"x": {"size": 1}}}, "sha256"), ({"rows": -1}, "rows"), ({"rows": 1.5}, "rows"),
        ({"previous": "x"}, "previous"), ({"published_at": "2027-01-31"}, "published_at"),
        ({"epsilon": "1,0"}, "epsilon"), ({"mechanisms": [1]}, "mechanisms"),
        ({"versions": {"dpiw": 1}}, "versions"),
        ({"columns": [{"name": "a", "type": "b", "nullable": 1}]}, "columns"),
    ],
)  # fmt: skip
def test_a_malformed_manifest_is_refused(published, changes, words):
    value = json.loads((published / "manifest.json").read_bytes()) | changes
    with pytest.raises(ManifestError, match=words):
        Manifest.from_bytes(document_json(value))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", ".hidden", "a b", "é", "manifest.json", "manifest.sig", "x" * 101],
)
def test_inadmissible_file_names(name):
    with pytest.raises(ManifestError):
        check_file_name(name)


def test_a_manifest_reads_back_as_it_was_written(published):
    data = (published / "manifest.json").read_bytes()
    manifest = Manifest.from_bytes(data)
    assert manifest.to_bytes() == data
    chained = replace(manifest, facts=replace(manifest.facts, previous=manifest.digest))
    assert Manifest.from_bytes(chained.to_bytes()) == chained
    assert chained.digest != manifest.digest
