"""The collector's side: what an honest client may send is published, signed and verified.

A signature proves who signed, not that the statement is true: dpiw computes the promise again.
"""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpiw import errors
from dpiw.cli.main import main
from dpiw.local import collector
from dpiw.local.certificate import (
    PARAMETERS,
    REPORTS,
    LocalCertificate,
    LocalFacts,
    LocalManifest,
    is_local,
    verify_local,
)
from dpiw.local.estimate import load_local, means
from dpiw.privacy.mechanisms import lattice_step
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.manifest import CERTIFICATE, MANIFEST
from dpiw.release.parquet import arrow_fields, write_table
from dpiw.release.publication import build_folder
from dpiw.release.signing import create_key_pair, load_private_key
from dpiw.release.verification import verify
from tests.support.local import SPEC, collection, collectors_desk, reports_of


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    return collectors_desk(tmp_path)


def spec_of(desk: Path):
    return collector.load_local_spec(desk / "collection.yaml")


def collected(desk: Path) -> Path:
    spec = spec_of(desk)
    return collector.publish_reports(spec, collector.read_reports(spec))


def test_a_collection_is_published_verified_and_read(desk, capsys, says):
    folder = collected(desk)
    assert collected(desk) == folder  # the same reports again: nothing is written
    assert main(["verify", str(folder), "--key", str(desk / "collector.pub")]) == 0
    assert main(["describe", str(folder)]) == 0
    assert "12 reports, each epsilon=4, delta=0.000001 under replace_one" in capsys.readouterr().out
    stated = json.loads(says("describe", folder, "--json"))
    assert (stated["model"], stated["unprotected"]) == ("local", ["city"])
    assert stated["mechanisms"] == ["client:gaussian", "client:randomised_response"]
    trust = " ".join(stated["trust"])
    assert "no confidential zone" not in trust  # which holds where nothing is told as it is
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
    first = collector.read_reports(spec_of(desk))
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
        assert len(collector.read_reports(spec_of(desk)).features) == len(first.features) == 12


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
    with pytest.raises(errors.SourceError) as refused:
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
        with pytest.raises(errors.SourceError):
            collector.read_reports(spec_of(desk))


def test_another_reader_and_a_changed_byte_are_told(desk):
    folder = collected(desk)
    assert is_local(folder)
    assert not is_local(desk)
    with pytest.raises(errors.ManifestError, match="this is a local release"):
        verify(folder)
    create_key_pair(desk, "other")
    with pytest.raises(errors.SignatureError):
        verify_local(folder, public_key=desk / "other.pub")
    for name, error in ((MANIFEST, errors.SignatureError), (CERTIFICATE, errors.ChecksumError)):
        broken = shutil.copytree(folder, desk / f"broken-{name}")
        data = (broken / name).read_bytes()
        (broken / name).write_bytes(data.replace(b'"epsilon": "4"', b'"epsilon": "1"'))
        with pytest.raises(error):
            verify_local(broken)
    (folder / "more").write_text("x")
    with pytest.raises(errors.ManifestError, match="not listed"):
        load_local(folder)


def test_more_reports_need_another_place_and_get_it(desk):
    collected(desk)
    reports_of(collector.read_parameters(spec_of(desk)), 13).to_csv(
        desk / "reports.csv", index=False
    )
    with pytest.raises(errors.ReleaseError, match="publish_to"):
        collected(desk)
    (desk / "collection.yaml").write_text(SPEC.replace("name: commute", "name: commute-2"))
    with pytest.raises(errors.SpecError, match=r"another spec \(name\)"):
        collected(desk)
    (desk / "collection.yaml").write_text(SPEC.replace("publish_to: releases", "publish_to: more"))
    assert verify_local(collected(desk)).certificate.rows == 13


