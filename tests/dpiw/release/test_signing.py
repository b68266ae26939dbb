import hashlib
import pickle
import shutil
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from dpiw.errors import ManifestError, ReleaseError, SignatureError
from dpiw.release import signing


def _write_key(path, key, encryption):
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)  # type: ignore[attr-defined]
    path.write_bytes(pem)
    path.chmod(0o600)
    return path


def test_a_signature_verifies_under_its_own_key_and_context_only(tmp_path):
    one = signing.load_private_key(signing.create_key_pair(tmp_path, "one")[0])
    public = signing.load_public_key(tmp_path / "one.pub")
    other = signing.load_public_key(signing.create_key_pair(tmp_path, "other")[1])
    signature = one.sign(b"text")
    assert len(signature) == 64
    assert signature == one.sign(b"text")
    assert public == one.public
    public.check(b"text", signature)
    public.check(b"text", signature, context=signing.MANIFEST_CONTEXT)
    for key, message, mark, context in (
        (other, b"text", signature, signing.MANIFEST_CONTEXT),
        (public, b"text ", signature, signing.MANIFEST_CONTEXT),
        (public, b"text", signature[:-1], signing.MANIFEST_CONTEXT),
        (public, b"text", b"", signing.MANIFEST_CONTEXT),
        (public, b"text", signature, b"another-v1\n"), (public, b"text", signature, b""),
    ):  # fmt: skip
        with pytest.raises(SignatureError, match=key.key_id):
            key.check(message, mark, context=context)


def test_key_files_have_strict_modes_and_are_never_overwritten(tmp_path):
    private, public = signing.create_key_pair(tmp_path, "k")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    before = private.read_bytes()
    for folder in (tmp_path, tmp_path, tmp_path / "absent"):
        with pytest.raises(ReleaseError):
            signing.create_key_pair(folder, "k")
        public.unlink(missing_ok=True)
    assert private.read_bytes() == before
    assert not public.exists()


def test_key_id_is_the_digest_of_the_raw_key(tmp_path):
    public = signing.load_public_key(signing.create_key_pair(tmp_path, "k")[1])
    assert public.key_id == hashlib.sha256(public.raw).hexdigest()[:16]
    assert signing.PublicKey.from_hex(public.raw.hex()) == public
    for text in (public.raw.hex().upper(), public.raw.hex()[:-2], "zz" * 32, 3):
        with pytest.raises(ManifestError):
            signing.PublicKey.from_hex(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_private_key_others_can_reach_is_refused(tmp_path, mode):
    private, _ = signing.create_key_pair(tmp_path, "k")
    private.chmod(mode)
    with pytest.raises(ReleaseError, match=f"{mode:04o}"):
        signing.load_private_key(private)


def test_other_key_files_are_refused(tmp_path):
    foreign = ec.generate_private_key(ec.SECP256R1())
    mine = ed25519.Ed25519PrivateKey.generate()
    _write_key(tmp_path / "ec.key", foreign, NoEncryption())
    _write_key(tmp_path / "secret.key", mine, BestAvailableEncryption(b"x"))
    _, public = signing.create_key_pair(tmp_path, "mixed")  # of mode 0644, which is right for it
    for private in ("ec.key", "secret.key", "absent.key", public.name):
        with pytest.raises(ReleaseError):
            signing.load_private_key(tmp_path / private)
    (tmp_path / "text.pub").write_text("text")
    pem = foreign.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "ec.pub").write_bytes(pem)
    for name in ("absent.pub", "text.pub", "ec.pub", "nowhere/curator.pub"):
        with pytest.raises(ReleaseError):
            signing.load_public_key(tmp_path / name)


def test_a_key_that_is_lost_is_told_without_its_folder(tmp_path, monkeypatch):
    """A worker raises it, and Prefect keeps the text: no place is named."""
    folder, elsewhere = tmp_path / "hidden" / "vault", tmp_path / "here"
    folder.mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    private, public = signing.create_key_pair(folder, "mine")
    private.unlink()
    for half in (public, None):
        with pytest.raises(ReleaseError) as refused:
            signing.load_private_key(private)
        told = str(refused.value)
        assert ("mine.pub is there" in told) == (half is not None)
        assert not any(part in told for part in ("hidden", "vault", "..", str(tmp_path)))
        public.unlink(missing_ok=True)


def test_a_private_key_does_not_show_or_pickle_itself(tmp_path):
    path, _ = signing.create_key_pair(tmp_path, "k")
    key = signing.load_private_key(path)
    assert repr(key) == f"PrivateKey(key_id='{key.public.key_id}')"
    with pytest.raises(ReleaseError):
        pickle.dumps(key)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_verifies_a_signature_without_dpiw(tmp_path):
    private, public = signing.create_key_pair(tmp_path, "k")
    (tmp_path / "m").write_bytes(signing.MANIFEST_CONTEXT + b"text")
    (tmp_path / "s").write_bytes(signing.load_private_key(private).sign(b"text"))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(public), "-rawin"]
    command += ["-in", str(tmp_path / "m"), "-sigfile", str(tmp_path / "s")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (tmp_path / "m").write_bytes(signing.MANIFEST_CONTEXT + b"Text")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
