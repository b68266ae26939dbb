"""Timestamps of a head, by an authority of the test's own (`openssl ts`), without a network."""

import subprocess
from pathlib import Path

import pytest

from dpiw.errors import LedgerTamperedError, SignatureError, SpecError
from dpiw.ledger import Ledger
from tests.support.ledger import adult, spend, told
from tests.support.ledger import cli as ledger_command

CONFIGURATION = """
[tsa]
serial = {folder}/serial
default_policy = 1.2.3.4
digests = sha256
signer_digest = sha256
ess_cert_id_alg = sha256
"""
EXTENSIONS = "extendedKeyUsage=critical,timeStamping\nkeyUsage=critical,digitalSignature\n"


class Authority:
    """A CA and its timestamp authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "ts.cnf").write_text(CONFIGURATION.format(folder=folder))
        (folder / "ext.cnf").write_text(EXTENSIONS)
        (folder / "serial").write_text("01\n")
        make = ("req", "-newkey", "rsa:2048", "-nodes")
        self.openssl(*make, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
        self.openssl(*make, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=tsa")
        self.openssl(
            "x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-extfile", "ext.cnf", "-out", "tsa.pem",
        )  # fmt: skip

    def openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def stamp(self, request: Path) -> Path:
        response = request.with_suffix(".tsr")
        self.openssl(
            "ts", "-reply", "-config", "ts.cnf", "-section", "tsa", "-queryfile", str(request),
            "-signer", "tsa.pem", "-inkey", "tsa.key", "-out", str(response),
        )  # fmt: skip
        return response


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "one")


@pytest.fixture
def place(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(adult())
    spend(ledger, 1)
    return ledger


@pytest.mark.slow
def test_a_timestamp_is_checked_offline_against_the_chain(place, authority, tmp_path):
    request, ledger = tmp_path / "head.tsq", str(tmp_path / "ledger.sqlite")
    head = place.head()
    text = told("witness", "--ledger", ledger, "--request", str(request))
    assert text.splitlines()[0] == f"dpiw ledger head {head.hash}"
    response = authority.stamp(request)
    spend(place, 2)  # the chain goes on
    checked = ("--check", str(response), "--certificate")
    for name in ("ca.pem", "tsa.pem"):
        given = (*checked, str(authority.folder / name))
        if name == "ca.pem":
            assert f"entry {head.seq}, head {head.hash}" in told(
                "witness", "--ledger", ledger, *given
            )
    other = Ledger.create(tmp_path / "other" / "ledger.sqlite")
    with pytest.raises(LedgerTamperedError, match="lacks the head that was witnessed"):
        ledger_command(
            "witness", "--ledger", other.location, *checked, str(authority.folder / "ca.pem")
        )


@pytest.mark.slow
def test_what_is_no_timestamp_of_that_authority_is_refused(place, authority, tmp_path):
    request, ledger = tmp_path / "head.tsq", str(tmp_path / "ledger.sqlite")
    told("witness", "--ledger", ledger, "--request", str(request))
    response = authority.stamp(request)
    stranger = Authority(tmp_path / "stranger")
    certificate, good = str(authority.folder / "ca.pem"), response.read_bytes()
    flipped = bytearray(good)
    flipped[-20] ^= 1
    for bad, by in ((b"", certificate), (good[:200], certificate), (bytes(flipped), certificate),
                    (good, str(stranger.folder / "ca.pem")), (good, str(request))):  # fmt: skip
        response.write_bytes(bad)
        words = ("witness", "--ledger", ledger, "--check", str(response), "--certificate", by)
        with pytest.raises(SignatureError):
            ledger_command(*words)
    for words in (("--check", str(response)), ("--certificate", certificate),
                  ("--check", str(tmp_path / "none"), "--certificate", certificate)):  # fmt: skip
        with pytest.raises(SpecError):
            ledger_command("witness", "--ledger", ledger, *words)


def test_a_line_on_paper_is_checked_by_its_hash(place, tmp_path):
    ledger = str(tmp_path / "ledger.sqlite")
    head = told("witness", "--ledger", ledger).split()[3]
    spend(place, 2)
    assert told("verify", "--ledger", ledger, "--head", head).startswith("ok: 4 entries")
