"""The rules of the house, enforced: who imports whom, one door each, what analysts must not pay."""

import ast
import contextlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import source
from tests.support.source import ROOT, imports, parsed, walked

MODULES = source.modules(ROOT)
HEAVY = {
    "dp_accounting", "formulaic", "great_expectations", "jinja2",
    "matplotlib", "opacus", "opendp", "prefect", "psycopg", "pydantic", "ruamel",
    "pyreadstat", "rich", "scipy", "sklearn", "sqlalchemy", "sqlglot", "statsmodels", "torch",
}  # fmt: skip

PLANNING = {"jinja2", "pydantic", "ruamel", "scipy"}
"""What a spec, its plan, a ledger and a release's page need."""


def tops(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path).run}


BELOW: dict[str, set[str]] = {}
"""What each room may import beside itself and the version, in functions and for types too."""

BELOW["errors"] = set()
BELOW["privacy"] = {"errors"}
BELOW["data"] = {"errors", "privacy"}
BELOW["methods"] = BELOW["release"] = {"data", *BELOW["data"]}
BELOW["ledger"] = {"release", *BELOW["release"]}
BELOW["analysis"] = {"methods", "release", *BELOW["release"]}
BELOW["plan"] = {"analysis", "ledger", *BELOW["analysis"], *BELOW["ledger"]}
BELOW["run"] = {"plan", *BELOW["plan"]}
BELOW["audit"] = {"run", *BELOW["run"]}
BELOW["local"] = {"run", *BELOW["run"]}
BELOW["series"] = {"audit", *BELOW["audit"]}
BELOW["cli"] = {"local", "series", *BELOW["local"], *BELOW["series"]}


def room(name: str) -> str:
    """Of a module of dpiw: `methods` of `dpiw.methods.weights.paper.beta`."""
    return name.split(".")[1]


@pytest.mark.slow
def test_rooms_point_one_way():
    """errors < privacy < data < methods, release; release < ledger; all of them < plan < run."""
    ours = {name: path for name, path in MODULES.items() if name.startswith("dpiw.")}
    assert {room(name) for name in ours} == set(BELOW)
    for name, path in ours.items():
        reached = {room(i) for i in imports(path).every if i in ours}
        assert reached <= {room(name), *BELOW[room(name)]}, name


def test_layers_point_one_way():
    """And tasks do not know tasks, nor generators weights."""
    forbidden = {
        "dpiw": {"tasks", "flows", "prefect", "tests"}, "tasks": {"flows", "tests"},
        "flows": {"tests"},
    }  # fmt: skip
    made_of = ("tasks.step", "tasks.progress", "tasks.window", "tasks.pages", "tasks.failures",
               "tasks.signals")  # fmt: skip
    for name, path in MODULES.items():
        assert not tops(path) & forbidden[name.split(".")[0]], name
        if name.startswith("tasks.") and name != "tasks.step":
            others = {i for i in imports(path).run if i.startswith("tasks.")}
            assert all(module.startswith(made_of) for module in others), name
        for package, foreign in (("generators", "weights"), ("weights", "generators")):
            if name.startswith(f"dpiw.methods.{package}"):
                assert not [i for i in imports(path).run if f"methods.{foreign}" in i], name


def test_circles_and_small_files_are_those_of_the_list():
    """Circles count imports in functions and for type checkers. The list only shrinks.

    After a repair: `python -m tests.support.source`. Only a renamed file may add a line.
    """
    listed, found = json.loads(source.DEBTS.read_text()), source.debts()
    for rule in ("circles", "small files"):
        new, gone = {*found[rule]} - {*listed[rule]}, {*listed[rule]} - {*found[rule]}
        assert not new, f"{rule}: new"
        assert not gone, f"{rule}: gone; type python -m tests.support.source"


def package(root: Path, texts: dict[str, str]) -> Path:
    (root / "dpiw").mkdir(parents=True)
    for name, text in texts.items():
        (root / "dpiw" / f"{name}.py").write_text(text)
    return root


