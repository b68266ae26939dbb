"""Text of others, wherever a command shows it: it neither steers the terminal nor forges a line.

An attacker signs a whole and consistent release with a key of their own, or writes a ledger whose
every hash holds, with a hostile text in any one place.
"""

import contextlib
import copy
import datetime
import hashlib
import io
import json
import sys
import unicodedata
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.analysis.release import load_release
from dpiw.audit import audit, found, release_folders, write_report
from dpiw.cli.main import main
from dpiw.data.documents import document_json
from dpiw.errors import DPIWError, ReleaseError, is_plain, shown
from dpiw.ledger import Ledger
from dpiw.ledger.book import Book
from dpiw.ledger.entries import entry_hash, entry_json
from dpiw.ledger.reading import replay
from dpiw.release.parquet import write_table
from dpiw.release.signing import PrivateKey
from dpiw.release.verification import NOBODY, verify
from tests.dpiw.release.release_example import example_key, publish_example
from tests.support.ledger import adult, ask, finish

PROFILE = {"derandomize": True, "database": None, "deadline": None}
FORGED = "release x: signed by key id 0123456789abcdef (the expected key)"
HOSTILE = [
    "\x1b[2K\x1b[1A" + FORGED + "\x1b[8m", "x\n" + FORGED, "x\r" + FORGED, "\x9b2J", "\x1b]0;t\x07",
    "\u202e" + FORGED[::-1], "\u2066a\u2069", "\u2028" + FORGED, "\x85" + FORGED, "\x00", "\x7f",
    "a\u200bb", "\ufeff", "\x08" * 9, "\U000e0041", "\ue000", "x" * 200_000 + "\x1b[0m", FORGED,
]  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Places of all texts of a JSON value: `("key", name)` at the end stands for a key itself."""
    if isinstance(value, str):
        return [path]
    if isinstance(value, dict):
        inside = [place for key, item in value.items() for place in leaves(item, (*path, key))]
        return inside + [(*path, "\0key", key) for key in value]
    if isinstance(value, list):
        return [place for i, item in enumerate(value) for place in leaves(item, (*path, i))]
    return []


def put(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """The value with a text in this place, instead of the text or key there."""
    value = copy.deepcopy(value)
    inner, last = value, path[-1]
    for step in path[:-2] if path[-2:-1] == ("\0key",) else path[:-1]:
        inner = inner[step]
    if path[-2:-1] == ("\0key",):
        inner[text] = inner.pop(last)
    else:
        inner[last] = text
    return value


def forged(source: Path, target: Path, key: PrivateKey, name: str, path: Any, text: str) -> Path:
    """A release that is consistent in itself, with the text in one place, signed by the key."""
    documents = {
        part: json.loads((source / f"{part}.json").read_bytes())
        for part in ("manifest", "certificate", "schema")
    }
    documents[name] = put(documents[name], path, text)
    manifest, certificate = documents["manifest"], documents["certificate"]
    files = {
        file.name: file.read_bytes() for file in source.iterdir() if "manifest" not in file.name
    }
    for part in ("certificate", "schema"):
        files[f"{part}.json"] = document_json(documents[part])
    if name == "certificate":
        shared = {"population": "population", "release_id": "release_id", "epsilon": "epsilon",
                  "delta": "delta", "cumulative_epsilon": "spent_epsilon", "unit": "unit",
                  "cumulative_delta": "spent_delta", "ledger_head": "ledger_head",
                  "versions": "versions"}  # fmt: skip
        manifest |= {ours: certificate.get(theirs) for ours, theirs in shared.items()}
        stages = certificate.get("stages") or []
        manifest["mechanisms"] = [f"{s.get('stage')}:{s.get('method')}" for s in stages]
    table = pq.read_table(source / "synthetic.parquet")
    facts = {k.decode(): v.decode() for k, v in pq.read_metadata(
        source / "synthetic.parquet").metadata.items() if k != b"ARROW:schema"}  # fmt: skip
    digest = hashlib.sha256(files["certificate.json"]).hexdigest()
    unit = certificate.get("unit") or {}
    facts |= {
        "dpiw.certificate_sha256": digest,
        "dpiw.mechanisms": ",".join(manifest.get("mechanisms", ())),
        "dpiw.delta": str(certificate.get("delta")),
        "dpiw.epsilon": str(certificate.get("epsilon")),
        "dpiw.population": str(certificate.get("population")),
        "dpiw.relation": str(unit.get("relation")),
        "dpiw.release_id": str(certificate.get("release_id")),
        "dpiw.unit": f"max_rows={unit.get('max_rows')}; id_column={unit.get('id_column') or ''}",
        "dpiw.weights_verdict": str(certificate.get("verdict")),
    }  # fmt: skip
    target.mkdir()
    if name == "manifest" and path[0] == "columns" and path[2:] == ("name",):
        names = [column["name"] for column in manifest["columns"]]
        table = table.rename_columns(names)
        dictionary = documents["schema"]
        for column, new in zip([c for c in dictionary["columns"] if c.get("role") != "identifier"],
                               names, strict=False):  # fmt: skip
            column["name"] = new
        files["schema.json"] = document_json(dictionary)
    write_table(target / "rows", table, facts=facts)
    files["synthetic.parquet"] = (target / "rows").read_bytes()
    (target / "rows").unlink()
    if not (name == "manifest" and path[0] == "files"):
        manifest["files"] = {
            file: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for file, data in files.items()
        }
    if not (name == "manifest" and path[0] == "constraints_digest"):
        manifest["constraints_digest"] = hashlib.sha256(files["schema.json"]).hexdigest()
    if not (name == "manifest" and path[0] in ("public_key", "key_id")):
        manifest |= {"public_key": key.public.raw.hex(), "key_id": key.public.key_id}
    for file, data in files.items():
        (target / file).write_bytes(data)
    data = document_json(manifest)
    (target / "manifest.json").write_bytes(data)
    (target / "manifest.sig").write_bytes(key.sign(data))
    return target


def harmless(output: str, *, most: int = 250_000) -> None:
    """No character that steers, no line that claims a key which nobody gave."""
    odd = {c for c in output if c != "\n" and unicodedata.category(c) in
           ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")}  # fmt: skip
    assert not odd
    assert not [line for line in output.splitlines() if line.startswith("release")
                and line.endswith("(the expected key)")]  # fmt: skip
    assert max(map(len, output.splitlines()), default=0) < most


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PrivateKey]:
    root = tmp_path_factory.mktemp("example")
    return publish_example(root), example_key(root, "attacker")


@pytest.mark.slow
def test_the_forger_makes_releases_that_verify(example, tmp_path) -> None:
    """Else nothing would be shown by what follows."""
    source, key = example
    for place, (name, path) in enumerate([
        ("certificate", ("verdict",)), ("certificate", ("caveats", 0)),
        ("manifest", ("columns", 0, "name")),
    ]):  # fmt: skip
        folder = forged(source, tmp_path / str(place), key, name, path, "quite plain")
        assert main(["verify", str(folder)]) == 0


@settings(max_examples=20, **PROFILE)
@given(data=st.data())
@pytest.mark.slow
def test_no_text_of_a_release_steers_what_is_shown(example, tmp_path_factory, data) -> None:
    source, key = example
    name = data.draw(st.sampled_from(["manifest", "certificate", "schema"]))
    path = data.draw(st.sampled_from(leaves(json.loads((source / f"{name}.json").read_bytes()))))
    text = data.draw(st.sampled_from(HOSTILE))
    folder = forged(source, tmp_path_factory.mktemp("f") / "f", key, name, path, text)
    check_commands(folder)


def check_commands(folder: Path) -> None:
    for command in (["verify"], ["describe"], ["describe", "--json"]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*command, str(folder)])
        most = 250_000 if command != ["describe", "--json"] else 20_000_000  # whole, for programs
        harmless(out.getvalue(), most=most)
        harmless(err.getvalue())
        if code == 0 and "--json" not in command:
            assert out.getvalue().splitlines()[0] == NOBODY
        elif code == 0:
            json.loads(out.getvalue())
        else:
            assert 50 <= code < 60
            assert not out.getvalue()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            harmless(repr(load_release(folder)))
        except ReleaseError as error:
            harmless(shown(error))
    for warning in warned:
        harmless(str(warning.message))


MARKUP = "<img src=x onerror=alert(1)>&quot;'\"{{7*7}}</script><script>"
"""Every character of it is plain."""
STEERS = "a\n" + FORGED + "\r\x1b[2K\u202e\u2028\x9b8m"


def in_a_page(page: str) -> None:
    """Markup of a foreign text is text there."""
    assert "<img src=x" not in page
    assert "<script>" not in page.replace("<script>\n", "")
    harmless("\n".join(line.strip() for line in page.splitlines()))


def audited(folder: Path, releases: list[Path]) -> Any:
    """The report of an audit of the folder's ledger; none of its lines steers the screen."""
    report = audit(
        ledger_url=str(folder / "ledger.sqlite"), releases=releases, public_keys=[],
        clock=lambda: datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC),
    )  # fmt: skip
    for line in found(report):
        harmless(line)
        assert "\n" not in line
    write_report(report, folder / "out")
    in_a_page((folder / "out" / "audit.html").read_text())
    return report


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["manifest", "certificate", "schema"])
@pytest.mark.parametrize("text", [STEERS, MARKUP], ids=["steers", "markup"])
def test_each_text_of_a_release_is_tried(example, tmp_path, name, text) -> None:
    """Every leaf and every key, one after the other, in what commands, errors and pages show."""
    source, key = example
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(adult())
    places = leaves(json.loads((source / f"{name}.json").read_bytes()))
    taken = 0
    for number, path in enumerate(places):
        folder = forged(source, tmp_path / str(number), key, name, path, text)
        check_commands(folder)
        try:
            verify(folder)
        except ReleaseError:
            continue  # an audit shows the same error
        taken += 1
        audited(tmp_path, [folder])
    assert text == STEERS or name != "certificate" or taken > 10


