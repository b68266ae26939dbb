"""The collector's side: only what an honest client may send is published, signed and verified."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.cli.main import main
from dpiw.errors import (
    ChecksumError,
    ManifestError,
    PrivacyError,
    ReleaseError,
    SignatureError,
    SourceError,
    SpecError,
)
from dpiw.local import LocalParameters, privatise
from dpiw.local.certificate import is_local, verify_local
from dpiw.local.collector import (
    load_local_spec,
    publish_reports,
    read_parameters,
    read_reports,
    reports_so_far,
    write_parameters,
)
from dpiw.local.estimate import load_local, means
from dpiw.privacy.mechanisms import lattice_step
from dpiw.privacy.randomness import SeededNoise
from dpiw.release.manifest import CERTIFICATE, MANIFEST
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import verify
from tests.support.local import people

SPEC = """\
format: 1
name: commute
features:
  - {name: age, low: 18, high: 90}
  - {name: city, low: 0, high: 1, private: false}
label: {name: home, levels: ["no", "yes"]}
epsilon: 4
delta: 1e-6
parameters: parameters.json
reports: reports.csv
signing_key: collector.key
publish_to: releases
least_reports: 12
"""


def reports_of(parameters: LocalParameters, count: int = 12) -> pd.DataFrame:
    """Reports as clients send them, by seeded noise."""
    features, labels = people(count, 2, np.random.default_rng(1))
    told, answers = privatise(features, labels, parameters=parameters, noise=SeededNoise(2))
    frame = pd.DataFrame(told, columns=["age", "city"])
    frame["home"] = [parameters.levels[answer] for answer in answers]
    frame["report_id"] = [f"{row:032x}" for row in range(count)]
    return frame.assign(parameters=parameters.digest)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A collector's folder: spec, key, public parameters and twelve reports."""
    (tmp_path / "collection.yaml").write_text(SPEC)
    create_key_pair(tmp_path, "collector")
    reports_of(write_parameters(spec_of(tmp_path))).to_csv(tmp_path / "reports.csv", index=False)
    return tmp_path


def spec_of(desk: Path):
    return load_local_spec(desk / "collection.yaml")


def collected(desk: Path) -> Path:
    spec = spec_of(desk)
    return publish_reports(spec, read_reports(spec))


