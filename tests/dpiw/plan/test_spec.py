"""Release specs: what is admissible, and what each refusal says. Nothing is read or spent."""

from decimal import Decimal

import pytest

from dpiw.data.yaml import load_text
from dpiw.errors import SpecError
from dpiw.plan.spec import load_schema, load_spec, parse_spec
from dpiw.privacy.units import NeighbouringRelation
from tests.support.specs import GOOD, REFUSED_CALIBRATIONS, REFUSED_FIELDS, changed


def test_a_good_spec_keeps_exact_decimals():
    spec = parse_spec(GOOD)
    assert spec.epsilon == Decimal("1.5")
    assert spec.delta == Decimal("1e-6")
    assert spec.privacy_unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
    assert spec.cost.epsilon_units == 1_500_000_000_000
    assert spec.cost.delta_units == 10**12


@pytest.mark.parametrize(("path", "value", "field"), REFUSED_FIELDS)
def test_what_is_refused_names_its_field(path, value, field):
    with pytest.raises(SpecError, match=rf"^{field}\b"):
        parse_spec(changed(path, value))


@pytest.mark.parametrize("field", sorted(set(GOOD) - {"weights"}))
def test_missing_fields_are_named(field):
    mapping = {key: value for key, value in GOOD.items() if key != field}
    with pytest.raises(SpecError, match=field):
        parse_spec(mapping)


@pytest.mark.parametrize(
    ("method", "shares"),
    [("none", (0.5, 0.5)), ("beta_noised", (0.5, 0.5)), ("measured", (0.7, 0.3))],
)
def test_every_method_has_its_usual_share_of_the_effort(method, shares):
    mapping = {key: value for key, value in GOOD.items() if key != "shares"}
    asked = {"method": method, "settings": {"omega_seed": 1} if method == "measured" else {}}
    found = parse_spec(mapping | {"weights": asked}).shares
    assert (found.generator, found.weights) == shares
    said = parse_spec(mapping | {"weights": asked, "shares": {"weights": 0.2}}).shares
    assert (said.generator, said.weights) == (0.5, 0.2)


def test_max_rows_needs_an_identifier():
    with pytest.raises(SpecError, match="id_column"):
        _ = parse_spec(changed("unit.max_rows", 3)).privacy_unit


def test_replace_one_protects_single_rows_only():
    mapping = changed("relation", "replace_one") | {"unit": {"max_rows": 2, "id_column": "id"}}
    with pytest.raises(SpecError, match=r"unit\.max_rows"):
        parse_spec(mapping)


def test_no_secret_is_echoed():
    with pytest.raises(SpecError) as caught:
        parse_spec(changed("state", "postgresql://user:hunter2@host/db"))
    assert "hunter2" not in str(caught.value)


def test_a_line_that_became_a_key_is_not_repeated():
    """An open quote can turn a line with a password into a key that no spec knows."""
    line = "ledger: postgresql+psycopg://user:hunter2@host/db"
    with pytest.raises(SpecError, match="a key that is no plain word") as caught:
        parse_spec({"format": 1, line: None})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SpecError, match="duplicate key") as caught:
        load_text(f'"{line}": 1\n"{line}": 2\n', what="spec")
    assert "hunter2" not in str(caught.value)


def written(path, **changes):
    """A spec file of the least fields."""
    fields = {
        "format": 1, "name": "survey", "population": "town", "schema": "schema.yaml",
        "source": "{path: ../data.csv, format: csv}", "epsilon": 0.1, "delta": "1e-6",
        "nominal_rows": 1000, "generator": "{method: histogram}", "weights": "{method: none}",
        "synthetic_rows": 10, "state": "../state", "signing_key": "../k.key",
        "publish_to": "../out",
    } | changes  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    return path


def test_paths_are_relative_to_the_spec_file(tmp_path):
    spec = load_spec(written(tmp_path / "specs" / "release.yaml"))
    assert spec.epsilon == Decimal("0.1")  # exactly: never through a float
    assert spec.source.path == str(tmp_path / "data.csv")
    assert spec.schema_path == str(tmp_path / "specs" / "schema.yaml")
    assert spec.state == str(tmp_path / "state")


@pytest.mark.parametrize("link", ["hardlink_to", "symlink_to"])
def test_a_dictionary_that_is_the_source_by_another_name_is_not_opened(workplace, link):
    spec = load_spec(workplace.spec)
    other = workplace.root / "other.yaml"
    getattr(other, link)(workplace.source)
    workplace.source.chmod(0)
    for path in (str(other), str(other.resolve())):
        with pytest.raises(SpecError, match="schema"):
            load_schema(spec.model_copy(update={"schema_path": path}))


def test_a_number_of_rows_is_no_path(tmp_path):
    """A file of rows is one step's setting, and a number of them another's."""
    weights = "{method: beta_debiased, post_processing: [{step: resample, rows: 70}]}"
    (step,) = load_spec(written(tmp_path / "spec.yaml", weights=weights)).weights.post_processing
    assert step == {"step": "resample", "rows": 70}


def test_a_link_as_source_is_not_resolved_away(tmp_path):
    (tmp_path / "real.csv").write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    path = written(tmp_path / "spec.yaml", source="{path: link.csv, format: csv}")
    assert load_spec(path).source.path.endswith("link.csv")


@pytest.mark.parametrize("text", ["- 1\n", "a: 1\na: 2\n", None])
def test_what_is_no_spec_is_refused(tmp_path, text):
    path = tmp_path / "spec.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert "epsilon" not in str(caught.value)  # no field was looked at


def test_the_norway_problem_does_not_arise(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("name: no\n")
    with pytest.raises(SpecError) as caught:  # many fields are missing, but the name is admissible
        load_spec(path)
    assert "name:" not in str(caught.value)


@pytest.mark.parametrize(("mapping", "message"), REFUSED_CALIBRATIONS)
def test_calibrations_that_no_spec_may_ask_for(mapping, message):
    with pytest.raises(SpecError, match=message):
        parse_spec(mapping)