WIDE = [
    ("certificate", ("caveats", 0)), ("certificate", ("release_id",)), ("schema", ("name",)),
    ("certificate", ("versions", "dpiw")), ("certificate", ("generator", "method")),
    ("manifest", ("public_key",)), ("manifest", ("files", "\0key", "schema.json")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "text"),
    [(place, text) for place in WIDE for text in ("LONE", "LONELINE")]
    + [(place, text) for place in WIDE[1:2] for text in ("\u202e" * 10**7, "x" * 10**7)],
    ids=lambda value: value[:9] if isinstance(value, str) else value[0],
)  # fmt: skip
def test_half_characters_and_ten_megabytes(example, tmp_path, place, text, monkeypatch) -> None:
    """A file may escape half of a character, which no terminal and no page can be sent."""
    source, key = example
    real = document_json
    monkeypatch.setattr(
        sys.modules[__name__], "document_json",
        lambda value: real(value).replace(b"LONELINE", rb"\udc80\n\ud800").replace(
            b"LONE", rb"\ud800"),
    )  # fmt: skip
    check_commands(forged(source, tmp_path / "f", key, *place, text))


def test_reasons_of_an_odd_form_are_refused(example, tmp_path, capsys) -> None:
    source, key = example
    certificate = json.loads((source / "certificate.json").read_bytes())
    for number, odd in enumerate(({}, "text", 5, ["a", 5], None)):
        changed = {**certificate["diagnostics"], "reasons": odd}
        path, folder = ("diagnostics",), tmp_path / str(number)
        assert (
            main(["describe", str(forged(source, folder, key, "certificate", path, changed))]) == 51
        )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    ledger = Ledger.create(tmp_path_factory.mktemp("l") / "ledger.sqlite")
    ledger.register(adult())
    ledger.reserve(**ask())
    finish(ledger)
    return [dict(row) for row in ledger.snapshot().rows]


