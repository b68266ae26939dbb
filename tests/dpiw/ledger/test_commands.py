"""`dpiw ledger`: what the command line tells, does and refuses."""

import argparse
import dataclasses
import json
import re
import subprocess
import sys

import pytest

from dpiw.cli.ledger import add_ledger_commands
from dpiw.errors import LedgerError, LedgerTamperedError, SpecError
from dpiw.ledger import Ledger
from dpiw.ledger.accounts import column_label, told_column
from dpiw.privacy.units import PrivacyUnit
from tests.support.ledger import ADD, MANIFEST, REPLACE, RUN, adult, ask, cli, digest, finish, told


def test_the_command_line_tells_and_does(store_url, capsys, tmp_path):
    path = store_url
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one"]
    register = ["register", "adult", *terms, "--max-rows", "1", "--ledger", path]
    with pytest.raises(LedgerError, match="to begin one"):
        cli(*register)
    assert cli(*register, "--create")[0] == 0
    assert "registered before, with the same terms; nothing was changed" in told(*register)
    assert "no runs" in cli("show", "--ledger", path)[1]
    ledger = Ledger.open(path)
    ledger.reserve(**ask())
    held = "delta=1E-6 (runs that hold their part, and drew nothing: 1)\n"
    assert held in cli("show", "--ledger", path)[1]
    (tmp_path / "workspace" / "adult" / RUN[:32]).mkdir(parents=True)
    void = ("void", RUN[:12], "--attempt", "1", "--ledger", path, "--state", str(tmp_path))
    assert told(*void).startswith("voided; population adult has epsilon=2, delta=1E-5 left")
    head = ledger.head()
    assert "was voided before; nothing was changed" in told(*void)
    assert ledger.head() == head
    ledger.reserve(**ask(attempt=2))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    text = cli("show", "--ledger", path)[1]
    for part in (
        "population adult  (add_or_remove_one, max_rows=1, id_column=None, composition basic)",
        "budget     epsilon=2, delta=1E-5",
        "spent      epsilon=0.5, delta=1E-6\n",
        "remaining  epsilon=1.5, delta=9E-6",
        "2027-q1",
        "published",
        "generator=committed weights=committed",
        "generator=voided weights=voided",
    ):
        assert part in text
    later = cli("show", "--since", "2999-01-01", "--ledger", path)[1]
    assert "1 run has no entry since 2999-01-01, and stays unseen: no --since" in later
    assert "no entry since" not in text
    facts = json.loads(cli("show", "--json", "--run", RUN, "--ledger", path)[1])
    run = facts["populations"][0]["runs"][0]
    assert run["manifest_digest"] == MANIFEST
    held = [one["held"] for one in run["attempts"]]
    assert held == ["epsilon=0, delta=0", "epsilon=0.5, delta=1E-6"]
    head = ledger.head()
    good, bad = head.hash, digest(5)
    assert cli("verify", "--ledger", path, "--head", good)[0] == 0
    with pytest.raises(LedgerTamperedError):
        cli("verify", "--ledger", path, "--head", bad)
    parser = argparse.ArgumentParser()
    add_ledger_commands(parser.add_subparsers())
    arguments = parser.parse_args(["ledger", "verify", "--ledger", path])
    assert arguments.handler(arguments) == 0
    assert capsys.readouterr().out.startswith(f"ok: {head.seq} entries, head {good}")


def test_the_command_line_registers_a_unit_of_several_rows(tmp_path):
    path = str(tmp_path / "ledger")
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one", "--create"]
    words = ["register", "adult", *terms, "--max-rows", "3", "--ledger", path]
    with pytest.raises(SpecError, match="id_column"):
        cli(*words)
    text = cli(*words, "--id-column", "person")[1]
    promised, stated, _ = text.splitlines()
    assert promised.endswith("; a person is a value of person, with at most 3 row(s); for life")
    assert 'relation: add_or_remove_one, unit: {id_column: "person", max_rows: 3}; any' in stated
    assert "max_rows=3, id_column=person" in cli("show", "--ledger", path)[1]
    unit = PrivacyUnit(relation=ADD, max_rows=3, id_column="person")
    known = Ledger.open(path).population("adult")
    assert known.protects(unit)
    for change in ({"id_column": "visit"}, {"max_rows": 2}, {"relation": REPLACE}):
        assert not known.protects(dataclasses.replace(unit, **change))
    assert not known.protects(PrivacyUnit(relation=ADD))


def test_a_unit_is_told_by_the_name_that_was_typed(tmp_path):
    """A ledger holds no free text: a name with a space stands there as its digest."""
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one", "--create"]
    words = ["register", "adult", *terms, "--ledger", str(tmp_path / "ledger")]
    for _ in range(2):  # typed again, too
        text = told(*words, "--id-column", "Patient ID")
        assert "a person is a value of Patient ID (which stands there as sha256:61e3897b" in text
    shown = cli("show", "--ledger", str(tmp_path / "ledger"))[1]
    assert re.search(r"id_column=sha256:61e3897b\w{56} \(SHA-256 of the column's name: ", shown)
    known = Ledger.open(tmp_path / "ledger").population("adult")
    assert known.protects(PrivacyUnit(relation=ADD, id_column="Patient ID"))
    assert not known.protects(PrivacyUnit(relation=ADD, id_column="Patient"))
    for plain in (column_label("person"), "None", "sha256:61e3"):  # no digest
        assert told_column(plain) == plain


@pytest.mark.parametrize("typed", ["ledgr.sqlite", "ledger.sqlit", "ledger"])
def test_a_misspelt_ledger_is_answered_by_the_near_name(tmp_path, typed):
    Ledger.create(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerError) as refused:
        cli("show", "--ledger", str(tmp_path / typed))
    assert str(refused.value).endswith("no ledger is there; did you mean 'ledger.sqlite'?")


def test_the_command_line_refuses_clearly(ledger):
    path = ledger.location
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    for head in ("x", f"{digest(5)}:", f"7:{digest(5)}", f"{digest(5)}:a", digest(5).upper() + "A"):
        with pytest.raises(SpecError):
            cli("verify", "--ledger", path, "--head", head)
    terms = ("--epsilon", "1,0", "--delta", "0", "--relation", "replace_one")
    with pytest.raises(SpecError, match="epsilon"):
        cli("register", "c", *terms, "--ledger", path)
    with pytest.raises(SpecError):
        cli("show", "--ledger", path, "--run", RUN, "--population", "beta")
    assert '"name": "beta"' in cli("show", "--ledger", path, "--population", "beta", "--json")[1]


def test_the_command_line_module_loads_no_database_library():
    code = "import sys, dpiw.cli.ledger; sys.exit('sqlalchemy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