def test_circles_of_every_sort_are_seen_and_small_files(tmp_path):
    """In functions, for type checkers, of three; and a package's face is no step."""
    texts = {
        "__init__": "from dpiw.a import x",
        "a": "def f():\n    from dpiw import b",
        "b": "if TYPE_CHECKING:\n    from dpiw.c import C",
        "c": "import dpiw.a",
        "d": "from dpiw.a import f",
        "e": "from dpiw import __version__",
    }
    root = package(tmp_path, texts)
    assert source.debts(root)["circles"] == ["dpiw.a dpiw.b dpiw.c"]
    assert source.circles(source.graph(source.modules(root), only_loaded=True)) == []
    short, protocol = "def f(): ...", "class P(Protocol):\n    def f(self): ..."
    texts = {"registry": short, "one": short, "two": "A = 1", "three": protocol}
    assert source.debts(package(tmp_path / "small", texts))["small files"] == ["dpiw.one"]


OURS = {"dpiw", "flows", "tasks"}
IS_PRIVATE = re.compile(r"_(?!_)\w*(?<!_)")


def private_of_ours(tree: ast.Module) -> set[str]:
    """Private names that a file defines: functions, classes, fields, attributes of `self`."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name("self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return {name for name in names if IS_PRIVATE.fullmatch(name)}


def of_others(tree: ast.Module) -> dict[str, str]:
    """The names by which a file knows other people's modules and what is in them."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or a.name.split(".")[0]: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {name: full for name, full in found.items() if full.split(".")[0] not in OURS}


def overridden(node: ast.ClassDef, others: dict[str, str]) -> set[str]:
    """Private names in a class's body that a base of somebody else has, where it is installed."""
    theirs = set[str]()
    for base in map(ast.unparse, node.bases):
        top, _, rest = base.partition(".")
        with contextlib.suppress(ImportError):
            if top in others:
                full = ".".join(filter(None, (others[top], rest)))
                theirs |= set(dir(pkgutil.resolve_name(full)))
    names = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    return {f"{node.name}.{name}" for name in names & theirs if IS_PRIVATE.fullmatch(name)}


def private_of_others(tree: ast.Module, ours: set[str]) -> set[str]:
    """Private names of other people's modules that a file imports, reads, sets or overrides.

    `ours`: private names that the project defines: what else is private is somebody else's.
    """
    others, found = of_others(tree), set[str]()
    for full in others.values():
        found |= {full for part in full.split(".") if IS_PRIVATE.fullmatch(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and IS_PRIVATE.fullmatch(node.attr):
            root = ast.unparse(node.value)
            if node.attr not in ours or root.split(".")[0] in others:
                found.add(f"{root}.{node.attr}")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr"):
            name = getattr(node.args[1], "value", "")
            if IS_PRIVATE.fullmatch(str(name)) and name not in ours:
                found.add(name)
        elif isinstance(node, ast.ClassDef):
            found |= overridden(node, others)
    return found


@pytest.mark.slow
def test_no_private_name_of_a_library_and_no_ctypes():
    """Their next version may do without it; a portable call does what `ctypes` is for."""
    ours = set[str]().union(*(private_of_ours(parsed(path)) for path in MODULES.values()))
    found = {name: private_of_others(parsed(path), ours) for name, path in MODULES.items()}
    assert not {name: private for name, private in found.items() if private}
    assert not [name for name, path in MODULES.items() if tops(path) & {"ctypes", "cffi"}]


THEIRS = (
    "import os._exit_handlers",
    "from torch.utils._pytree import tree_leaves",
    "from os import _exit",
    "import sqlite3 as s\ns._private()",
    "import argparse\ndef f(a: argparse._SubParsersAction): ...",
    "import argparse\np = argparse.ArgumentParser()\np._actions",
    "def f(parser):\n    parser._actions = []",
    "def f(parser):\n    getattr(parser, '_actions')",
    "def f(parser):\n    return parser.parse()._kept_by_them",
    "import argparse\nclass P(argparse.ArgumentParser):\n    def _check_value(self): ...",
    "from argparse import ArgumentParser as A\nclass P(A):\n    def _get_kwargs(self): ...",
    "import numpy as np\nnp.random._ours()",
    "def f():\n    import prefect\n    prefect.x._y",
)
NOT_THEIRS = (
    "from dpiw.data import _own",
    "import enum\nclass K(enum.Enum):\n    @classmethod\n    def _missing_(cls, value): ...",
    "class A:\n    def _ours(self): ...\n    def g(self, other):\n        other._ours()",
    "import logging\nclass H(logging.Handler):\n    def _ours(self): ...",
    "import numpy as np\nnp.__version__",
)


def test_a_private_name_of_a_library_is_seen_and_ours_is_not():
    for text in THEIRS:
        assert private_of_others(ast.parse(text), {"_ours", "_check_value", "_get_kwargs"}), text
    for text in NOT_THEIRS:
        assert not private_of_others(ast.parse(text), {"_ours"}), text


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("dp_accounting", {"dpiw.privacy.accounting", "dpiw.privacy.events"}),
        ("opendp", {"dpiw.privacy.randomness"}),
        ("sqlalchemy", {"dpiw.ledger.stores"}),
        ("great_expectations", {"dpiw.data.source.validation"}),
        ("cryptography", {"dpiw.release.signing", "dpiw.privacy.keystream",
                          "dpiw.ledger.witness"}),
        ("torch", {"dpiw.methods.generators.gan.images", "dpiw.methods.neural.backend",
                   "dpiw.methods.neural.row_norms"}),
        ("opacus", {"dpiw.methods.neural.row_norms"}),
        ("ruamel", {"dpiw.data.yaml", "flows.deployed"}),
        ("yaml", set()),
        ("sqlglot", {"dpiw.plan.drafts.sql"}),
        ("xml", {"dpiw.plan.drafts.ddi", "dpiw.release.report.plots"}),
        ("jinja2", {"dpiw.release.report.pages"}),
        ("matplotlib", {"dpiw.release.report.plots"}),
        ("opentelemetry", {"tasks.signals"}),
        ("prefect", {"tasks.failures", "tasks.step", "tasks.window", "flows.release",
                     "flows.audit", "flows.local", "flows.series", "flows.server",
                     "flows.deployed"}),
    ],
)  # fmt: skip
def test_one_door_for_each_library(library, allowed):
    for name, path in MODULES.items():
        if library in tops(path):
            assert any(name == door or name.startswith(door + ".") for door in allowed), name


