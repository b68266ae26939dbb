"""Every kind of column through every method: published and read back as declared, or refused.

The table of expectations is `tests.support.kinds`; `docs/spec.md` shows it.
"""

import dataclasses
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpiw import analysis
from dpiw.data.schema.declarations import bucket_names
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SchemaError, SpecError
from dpiw.methods.generators.registry import GENERATORS, make_generator
from dpiw.methods.recipe import Recipe, play
from dpiw.methods.weights.base import Normalisation, Weighing
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.methods.weights.registry import NONE, WEIGHTS, make_weights
from dpiw.plan.spec import parse_spec
from dpiw.plan.stages import fitting
from dpiw.privacy.randomness import SeededNoise
from dpiw.release.parquet import FACTS, as_frame, write_synthetic
from tests.support import small
from tests.support.fits import fitted_at_once
from tests.support.kinds import CELLS, KINDS, MANY, table
from tests.support.made_elsewhere import settings, written
from tests.support.specs import GOOD
from tests.support.whole_runs import loaded, publish_run
from tests.support.worlds import UNIT

ROWS = 60
SMALL = small.SMALL | {
    "measured": {"omega_seed": 1, "frequencies": 5, "base_rows": 100},
    "output_noised": {"allow_more_rows": True},
    "dp_mlp": {"hidden": [4], "steps": 5},
}
"""Settings that keep a cell to some hundredths of a second."""


AS_DPGAN = [f"[{k}-{m}]" for k in KINDS if k != "groups" for m in ("dpcgan", "discriminator")]
"""What writes its columns by the heads of `dpgan`, which has every kind in `make test`."""


def recipe(schema, method, elsewhere=None, **settings):
    """A generator alone, or weights on a histogram; `discriminator` has its GAN's."""
    weights = method if method in WEIGHTS else NONE
    generator = {NONE: method, "discriminator": "dpgan"}.get(weights, "histogram")
    facts = {"rho": 1.0, "schema": schema, "unit": UNIT, "nominal_rows": ROWS}
    chosen = elsewhere or SMALL.get(generator, {})
    estimator = make_weights(weights, SMALL.get(weights, {}) | settings, rows=ROWS)
    spec = parse_spec(GOOD | {"generator": {"method": generator}, "weights": {"method": weights}})
    fitted = fitting(spec, schema, make_generator(generator, chosen, pure=False), estimator)
    calibrated = fitted.calibrate(**facts)
    weighing = Weighing(
        rows=ROWS, post_processing=parse_post_processing([]), normalisation=Normalisation.SELF,
    )  # fmt: skip
    if estimator is not None:
        estimator.check_critic(calibrated.critic)
        estimator = estimator.calibrate(**facts)
    return Recipe(schema=schema, generator=calibrated, weights=estimator, weighing=weighing)


def file_of(kind, path):
    """Settings of a file that another tool made: released cells of that kind."""
    schema = kind.schema()
    return settings(path, written(path, schema.unscale(schema.scale(kind.frame(ROWS)))))


def played(made, frame):
    private = PrivateTable(schema=made.schema, scaled=made.schema.scale(frame))
    return play(made, private, noise=SeededNoise(7), rng=np.random.default_rng(7))


def read_back(one, path):
    """The rows, through the file that a release holds."""
    write_synthetic(
        path.parent, frames=[one.rows.frame()], log_weights=one.weights.log_weights,
        schema=one.rows.schema, facts=dict.fromkeys(FACTS, "-"), rng=np.random.default_rng(1),
    )  # fmt: skip
    frame, _, _ = as_frame([pq.read_table(path.parent / "synthetic.parquet")])
    return frame


@pytest.fixture(autouse=True)
def _at_once():
    """MST and AIM fit at once; `test_admission.py` has their own fits."""
    with fitted_at_once():
        yield