def test_few_reports_are_not_published_by_a_slip(desk):
    spec = SPEC.replace("least_reports: 12\n", "").replace("reports.csv", "folder")
    (desk / "collection.yaml").write_text(spec)
    (desk / "folder").mkdir()
    report = pd.read_csv(desk / "reports.csv", dtype={"report_id": str}).iloc[0].to_dict()
    (desk / "folder" / "one.json").write_text(json.dumps(report))
    with pytest.raises(errors.SourceError, match="least_reports"):
        collected(desk)
    assert not (desk / "releases").exists()
    (desk / "collection.yaml").write_text(spec + "least_reports: 1\n")
    assert verify_local(collected(desk)).certificate.rows == 1
    (desk / "collection.yaml").write_text(spec + "least_reports: 0\n")
    with pytest.raises(errors.SpecError, match="least_reports"):
        spec_of(desk)


def test_a_report_that_is_refused_is_named(desk):
    sent = pd.read_csv(desk / "reports.csv", dtype={"report_id": str})
    sent.loc[[6, 8, 9, 10], "home"] = "canary"
    sent.to_csv(desk / "reports.csv", index=False)
    with pytest.raises(errors.SourceError, match="4 of 12: row 7, row 9, row 10 and 1 more"):
        collected(desk)
    (desk / "collection.yaml").write_text(SPEC.replace("reports.csv", "folder"))
    (desk / "folder").mkdir()
    rows = sent.to_dict("records")
    for place, row in enumerate([*rows[:8], rows[11]]):
        (desk / "folder" / f"report-{place}.json").write_text(json.dumps(row))
    with pytest.raises(errors.SourceError, match=r"home: .* not so in 1 of 9: 'report-6\.json'$"):
        collected(desk)
    (desk / "folder" / "report-6.json").write_text(json.dumps({**rows[0], "more": 1}))
    with pytest.raises(errors.SourceError, match=r"'report-6\.json'"):
        collected(desk)


def test_parameters_are_written_once_and_belong_to_their_spec(desk):
    given = (desk / "parameters.json").read_bytes()
    assert collector.write_parameters(spec_of(desk)).to_json() == given
    for old, new in (("epsilon: 4", "epsilon: 3"), ("high: 90", "high: 91"), ('"yes"', '"y"')):
        (desk / "collection.yaml").write_text(SPEC.replace(old, new))
        named = {"epsilon: 4": "epsilon", "high: 90": "features", '"yes"': "label"}[old]
        with pytest.raises(errors.SpecError, match=rf"of another spec \(.*{named}.*\)"):
            collector.write_parameters(spec_of(desk))


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
    assert main(["local", "plan", str(desk / "collection.yaml")]) == errors.SpecError.exit_code
    told = capsys.readouterr().err.replace("\n", " ")
    assert re.search(named, told), told
    assert not (desk / "parameters.json").exists()


def test_a_client_types_one_command(desk, says):
    (desk / "me.json").write_text(json.dumps({"age": 44, "city": 1, "home": "no"}))
    words = ["local", "report", str(desk / "parameters.json"), str(desk / "me.json")]
    for named in ([], ["--bare", "age"], ["--bare", "cit"], ["--bare", "city "]):
        refused = [*words, *named, "--out", str(desk / "report.json")]
        assert "'city'" in says(*refused, code=errors.PrivacyError.exit_code)
        assert not (desk / "report.json").exists()
    words += ["--bare", "city", "--out"]
    assert "'city'" in says(*words, desk / "report.json")
    first = (desk / "report.json").read_bytes()
    assert main([*words, str(desk / "report.json")]) == 0
    assert (desk / "report.json").read_bytes() == first
    assert "not noised, not protected: city" in says("local", "plan", desk / "collection.yaml")
    (desk / "me.json").write_text('{"age": "canary"')
    broken = [*words, str(desk / "other.json")]
    assert "canary" not in says(*broken, code=errors.SourceError.exit_code)
    parts = (({"city": 1, "home": "no"}, "feature age"), ({"age": 44, "city": 1}, "label home"))
    for record, named in parts:
        (desk / "me.json").write_text(json.dumps(record))
        assert named in says(*words, desk / "other.json", code=errors.SourceError.exit_code)
    words[3] = str(desk / "you.json")
    assert main([*words, str(desk / "other.json")]) == errors.SourceError.exit_code