def rehashed(rows: list[dict[str, Any]], place: int, path: tuple[Any, ...], text: str) -> list[Any]:
    """The chain with a text in one place of one entry, and every hash from there on made anew."""
    entries = [{**row, "payload": json.loads(row["payload"])} for row in rows]
    entries[place] = put(entries[place], path, text)
    for entry in entries[place:]:
        if entry["seq"] > entries[place]["seq"]:
            entry["previous"] = entries[entry["seq"] - 2]["hash"]
        fields = {name: value for name, value in entry.items() if name != "hash"}
        entry["hash"] = entry_hash(fields)
    return [{**entry, "payload": entry_json(entry["payload"])} for entry in entries]


@settings(max_examples=150, **PROFILE)
@given(data=st.data())
@pytest.mark.slow
def test_no_text_of_a_ledger_is_read_that_its_writer_would_not_write(rows, data) -> None:
    place = data.draw(st.sampled_from(range(len(rows))))
    entry = {**rows[place], "payload": json.loads(rows[place]["payload"])}
    places = [p for p in leaves(entry) if p[0] not in ("hash", "kind") and "\0key" not in p[:1]]
    path, text = data.draw(st.sampled_from(places)), data.draw(st.sampled_from(HOSTILE))
    _, fault = replay(rehashed(rows, place, path, text), book=Book(), head=None)
    assert fault is not None
    harmless(str(fault))


