"""What the documents tell readers to run does run, and prints what they say."""

import re
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

from dpiw.release import UnreliableWeightsWarning
from tests.whole_runs import publish_run

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str) -> list[str]:
    """Python blocks of a document."""
    found = re.findall(r"^ *```python\n(.*?)^ *```", (ROOT / page).read_text(), re.S | re.M)
    return [textwrap.dedent(block) for block in found]


def test_the_analyst_lines_run_on_a_release(make_workplace):
    place = make_workplace()
    # the example's columns, on a small table of the same shape
    schema = (ROOT / "examples/breast-cancer/schema.yaml").read_text()
    (place.root / "schema.yaml").write_text(schema)
    rng = np.random.default_rng(3)
    lines = ["mean_radius,mean_texture,mean_smoothness,mean_concavity,malignant"]
    for _ in range(300):
        ill = rng.random() < 0.4
        radius = rng.normal(18 if ill else 12, 2)
        lines.append(f"{radius:.3f},{rng.normal(19, 4):.3f},0.1,0.1,{str(ill).lower()}")
    place.source.write_text("\n".join(lines) + "\n")
    _, folder = publish_run(place.spec)
    block, more = blocks("README.md")
    code = block.replace('"breast-cancer-once-1a2b3c4d"', repr(str(folder)))
    code = code.replace('"curator.pub"', repr(str(place.root / "state/keys/test.pub")))
    names = {"rng": np.random.default_rng(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)  # 300 rows: it may well say so
        exec(code + more, names)
    assert names["model"].coef_.shape == (1, 4)
    assert len(names["sample"]) == 1000
    assert len([line for line in block.splitlines() if line]) <= 10


def test_the_auditor_s_blocks_find_what_was_promised(make_workplace, capsys):
    """docs/privacy.md: the epsilon again, with our accountant and without any of our code."""
    _, folder = publish_run(make_workplace().spec)
    accountant, closed_form = blocks("docs/privacy.md")
    exec(accountant.replace("FOLDER", str(folder)), {})
    found, promised = re.match(r"(\S+) promised: (\S+)", capsys.readouterr().out).groups()
    assert 1.9 < float(found) <= float(promised) == 2
    exec(closed_form.replace("FOLDER", str(folder)), {})
    delta, promised = capsys.readouterr().out.split("<=")
    assert 0.9 * float(promised) < float(delta) <= float(promised)


@pytest.mark.parametrize(
    ("place", "printed"), [(0, (0.0171, 0.0208)), (1, (3.9, 18.1)), (2, (1.77,))]
)
def test_the_method_s_blocks_print_what_the_page_says(place, printed, capsys):
    found = blocks("docs/method.md")
    assert len(found) == 3
    exec(found[place], {})
    numbers = [float(text) for text in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
    assert numbers == pytest.approx(printed, rel=5e-3)


def test_every_link_in_the_documents_leads_somewhere():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_test_named_in_the_documents_exists():
    sources: dict[str, str] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        sources[path.name] = sources.get(path.name, "") + path.read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        for path, name in re.findall(r"`([\w/]+\.py)::(\w+)", page.read_text()):
            assert f"def {name}" in sources[Path(path).name], f"{page.name}: {path}::{name}"
