"""The command line: exit codes, clear lines, and nothing read that need not be."""

import json
import os
import shlex

import pytest

from dpiw.cli.guide import GUIDE
from dpiw.cli.main import _parser, main
from dpiw.errors import LedgerError, SchemaError, SignatureError, SourceError
from dpiw.ledger import Ledger
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import verify
from tests.support.whole_runs import once, publish_run


@pytest.fixture
def released(workplace, kept):
    once(workplace, kept, lambda: publish_run(workplace.spec))
    (folder,) = workplace.releases.iterdir()
    return folder


def test_plan_reads_no_data(workplace, says):
    workplace.source.unlink()
    assert "no data was read" in says("plan", workplace.spec)
    plan = json.loads(says("plan", workplace.spec, "--json"))
    assert plan["epsilon"] == "2"
    assert {e["type"] for s in plan["stages"] for e in s["events"]} == {"gaussian"}
    assert not (workplace.root / "state" / "workspace").exists()


def test_a_header_that_somebody_types_is_compared_for_nothing(workplace, says):
    """A release could tell only by a read of the table, which counts for life."""
    workplace.source.unlink()
    call = ["plan", str(workplace.spec), "--header"]
    says(*call, "\ufeffage,income,region,ill\r")
    for line, told in (
        ("age,incomme,region,ill", "income"), ("age;income;region;ill", "';'"),
        ("35,canary,south,true", "age, income, region, ill"),
        ("35,canary,ill,true", "age, income, region"), ("age,income,region,ill,x,,x", "x"),
        ("age,income,region,ill,age,x", "age"),
    ):  # fmt: skip
        shown = says(*call, line, code=SourceError.exit_code)
        assert told in shown
        assert "canary" not in shown  # where a table has no names, its first line is a row
    assert Ledger.open(workplace.ledger).account("town").unpaid_reads == 0
    line = os.fsdecode("age,income,region,ill,größe".encode("cp1252"))
    assert main([*call, line]) == SchemaError.exit_code
    workplace.rewrite("format: csv", "format: csv, encoding: cp1252")
    assert "größe" in says(*call, line, code=SourceError.exit_code)


def test_verify_and_describe(released, workplace, says):
    for words, told in (
        (["verify"], "not pinned"), (["verify", "--key", workplace.key], "the expected key"),
        (["describe"], "epsilon=2"),
    ):  # fmt: skip
        assert told in (output := says(words[0], released, *words[1:]))
    certificate = json.loads(says("describe", released, "--json"))
    assert certificate["population"] == "town"
    reasons = certificate["diagnostics"]["reasons"]  # none, where the noise was kind
    unseen = verify(released).certificate.unseen
    lines = [*reasons, *([unseen] if unseen else [])]
    assert output.endswith("".join(f"  {line}\n" for line in lines))


def test_verify_has_an_exit_code_for_each_way_to_fail(released, workplace):
    _, foreign = create_key_pair(workplace.root, "other")
    good = workplace.root / "state" / "keys" / "test.pub"
    for command in ("verify", "describe"):  # of several keys one must have signed
        for keys, code in (
            ([good, foreign], 0), ([foreign, good], 0), ([foreign], SignatureError.exit_code),
            ([foreign, foreign], SignatureError.exit_code),
        ):  # fmt: skip
            given = [word for key in keys for word in ("--key", str(key))]
            assert main([command, str(released), *given]) == code
    codes = {"report.html": {52}, "manifest.sig": {53}, "manifest.json": {51, 53}}
    for path in sorted(released.iterdir()):  # one flipped bit
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
        assert main(["verify", str(released)]) in codes.get(path.name, {51, 52}), path.name
        path.write_bytes(whole)
    (released / "extra.txt").write_text("x")
    assert main(["verify", str(released)]) == 51
    (released / "extra.txt").unlink()
    assert main(["verify", str(released)]) == 0
    assert main(["verify", str(released / "absent")]) in (51, 53)
    ledger = str(workplace.ledger)
    assert main(["ledger", "verify", "--ledger", ledger]) == 0
    assert main(["ledger", "verify", "--ledger", ledger + ".absent"]) == LedgerError.exit_code
    assert not (workplace.root / "state" / "ledger.sqlite.absent").exists()


def test_keys_are_made_once(tmp_path):
    assert main(["key", "new", str(tmp_path / "k" / "mine.key")]) == 0
    assert (tmp_path / "k" / "mine.key").stat().st_mode & 0o777 == 0o600
    assert main(["key", "new", str(tmp_path / "k" / "mine")]) == 50


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("init new --headr secret,b", "--header"), ("init new --headr -1,secret", "--header"),
        ("plan a.yaml --headr=secret", "--header"), ("plan -header secret", "--header"),
        ("ledger verify --ledger X postgresql://u:secret@h/d", ""),
        ("ledger postgresql://u:secret@h/d", ""), ("ledger recover --loss=secret", ""),
        ("ledger show --json=secret", ""), ("init postgresql://u:secret@h/d", ""),
        ("ledger show --ledgr=postgresql://u:secret@h/d", "--ledger"),
    ],
)  # fmt: skip
def test_a_word_that_is_not_understood_is_told_with_the_nearest(words, told, capsys):
    """An option alone, not what was given to it, which may be a password."""
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "secret" not in shown


def below(parser):
    yield parser
    for command in () if parser._commands is None else parser._commands.choices.values():
        yield from below(command)


def test_every_command_says_what_it_does_and_its_example_is_one():
    parsers = {parser.prog: parser for parser in below(_parser())}
    assert parsers.keys() == GUIDE.keys()
    for name, parser in parsers.items():
        sentence, example = GUIDE[name]
        assert sentence.endswith(".")
        assert f"example: {example}" in " ".join(parser.format_help().split())
        assert example.startswith(name)
        parsers["dpiw"].parse_args(shlex.split(example)[1:])  # exits if it is not understood