HONEST = collection(private=(True, False))
LABEL = {"law": "randomised_response", "levels": 2, "kept": HONEST.kept}
NOISE = LocalCertificate.of(HONEST, rows=3, versions={}).noise


def signed(home: Path, *, parameters=HONEST, columns=("a", "b", "home"), **stated) -> Path:
    """A folder of three reports that somebody signed, whatever the certificate states."""
    certificate = dataclasses.replace(
        LocalCertificate.of(HONEST, rows=3, versions={"dpiw": "0"}),
        **{"parameters_digest": parameters.digest, **stated},
    )
    schema = pa.schema([
        pa.field(columns[0], pa.float64(), nullable=False),
        pa.field(columns[1], pa.float64(), nullable=False),
        pa.field(columns[2], pa.string(), nullable=False),
    ])  # fmt: skip
    write_table(
        home / "told", pa.table([np.zeros(3), np.zeros(3), ["no"] * 3], schema=schema),
        facts=certificate.footer_facts(),
    )  # fmt: skip
    create_key_pair(home, "collector")
    build_folder(
        home / "release",
        files={REPORTS: (home / "told").read_bytes(), CERTIFICATE: certificate.to_json(),
               PARAMETERS: parameters.to_json()},
        facts=LocalFacts.of(
            certificate, columns=arrow_fields(schema), published_at="2027-01-31T06:00:00Z"
        ),
        key=load_private_key(home / "collector.key"), kind=LocalManifest,
    )  # fmt: skip
    return home / "release"


def test_what_the_parameters_promise_passes(tmp_path):
    label = NOISE["label"]
    near = {**NOISE, "label": {**label, "epsilon": np.nextafter(label["epsilon"], 9).item()}}
    verified = verify_local(signed(tmp_path, noise=near))  # another machine's logarithm
    assert verified.parameters == HONEST


@pytest.mark.parametrize(
    "stated",
    [
        {"epsilon": "0.1"}, {"delta": "1E-9"}, {"release_id": "other"}, {"noise": {}},
        {"noise": {**NOISE, "features": {**NOISE["features"], "stddev": 99.0}}},
        {"noise": {**NOISE, "label": LABEL}}, {"noise": {"features": NOISE["features"]}},
        {"unprotected": ()}, {"mechanisms": ("client:gaussian",)},
        {"unit": PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)},
    ],
    ids=lambda stated: next(iter(stated)),
)  # fmt: skip
def test_a_signed_certificate_of_another_promise_is_refused(stated, tmp_path):
    field = next(iter(stated))
    with pytest.raises(errors.ManifestError, match=f"certificate.json {field}: not that of"):
        verify_local(signed(tmp_path, **stated))


@pytest.mark.parametrize("change", [{"stddev": HONEST.stddev / 2}, {"delta": "0.999"}])
def test_signed_parameters_that_promise_too_much_are_refused(change, tmp_path):
    lying = dataclasses.replace(HONEST, **change)
    certificate = LocalCertificate.of(lying, rows=3, versions={})
    with pytest.raises(errors.PrivacyError, match=PARAMETERS):
        verify_local(signed(tmp_path, parameters=lying, delta=lying.delta, noise=certificate.noise))


def test_reports_of_other_columns_are_refused(tmp_path):
    with pytest.raises(errors.ManifestError, match="columns"):
        verify_local(signed(tmp_path, columns=("a", "c", "home")))


def test_other_parameters_than_those_named_are_refused(tmp_path):
    with pytest.raises(errors.ManifestError, match="parameters_digest"):
        verify_local(signed(tmp_path, parameters_digest="0" * 64))
