"""`dpiw ledger register --spec`: what is registered is what the spec promises, or nothing is."""

import dataclasses
import shlex
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from dpiw.cli.main import main
from dpiw.errors import LedgerConflictError, LedgerError, SpecError, UnsupportedRelationError
from dpiw.ledger import Ledger
from dpiw.ledger.location import CHARGED_THERE
from dpiw.plan.spec import load_spec
from dpiw.run.declared import check_registered
from tests.support.ledger import terms
from tests.support.whole_runs import draw, once, prepared, publish_run

BUDGET = ("--epsilon", "7", "--delta", "1e-4")


@pytest.fixture
def unregistered(workplace, monkeypatch):
    """A spec whose ledger is not there yet, and its curator beside it."""
    workplace.ledger.unlink()
    monkeypatch.chdir(workplace.root)
    return workplace


def register(*words):
    return main(["ledger", "register", *words])


def of_people(place, unit):
    text = place.spec.read_text()
    schema = place.root / "schema.yaml"
    schema.write_text(
        schema.read_text().replace("columns:", "columns:\n  - {name: who, role: identifier}")
    )
    place.spec.write_text(f"{text}\nunit: {unit}\n")


def test_terms_are_the_spec_s(unregistered, capsys):
    of_people(unregistered, "{id_column: who, max_rows: 3}")
    assert register("--spec", "release.yaml", *BUDGET) == LedgerError.exit_code
    assert register("--spec", "release.yaml", *BUDGET, "--create") == 0
    spec = load_spec(unregistered.spec)
    ledger = Ledger.open(unregistered.ledger)
    check_registered(spec, ledger)  # a release is not refused for its terms
    assert ledger.population("town").protects(spec.privacy_unit)
    assert f"made ledger state/ledger.sqlite; {CHARGED_THERE}" in capsys.readouterr().out
    assert register("--spec", "release.yaml", *BUDGET) == 0


def test_a_spec_names_its_ledger(unregistered, capsys, says):
    register("--spec", "release.yaml", *BUDGET, "--create")
    capsys.readouterr()
    told = []
    for named in ("release.yaml", "state/ledger.sqlite"):
        for command in ("show", "verify"):
            told.append(says("ledger", command, "--ledger", named))
    assert told[:2] == told[2:]
    assert all(told)
    (unregistered.root / "typo.yaml").write_text("nmae: 1\n")
    assert "typo.yaml" in says("ledger", "show", "--ledger", "typo.yaml", code=SpecError.exit_code)


def test_a_ledger_that_is_named_like_a_spec_is_one_by_its_url(unregistered, capsys):
    Ledger.create("state/books.yml").register(terms(epsilon=Decimal(7), delta=Decimal("1e-4")))
    assert main(["ledger", "show", "--ledger", "sqlite:///state/books.yml"]) == 0
    typed = ("town", *BUDGET, "--relation", "add_or_remove_one", "--ledger")
    assert register(*typed, "sqlite:///state/books.yml") == 0
    for mistyped in ("release.yaml", "releese.yaml"):
        assert register(*typed, mistyped, "--create") == SpecError.exit_code
    assert not (unregistered.root / "releese.yaml").exists()
    for secret in ("u:secret@host.yaml", "postgresql+psycopg://u:se/cret@host.yaml"):
        for command in ("show", "verify"):
            assert main(["ledger", command, "--ledger", secret]) == LedgerError.exit_code
    output = capsys.readouterr()
    assert "cret" not in output.out + output.err


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("city", "NAME"), ("--relation replace_one", "--relation"), ("--max-rows 3", "--max-rows"),
        ("--id-column who", "--id-column"), ("--ledger other.sqlite", "--ledger"),
        ("--epsilon 0.1", "epsilon=0.1"),  # it pays for no release
    ],
)  # fmt: skip
def test_what_a_spec_states_is_not_typed_as_well(unregistered, capsys, typed, told):
    words = ("--spec", "release.yaml", *BUDGET, *typed.split(), "--create")
    if not typed.startswith("--"):
        words = (typed, *words[:-2], "--create")
    assert register(*words) == SpecError.exit_code
    assert told in capsys.readouterr().err
    assert not unregistered.ledger.exists()
    assert not Path("other.sqlite").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("population: town", "unit: {id_column: who}\npopulation: town"),  # no dictionary has it
        # As a closed folder, which root may enter: a name that no disk takes, which nobody may.
        ("publish_to: state/releases", f"publish_to: {'x' * 300}"),
    ],
)
def test_a_spec_that_cannot_be_looked_into_registers_nothing(unregistered, old, new):
    unregistered.rewrite(old, new)
    assert register("--spec", "release.yaml", *BUDGET, "--create") == SpecError.exit_code
    assert not unregistered.ledger.exists()


@pytest.mark.parametrize("absent", ["town", "--ledger", "--relation"])
def test_without_a_spec_all_is_typed(unregistered, absent):
    words = ["town", "--ledger=state/ledger.sqlite", "--relation=replace_one"]
    kept = [word for word in words if not word.startswith(absent)]
    with pytest.raises(SystemExit) as end:
        register(*kept, *BUDGET, "--create")
    assert end.value.code == 2
    assert not unregistered.ledger.exists()


