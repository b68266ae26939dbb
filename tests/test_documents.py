"""Every block and command of the documents runs as a reader types it, from an empty folder.

`tests.support.documents` finds them. One that no list below names makes a test red; so does a
list's entry that stands in no document. What stands for something of the reader's own is bound by
`names_of`.
Here in this process; as shell scripts, with servers and in a copy of the repository they run in
`test_documents_at_length.py` (nightly).
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.yaml import load_file, load_text
from dpiw.ledger import Ledger
from dpiw.local.collector import LocalSpec
from dpiw.plan.spec import ReleaseSpec, parse_spec
from dpiw.run.run import ReleaseRun
from dpiw.run.steps import reserve
from tests.support.documented_desk import (
    AT_LENGTH,
    curator_block,
    curator_commands,
    names_of,
    people,
    released,
    set_out,
    shell,
)
from tests.support.documents import (
    PAGES,
    ROOT,
    SHELLS,
    all_blocks,
    blocks,
    commands,
    filled,
    lines_of,
    python_of,
)
from tests.support.named_tests import named_tests
from tests.support.whole_runs import publish_run

HERE, LONG = "test_documents.py", "test_documents_at_length.py"
SCHEDULED = "flows/test_scheduled_release.py"
SERVED = f"{SCHEDULED}::test_a_scheduled_run_appears_and_ends_with_a_verified_release"
KEPT = "flows/test_serve_script.py::test_what_people_set_stays_and_all_else_is_the_file_s"
GPU = f"{SCHEDULED}::test_the_training_waits_for_a_worker_with_a_gpu_and_the_example_does_not"
EXTRAS = f"{HERE}::test_every_extra_that_is_to_be_installed_exists"
PICTURE = (
    "dpiw/release/test_report_in_browser.py"
    "::test_the_readme_s_picture_is_small_and_can_be_taken_again"
)
JOURNEYS = "test_journeys.py::test_the_journeys_are_walked_from_an_empty_folder"
LOCAL = "test_local_guide.py::test_the_guide_runs_from_an_empty_folder"
YEAR = "test_year.py::test_the_year_is_walked_in_the_page_s_order"
STORY = "flows/test_year_story.py::test_the_story_is_played_with_server_and_worker"
CONTAINERS = "flows/test_containers.py::test_what_the_containers_start_starts"
STAMPED = "dpiw/ledger/test_witness.py::test_a_timestamp_is_checked_offline_against_the_chain"
SHOWN = "flows/test_canary_scan.py::test_a_run_is_pictured_by_the_documents_script"
NAMED = f"{HERE}::test_what_is_only_named_exists"
READ = "flows/test_reading.py::test_it_stops_before_the_first_draw_and_the_release_goes_on"
FOOTER = (
    "dpiw/data/test_parquet_dialects.py"
    "::test_every_column_that_is_not_read_is_named_at_once_and_for_free"
)
QUESTIONS = (
    "dpiw/analysis/test_asked_release.py"
    "::test_the_command_answers_and_a_release_without_questions_says_so"
)
ROWS = "dpiw/run/test_more_rows.py::test_the_command_prints_where_the_rows_are"
AGAIN = "flows/test_reading.py::test_what_pays_anew_is_told_as_a_release_tells_it"
AUTOMATIONS = f"{SCHEDULED}::test_the_example_automations_are_prefect_s"
RETRY = "flows/test_rerun_flow.py::test_a_killed_worker_or_server_draws_nothing_twice"
PYTHON = {
    "README.md": f"{HERE}::test_the_readme_s_python_runs_on_its_release",
    "docs/analysts.md": "test_analysts.py::test_the_python_of_the_guide_runs",
    "docs/first-audit.md": f"{HERE}::test_a_first_audit_finds_the_changed_byte",
    "docs/first-estimate.md": f"{HERE}::test_a_first_estimate_has_an_interval_and_a_verdict",
    "docs/journeys.md": JOURNEYS,
    "docs/local.md": LOCAL,
    "docs/method.md": f"{HERE}::test_the_method_s_blocks_print_what_the_page_says",
    "docs/privacy.md": f"{HERE}::test_the_auditor_s_blocks_find_what_was_promised",
}
"""Page with Python: the test that runs all its blocks, in order."""
SCRIPTS = {
    "README.md": f"{HERE}::test_the_readme_s_commands_run_from_an_empty_folder",
    "docs/analysts.md": "test_analysts.py::test_the_commands_of_the_guide_run",
    "docs/external.md": f"{HERE}::test_rows_of_another_tool_are_planned_as_the_page_says",
    "docs/first-audit.md": f"{HERE}::test_a_first_audit_finds_the_changed_byte",
    "docs/first-estimate.md": f"{HERE}::test_a_first_estimate_has_an_interval_and_a_verdict",
    "docs/first-release.md": f"{HERE}::test_a_first_release_is_walked_from_a_header_to_a_plan",
    "docs/journeys.md": JOURNEYS,
    "docs/local.md": LOCAL,
    "docs/year.md": YEAR,
}
"""Page whose shell commands one test types in their order."""
TYPED = (
    "dpiw ledger recover --ledger URL --releases PUBLISHED --key curator.pub --loss-epsilon 0"
    " --loss-delta 0 --loss-reads 0",
    "dpiw workspace show --state DIR",
    "dpiw workspace purge --state DIR --all-published --older-than 30 --yes",
    "dpiw ledger void RUN --ledger URL --state DIR",
    "dpiw ledger register NAME --epsilon E --delta D --relation R --max-rows K --id-column C",
    "dpiw ledger register --spec SPEC --epsilon E --delta D",
    "dpiw verify FOLDER --key curator.pub",
    "dpiw ledger verify --ledger FILE --head HASH",
    "dpiw workspace cells --state DIR --run KEY",
    "dpiw plan SPEC",
    "dpiw ledger show --ledger URL --csv",
    "dpiw schema spec > spec.schema.json",
    "dpiw schema dictionary > dictionary.schema.json",
    "dpiw schema local > local.schema.json",
    "dpiw completion bash",
)
"""Commands that `test_a_command_does_what_its_page_says` types, each on a desk of its own."""
ELSEWHERE = {
    "make test": ("this is it", NAMED),
    "python examples/picture.py .dpiw/releases/NAME docs/images/report.png":
        ("needs a browser; typed with a page", PICTURE),
    "python docs/images/operator_pages.py SPEC": ("needs a browser and a server of its own", SHOWN),
    **dict.fromkeys(
        ("make serve", "deployments/serve.sh", "deployments/serve.sh [PREFECT_FILE]",
         "deployments/serve.sh COPY.yaml", "prefect worker start --pool dpiw",
         "prefect worker start --pool dpiw-gpu"), ("ends when it is stopped", SERVED)),
    **dict.fromkeys(
        ("DPIW_GPU=1 make serve", "DPIW_GPU=1 deployments/serve.sh"),
        ("the same, and there is no GPU", GPU)),
    **dict.fromkeys(
        ("pip install ./dpiw", "pip install './dpiw[formula,plot,export]'",
         "pip install './dpiw[local]'", "pip install './dpiw[neural]'",
         "pip install -c deployments/constraints.txt '.[pipeline,neural]'",
         "pip install -c deployments/constraints.txt '.[pipeline]'",
         "pip install '.[postgresql]'"), ("needs a package index", EXTRAS)),
    **dict.fromkeys(
        ("python examples/year/year.py serve", "python examples/year/year.py story"),
        ("needs a server, a worker and minutes", STORY)),
    "export PREFECT_API_URL=http://127.0.0.1:4200/api PREFECT_SERVER_ANALYTICS_ENABLED=false"
    " DO_NOT_TRACK=1": ("a shell's own, as the script prints it", KEPT),
    ". .venv/bin/activate": ("made by Python's venv", NAMED),
    "dpiw release SPEC --until ingest": ("a part; typed as a whole", READ),
    "dpiw describe FOLDER --questions": ("a part; typed as a whole", QUESTIONS),
    "dpiw release SPEC --rows N": ("a part; typed as a whole", ROWS),
    "dpiw plan SPEC --header FILE.parquet": ("a part; typed as a whole", FOOTER),
    "dpiw release SPEC --pay-again": ("a part; typed as a whole", AGAIN),
    **dict.fromkeys(
        ("sudo deployments/secrets.sh",
         "sudo install -m 600 -o 10001 keys/curator.key deployments/secrets/curator_key",
         "docker compose -f deployments/compose.yaml up --build --detach",
         "docker compose -f deployments/compose.yaml run --rm --no-deps -e PGPASSWORD worker dpiw"
         " ledger register town --create --ledger"
         " 'postgresql+psycopg://custodian@/ledger?host=/var/run/postgresql' --relation"
         " add_or_remove_one --epsilon 1.5 --delta 1e-4",
         "docker compose -f deployments/compose.yaml exec worker dpiw series"
         " /srv/dpiw/institution/release.yaml",
         *(f"prefect work-pool create dpiw --type {kind} --base-job-template"
           f" deployments/pool-{kind}.json" for kind in ("process", "docker", "kubernetes"))),
        ("needs an engine (tests/containers.sh), a server or another user", CONTAINERS)),
    "dpiw ledger witness --ledger release.yaml --check head.tsr --certificate tsa-ca.pem":
        ("needs an authority's answer", STAMPED),
    "prefect automation create --from-file deployments/automations.yaml":
        ("needs the id of somebody's own block", AUTOMATIONS),
    "prefect flow-run retry": ("a part; the state that it sets is set", RETRY),
}  # fmt: skip
"""Commands that no test here types: why, and the test that covers them."""


def test_every_command_is_typed_or_listed():
    scripted = {c.text for c in commands() if c.page in SCRIPTS and not c.mention}
    scripted -= {*AT_LENGTH, *ELSEWHERE}
    for page in SCRIPTS:  # of a script's page: the lines of its blocks, nothing else
        lines = {line for block in blocks(page, *SHELLS) for line in lines_of(block)}
        assert {c.text for c in commands() if c.page == page and c.text in scripted} <= lines
    documented = {c.text for c in commands() if not c.mention} - scripted
    listed = [*TYPED, *AT_LENGTH, *ELSEWHERE]
    assert len(listed) == len(set(listed))
    assert documented - set(listed) == set(), "neither typed by a test nor listed"
    assert set(listed) - documented == set(), "listed, and in no document"


def test_every_block_is_of_a_kind_that_is_run_or_read():
    kinds = {block.language for block in all_blocks()}
    assert kinds <= {*SHELLS, "python", "yaml", "json", ""}
    assert {block.page for block in all_blocks() if block.language == "python"} == set(PYTHON)
    for block in all_blocks():
        if not block.language:  # a drawing: nothing in it is to be typed
            assert not re.search(r"^\s*(\$ |dpiw |make |pip |python |prefect )", block.text, re.M)


def test_every_test_that_a_list_names_exists():
    covering = {*PYTHON.values(), *SCRIPTS.values(), *(test for _, test in ELSEWHERE.values())}
    assert covering <= named_tests()
    assert set(AT_LENGTH.values()) == {"audit", "readme", "clone", "prefect"}


def test_what_is_only_named_exists(capsys):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    named = {c.text for c in commands() if c.mention}
    assert len(named) > 15
    for text in sorted(named | {"make test", "make test-crash"}):
        program, *words = text.split()
        if program == "make":
            assert words[0] in targets, text
            continue
        options = {word for word in words if word.startswith("--")}
        with pytest.raises(SystemExit) as ended:
            main([*(word for word in words if word not in options), "--help"])
        assert ended.value.code == 0, text
        assert options <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out)), text
    with pytest.raises(SystemExit) as ended:  # the control
        main(["verifies", "--help"])
    assert ended.value.code == 2


def test_every_extra_that_is_to_be_installed_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = "".join(page.read_text() for page in PAGES)
    extras = set(",".join(re.findall(r"(?:dpiw|'\.)\[([\w,]+)\]", pages)).split(","))
    assert {"pipeline", "postgresql"} <= extras <= set(project["optional-dependencies"])
    assert (ROOT / "deployments" / "constraints.txt").exists()
    assert project["name"] == "dpiw"


def test_every_block_of_settings_is_read(tmp_path):
    """YAML as a schema, a spec, or fields of a spec; JSON as JSON. Files of groups are made up."""
    example = load_file(ROOT / "examples/breast-cancer/release.yaml", what="spec", exact=True)
    for block in all_blocks():
        if block.language == "json":
            json.loads(block.text)
        if block.language != "yaml":
            continue
        local = block.text.startswith("format: 1\nname: commute\nfeatures:")
        of_columns = re.search(r"^columns:|^\s*- \{? ?name:", block.text, re.M)
        exact = local or not of_columns  # not as schemas are
        settings = load_text(block.text, what=block.page, exact=exact)
        if local:
            LocalSpec.model_validate(settings)
        elif not exact:  # a schema, or some of its columns
            columns = {"columns": settings} if isinstance(settings, list) else settings
            for name in re.findall(r"hierarchy_file: ([\w.-]+)", block.text):
                (tmp_path / name).write_text("code,chapter\nA00,A\n")
            path = tmp_path / "schema.yaml"
            path.write_text(json.dumps({"name": "page"} | columns))  # which is YAML, too
            PublicSchema.from_yaml(path)
        else:
            assert settings.keys() <= {f.alias or n for n, f in ReleaseSpec.model_fields.items()}
            parse_spec(example | settings)


def typed(line: str) -> None:
    """Type one command in the folder this process is in; it must succeed."""
    line, _, path = line.partition(" > ")
    program, *arguments = shlex.split(line)
    if program == "dpiw":
        with open(path or os.devnull, "w") as file:
            redirect = contextlib.redirect_stdout(file) if path else contextlib.nullcontext()
            with redirect:
                assert main(arguments) == 0
        return
    assert program == "python"
    subprocess.run([sys.executable, *arguments], check=True)


@pytest.fixture(scope="module")
def readme(tmp_path_factory) -> Path:
    """The folder in which README's commands for curators were typed, in order.

    A release without Prefect stands for the flow, and nothing for the rehearsal: both are typed by
    `test_documents_at_length.py`. Beside it, `before`: the ledger as it was before the release.
    """
    folder = tmp_path_factory.mktemp("reader") / "empty"
    folder.mkdir(mode=0o755)
    set_out(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in curator_block():
            if line.startswith("dpiw release"):
                shutil.copy("state/ledger.sqlite", folder.parent / "before")
                publish_run(Path(line.split()[-1]).absolute())
            elif not line.startswith(("make serve", "dpiw rehearse")):
                typed(filled(line, names_of(folder)["README.md"]))
    return folder


def test_the_readme_s_commands_run_from_an_empty_folder(readme):
    assert len(curator_commands()) == len(curator_block()) >= 8
    assert Ledger.open(readme / "state" / "ledger.sqlite").spent("my-people").epsilon == 3
    assert (readme / "state").stat().st_mode & 0o777 == 0o700


def before(line: str) -> str:
    """What must have happened for a command to make sense, and the command."""
    if line.startswith("dpiw ledger recover"):
        for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
            (Path("state") / name).unlink(missing_ok=True)
        shutil.copy("../before", "state/ledger.sqlite")
        Path("state/ledger.sqlite").chmod(0o600)
    if line.startswith("dpiw ledger void"):
        run = ReleaseRun.prepare(Path("second.yaml").absolute(), period=None)
        reserve(run)
        return line.replace("0" * 64, run.key)
    if line.startswith("dpiw ledger register") and "--spec" not in line:
        return f"{line} --ledger state/ledger.sqlite"
    return line


@pytest.mark.parametrize("command", TYPED)
def test_a_command_does_what_its_page_says(command, readme, tmp_path, monkeypatch):
    (page,) = {candidate.page for candidate in commands() if candidate.text == command}
    names = names_of(readme)[page]
    shutil.copytree(readme, tmp_path / "desk")
    shutil.copy(readme.parent / "before", tmp_path / "before")
    text = (readme / "release.yaml").read_text()
    (tmp_path / "desk" / "second.yaml").write_text(text.replace("my-release", "second"))
    monkeypatch.chdir(tmp_path / "desk")
    line = filled(command, names)
    bound = line != command or "'" in command or not re.search(r"\b[A-Z]+\b", command)
    assert bound  # every placeholder is
    assert not re.search(r"(?<![\w$'])[A-Z]+(?![\w'])", line)
    typed(before(line))


def test_a_first_release_is_walked_from_a_header_to_a_plan(tmp_path, monkeypatch, capsys):
    page = "docs/first-release.md"
    monkeypatch.chdir(tmp_path)
    (draft, *after) = [line for block in blocks(page, "sh") for line in lines_of(block)]
    typed(draft)
    with pytest.raises(AssertionError):  # refused, with what is open
        typed(after[0])
    assert "epsilon" in capsys.readouterr().err
    dictionary, decisions = blocks(page, "yaml")
    (tmp_path / "town/schema.yaml").write_text(dictionary.text)
    spec = tmp_path / "town/release.yaml"
    settled = load_text(spec.read_text(), what="draft") | load_text(decisions.text, what=page)
    settled |= {name: str(settled[name]) for name in ("epsilon", "delta")}
    spec.write_text(json.dumps(settled))
    for line in after:
        typed(line)
    assert "1 from law, 1 from codebook, 1 from other" in capsys.readouterr().out
    assert Ledger.open(tmp_path / "town/state/ledger.sqlite").spent("town").epsilon == 0


@pytest.mark.slow
def test_rows_of_another_tool_are_planned_as_the_page_says(tmp_path, monkeypatch, capsys):
    page, example = "docs/external.md", ROOT / "examples" / "external"
    schema = load_file(ROOT / "examples/population/schema.yaml", what="schema")
    schema["columns"].append({"name": "person", "role": "identifier"})
    header = ",".join(column["name"] for column in schema["columns"])
    monkeypatch.chdir(tmp_path)
    typed(f"dpiw init town --header {header} --identifier person --target ill")
    monkeypatch.chdir(tmp_path / "town")
    Path("schema.yaml").write_text(json.dumps(schema))
    (fields,) = blocks(page, "yaml")
    spec = load_text(Path("release.yaml").read_text(), what="draft")
    spec |= load_text(fields.text, what=page, exact=True) | {"nominal_rows": 50000}
    spec["source"]["path"], spec["unit"]["max_rows"] = "people.csv", 1
    Path("release.yaml").write_text(json.dumps(spec, default=str))
    digest, plan = [line for block in blocks(page, "sh") for line in lines_of(block)]
    shutil.copy(example / "made_by_smartnoise.parquet", "made.parquet")
    assert spec["generator"]["settings"]["sha256"] in shell(digest, Path.cwd()).stdout
    typed(plan)
    output = capsys.readouterr().out
    assert "made by smartnoise-synth (MST) 1.0.8 at a cost declared by Data office" in output


def worked_example(readme: Path) -> dict[str, object]:
    """What `make release` leaves, as the tutorials name it: here README's release."""
    return {
        ".dpiw/releases/breast-cancer-once-1a2b3c4d": released(readme),
        ".dpiw/keys/demo.pub": readme / "keys" / "mine.pub",
        ".dpiw/ledger.sqlite": readme / "state" / "ledger.sqlite",
    }