def test_only_measurements_open_the_hot_table():
    """`confidential()` and `batches()` are called by what measures, and nowhere else."""
    calls = (".confidential()", "table.batches()")
    for name, path in MODULES.items():
        if any(call in path.read_text() for call in calls):
            assert name.startswith(("dpiw.methods.generators", "dpiw.methods.weights")), name


def test_a_generator_s_rows_go_through_one_door():
    """What a fitted model draws is asked for its constraints before anybody else sees it."""
    for name, path in MODULES.items():
        if not name.startswith("dpiw.methods.generators") and "model.sample(" in path.read_text():
            assert name == "dpiw.methods.recipe", name


def test_only_privacy_mechanisms_draw_privacy_noise():
    """Noise is drawn through `mechanisms`; a noise source's samplers are called nowhere else."""
    names = (
        "discrete_gaussian", "discrete_laplace", "spherical_laplace", "noisy_argmax",
        "gaussian_vector", "whole_below",
    )  # fmt: skip
    samplers = tuple(f".{name}(" for name in names)
    for name, path in MODULES.items():
        if any(sampler in path.read_text() for sampler in samplers):
            assert name in {"dpiw.privacy.mechanisms", "dpiw.privacy.randomness"}, name
        if name != "dpiw.privacy.randomness":
            assert "dpiw.privacy.keystream" not in imports(path).run, name


def test_no_global_randomness_and_no_default_seed():
    for name, path in MODULES.items():
        if "random" not in path.read_text() and "seed" not in path.read_text():
            continue
        for node in walked(path):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert not called.startswith(("np.random.seed", "np.random.normal", "random.")), name
            if called.startswith("np.random.default_rng"):
                assert node.args, f"{name}: default_rng without a stated seed"
            if isinstance(node, ast.FunctionDef):
                named = node.args.kwonlyargs + node.args.args
                defaults = [d for d in node.args.kw_defaults if d is not None] + node.args.defaults
                seeds = [a.arg for a in named if a.arg in {"seed", "random_state"}]
                assert not (seeds and len(defaults) == len(named)), f"{name}.{node.name}"


