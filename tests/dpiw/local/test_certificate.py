"""A signature proves who said it, not that it is true: a folder's promise is computed anew."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpiw.errors import ManifestError, PrivacyError
from dpiw.local.certificate import (
    PARAMETERS,
    REPORTS,
    LocalCertificate,
    LocalManifest,
    verify_local,
)
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.manifest import CERTIFICATE
from dpiw.release.parquet import arrow_fields, write_table
from dpiw.release.publication import build_folder
from dpiw.release.signing import create_key_pair, load_private_key
from tests.support.local import collection

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
        facts=certificate.manifest_facts(
            columns=arrow_fields(schema), published_at="2027-01-31T06:00:00Z"
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
    with pytest.raises(ManifestError, match=f"certificate.json {next(iter(stated))}: not that of"):
        verify_local(signed(tmp_path, **stated))


@pytest.mark.parametrize("change", [{"stddev": HONEST.stddev / 2}, {"delta": "0.999"}])
def test_signed_parameters_that_promise_too_much_are_refused(change, tmp_path):
    lying = dataclasses.replace(HONEST, **change)
    certificate = LocalCertificate.of(lying, rows=3, versions={})
    with pytest.raises(PrivacyError, match=PARAMETERS):
        verify_local(signed(tmp_path, parameters=lying, delta=lying.delta, noise=certificate.noise))


def test_reports_of_other_columns_are_refused(tmp_path):
    with pytest.raises(ManifestError, match="columns"):
        verify_local(signed(tmp_path, columns=("a", "c", "home")))


def test_other_parameters_than_those_named_are_refused(tmp_path):
    with pytest.raises(ManifestError, match="parameters_digest"):
        verify_local(signed(tmp_path, parameters_digest="0" * 64))