@pytest.mark.slow
def test_a_first_audit_finds_the_changed_byte(readme, tmp_path, capsys):
    page, names = "docs/first-audit.md", worked_example(readme)
    (ledger_head,) = python_of(page, **names)
    exec(ledger_head, {})
    names["HEAD"] = capsys.readouterr().out.strip()
    make, *scripts = [filled(block.text, names) for block in blocks(page, "sh")]
    assert make == "make release\n"
    (tmp_path / "empty").mkdir()
    printed = []
    for script in scripts:
        if "exit code" in script:
            printed.append(shell(script, tmp_path / "empty").stdout)
            continue
        for line in script.splitlines():
            typed(line)
        printed.append(capsys.readouterr().out)
    assert "(the expected key)" in printed[0]
    assert printed[1] == "exit code 52\n"
    assert "population my-people" in printed[2]
    assert printed[3].startswith("ok: ")


# 569 rows: a verdict may well warn
@pytest.mark.filterwarnings("ignore::dpiw.analysis.release.UnreliableWeightsWarning")
def test_a_first_estimate_has_an_interval_and_a_verdict(readme, capsys):
    page, names = "docs/first-estimate.md", {}
    assert [block.text for block in blocks(page, "sh")] == ["make release\n"]
    exec("".join(python_of(page, **worked_example(readme))), names)
    output = capsys.readouterr().out
    (shown,) = [block for block in blocks(page) if not block.language]
    assert all(word in output for word in shown.text.splitlines()[0].split())
    assert names["release"].certificate.verdict in output
    people_s = people()["mean_radius"].corr(people()["mean_concavity"])
    assert f"In the table it is {people_s:.2f}" in (ROOT / page).read_text()


