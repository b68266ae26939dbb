"""The public site: its facts, its files, and what it leaves out."""

import datetime
import json
import os
import re
import shutil
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import jsonschema
import pytest

from dpiw.cli.main import main
from dpiw.errors import LedgerTamperedError, ReleaseError, SpecError
from dpiw.ledger import Ledger
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT
from dpiw.release.signing import create_key_pair, load_private_key
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from dpiw.series.site import build_site, facts_schema, write_site
from tests.dpiw.series.conftest import ACTOR
from tests.support.ledger import ask, cost, digest
from tests.support.stores import intrude_sqlite

ATOM = "{http://www.w3.org/2005/Atom}"


class Read(HTMLParser):
    """Tags, links, texts of `pre` and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.links, self.codes, self._is_code = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.links += [value for name, value in attrs if name == "href"]
        if tag == "pre":
            self.codes.append("")
        self._is_code = self._is_code or tag == "pre"

    def handle_endtag(self, tag):
        self._is_code = self._is_code and tag != "pre"

    def handle_data(self, data):
        if self._is_code:
            self.codes[-1] += data


def typed(desk, *words: str, out: Path | None = None) -> Path:
    """The folder that `dpiw site` writes."""
    out = out or desk.out
    words = ("site", str(out), "--ledger", str(desk.spec), "--key", str(desk.key), *words)
    assert main(list(words)) == 0
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def facts_of(files: dict[str, bytes]) -> dict:
    facts = json.loads(files["index.json"])
    jsonschema.Draft202012Validator.check_schema(json.loads(files["index.schema.json"]))
    jsonschema.validate(facts, json.loads(files["index.schema.json"]))
    return facts


@pytest.mark.slow
def test_the_index_has_what_was_released_promised_and_spent(desk, capsys):
    out = typed(desk)
    assert "into public" in capsys.readouterr().out
    facts = facts_of(contents(out))
    (town,) = facts["populations"]
    ledger = Ledger.open(desk.ledger)
    spent, left = ledger.spent("town"), ledger.remaining("town")
    assert {name: Decimal(text) for name, text in town["epsilon"].items()} == {
        "budget": 5, "spent": spent.epsilon_units * EPSILON_UNIT,
        "left": left.epsilon_units * EPSILON_UNIT,
    }  # fmt: skip
    assert Decimal(town["delta"]["left"]) == left.delta_units * DELTA_UNIT
    assert town["spending"] == [["2026-11", "2"], ["2026-12", "4"]]
    assert [release["period"] for release in facts["releases"]] == ["2026-12", "2026-11"]
    for release, folder in zip(facts["releases"], reversed(desk.folders), strict=True):
        verified = verify(folder, public_key=desk.key)
        assert release["release_id"] == folder.name
        assert release["epsilon"] == verified.certificate.epsilon
        assert release["key_id"] == verified.key_id
        assert {file["name"] for file in release["files"]} == {p.name for p in folder.iterdir()}
        assert {file["size"] for file in release["files"]} == {
            path.stat().st_size for path in folder.iterdir()
        }
        for name in ("report.html", "certificate.json"):
            (place,) = (place for place in release["documents"] if place.endswith(f"/{name}"))
            assert (out / place).read_bytes() == (folder / name).read_bytes()
    assert facts["incidents"] == []
    page = (out / "index.html").read_text()
    for words in (*(folder.name for folder in desk.folders), "in these releases: 4", "1 of 5"):
        assert words in page


def test_a_site_before_the_first_release_shows_the_budget(make_workplace, monkeypatch):
    place = make_workplace(weights="none")
    monkeypatch.chdir(place.root)
    words = ("--ledger", str(place.spec), "--key", str(place.root / "state/keys/test.pub"))
    assert main(["site", "public", *words]) == 0
    facts = facts_of(contents(Path("public")))
    assert [town["epsilon"]["left"] for town in facts["populations"]] == ["5"]
    assert facts["releases"] == facts["incidents"] == []


@pytest.mark.slow
def test_a_wrong_index_does_not_fit_the_schema(desk):
    """The control of every validation here."""
    facts = facts_of(build_site(desk.report(), out=desk.out))
    for field in facts.keys() - {"format", "format_version"}:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**facts, field: 7}, facts_schema())


@pytest.mark.slow
def test_the_same_ledger_and_folders_give_the_same_bytes(desk):
    report = desk.report(clock=lambda: datetime.datetime(2031, 1, 1, tzinfo=datetime.UTC))
    later = desk.report(clock=lambda: datetime.datetime(2041, 7, 9, tzinfo=datetime.UTC),
                        releases=list(reversed(desk.folders)))  # fmt: skip
    files = build_site(report, out=desk.out)
    assert files == build_site(later, out=desk.root / "elsewhere")
    write_site(files, desk.out)
    assert contents(desk.out) == files == contents(typed(desk, out=Path("again")))
    write_site(files, desk.out)
    assert contents(desk.out) == files


@pytest.mark.slow
def test_every_link_leads_to_a_file(desk):
    """Of releases that lie below the site, and of others."""
    shutil.copytree(desk.releases, desk.out / "data")
    below = typed(desk, "--releases", "public/data", "--url", "https://data.example.org/x")
    apart = typed(desk, out=Path("apart"))
    for out, linked in ((below, True), (apart, False)):
        for path in out.glob("**/index.html"):
            read = Read(path.read_text())
            assert read.links
            for link in read.links:
                assert (path.parent / unquote(link)).is_file(), link
        facts = facts_of({name: (out / name).read_bytes() for name in os.listdir(out)
                          if (out / name).is_file()})  # fmt: skip
        files = [file for release in facts["releases"] for file in release["files"]]
        assert files
        for file in files:
            assert (file["href"] is not None) is linked
            assert not linked or (out / file["href"]).stat().st_size == file["size"]
    page = (below / facts["releases"][0]["page"]).read_text()
    catalogue = (below / f"pages/{desk.folders[1].name}/dcat.jsonld").read_text()
    assert f"https://data.example.org/x/data/{desk.folders[1].name}" in catalogue
    address = f"https://data.example.org/x/data/{desk.folders[1].name}/synthetic.parquet"
    assert address in Read(page).codes[0]


@pytest.mark.slow
def test_the_code_that_loads_a_release_works(desk, monkeypatch):
    out = typed(desk)
    shutil.copy(desk.key, desk.releases / "curator.pub")
    monkeypatch.chdir(desk.releases)
    for folder in desk.folders:
        code, command = Read(
            (desk.root / out / f"pages/{folder.name}/index.html").read_text()
        ).codes
        names: dict = {}
        exec(code, names)
        assert len(names["release"].table) == 300
        assert main(command.split()[1:]) == 0


@pytest.mark.parametrize("url", [None, "https://data.example.org/"])
def test_the_feed_is_atom(desk, url):
    feed = ElementTree.fromstring(build_site(desk.report(), out=desk.out, url=url)["feed.xml"])
    assert feed.tag == f"{ATOM}feed"
    entries = feed.findall(f"{ATOM}entry")
    assert [entry.findtext(f"{ATOM}title") for entry in entries] == [
        folder.name for folder in reversed(desk.folders)
    ]
    for element in (feed, *entries):
        for name in ("id", "title", "updated"):
            assert element.findtext(f"{ATOM}{name}"), name
        moment = element.findtext(f"{ATOM}updated")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment)
        assert datetime.datetime.fromisoformat(moment).tzinfo
        links = {link.get("rel"): link.get("href") for link in element.findall(f"{ATOM}link")}
        assert links["alternate"].startswith(url or ("pages/", "index.html"))
        assert ("self" in links) is (url is not None and element is feed)
    assert feed.findtext(f"{ATOM}author/{ATOM}name")
    ids = [element.text for element in feed.iter(f"{ATOM}id")]
    assert len({*ids}) == 3
    assert all(name.startswith("urn:uuid:") for name in ids)
    moments = [entry.findtext(f"{ATOM}updated") for entry in entries]
    assert moments == sorted(moments, reverse=True)


@pytest.mark.slow
def test_a_folder_that_does_not_verify_is_an_incident_and_its_page_goes(desk):
    out = typed(desk)
    gone, stays = desk.folders
    (gone / "report.html").write_text("<p>forged</p>")
    typed(desk)
    files = contents(out)
    assert not [name for name in files if gone.name in name]
    assert not (out / "pages" / gone.name).exists()
    assert [release["release_id"] for release in facts_of(files)["releases"]] == [stays.name]
    (incident,) = facts_of(files)["incidents"]
    assert (incident["severity"], incident["count"]) == ("error", 1)
    for text in (incident["title"], "not as it was signed"):
        assert text in files["index.html"].decode()
    assert b"forged" not in b"".join(files.values())


@pytest.mark.slow
def test_a_release_of_another_key_or_of_no_entry_is_not_shown(desk):
    other = create_key_pair(desk.root, "other")[1]
    facts = facts_of(build_site(desk.report(public_keys=[other]), out=desk.out))
    assert facts["releases"] == []
    assert "unknown key" in str(facts["incidents"])
    second = Ledger.create(desk.root / "second.sqlite")
    second.register(Ledger.open(desk.ledger).population("town"))
    facts = facts_of(build_site(desk.report(ledger_url=second.location), out=desk.out))
    assert facts["releases"] == []
    assert "No entry of the ledger published" in str(facts["incidents"])


@pytest.mark.slow
def test_without_a_key_the_site_says_so(desk):
    files = build_site(desk.report(public_keys=[]), out=desk.out)
    assert len(facts_of(files)["releases"]) == 2
    assert "nothing shows who signed" in files["index.html"].decode()
    page = files[f"pages/{desk.folders[0].name}/index.html"].decode()
    assert "No public key was given" in page


def calendar(desk, out: str) -> dict[str, bytes]:
    """The site with the calendar's periods, as of a day in 2027."""
    return contents(typed(desk, "--spec", "calendar.yaml", "--today", "2027-02-10", out=Path(out)))