def test_no_print_no_environment_in_dpiw():
    doors = {
        "dpiw.run.launch",  # builds the scrubbed environment of the confidential process
        "dpiw.ledger.entries",  # who acts
        "dpiw.cli.pipeline",  # tells processes that a flow starts where flows are
    }
    for name, path in MODULES.items():
        if not name.startswith("dpiw"):
            continue
        for node in walked(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", name
            if isinstance(node, ast.Attribute) and name not in doors:
                assert node.attr not in {"environ", "getenv"}, name


def test_every_function_on_a_hot_table_states_its_privacy():
    for name, path in MODULES.items():
        if name in {
            "dpiw.data.tables",
            "dpiw.methods.generators.base",
            "dpiw.methods.weights.base",
        }:
            continue
        for node in walked(path):
            if not isinstance(node, ast.FunctionDef):
                continue
            arguments = [*node.args.args, *node.args.kwonlyargs]
            hot = any(getattr(a.annotation, "id", "") == "PrivateTable" for a in arguments)
            if hot:
                assert "Privacy:" in (ast.get_docstring(node) or ""), f"{name}.{node.name}"


@pytest.mark.slow
def test_analysts_do_not_pay_for_the_pipeline():
    """In one process: a module that loads what is heavy is seen, whatever was there before it."""
    code = (
        "import sys, dpiw, dpiw.analysis, dpiw.analysis.plots, dpiw.analysis.release,"
        " dpiw.analysis.errors.law, dpiw.release.verification; print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in shown.stdout.split()}
    assert not loaded & HEAVY


@pytest.mark.nightly_cases("flows")
@pytest.mark.parametrize(
    ("start", "left_out"),
    [
        ("from dpiw.cli import main; main.main(['--version'])", HEAVY | {"numpy", "pandas"}),
        ("import flows.console", HEAVY - PLANNING - {"rich"}),
        ("import flows.release", {"torch", "great_expectations", "matplotlib", "sklearn"}),
        ("import dpiw.run.process", HEAVY - PLANNING),
    ],
)  # fmt: skip
def test_a_start_leaves_out_what_it_may_never_need(start: str, left_out: set[str]) -> None:
    """What imports take is most of a small run's time (benchmarks/results/bench.md)."""
    reporter = "import atexit, sys; atexit.register(lambda: print(*sys.modules))"
    shown = subprocess.run(
        [sys.executable, "-c", f"{reporter}; {start}"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    loaded = {name.split(".")[0] for name in shown.stdout.splitlines()[-1].split()}
    assert not loaded & left_out


def test_top_level_is_what_was_agreed():
    tracked = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    top = {name.split("/")[0] for name in tracked if not name.startswith(".")}
    agreed = "flows tasks dpiw deployments tests benchmarks docs examples LICENSE Makefile"
    pages = {f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")}
    assert top <= {*agreed.split(), *pages, "pyproject.toml", "mkdocs.yml", "CITATION.cff"}
    assert not [name for name in tracked if re.fullmatch(r"deployments/.*\.py", name)]


def test_only_templates_write_tags_and_nothing_in_them_is_left_unescaped():
    """Jinja2 escapes what is not told to be safe; so nothing is, and an attribute has quotes."""
    for name, path in MODULES.items():
        if name.startswith("dpiw"):
            texts = [n.value for n in walked(path) if isinstance(n, ast.Constant)]
            assert not [t for t in texts if re.search(r"</\w+>|<\w+ \w+=", str(t))], name
            assert not {"html", "markupsafe"} & tops(path), name
    templates = sorted((ROOT / "dpiw").rglob("*.j2"))
    assert len(templates) == 12
    quotes = r"(scalar|quoted|bullets|plain)\(.*\)|.*\| tojson|\",\" if not loop\.last"
    for path in templates:
        text = path.read_text()
        if path.name.endswith((".jsonld.j2", ".yaml.j2")):  # no tags: each text is quoted
            for output in re.findall(r"{{(.*?)}}", text, flags=re.DOTALL):
                assert re.fullmatch(quotes, output.strip(), flags=re.DOTALL), (path.name, output)
            continue
        assert not re.search(r"\|\s*(safe|tojson|forceescape)|autoescape|Markup", text), path.name
        assert not re.search(r"\w=\{", text), path.name


def classes_of(folder: str) -> set[str]:
    """Names of the classes that the modules of a folder define, errors left out."""
    return {
        node.name
        for name, path in MODULES.items()
        if name.startswith(folder)
        for node in walked(path)
        if isinstance(node, ast.ClassDef)
        if "Protocol" not in {ast.unparse(base) for base in node.bases}
    }


def test_methods_know_themselves():
    """Outside their room nobody asks which method, ratio or step it is, but what it does.

    What it does is a protocol (`MadeElsewhere`: its rows are there already;
    `FindsLevels`: some of its levels are not), which may be asked.
    """
    method_classes = classes_of("dpiw.methods.generators") | classes_of("dpiw.methods.weights")
    method_classes -= {"MadeElsewhere", "FindsLevels"}
    for name, path in MODULES.items():
        if name.startswith("dpiw.methods."):
            continue
        for node in walked(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = set(re.findall(r"\w+", ast.unparse(node.args[1])))
                assert not classes & method_classes, f"{name}:{node.lineno}"
            if isinstance(node, ast.Compare) and "method" in ast.dump(node):
                comparison = ast.unparse(node)
                assert not re.search(r"\bmethod\b.* '[a-z_]+'", comparison), f"{name}:{node.lineno}"


def test_no_file_is_longer_than_500_lines():
    """One concept, one file; a concept that needs more than 500 lines is two."""
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert not {name: count for name, count in lines.items() if count > 500}


def test_files_that_pages_name_are_there():
    """Paths below dpiw/ and tests/ in the pages about the house."""
    for page in ("docs/architecture.md", "CONTRIBUTING.md"):
        for cited in re.findall(r"`((?:\w+/)+\w+\.py)", (ROOT / page).read_text()):
            home = ROOT / cited if cited.startswith("tests/") else ROOT / "dpiw" / cited
            known = home.exists() or (ROOT / cited).exists() or "walk" in cited
            assert known, f"{page}: {cited}"


@pytest.mark.slow
def test_what_is_cited_is_in_the_repository():
    """`docs/PAGE.md section 4` (or `sections 4, 5 and 14`) has a heading `## 4. ...`.

    What is quoted behind it, as in `section 3, "Solver"`, stands in that section; and a page whose
    headings have no numbers is cited as `docs/operations.md, "What a rerun does"`.
    """
    pages = {page.stem: page.read_text() for page in (ROOT / "docs").glob("*.md")}
    sections = {
        (name, number): " ".join(text.split())
        for name, page in pages.items()
        for number, text in re.findall(r"^## (\d+)\.(.*?)(?=^## |\Z)", page, re.M | re.S)
    }
    cite = re.compile(
        r"\b([\w-]+)\.md,? sections? ((?:\d+|, (?=\d)| and (?=\d))+)(?:, [a-z ]*\"([^\"]+)\")?"
    )
    missing, cited, quoted = [], 0, 0
    for folder in ("dpiw", "tasks", "flows", "benchmarks", "tests", "examples"):
        for path in sorted({*(ROOT / folder).rglob("*.py")} - {Path(__file__).resolve()}):
            text = " ".join(path.read_text().split())
            for page, numbers, words in cite.findall(text):
                wanted = [(page, number) for number in re.findall(r"\d+", numbers)]
                cited += len(wanted)
                missing += [f"{path.name}: {place}" for place in wanted if place not in sections]
                quoted += bool(words)
                if words and not any(words in sections.get(place, "") for place in wanted):
                    missing.append(f"{path.name}: {wanted} has no {words!r}")
            for page, title in re.findall(r"docs/([\w-]+)\.md, \"([^\"]+)\"", text):
                cited += 1
                if f"\n## {title}\n" not in pages.get(page, ""):
                    missing.append(f"{path.name}: {page} has no heading {title!r}")
            if re.search(r"md sections? [\d, and]*(\(\w\)|to \d)", text):
                missing.append(f"{path.name}: a part of a section has no name")
            if re.search(r"\b(METHOD|RELIABILITY|PLATFORM) (section|[0-9])", text):
                missing.append(f"{path.name}: cites what only its authors have")
    assert not missing, missing
    assert cited > 100
    assert quoted >= 3
