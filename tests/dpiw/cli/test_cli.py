"""The command line: exit codes, clear lines, and nothing read that need not be."""

import json
import os

import pytest

from dpiw.cli.main import main
from dpiw.errors import (
    BudgetExceededError,
    LedgerError,
    SchemaError,
    SignatureError,
    SourceError,
    SpecError,
)
from dpiw.ledger import Ledger
from dpiw.release.verification import verify
from tests.support.whole_runs import once, publish_run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "state"


@pytest.fixture
def released(workplace, kept):
    once(workplace, kept, lambda: publish_run(workplace.spec))
    (folder,) = workplace.releases.iterdir()
    return folder


def test_plan_reads_no_data(workplace, capsys):
    workplace.source.unlink()
    assert main(["plan", str(workplace.spec)]) == 0
    assert "no data was read" in capsys.readouterr().out
    assert main(["plan", str(workplace.spec), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["epsilon"] == "2"
    assert {e["type"] for s in plan["stages"] for e in s["events"]} == {"gaussian"}
    assert not (workplace.root / "state" / "workspace").exists()


def test_a_header_that_somebody_types_is_compared_for_nothing(workplace, capsys):
    """A release could tell only by a read of the table, which counts for life."""
    workplace.source.unlink()
    call = ["plan", str(workplace.spec), "--header"]
    assert main([*call, "\ufeffage,income,region,ill\r"]) == 0
    assert "header: its 4 names are those of the data dictionary" in capsys.readouterr().out
    for line, hint in (
        ("age,incomme,region,ill", "missing in the file: income; income stands there but for a"),
        ("age;income;region;ill", "holds the declared names between ';'; the spec says"),
        ("35,canary,south,true", "missing in the file: age, income, region, ill; the first line"),
        ("35,canary,ill,true", "missing in the file: age, income, region; the first line"),
        ("age,incomme,region,ill", "but for a letter or two: names are exact; not declared: incom"),
        ("age,income,region,ill,x,,x", "does not declare (x, one without a name); declare them"),
        ("age,income,region,ill,age,x", "occur more than once in the file: age"),
    ):
        assert main([*call, line]) == SourceError.exit_code
        shown = capsys.readouterr().err
        assert hint in shown
        assert "canary" not in shown  # where a table has no names, its first line is a row
    assert Ledger.open(workplace.ledger).account("town").unpaid_reads == 0


def test_a_header_in_the_table_s_own_encoding(workplace, capsys):
    line = os.fsdecode("age,income,region,ill,größe".encode("cp1252"))
    call = ["plan", str(workplace.spec), "--header", line]
    assert main(call) == SchemaError.exit_code
    assert "not text in utf-8; state the encoding" in capsys.readouterr().err
    spec = workplace.spec.read_text()
    workplace.spec.write_text(spec.replace("format: csv", "format: csv, encoding: cp1252"))
    assert workplace.spec.read_text() != spec
    assert main(call) == SourceError.exit_code
    assert "does not declare (größe)" in capsys.readouterr().err


def test_a_bad_spec_is_one_clear_line_and_what_to_type_next(workplace, capsys):
    workplace.spec.write_text(workplace.spec.read_text() + "seed: 42\n")
    assert main(["plan", str(workplace.spec)]) == SpecError.exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    fault, advice = shown.err.splitlines()
    assert fault.startswith("SpecError: release.yaml, line 19, column 1: seed: unknown key")
    assert advice == f"mend it, then: dpiw plan {workplace.spec}"


def test_verify_and_describe(released, workplace, capsys):
    key = workplace.root / "state" / "keys" / "test.pub"
    assert main(["verify", str(released)]) == 0
    assert "not pinned" in capsys.readouterr().out
    assert main(["verify", str(released), "--key", str(key)]) == 0
    assert "the expected key" in capsys.readouterr().out
    assert main(["describe", str(released)]) == 0
    output = capsys.readouterr().out
    assert "epsilon=2" in output
    assert "\ncolumns: age, " in output
    assert main(["describe", str(released), "--json"]) == 0
    certificate = json.loads(capsys.readouterr().out)
    assert certificate["population"] == "town"
    reasons = certificate["diagnostics"]["reasons"]  # none, where the noise was kind
    unseen = verify(released).certificate.unseen
    lines = [*reasons, *([unseen] if unseen else [])]
    assert output.endswith("".join(f"  {line}\n" for line in lines))


def test_verify_has_an_exit_code_for_each_way_to_fail(released, workplace, capsys):
    from dpiw.release.signing import create_key_pair

    _, foreign = create_key_pair(workplace.root, "other")
    assert main(["verify", str(released), "--key", str(foreign)]) == SignatureError.exit_code
    good = workplace.root / "state" / "keys" / "test.pub"
    for command in ("verify", "describe"):  # of several keys one must have signed
        for keys in ((good, foreign), (foreign, good)):
            given = [word for key in keys for word in ("--key", str(key))]
            assert main([command, str(released), *given]) == 0
            assert "the expected key" in capsys.readouterr().out
        twice = ["--key", str(foreign)] * 2
        assert main([command, str(released), *twice]) == SignatureError.exit_code
    for name, code in (("report.html", {52}), ("manifest.sig", {53}), ("manifest.json", {51, 53})):
        path = released / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 4]) + whole[-1:])
        assert main(["verify", str(released)]) in code, name
        path.write_bytes(whole)
    (released / "extra.txt").write_text("x")
    assert main(["verify", str(released)]) == 51
    (released / "extra.txt").unlink()
    assert main(["verify", str(released)]) == 0
    assert main(["verify", str(released / "absent")]) in (51, 53)
    capsys.readouterr()