@pytest.mark.filterwarnings("ignore::dpiw.analysis.release.UnreliableWeightsWarning")
def test_the_readme_s_python_runs_on_its_release(readme):
    key = readme / "keys" / "mine.pub"
    desk = {"breast-cancer-once-1a2b3c4d": released(readme), "curator.pub": key}
    (block,) = python_of("README.md", **desk)
    names: dict[str, Any] = {}
    exec(block, names)
    assert len(names["weights"]) == len(names["table"]) > 100
    assert len([line for line in block.splitlines() if line]) == 5


def test_the_auditor_s_blocks_find_what_was_promised(readme, capsys):
    """docs/privacy.md: the epsilon again, with our accountant and without any of our code."""
    accountant, closed_form = python_of("docs/privacy.md", FOLDER=released(readme))
    exec(accountant, {})
    epsilon, promised = re.match(r"(\S+) promised: (\S+)", capsys.readouterr().out).groups()
    assert 2.9 < float(epsilon) <= float(promised) == 3
    exec(closed_form, {})
    delta, promised = capsys.readouterr().out.split("<=")
    assert 0.9 * float(promised) < float(delta) <= float(promised)


PRINTED = (
    (3.9, 18.1), (1.77,), (0.311, 0.55, 0.0005, 0.311, 0.2896, 0.3326, 0.993),
)  # fmt: skip