def test_a_collection_is_published_verified_and_read(desk, capsys):
    folder = collected(desk)
    assert collected(desk) == folder  # the same reports again: nothing is written
    assert main(["verify", str(folder), "--key", str(desk / "collector.pub")]) == 0
    assert "local release commute" in capsys.readouterr().out
    assert main(["describe", str(folder)]) == 0
    assert "12 reports, each epsilon=4, delta=0.000001 under replace_one" in capsys.readouterr().out
    assert main(["describe", str(folder), "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert (stated["model"], stated["unprotected"]) == ("local", ["city"])
    assert stated["mechanisms"] == ["client:gaussian", "client:randomised_response"]
    trust = " ".join(stated["trust"])
    assert "but for city: the collector has these as they are" in trust
    assert "Of the rest the collector never had a record" in trust
    assert "no confidential zone" not in trust  # which holds where nothing is told as it is
    assert any(one.startswith("Lattice noise") for one in stated["assumptions"])
    sample = load_local(folder, desk / "collector.pub")
    sent = pd.read_csv(desk / "reports.csv")
    assert sorted(sample.features[:, 0]) == sorted(sent["age"])
    assert np.sort(sample.features[:, 0]) == pytest.approx(sample.features[:, 0])  # sorted
    assert means(sample).values[1] == pytest.approx((sent["city"].mean() + 1) / 2)
    assert (folder.stat().st_mode & 0o777, sorted(p.name for p in folder.iterdir())) == (
        0o755,
        ["certificate.json", "manifest.json", "manifest.sig", "parameters.json", "reports.parquet"],
    )


def test_neither_order_nor_form_nor_repeats_matter(desk):
    sent = pd.read_csv(desk / "reports.csv", dtype=str).astype({"age": float, "city": float})
    first = read_reports(spec_of(desk))
    text = (desk / "collection.yaml").read_text()
    sent.sample(frac=1, random_state=1).to_parquet(desk / "other.parquet")
    (desk / "folder").mkdir()
    for row in [*sent.to_dict("records"), sent.iloc[0].to_dict()]:
        name = f"{len(list((desk / 'folder').iterdir()))}.json"
        (desk / "folder" / name).write_text(json.dumps(row))
    folder = collected(desk)
    before = (folder / "reports.parquet").read_bytes()
    for reports in ("other.parquet", "folder"):
        (desk / "collection.yaml").write_text(text.replace("reports.csv", reports))
        shutil.rmtree(folder)
        assert (collected(desk) / "reports.parquet").read_bytes() == before
        assert len(read_reports(spec_of(desk)).features) == len(first.features) == 12


BAD = {
    "a column too many": lambda f: f.assign(name="canary"),
    "a column too few": lambda f: f.drop(columns="city"),
    "other parameters": lambda f: f.assign(parameters=["canary", *f["parameters"][1:]]),
    "two reports of one id": lambda f: f.assign(report_id=f["report_id"][0]),
    "no id": lambda f: f.assign(report_id=["", *f["report_id"][1:]]),
    "no number": lambda f: f.assign(age=["canary", *f["age"][1:]]),
    "not finite": lambda f: f.assign(age=[np.inf, *f["age"][1:]]),
    "missing": lambda f: f.assign(age=[np.nan, *f["age"][1:]]),
    "rounded": lambda f: f.assign(age=f["age"].round(3)),
    "an impossible draw": lambda f: f.assign(age=[lattice_step(1.0) * 2.0**40, *f["age"][1:]]),
    "a bare feature out of bounds": lambda f: f.assign(city=[1.5, *f["city"][1:]]),
    "no level": lambda f: f.assign(home=["canary", *f["home"][1:]]),
    "nothing": lambda f: f[:0],
}


@pytest.mark.parametrize("change", BAD)
def test_what_no_honest_client_sends_is_refused(change, desk):
    sent = pd.read_csv(desk / "reports.csv", dtype={"report_id": str})
    BAD[change](sent).to_csv(desk / "reports.csv", index=False)
    with pytest.raises(SourceError) as refused:
        collected(desk)
    assert "canary" not in str(refused.value)
    assert not (desk / "releases").exists()


@pytest.mark.parametrize("text", ["", "{", '["a"]', '{"age": [1], "parameters": {}}', "[" * 9999])
def test_files_that_are_no_reports_are_refused(text, desk):
    spec = (desk / "collection.yaml").read_text()
    (desk / "folder").mkdir()
    (desk / "folder" / "one.json").write_text(text)
    (desk / "one.csv").write_text(text)
    (desk / "one.parquet").write_text(text)
    for name in ("folder", "one.csv", "one.parquet", "one.xlsx", "none.csv"):
        (desk / "collection.yaml").write_text(spec.replace("reports.csv", name))
        with pytest.raises(SourceError):
            read_reports(spec_of(desk))


def test_another_reader_and_a_changed_byte_are_told(desk):
    folder = collected(desk)
    assert is_local(folder)
    assert not is_local(desk)
    with pytest.raises(ManifestError, match="this is a local release"):
        verify(folder)
    create_key_pair(desk, "other")
    with pytest.raises(SignatureError):
        verify_local(folder, public_key=desk / "other.pub")
    for name, error in ((MANIFEST, SignatureError), (CERTIFICATE, ChecksumError)):
        broken = shutil.copytree(folder, desk / f"broken-{name}")
        data = (broken / name).read_bytes()
        (broken / name).write_bytes(data.replace(b'"epsilon": "4"', b'"epsilon": "1"'))
        with pytest.raises(error):
            verify_local(broken)
    (folder / "more").write_text("x")
    with pytest.raises(ManifestError, match="not listed"):
        load_local(folder)


def test_more_reports_need_another_place_and_get_it(desk):
    """What the message advises works; what clients were given forbids another name."""
    collected(desk)
    reports_of(read_parameters(spec_of(desk)), 13).to_csv(desk / "reports.csv", index=False)
    with pytest.raises(ReleaseError, match="change `publish_to` in the spec, and that alone"):
        collected(desk)
    (desk / "collection.yaml").write_text(SPEC.replace("name: commute", "name: commute-2"))
    with pytest.raises(SpecError, match=r"parameters.json.*another spec \(name\).*`publish_to`"):
        collected(desk)
    (desk / "collection.yaml").write_text(SPEC.replace("publish_to: releases", "publish_to: more"))
    assert verify_local(collected(desk)).certificate.rows == 13


def test_few_reports_are_not_published_by_a_slip(desk, capsys):
    """A release is never replaced: one report, published too early, would be the release."""
    spec = SPEC.replace("least_reports: 12\n", "").replace("reports.csv", "folder")
    (desk / "collection.yaml").write_text(spec)
    (desk / "folder").mkdir()
    report = pd.read_csv(desk / "reports.csv", dtype={"report_id": str}).iloc[0].to_dict()
    (desk / "folder" / "one.json").write_text(json.dumps(report))
    with pytest.raises(SourceError, match=r"1 so far, .* fewer than 1,000.*`least_reports`"):
        collected(desk)
    assert not (desk / "releases").exists()
    assert main(["local", "plan", str(desk / "collection.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "1 so far in " in shown
    assert "published once, from 1,000 on (least_reports)" in shown
    (desk / "collection.yaml").write_text(spec + "least_reports: 1\n")
    assert verify_local(collected(desk)).certificate.rows == 1
    (desk / "collection.yaml").write_text(spec + "least_reports: 0\n")
    with pytest.raises(SpecError, match="least_reports: found 0; expected"):
        spec_of(desk)


@pytest.mark.parametrize("form", ["folder", "reports.csv", "reports.parquet"])
def test_reports_are_counted_before_they_are_checked(form, desk):
    sent = pd.read_csv(desk / "reports.csv", dtype={"report_id": str})
    (desk / "folder").mkdir()
    for place, row in enumerate(sent.to_dict("records")):
        (desk / "folder" / f"{place}.json").write_text(json.dumps(row))
    sent.to_parquet(desk / "reports.parquet")
    (desk / "collection.yaml").write_text(SPEC.replace("reports.csv", form))
    assert reports_so_far(spec_of(desk)) == 12
    shutil.rmtree(desk / "folder")
    for name in ("reports.csv", "reports.parquet"):
        (desk / name).unlink()
    assert reports_so_far(spec_of(desk)) is None


def test_a_report_that_is_refused_is_named(desk):
    """By its file, or by its row; two and more with how many there are."""
    sent = pd.read_csv(desk / "reports.csv", dtype={"report_id": str})
    sent.loc[[6, 8, 9, 10], "home"] = "canary"
    sent.to_csv(desk / "reports.csv", index=False)
    expected = "home: expected one of no, yes; not so in 4 of 12: row 7, row 9, row 10 and 1 more"
    with pytest.raises(SourceError, match=expected):
        collected(desk)
    (desk / "collection.yaml").write_text(SPEC.replace("reports.csv", "folder"))
    (desk / "folder").mkdir()
    rows = sent.to_dict("records")
    for place, row in enumerate([*rows[:8], rows[11]]):
        (desk / "folder" / f"report-{place}.json").write_text(json.dumps(row))
    with pytest.raises(SourceError, match=r"home: .* not so in 1 of 9: 'report-6\.json'$"):
        collected(desk)
    for fault in ("{", json.dumps({**rows[0], "more": 1}), json.dumps({"home": "no"}), "[]"):
        (desk / "folder" / "report-6.json").write_text(fault)
        with pytest.raises(SourceError, match=r"'report-6\.json': expected a JSON object of"):
            collected(desk)
    parameters = [*sent["parameters"][:11], "0" * 64]
    sent.assign(home="no", parameters=parameters).to_csv(desk / "reports.csv", index=False)
    (desk / "collection.yaml").write_text(SPEC)
    with pytest.raises(
        SourceError, match=r"SHA-256 of parameters\.json.* not so in 1 of 12: row 12"
    ):
        collected(desk)


def test_parameters_are_written_once_and_belong_to_their_spec(desk):
    given = (desk / "parameters.json").read_bytes()
    assert write_parameters(spec_of(desk)).to_json() == given
    for old, new in (("epsilon: 4", "epsilon: 3"), ("high: 90", "high: 91"), ('"yes"', '"y"')):
        (desk / "collection.yaml").write_text(SPEC.replace(old, new))
        named = {"epsilon: 4": "epsilon", "high: 90": "features", '"yes"': "label"}[old]
        with pytest.raises(SpecError, match=rf"of another spec \(.*{named}.*\)"):
            write_parameters(spec_of(desk))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("epsilon: 4", "epsilon: 0", "line 7.*epsilon"), ("delta: 1e-6", "delta: 0", "delta"),
        ("low: 18", "low: 99", "feature age"), ("low: 18", 'low: "x"', "low"),
        ("format: 1", "format: 2", "format"), ("epsilon: 4", "epsilons: 4", "epsilon"),
        ('["no", "yes"]', '["no"]', "levels"), ("name: home", "name: age", "different names"),
        ("epsilon: 4", "epsilon: 4\nradius: 0", "radius"),
    ],
)  # fmt: skip
def test_a_spec_is_read_strictly(old, new, named, desk, capsys):
    (desk / "parameters.json").unlink()
    (desk / "collection.yaml").write_text(SPEC.replace(old, new))
    assert main(["local", "plan", str(desk / "collection.yaml")]) == SpecError.exit_code
    told = capsys.readouterr().err.replace("\n", " ")
    assert re.search(named, told), told
    assert not (desk / "parameters.json").exists()


def test_a_client_types_one_command(desk, capsys):
    (desk / "me.json").write_text(json.dumps({"age": 44, "city": 1, "home": "no"}))
    words = ["local", "report", str(desk / "parameters.json"), str(desk / "me.json")]
    for named in ([], ["--bare", "age"], ["--bare", "cit"], ["--bare", "city "]):
        refused = [*words, *named, "--out", str(desk / "report.json")]
        assert main(refused) == PrivacyError.exit_code
        assert "'city'" in capsys.readouterr().err
        assert not (desk / "report.json").exists()
    words += ["--bare", "city", "--out"]
    assert main([*words, str(desk / "report.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("told as it is, not protected, as --bare says: 'city'\nreport ")
    assert f"next: send {desk / 'report.json'} to the collector" in shown
    first = (desk / "report.json").read_bytes()
    assert main([*words, str(desk / "report.json")]) == 0
    assert (desk / "report.json").read_bytes() == first
    assert main(["local", "plan", str(desk / "collection.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "not noised, not protected: city" in shown
    assert "next, each client:    dpiw local report " in shown
    assert f"with all reports: dpiw local collect {desk / 'collection.yaml'}\n" in shown
    (desk / "me.json").write_text('{"age": "canary"')
    broken = [*words, str(desk / "other.json")]
    assert main(broken) == SourceError.exit_code  # after it said what goes bare
    assert "canary" not in capsys.readouterr().err
    parts = (({"city": 1, "home": "no"}, "feature age"), ({"age": 44, "city": 1}, "label home"))
    for record, named in parts:
        (desk / "me.json").write_text(json.dumps(record))
        assert main([*words, str(desk / "other.json")]) == SourceError.exit_code
        assert f"{named}: missing in the record" in capsys.readouterr().err
    words[3] = str(desk / "you.json")
    assert main([*words, str(desk / "other.json")]) == SourceError.exit_code
    assert f"record {desk / 'you.json'}: No such file" in capsys.readouterr().err