@pytest.fixture
def lost(workplace, kept, monkeypatch):
    """A release is published, and the folder with its ledger is lost; keys and release are not."""
    workplace.write_spec(weights="none")
    workplace.rewrite("state: state\n", "state: ops\nledger: lost/l.sqlite\n")
    (workplace.root / "lost").mkdir(mode=0o700)
    workplace.ledger.rename(workplace.root / "lost" / "l.sqlite")
    monkeypatch.chdir(workplace.root)
    once(workplace, kept, lambda: publish_run(workplace.spec))
    shutil.rmtree(workplace.root / "lost")
    shutil.rmtree(workplace.root / "ops", ignore_errors=True)
    return workplace


AS_CERTIFIED = ("--spec", "release.yaml", "--epsilon", "5", "--delta", "1e-4")


def typed_after(text, command, end):
    """The words of a command that a message names, for `main`."""
    typed = text[text.index(f"dpiw {command}") :].partition(end)[0]
    for letter in ("epsilon E", "delta D", "reads N"):
        typed = typed.replace(letter, f"{letter.split()[0]} 0")
    return shlex.split(typed)[1:]


@pytest.mark.slow
def test_a_lost_ledger_is_not_begun_again_with_other_terms(lost, capsys):
    """What the releases' certificates name is for life; the commands that are named recover it."""
    for other, term in (
        ("--epsilon 6", "epsilon"), ("--delta 2e-4", "delta"),
        ("--composition renyi", "composition, renyi"),
        ("--max-unpaid-reads 99", "max_unpaid_reads"),
    ):  # fmt: skip
        typed = [*AS_CERTIFIED, *other.split(), "--create"]
        assert register(*typed) == SpecError.exit_code
        said = capsys.readouterr().err
        assert f"({term})" in said
        assert not (lost.root / "lost").exists()
    assert main(typed_after(said, "ledger register", "; then: ")) == 0
    assert main(typed_after(said, "ledger recover", ". If these")) == 0
    assert Ledger.open("lost/l.sqlite").spent("town").epsilon == 2


def test_with_the_same_terms_it_says_what_must_be_recovered(lost, capsys):
    assert register(*AS_CERTIFIED, "--create") == 0
    said = capsys.readouterr().out
    assert main(typed_after(said, "ledger recover", " (--key once")) == 0
    capsys.readouterr()
    lost.write_spec(population="village")  # a release of other people hinders nobody
    assert register("--spec", "release.yaml", *BUDGET, "--create") == 0
    assert "recover" not in capsys.readouterr().out


def test_a_folder_that_is_no_release_leaves_the_terms_unknown(unregistered, capsys):
    (unregistered.releases / "torn").mkdir(parents=True)
    assert register("--spec", "release.yaml", *BUDGET, "--create") == SpecError.exit_code
    assert "publish_to: releases/torn" in capsys.readouterr().err
    assert not unregistered.ledger.exists()


def test_releases_that_a_ledger_with_other_terms_does_not_take_say_how_to_go_on(lost, says):
    by_hand = ("town", "--ledger", "lost/l.sqlite", "--relation", "add_or_remove_one", "--create")
    assert register(*by_hand, "--epsilon", "6", "--delta", "1e-4") == 0
    recover = [
        "ledger", "recover", "--ledger", "lost/l.sqlite", "--releases", str(lost.releases),
        "--key", "state/keys/test.pub", "--loss-epsilon", "0", "--loss-delta", "0",
        "--loss-reads", "0",
    ]  # fmt: skip
    said = says(*recover, code=LedgerConflictError.exit_code)
    shutil.move("lost/l.sqlite", "wrong.sqlite")
    assert main(typed_after(said, "ledger register", ", and then")) == 0
    assert main(recover) == 0
    Ledger.open("wrong.sqlite").register(
        dataclasses.replace(Ledger.open("lost/l.sqlite").population("town"), name="village")
    )
    recover[3] = "wrong.sqlite"
    assert main(recover) == LedgerConflictError.exit_code


@pytest.fixture
def drawn(workplace, monkeypatch):
    """A run whose draw is in the workspace, unpublished, and whose ledger is lost."""
    workplace.write_spec(weights="none")
    monkeypatch.chdir(workplace.root)
    run = draw(prepared(workplace))
    for path in workplace.root.glob("state/ledger.sqlite*"):
        path.unlink()
    return run


def test_a_run_whose_record_is_torn_is_not_to_be_moved(drawn, capsys):
    (drawn.directory / "run.json").write_text("{")
    assert register(*AS_CERTIFIED, "--create") == SpecError.exit_code
    assert "move" not in capsys.readouterr().err


def test_draws_that_a_new_ledger_does_not_know_are_told(drawn, workplace, capsys):
    assert register(*AS_CERTIFIED, "--create") == 0
    said = capsys.readouterr().out
    assert f"state: its workspace holds draws of this population ({drawn.key[:12]})" in said
    command = typed_after(said, "ledger recover", "\n")
    command[command.index("--loss-epsilon") + 1] = "2"
    assert main(command) == 0
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2


def test_another_name_is_not_offered_where_a_ledger_was_lost(lost, says):
    """A second budget for the same people, beside a registration that nothing was drawn from."""
    by_hand = ("town", "--ledger", "lost/l.sqlite", "--relation", "replace_one", "--create")
    assert register(*by_hand, "--epsilon", "5", "--delta", "1e-4") == 0
    assert "OTHER" not in says("plan", "release.yaml", code=UnsupportedRelationError.exit_code)