@pytest.mark.slow
def test_the_method_s_blocks_print_what_the_page_says(capsys):
    for source, printed in zip(python_of("docs/method.md"), PRINTED, strict=True):
        exec(source, {})
        numbers = [float(text) for text in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
        assert numbers == pytest.approx(printed, rel=5e-3)


def test_every_test_named_in_the_documents_exists():
    known = {(path.split("/")[-1], name) for path, name in (t.split("::") for t in named_tests())}
    for page in sorted((ROOT / "docs").glob("*.md")):
        for path, name in re.findall(r"`([\w/]+\.py)::(\w+)", page.read_text()):
            assert (Path(path).name, name) in known, f"{page.name}: {path}::{name}"


def prose(page: Path) -> Iterator[str]:
    """Lines of a page without its code blocks, formulas, code and addresses."""
    text = re.sub(r"^```.*?^```|\$\$.*?\$\$", "", page.read_text(), flags=re.M | re.S)
    yield from re.sub(r"`[^`]*`|\]\([^)]*\)", "", text).split("\n")


def test_pages_keep_their_size():
    """At most 42,000 words of docs, 700 of README, 60 lines of changes; short cells and lines."""
    docs = sorted((ROOT / "docs").glob("*.md"))
    assert sum(len(page.read_text().split()) for page in docs) <= 42_000
    assert len((ROOT / "README.md").read_text().split()) <= 700
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60
    for page in (*docs, ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for line in prose(page):
            is_row = line.startswith("|")
            parts = line.strip("|").split("|") if is_row else [line]
            assert all(len(part.strip()) <= (160 if is_row else 100) for part in parts), line
