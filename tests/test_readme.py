"""The README's lines for analysts really run."""

import re
import warnings
from pathlib import Path

import numpy as np

from dpiw import steps
from dpiw.randomness import SecureNoise
from dpiw.release import UnreliableWeightsWarning
from dpiw.runs import ReleaseRun

ROOT = Path(__file__).resolve().parents[1]


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
    run = ReleaseRun.prepare(place.spec, period=None)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    steps.debias(run)
    steps.diagnose(run)
    folder = steps.publish(run)
    block, more = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    code = block.replace('"breast-cancer-once-1a2b3c4d"', repr(str(folder)))
    code = code.replace('"curator.pub"', repr(str(place.root / "state/keys/test.pub")))
    names = {"rng": np.random.default_rng(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)  # 300 rows: it may well say so
        exec(code + more, names)
    assert names["model"].coef_.shape == (1, 4)
    assert len(names["sample"]) == 1000
    assert len([line for line in block.splitlines() if line]) <= 10


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