@pytest.mark.slow
def test_the_calendar_names_what_is_missing_and_why(desk):
    files = calendar(desk, "public")
    (series,) = facts_of(files)["series"]
    states = {
        period["label"]: (period["status"], period["release"]) for period in series["periods"]
    }
    assert states == {
        "2026-10": ("missing", None), "2026-11": ("published", desk.folders[0].name),
        "2026-12": ("published", desk.folders[1].name), "2027-01": ("missing", None),
        "2027-02": ("pending", None),
    }  # fmt: skip
    page = files["index.html"].decode()
    assert f"Forecast: {series_forecast(series)}" in page
    reasons = {period["label"]: period["why"] for period in series["periods"]}
    for label in ("2026-10", "2027-01"):
        assert reasons[label]
        assert page.count(reasons[label]) >= 2  # in the calendar, and among what is missing


def series_forecast(series: dict) -> str:
    return f"the budget carries {series['carries']} further period"


@pytest.mark.slow
def test_reads_reservations_and_actors_are_not_shown(desk, monkeypatch):
    """What a run does before it draws may depend on the table: the site's bytes do not."""
    before = calendar(desk, "first")
    ledger = Ledger.open(desk.ledger)
    monkeypatch.setenv("DPIW_ACTOR", ACTOR)
    desk.spec.write_text(desk.spec.read_text().replace("epsilon: 2", "epsilon: 1"))
    run = ReleaseRun.prepare(desk.spec, period="2027-01")
    steps.reserve(run)
    assert calendar(desk, "reserved") == before
    steps.ingest(run)
    assert ledger.account("town").unpaid_reads
    ledger.void(run.key, 1)
    assert {"unpaid_reads", "attempt_voided"} <= {f.code for f in desk.report().findings}
    assert calendar(desk, "voided") == before
    declared = {"made": [{"type": "declared", "epsilon": "0.1", "delta": "0", "count": 1}]}
    signing = Ledger.open(desk.ledger, key=load_private_key(desk.key.with_suffix(".key")))
    words = {"population": "town", "run_key": digest(7), "cost": cost("0.1")}
    signing.reserve(**ask(stages=declared, **words))
    assert [f for f in desk.report().findings if f.code == "cost_declared"]
    assert calendar(desk, "declared") == before
    signing.lose(digest(7), 1, signing.arm(digest(7), 1, "made").stage)
    lost = calendar(desk, "lost")
    signing.reserve(**ask(stages=declared, attempt=2, **words))
    assert calendar(desk, "again") == lost
    whole = b"".join(before.values())
    public = {path.read_bytes() for path in desk.releases.glob("*/*.json")}
    for private in ("canary", str(desk.root), "/workspace", "ledger.sqlite", run.key[:8]):
        assert private.encode() not in whole, private
    assert any(data in whole for data in public)  # the search can find


