from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpiw.analysis.release import load_release
from dpiw.cli.main import main as dpiw
from dpiw.data.documents import decimal_of, document_json
from dpiw.errors import ChecksumError, ManifestError, ReleaseError, SignatureError
from dpiw.release.manifest import Manifest, check_file_name
from dpiw.release.publication import build_folder
from dpiw.release.signing import (
    PrivateKey,
    create_key_pair,
    load_private_key,
    load_public_key,
)
from dpiw.release.verification import verify
from tests.dpiw.release.release_example import (
    PUBLISHED_AT,
    example_certificate,
    example_contents,
    example_frame,
    example_key,
    publish_example,
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_example(tmp_path_factory.mktemp("published"))


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copy(published.parent / "curator.pub", tmp_path)
    shutil.copy(published.parent / "curator.key", tmp_path)
    return Path(shutil.copytree(published, tmp_path / "release"))


def _sign_again(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Play a curator who signs a manifest that should not be."""
    value = json.loads((folder / "manifest.json").read_bytes())
    change(value)
    data = document_json(value)
    (folder / "manifest.json").write_bytes(data)
    key = load_private_key(folder.parent / "curator.key")
    (folder / "manifest.sig").write_bytes(key.sign(data))


def test_a_whole_release_verifies_with_and_without_a_pinned_key(published: Path) -> None:
    pinned = verify(published, public_key=published.parent / "curator.pub")
    assert pinned.pinned
    assert pinned.certificate == example_certificate()
    assert pinned.manifest.facts.rows == 200
    assert pinned.manifest.facts.published_at == PUBLISHED_AT
    assert f"{pinned.key_id} (the expected key)" in pinned.statement
    loose = verify(published)
    assert not loose.pinned
    assert "not pinned" in loose.statement


def test_another_key_is_refused(published: Path, tmp_path: Path) -> None:
    _, foreign = create_key_pair(tmp_path, "other")
    with pytest.raises(SignatureError):
        verify(published, public_key=foreign)


def test_one_of_several_keys_must_have_signed(published: Path, tmp_path: Path) -> None:
    signer = published.parent / "curator.pub"
    first, second = (create_key_pair(tmp_path, name)[1] for name in ("one", "two"))
    for keys in ([signer], [first, signer], (signer, first, second)):
        release = verify(published, public_key=keys)
        assert (release.pinned, release.key_id) == (True, load_public_key(signer).key_id)
    ids = ", ".join(load_public_key(key).key_id for key in (first, second))
    with pytest.raises(SignatureError, match=f"by none of the given keys, id {ids}: "):
        verify(published, public_key=[first, second, first])
    with pytest.raises(SignatureError, match="no public key was given"):
        verify(published, public_key=[])
    with pytest.raises(ReleaseError, match=r"three\.pub"):
        verify(published, public_key=[signer, tmp_path / "three.pub"])


def test_a_key_that_signed_must_be_the_one_that_is_named(folder: Path) -> None:
    """Two curators are known; one signs what names the other as its signer."""
    foreign = example_key(folder.parent, "other")

    def change(value: dict[str, Any]) -> None:
        value["public_key"], value["key_id"] = foreign.public.raw.hex(), foreign.public.key_id

    _sign_again(folder, change)
    keys = [folder.parent / name for name in ("other.pub", "curator.pub")]
    with pytest.raises(SignatureError, match="names another key"):
        verify(folder, public_key=keys)


def test_a_forger_without_the_key_fails_where_the_key_is_pinned(folder: Path) -> None:
    forger = example_key(folder.parent, "forger")

    def change(value: dict[str, Any]) -> None:
        value["public_key"], value["key_id"] = forger.public.raw.hex(), forger.public.key_id

    _sign_again(folder, change)
    (folder / "manifest.sig").write_bytes(forger.sign((folder / "manifest.json").read_bytes()))
    assert not verify(folder).pinned  # whole, but by anyone: the statement says so
    with pytest.raises(SignatureError):
        verify(folder, public_key=folder.parent / "curator.pub")


def test_the_pinned_key_must_be_the_key_the_manifest_names(folder: Path) -> None:
    foreign = example_key(folder.parent, "other")

    def change(value: dict[str, Any]) -> None:
        value["public_key"], value["key_id"] = foreign.public.raw.hex(), foreign.public.key_id

    _sign_again(folder, change)
    with pytest.raises(SignatureError, match="names another key"):
        verify(folder, public_key=folder.parent / "curator.pub")
    with pytest.raises(SignatureError):
        verify(folder)


@pytest.mark.nightly_cases("[1]")
@pytest.mark.parametrize("step", [1, 5])
def test_every_flipped_bit_is_rejected(step: int, folder: Path) -> None:
    """All 512 bits of the signature; every 3rd byte of the manifest; 80 bits of each other file."""
    rng = np.random.default_rng(5)
    public = folder.parent / "curator.pub"
    flips: list[tuple[Path, int]] = []
    for path in sorted(folder.iterdir()):
        bits = 8 * path.stat().st_size
        if path.name == "manifest.sig":
            places = np.arange(bits)
        elif path.name == "manifest.json":
            places = np.arange(0, bits, 24) + rng.integers(0, 8, len(np.arange(0, bits, 24)))
        else:
            places = rng.choice(bits, 80, replace=False)
        flips += [(path, int(place)) for place in places]
    for number, (path, place) in enumerate(flips[::step]):
        whole = path.read_bytes()
        broken = bytearray(whole)
        broken[place // 8] ^= 1 << (place % 8)
        path.write_bytes(bytes(broken))
        with pytest.raises((SignatureError, ManifestError, ChecksumError)):
            verify(folder, public_key=public if number % 2 else None)
        path.write_bytes(whole)
    verify(folder, public_key=public)
    assert len(flips) > 1000


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("manifest.json", ManifestError),
        ("manifest.sig", SignatureError),
        ("synthetic.parquet", ManifestError),
        ("report.html", ManifestError),
    ],
)
def test_a_missing_file_is_noticed(folder: Path, name: str, error: type[Exception]) -> None:
    (folder / name).unlink()
    with pytest.raises(error, match=name):
        verify(folder)


def test_files_beside_the_manifest_are_noticed(folder: Path) -> None:
    for name in ("extra.txt", ".hidden"):
        (folder / name).write_text("x")
        with pytest.raises(ManifestError, match="not listed"):
            verify(folder)
        (folder / name).unlink()
    (folder / "sub").mkdir()
    with pytest.raises(ManifestError, match="sub"):
        verify(folder)


def test_a_link_is_no_file(folder: Path) -> None:
    (folder / "report.html").rename(folder.parent / "elsewhere.html")
    (folder / "report.html").symlink_to(folder.parent / "elsewhere.html")
    with pytest.raises(ManifestError, match="regular file"):
        verify(folder)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig"])
def test_a_pipe_or_link_instead_of_the_manifest_is_refused(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    with pytest.raises((ManifestError, SignatureError), match=name):
        verify(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises((ManifestError, SignatureError)):
        verify(folder)


def test_size_and_digest_are_compared(folder: Path) -> None:
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").write_bytes(page + b" ")
    with pytest.raises(ChecksumError, match=r"report\.html: its size"):
        verify(folder)
    (folder / "report.html").write_bytes(page[:-1] + b"x")
    with pytest.raises(ChecksumError, match=r"report\.html: its SHA-256"):
        verify(folder)


def changed(folder: Path) -> None:
    (folder / "certificate.json").write_bytes((folder / "certificate.json").read_bytes() + b" ")


def missing(folder: Path) -> None:
    (folder / "report.html").unlink()


def extra(folder: Path) -> None:
    (folder / "more.txt").write_text("x")


def linked(folder: Path) -> None:
    (folder / "report.html").rename(folder.parent / "report.html")
    (folder / "report.html").symlink_to(folder.parent / "report.html")


def forged(folder: Path) -> None:
    data = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(data.replace(b"example-2027", b"example-2028"))


@pytest.mark.parametrize("harm", [changed, missing, extra, linked, forged])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_reader_is_told_what_to_do_about_a_folder_that_was_tampered_with(
    folder: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None], pinned: bool
) -> None:
    harm(folder)
    key = folder.parent / "curator.pub" if pinned else None
    advice = "do not use this folder: get it again from its publisher"
    with pytest.raises(ReleaseError, match=f"{advice}$"):
        load_release(folder, key)
    for command in ("verify", "describe"):
        assert dpiw([command, str(folder), *(["--key", str(key)] if pinned else [])]) > 50
        assert advice in capsys.readouterr().err
    with pytest.raises(ReleaseError) as plain:  # a curator's own folder is nobody's to send again
        verify(folder, public_key=key, then="")
    assert advice not in str(plain.value)


def test_what_is_no_release_is_not_to_be_got_again(folder: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        verify(folder / "sub")
    assert "get it again" not in str(caught.value)


def test_a_folder_in_the_making_is_no_release(folder: Path) -> None:
    hidden = folder.rename(folder.with_name(".staging-1"))
    with pytest.raises(ManifestError, match="never published"):
        verify(hidden)


def test_an_oversized_manifest_or_signature_is_not_read(folder: Path) -> None:
    signature = (folder / "manifest.sig").read_bytes()
    (folder / "manifest.sig").write_bytes(signature + b"x")
    with pytest.raises(SignatureError, match="larger than 64"):
        verify(folder)
    (folder / "manifest.json").write_bytes(b" " * (16 * 2**20 + 1))
    with pytest.raises(ManifestError, match="larger than"):
        verify(folder)


def test_error_kinds_have_distinct_exit_codes() -> None:
    kinds = (ReleaseError, ManifestError, ChecksumError, SignatureError)
    assert len({kind.exit_code for kind in kinds}) == 4
    assert 0 not in {kind.exit_code for kind in kinds}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release_id": "another"}, "release_id"),
        ({"population": "another"}, "population"),
        ({"epsilon": "0.5"}, "epsilon"),
        ({"delta": "0"}, "delta"),
        ({"cumulative_epsilon": "1"}, "cumulative epsilon"),
        ({"cumulative_delta": "1E-6"}, "cumulative delta"),
        ({"mechanisms": ["generator:privbayes"]}, "mechanisms"),
        ({"ledger_head": "5" * 64}, "ledger head"),
        ({"ledger_head": "c" * 64}, "ledger head"),
        ({"constraints_digest": "c" * 64}, "constraints digest"),
        ({"rows": 199}, "row count"),
        ({"columns": []}, "Arrow schema"),
        ({"unit": {"relation": "replace_one", "max_rows": 1, "id_column": None}}, "unit"),
    ],
)
def test_a_signed_manifest_that_contradicts_the_files_is_refused(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    _sign_again(folder, lambda value: value.update(changes))
    with pytest.raises(ManifestError, match=f"^{words}.*disagree"):
        verify(folder)


@pytest.mark.parametrize(
    "text",
    ["1E99999999999999999999", "1E-99999999999999999999", "1E999999999", "9" * 70, "0." + "1" * 70],
)
def test_a_number_beyond_all_measure_is_malformed_and_no_crash(folder: Path, text: str) -> None:
    """No Decimal holds such an exponent, and no memory such a whole number."""
    _sign_again(folder, lambda value: value.update(epsilon=text))
    with pytest.raises(ManifestError, match="epsilon: expected a number"):
        verify(folder)


@pytest.mark.parametrize("text", ["0", "1.2", "1E-6", "1.00001E-18", "123456789012.123456789012"])
def test_decimal_text_of_costs_is_read_exactly(text: str) -> None:
    assert decimal_of(text, what="epsilon", error=ManifestError) == Decimal(text)


def test_a_footer_of_another_certificate_is_refused(tmp_path: Path) -> None:
    """The Parquet file of one release beside the certificate of another."""
    work = tmp_path / "work"
    work.mkdir()
    first = example_contents(work)
    rows = (work / "synthetic.parquet").read_bytes()
    second = example_contents(work, example_certificate(verdict="use with care"))
    build_folder(
        tmp_path / "mixed",
        files={**second.files, "synthetic.parquet": rows},
        facts=first.facts,
        key=example_key(tmp_path),
    )
    with pytest.raises(ManifestError, match="facts in the Parquet footer"):
        verify(tmp_path / "mixed")


@pytest.mark.parametrize("name", ["synthetic.parquet", "certificate.json", "schema.json"])
def test_a_signed_folder_without_a_required_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    _sign_again(folder, lambda value: value["files"].pop(name))
    with pytest.raises(ManifestError, match=f"{name}: every release holds it"):
        verify(folder)


def test_a_signed_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    contents = example_contents(work)
    files = {**contents.files, "synthetic.parquet": b"text"}
    build_folder(tmp_path / "r", files=files, facts=contents.facts, key=example_key(tmp_path))
    with pytest.raises(ManifestError, match="not readable as Parquet"):
        verify(tmp_path / "r")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"note": "text"}, "unknown key"),
        ({"format": "other"}, "dpiw-release"),
        ({"format_version": 2}, "dpiw-release"),
        ({"key_id": "0" * 16}, "key_id"),
        ({"public_key": "0"}, "public_key"),
        ({"files": {}}, "at least one"),
        ({"files": []}, "files"),
        ({"files": {"../x": {"size": 1, "sha256": "a" * 64}}}, "admissible"),
        ({"files": {"x": {"size": "1", "sha256": "a" * 64}}}, "'x'.size"),
        ({"files": {"x": {"size": 1, "sha256": "a"}}}, "'x'.sha256"),
        ({"files": {"x": {"size": 1}}}, "missing"),
        ({"files": {"x": 1}}, "object"),
        ({"rows": -1}, "rows"),
        ({"rows": 1.5}, "rows"),
        ({"ledger_head": 3}, "ledger_head"),
        ({"previous": "x"}, "previous"),
        ({"published_at": "2027-01-31"}, "published_at"),
        ({"published_at": 3}, "published_at"),
        ({"epsilon": "1,0"}, "epsilon"),
        ({"mechanisms": "text"}, "mechanisms"),
        ({"mechanisms": [1]}, "mechanisms"),
        ({"versions": {"dpiw": 1}}, "versions"),
        ({"columns": [{"name": "a", "type": "b"}]}, "nullable"),
        ({"columns": [{"name": "a", "type": "b", "nullable": 1}]}, "columns"),
    ],
)
def test_a_malformed_manifest_is_refused(
    published: Path, changes: dict[str, Any], words: str
) -> None:
    value = json.loads((published / "manifest.json").read_bytes()) | changes
    with pytest.raises(ManifestError, match=words):
        Manifest.from_bytes(document_json(value))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", ".hidden", "a b", "é", "manifest.json", "manifest.sig", "x" * 101],
)
def test_inadmissible_file_names(name: str) -> None:
    with pytest.raises(ManifestError, match="admissible"):
        check_file_name(name)


def test_a_manifest_reads_back_as_it_was_written(published: Path) -> None:
    data = (published / "manifest.json").read_bytes()
    manifest = Manifest.from_bytes(data)
    assert manifest.to_bytes() == data
    chained = replace(manifest, facts=replace(manifest.facts, previous=manifest.digest))
    assert Manifest.from_bytes(chained.to_bytes()) == chained
    assert chained.digest != manifest.digest


def test_the_same_inputs_give_the_same_folder(tmp_path: Path) -> None:
    folders = []
    (tmp_path / "key").mkdir()
    key: PrivateKey = example_key(tmp_path / "key")
    for name in ("one", "two"):
        work = tmp_path / name
        work.mkdir()
        contents = example_contents(work)
        build_folder(work / "built", files=contents.files, facts=contents.facts, key=key)
        folders.append({p.name: p.read_bytes() for p in (work / "built").iterdir()})
    assert folders[0] == folders[1]
    assert set(folders[0]) == {
        "synthetic.parquet", "certificate.json", "schema.json", "report.html", "croissant.json",
        "manifest.json", "manifest.sig",
    }  # fmt: skip
    assert len(example_frame()) == 200


def test_a_folder_without_its_signature_is_to_be_got_again(folder: Path) -> None:
    (folder / "manifest.sig").unlink()
    with pytest.raises(SignatureError, match="No such file or directory; do not use this folder: "):
        verify(folder)