def test_one_flipped_bit_in_any_file_is_rejected(released, capsys):
    for path in sorted(released.iterdir()):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        assert main(["verify", str(released)]) != 0, path.name
        path.write_bytes(whole)
    assert main(["verify", str(released)]) == 0
    capsys.readouterr()


def test_keys_are_made_once(tmp_path, capsys):
    assert main(["key", "new", str(tmp_path / "k" / "mine.key")]) == 0
    assert "keep it secret" in capsys.readouterr().out
    assert (tmp_path / "k" / "mine.key").stat().st_mode & 0o777 == 0o600
    assert main(["key", "new", str(tmp_path / "k" / "mine")]) == 50
    capsys.readouterr()


def test_the_ledger_from_the_command_line(released, workplace, capsys):
    ledger = str(workplace.ledger)
    assert main(["ledger", "verify", "--ledger", ledger]) == 0
    capsys.readouterr()
    assert main(["ledger", "show", "--ledger", ledger]) == 0
    page = capsys.readouterr().out
    for words in ("town", "fit_generator", "fit_weights", "published"):
        assert words in page.lower()
    assert main(["ledger", "show", "--json", "--ledger", ledger]) == 0
    json.loads(capsys.readouterr().out)
    arguments = ["ledger", "register", "town", "--relation", "add_or_remove_one"]
    # the same terms again are no error, other terms are: a budget is never reset
    same = [*arguments, "--epsilon", "5", "--delta", "1e-4", "--ledger", ledger]
    capsys.readouterr()
    assert main(same) == 0
    output = capsys.readouterr().out
    assert "registered before, with the same terms; nothing was changed; left: epsilon=" in output
    larger = [*arguments, "--epsilon", "50", "--delta", "1e-4", "--ledger", ledger]
    assert main(larger) == 32
    assert Ledger.open(ledger).population("town").budget.epsilon == 5
    assert main(["ledger", "verify", "--ledger", ledger + ".absent"]) == LedgerError.exit_code
    assert not (workplace.root / "state" / "ledger.sqlite.absent").exists()
    capsys.readouterr()


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("dpiw 0")


def test_exit_codes_are_distinct():
    from dpiw import errors

    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DPIWError)
    ]
    codes = [value.exit_code for value in classes]
    assert len(set(codes)) == len(codes)
    assert BudgetExceededError.exit_code == 22


def test_alone_it_shows_its_commands(capsys):
    assert main([]) == 2
    stderr = capsys.readouterr().err
    assert all(f"\n    {name} " in stderr for name in ("init", "plan", "release", "audit"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("init new --headr secret,b", "unrecognized arguments: --headr; did you mean '--header'?"),
        ("init new --headr -1,secret", "unrecognized arguments: --headr; did you mean '--header'?"),
        ("plan a.yaml --headr=secret", "unrecognized arguments: --headr; did you mean '--header'?"),
        ("plan -header secret", "unrecognized arguments: -header; did you mean '--header'?"),
        ("plan a.yaml secret.yaml", "unrecognized arguments: secret.yaml"),
        ("ledger register n --ledger", "argument --ledger: expected one argument"),
        ("ledger help", "did you mean `dpiw ledger --help`?"),
    ],
)
def test_a_word_that_is_not_understood_is_told_with_the_nearest(words, told, capsys):
    """An option alone, not what was given to it; nor what is missing because it is misspelt."""
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    shown = capsys.readouterr().err
    assert shown.endswith(f"{told}\n")
    assert "required" not in shown
    assert "secret" not in shown.replace("secret.yaml", "")


@pytest.mark.parametrize(
    "words",
    [
        "ledger verify --ledger X postgresql://u:secret@h/d",
        "ledger postgresql://u:secret@h/d",
        "ledger recover --loss=secret",
        "ledger show --json=secret",
        "init postgresql://u:secret@h/d",
        "ledger show --ledgr=postgresql://u:secret@h/d",
    ],
)
def test_a_refusal_repeats_no_value_that_may_hold_a_password(words, capsys):
    with pytest.raises(SystemExit):
        main(words.split())
    assert "secret" not in capsys.readouterr().err