@pytest.mark.slow
def test_a_withdrawn_release_is_shown_as_withdrawn(desk):
    out = typed(desk)
    first, second = desk.folders
    assert (out / f"pages/{first.name}/report.html").exists()
    words = ["--ledger", str(desk.spec), "--reason", "superseded", "--replaced-by", second.name]
    assert main(["withdraw", str(first), *words]) == 0
    files = contents(typed(desk))
    newest, other = facts_of(files)["releases"]  # by the time of the withdrawal
    assert (newest["release_id"], newest["status"]) == (first.name, "withdrawn")
    assert (newest["withdrawn"], newest["replaced_by"]) == ("superseded", second.name)
    assert (other["status"], other["withdrawn"]) == ("published", None)
    names = {name for name in files if first.name in name}
    assert names == {f"pages/{first.name}/{name}" for name in ("index.html", "certificate.json")}
    page = files[f"pages/{first.name}/index.html"].decode()
    assert "Do not use this release: a revision replaces it" in page
    assert "load_release" not in page
    feed = ElementTree.fromstring(files["feed.xml"])
    assert feed.findtext(f"{ATOM}entry/{ATOM}title") == f"Withdrawn: {first.name}"
    (town,) = facts_of(files)["populations"]
    assert town["epsilon"]["spent"] == "4"  # withdrawn is not unspent
    assert facts_of(files)["incidents"] == []