@pytest.mark.nightly_cases("many-bayes]", *AS_DPGAN)
@pytest.mark.parametrize(("kind", "method"), CELLS)
def test_a_kind_is_published_as_declared_or_refused(kind, method, tmp_path):
    expected = KINDS[kind]
    for where in ("schema", method):
        if said := expected.refused.get(where):
            nowhere = settings(tmp_path, "0" * 64) if method == "external" else None
            with pytest.raises((SchemaError, SpecError), match=said):
                recipe(expected.schema(), method, nowhere)
            return
    schema = expected.schema()
    given = file_of(expected, tmp_path / "made.parquet") if method == "external" else None
    published = played(recipe(schema, method, given), expected.frame(ROWS))
    frame = read_back(published, tmp_path / "synthetic.parquet")
    assert tuple(str(frame[name].dtype) for name in ("full", "gaps")) == expected.dtypes
    assert not frame["full"].isna().any()
    assert published.weights.rows == len(frame) == ROWS
    for name in ("full", "gaps"):
        column, released = schema.column(name), frame[name].dropna()
        if column.levels:
            assert set(released) <= set(column.levels)
        elif column.is_numeric:
            ends = (column.lower, column.upper)
            if frame[name].dtype.kind == "M":
                ends = tuple(pd.Timestamp(end) for end in ends)
                if zone := frame[name].dt.tz:
                    ends = tuple(end.tz_localize(zone) for end in ends)
            assert released.between(*ends).all()
    released = published.rows.schema
    pd.testing.assert_frame_equal(released.unscale(released.scale(frame)), frame)


def test_the_table_of_the_docs_is_the_one_that_is_tested():
    page = Path(__file__).parents[3] / "docs" / "spec.md"
    assert table() in page.read_text()


def test_the_page_names_every_method_and_the_settings_of_weights():
    page = (Path(__file__).parents[3] / "docs" / "spec.md").read_text()
    generators, weights = page.partition("\n### Generators")[2].split("\n### Weights")
    weights = weights.partition("\n## ")[0]
    for part, methods in ((generators, GENERATORS), (weights, WEIGHTS)):
        titles = " ".join(re.findall(r"\*\*(`[^*]+`)\*\*", part))
        assert [method for method in methods if f"`{method}`" not in titles] == []
    release_s = {"rows", "device"}  # the published rows; stated once, of the neural generators
    for method, kind in WEIGHTS.items():
        names = {setting.name for setting in dataclasses.fields(kind)} - kind.set_later - release_s
        assert {name for name in names if f"`{name}`" not in weights} == set(), method


@pytest.fixture
def never_dense(monkeypatch):
    """Nothing may hold a row as a number for each level."""
    monkeypatch.setattr(PublicSchema, "encode", mock.Mock(side_effect=AssertionError))


@pytest.mark.usefixtures("never_dense")
def test_fourier_features_reach_ten_thousand_levels_without_a_column_for_each():
    """As the refusal of products says."""
    kind = KINDS["many"]
    made = recipe(kind.schema(), "measured", features={"fourier": 1.0}, scales=[1.0])
    assert played(made, kind.frame(ROWS)).weights.rows == ROWS


DICTIONARY = """
name: town
columns:
  - {name: seen, kind: datetime, lower: "1900-01-01", upper: "2199-12-31",
     time_zone: Europe/Berlin, nullable: true}
  - {name: place, kind: categorical, hash_buckets: 12}
  - {name: cause, kind: categorical, hierarchy_file: causes.csv, nullable: true}
  - {name: trade, kind: categorical, levels_file: trades.txt, nullable: true}
"""


@pytest.mark.usefixtures("never_dense")
@pytest.mark.slow
def test_a_release_holds_moments_in_their_zone_buckets_groups_and_many_levels(make_workplace):
    place = make_workplace(generator="histogram", weights=NONE)
    (place.root / "schema.yaml").write_text(DICTIONARY)
    (place.root / "trades.txt").write_text("\n".join(MANY))
    codes = [f"{code},{'early' if n < 5000 else 'late'}" for n, code in enumerate(MANY)]
    (place.root / "causes.csv").write_text("\n".join(["code,chapter", *codes, "other,other"]))
    moments = ["1969-07-20T21:17", "2024-03-31T02:30", "2024-10-27T02:30", "", "2199-01-01"]
    rows = [f"{moments[n % 5]},secret-{n},{MANY[n]},{MANY[n]}" for n in range(200)]
    place.source.write_text("\n".join(["seen,place,cause,trade", *rows]))
    run, folder = publish_run(place.spec)
    release = loaded(folder)
    assert str(release.table["seen"].dtype) == "datetime64[s, Europe/Berlin]"
    assert set(release.table["place"]) <= {f"bucket {n:02}" for n in range(12)}
    assert analysis.dirichlet_posterior(release, "place").levels == bucket_names(12)
    assert set(release.table["cause"].dropna()) <= {"early", "late", "other"}
    assert set(release.table["trade"].dropna()) <= set(MANY)
    told = " ".join(release.certificate.caveats)
    assert "Column place holds hash buckets" in told
    assert "Column cause holds groups" in told
    assert run.plan.schema.released[2].cardinality == 3
    assert not [path for path in folder.iterdir() if b"secret-1" in path.read_bytes()]
