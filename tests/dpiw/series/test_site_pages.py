"""The site's pages with strange and large contents: nothing is cut off, and no text is a tag."""

import dataclasses
import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dpiw.audit.records import Units
from dpiw.errors import is_plain, shown
from dpiw.series.completeness import PeriodState, Series, Status
from dpiw.series.site import build_site, facts_schema
from tests.support.browser import CORNERS, VIEWS

MONTHS = [f"2026-{month:02d}" for month in range(1, 13)]
WHY = "its table had not arrived by 2026-04-10"


def year(
    text: str = WHY, *, name: str = "town", population: str = "town", release: str = "no-such"
):
    """A calendar in which each status occurs."""
    kinds = [Status.PUBLISHED, Status.MISSING, Status.WITHDRAWN, Status.PENDING] * 3
    return Series(
        name=name, population=population, cadence="monthly", carries=3, ends="2027-04",
        periods=tuple(
            PeriodState(
                label=label, status=kind, why=text if kind is Status.MISSING else "",
                release=release if kind is Status.PUBLISHED else None,
                schema_changed=label == "2026-06",
            )
            for label, kind in zip(MONTHS, kinds, strict=True)
        ),
    )  # fmt: skip


def with_texts(report, text: str):
    """The report with this text in each place where a certificate or a ledger may hold one."""
    (town,) = report.counted.populations.values()
    population = dataclasses.replace(town, id_column=text or None, composition="renyi", max_rows=2,
                                     name=text, history=town.history[:1], drawn=[])  # fmt: skip
    runs = {key: dataclasses.replace(run, period=text) for key, run in report.counted.runs.items()}
    counted = dataclasses.replace(
        report.counted, populations={"town": town, text: population}, runs=runs
    )
    folders = [
        dataclasses.replace(folder, release=dataclasses.replace(
            folder.release, certificate=dataclasses.replace(
                folder.release.certificate, verdict="use with care",
                weights={"method": "measured"}, diagnostics={"reasons": [text] * is_plain(text)}
            )
        ))
        for folder in report.folders
    ]  # fmt: skip
    return dataclasses.replace(report, counted=counted, folders=tuple(folders))


class Tags(HTMLParser):
    """Tags and attributes of a page, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def report(two_periods):
    from dpiw.audit import audit, release_folders

    state = two_periods / "state"
    return audit(
        str(state / "ledger.sqlite"), release_folders(state / "releases"),
        [state / "keys" / "test.pub"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain(report, two_periods):
    """What the pages hold without any strange text."""
    files = build_site(with_texts(report, "x"), [year()], out=two_periods / "out")
    pages = [Tags(data.decode()) for name, data in files.items() if name.endswith("index.html")]
    return {name: set().union(*(getattr(page, name) for page in pages))
            for name in ("tags", "attributes")}  # fmt: skip


UNSHRUNK = (Phase.explicit, Phase.generate)
HOSTILE = st.one_of(
    st.text(max_size=60).filter(lambda text: text not in ("town", "")),
    st.sampled_from(
        ["<script>alert(1)</script>", "\" onload=\"x", "' onclick='x", "</style><b>", "]]>", "&lt;",
         "\u202egnp.exe", "{{ 7 * 7 }}", "\x00\x1b[2J", "<!--", "javascript:alert(1)"]
    ),
)  # fmt: skip


@settings(derandomize=True, database=None, deadline=None, max_examples=12, phases=UNSHRUNK)
@given(text=HOSTILE)
@pytest.mark.slow
def test_no_text_is_a_tag_an_attribute_or_steers(report, plain, two_periods, text):
    series = [year(text, name=text, release=text)]
    changed = with_texts(report, text)
    files = build_site(changed, series, out=two_periods / "out", title=text)
    for name, data in files.items():
        if name.endswith("index.html"):
            page = Tags(data.decode())
            assert page.tags <= plain["tags"]
            assert page.attributes <= plain["attributes"]
            assert not {"script", "iframe", "object", "form"} & page.tags
            assert not [c for c in page.text if c in "\u202e\x00\x1b"]
            assert shown(text, most=None, lines=True) in page.text or name != "index.html"
    ElementTree.fromstring(files["feed.xml"])
    facts = json.loads(files["index.json"])
    jsonschema.validate(facts, facts_schema())
    assert facts["title"] == text


def test_a_year_names_its_gaps_and_its_end(report, two_periods):
    shown = report.folders[0].name
    files = build_site(report, [year(release=shown)], out=two_periods / "out")
    page = files["index.html"].decode()
    assert page.count(WHY) == 2 * 3  # in the calendar, and among what is missing
    for text in ("carries 3 further periods", "2027-04", "dictionary has changed",
                 f'<a href="pages/{shown}/index.html">'):  # fmt: skip
        assert text in page
    (series,) = json.loads(files["index.json"])["series"]
    assert [period["status"] for period in series["periods"]][:4] == [
        "published", "missing", "withdrawn", "pending"
    ]  # fmt: skip


def large(report):
    """Three populations: one has many releases, one none, and one a long name."""
    long, (run, *_) = "long_" * 12, report.counted.runs.values()
    (town,) = report.counted.populations.values()
    runs = {
        str(n): dataclasses.replace(run, key=str(n), period=f"{2000 + n // 12}-{n % 12 + 1:02d}")
        for n in range(60)
    }
    empty = dataclasses.replace(town, name="empty", history=town.history[:1], drawn=[])
    named = dataclasses.replace(town, name=long, budget=Units(epsilon=10**6 * 10**12))
    populations = {"town": town, "empty": empty, long: named}
    counted = dataclasses.replace(
        report.counted, populations=populations, runs={**report.counted.runs, **runs}
    )
    return dataclasses.replace(report, counted=counted)


PAGES = {
    "plain": lambda report: (report, []),
    "year": lambda report: (large(report), [year(), year("long_" * 40, population="empty")]),
    "strange": lambda report: (
        with_texts(report, "日本語の長い名前" * 6 + "<b>" + "unbroken" * 9),
        [year()],
    ),
}


def looked_at(kind, report, two_periods, look_at, views) -> None:
    changed, series = PAGES[kind](report)
    files = build_site(changed, series, out=two_periods, url="https://data.example.org/")
    pages = [name for name in sorted(files) if name.endswith("index.html")]
    assert len(pages) == 3
    for name in pages[:2]:
        assert look_at(files[name].decode(), views) == [], name


@pytest.mark.nightly
@pytest.mark.parametrize("kind", PAGES)
def test_nothing_is_cut_off_or_hard_to_read_at_any_width(kind, report, two_periods, look_at):
    looked_at(kind, report, two_periods, look_at, VIEWS)


@pytest.mark.parametrize("kind", ["year", "strange"])
@pytest.mark.slow
def test_nothing_is_cut_off_on_a_telephone_or_a_wide_screen(kind, report, two_periods, look_at):
    looked_at(kind, report, two_periods, look_at, CORNERS)