@pytest.mark.slow
def test_a_ledger_that_proves_nothing_leaves_the_old_site(desk):
    before = contents(typed(desk))
    intrude_sqlite(str(desk.ledger), ["UPDATE entries SET at = '2020-01-01T00:00:00Z' WHERE seq=4"])
    code = main(["site", "public", "--ledger", str(desk.spec), "--key", str(desk.key)])
    assert code == LedgerTamperedError.exit_code
    assert contents(desk.out) == before


NAMES = ("index.html", "index.json", "index.schema.json", "feed.xml", "pages/a/index.html",
         "pages/b/index.html")  # fmt: skip
OLD = {name: b"old" * 9 for name in NAMES if "/b/" not in name}
NEW = {name: b"new" for name in NAMES if "/a/" not in name}


@pytest.mark.parametrize("step", range(len(NEW)))
def test_a_stopped_write_leaves_whole_files_and_is_made_good(step, tmp_path, monkeypatch):
    write_site(OLD, tmp_path)
    real, count = os.rename, iter(range(100))

    def rename(source, target):
        if next(count) == step:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(ReleaseError):
        write_site(NEW, tmp_path)
    there = contents(tmp_path)
    assert all(data in (OLD.get(name), NEW.get(name)) for name, data in there.items())
    assert there["index.html"] == OLD["index.html"]
    monkeypatch.setattr(os, "rename", real)
    write_site(NEW, tmp_path)
    assert contents(tmp_path) == NEW
    assert not (tmp_path / "pages" / "a").exists()


def test_other_files_stay_and_other_sites_are_left_alone(desk):
    files = NEW
    (desk.out / "data").mkdir(parents=True)
    (desk.out / "data" / "index.html").write_text("theirs")
    write_site(files, desk.out)
    assert (desk.out / "data" / "index.html").read_text() == "theirs"
    for name in ("index.html", "pages", "feed.xml"):
        other = desk.root / f"with-{name}"
        other.mkdir()
        (other / name).write_text("theirs")
        with pytest.raises(SpecError):
            write_site(files, other)
        assert contents(other) == {name: b"theirs"}
    shutil.rmtree(desk.out / "pages")
    (desk.out / "pages").symlink_to(desk.root / "state")
    for folder in (desk.out, desk.folders[0] / "site"):
        with pytest.raises(SpecError):
            write_site(files, folder)


@pytest.mark.parametrize(
    "words",
    [("--ledger", "state/ledger.sqlite"), ("--ledger", "release.yaml", "--url", "javascript:x")],
)
def test_wrong_words_are_refused(desk, words):
    assert main(["site", "public", *words]) == SpecError.exit_code
    assert not desk.out.exists()