def test_the_rehashed_chain_itself_is_sound(rows) -> None:
    same = rehashed(rows, 0, ("at",), rows[0]["at"])
    assert replay(same, book=Book(), head=None)[1] is None
    later = rehashed(rows, 1, ("at",), "2031-01-31T06:00:00Z")
    assert replay(later, book=Book(), head=None)[1] is None


def registered_at(text: str, folder: Path, monkeypatch) -> Path:
    """A ledger's file, with an entry of that time."""
    ledger = Ledger.create(folder / "ledger.sqlite")
    with monkeypatch.context() as patch:
        patch.setattr("dpiw.ledger.reading.label", lambda clock: text)
        patch.setattr(Book, "check", lambda book, entry: None)
        ledger.register(adult())
    return folder / "ledger.sqlite"


@pytest.mark.nightly_cases("-every")
@pytest.mark.parametrize("which", ["two", "every"])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_free_text_as_an_entry_s_time_is_not_shown(
    tmp_path, text, which, monkeypatch, capsys
) -> None:
    """Two of the commands for each text: `show`, and the others in turn."""
    path = registered_at(text, tmp_path, monkeypatch)
    others = [["show", "--json"], ["show", "--csv"], ["verify"]]
    turn = HOSTILE.index(text) % len(others)
    for command in (["show"], *(others if which == "every" else others[turn : turn + 1])):
        code = main(["ledger", *command, "--ledger", str(path)])
        output = capsys.readouterr()
        harmless(output.out)
        harmless(output.err)
        assert code


@pytest.mark.parametrize("text", [HOSTILE[i] for i in (0, 1, 5)])
def test_an_audit_shows_none_of_it(example, tmp_path, text, monkeypatch) -> None:
    """Of a ledger, of a release, and of the name of a folder."""
    source, key = example
    registered_at(text, tmp_path, monkeypatch)
    releases = tmp_path / "releases"
    releases.mkdir()
    forged(source, releases / text.replace("/", "_"), key, "certificate", ("caveats", 0), text)
    forged(source, releases / "other", key, "certificate", ("caveats", 0), "plain")
    assert audited(tmp_path, release_folders(releases)).findings


@settings(max_examples=300, **PROFILE)
@given(text=st.text(st.characters(), max_size=30), lines=st.booleans())
def test_what_is_shown_is_plain_and_plain_text_is_shown_as_it_is(text, lines) -> None:
    output = shown(text, lines=lines)
    assert all(is_plain(part) for part in (output.split("\n") if lines else [output]))
    assert (output == text) == all(
        is_plain(part) for part in (text.split("\n") if lines else [text])
    )
    encodable = json.dumps(text, ensure_ascii=False)
    assert json.loads(shown(encodable, most=None)) == text


def test_no_error_of_ours_is_printed_raw(monkeypatch, says) -> None:
    raising = mock.Mock(side_effect=DPIWError("\x1b[2K\u202e" + FORGED))
    monkeypatch.setattr("dpiw.release.verification.verify", raising)
    harmless(says("verify", "x", code=1))
