"""The container and compose files, by parts: no engine is needed, and what they start is started.

What cannot be seen here is the engine itself: that layers build, and that mounts have their owners.
"""

import importlib.resources
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prefect import settings as prefect_settings
from ruamel.yaml import YAML

from dpiw.ledger import Ledger
from flows import PREFECT_DEFAULTS
from tests.flows.conftest import ROOT, _healthy, free_port
from tests.support.ledger import adult, spend
from tests.support.patience import SECONDS, until

PLACE = ROOT / "deployments"
CONTAINER = (PLACE / "Containerfile").read_text()
COMPOSE = YAML(typ="safe").load((PLACE / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "postgres"}
POSTGRES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE", "POSTGRES_INITDB_ARGS"}
POOLS = {
    kind: json.loads((PLACE / f"pool-{kind}.json").read_text())
    for kind in ("process", "docker", "kubernetes")
}
HOST = re.compile(r"[\w-]+\.[\w.-]*[a-z]{2,}(:\d+)?/")
"""Of a registry, before an image's name."""


def instructions():
    """The instructions of the container file: name and words, comments and line ends removed."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", CONTAINER, flags=re.M))
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]


def words_of(name):
    return [words for instruction, words in instructions() if instruction == name]


def test_the_image_is_built_from_what_is_there_and_runs_as_nobody_special():
    (base,) = words_of("FROM")
    assert base == "${BASE}"
    base, extras = words_of("ARG")
    assert re.fullmatch(r"BASE=python:\d+\.\d+-[\w-]+", base)  # a tag, and no host
    wanted = extras.removeprefix("EXTRAS=").split(",")
    assert {*wanted} <= {
        *tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    }
    for words in words_of("COPY"):
        *sources, _ = words.split()
        assert all((ROOT / source).exists() for source in sources), words
    copied = {source for words in words_of("COPY") for source in words.split()[:-1]}
    assert {"dpiw", "flows", "tasks", "pyproject.toml", "deployments"} <= copied
    names = [instruction for instruction, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert words_of("USER") == ["10001:10001"]
    (entry,) = map(json.loads, words_of("ENTRYPOINT"))
    (code,) = words_of("WORKDIR")
    script = ROOT / Path(entry[0]).relative_to(code)
    assert os.access(script, os.X_OK)
    assert "-c deployments/constraints.txt" in CONTAINER
    assert not HOST.search(" ".join(w for n, w in instructions() if n in ("FROM", "ARG")))


def test_the_compose_file_names_only_what_there_is():
    for name, service in SERVICES.items():
        assert not HOST.search(service["image"]), name
        assert re.fullmatch(r"[a-z]+:[\w.-]+", service["image"]), name
        assert {*service.get("secrets", [])} <= {*COMPOSE["secrets"]}, name
        assert {*service["networks"]} <= {*COMPOSE["networks"]}, name
        assert {*service.get("depends_on", {})} <= {*SERVICES}, name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or source.startswith("./"), volume
        assert "healthcheck" in service or name == "deploy"
    build = OURS["server"]["build"]
    assert (PLACE / build["context"] / build["dockerfile"]).samefile(PLACE / "Containerfile")
    for script in re.findall(r"\./([\w.]+\.sh):", (PLACE / "compose.yaml").read_text()):
        assert os.access(PLACE / script, os.X_OK)


def test_only_the_worker_sees_what_is_confidential_and_nothing_is_open_to_a_network():
    for name, service in SERVICES.items():
        mounted = {volume.split(":")[0] for volume in service.get("volumes", [])}
        assert bool(mounted & {"state", "source"}) == (name == "worker"), name
        assert ("curator_key" in service.get("secrets", [])) == (name == "worker"), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    assert "listen_addresses=" in SERVICES["postgres"]["command"]
    assert COMPOSE["networks"]["inner"] == {"internal": True}
    for name in ("postgres", "deploy", "worker"):
        assert SERVICES[name]["networks"] == ["inner"]
    for service in OURS.values():
        assert service["user"] == "10001:10001"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_no_secret_is_in_the_environment():
    for service in SERVICES.values():
        for value in service.get("environment", {}).values():
            assert not re.search(r"//\w*:[^/]*@|secret(?!s/)|token", str(value))


def test_every_variable_is_read_by_somebody():
    def known(name):
        return name in {*PREFECT_DEFAULTS} | POSTGRES or hasattr(prefect_settings, name)

    assert not known("PREFECT_NO_SUCH_SETTING")
    ours = "".join(
        path.read_text() for folder in ("dpiw", "flows") for path in (ROOT / folder).rglob("*.py")
    )
    for service in SERVICES.values():
        for name in service.get("environment", {}):
            assert known(name) or (name.startswith("DPIW_") and f'"{name}"' in ours), name
    image = re.findall(r"(DPIW_\w+)=", CONTAINER)
    assert {*image} == {"DPIW_CHECKOUT", "DPIW_ROOT"}


def quiet():
    deployments = YAML(typ="safe").load((PLACE / "prefect.yaml").read_text())["deployments"]
    return deployments[0]["work_pool"]["job_variables"]["env"]


def test_all_places_are_as_quiet_as_a_deployment():
    for name in ("server", "deploy", "worker"):
        assert quiet().items() <= SERVICES[name]["environment"].items(), name
    for pool in POOLS.values():
        assert pool["variables"]["properties"]["env"]["default"] == quiet()


def test_every_command_is_one_of_the_entry_script():
    cases = {*re.findall(r"^  (\w+)\)", (PLACE / "entry.sh").read_text(), re.M)}
    assert cases == {"server", "deploy", "worker", "site", "answers"}
    for service in OURS.values():
        assert service["command"][0] in cases
        if "healthcheck" in service:
            kind, script, case, url = service["healthcheck"]["test"]
            assert (kind, script, case) == ("CMD", "deployments/entry.sh", "answers")
            assert url.startswith("http://127.0.0.1:")
    done = subprocess.run(
        [PLACE / "entry.sh", "python", "-c", "import os; print(oct(os.umask(0)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "0o77\n"


def test_a_secret_of_a_block_becomes_a_closed_file_and_leaves_the_environment(tmp_path):
    shown = "stat -c %a $HOME/pgpass; cat $HOME/curator_key $PGPASSFILE; env | grep -c SECRET_"
    done = subprocess.run(
        [PLACE / "entry.sh", "sh", "-c", shown], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path),
             "DPIW_SECRET_PGPASS": "*:p", "DPIW_SECRET_CURATOR_KEY": "-----BEGIN\n-----END"},
    )  # fmt: skip
    assert done.stdout == "600\n-----BEGIN\n-----END\n*:p\n0\n"


@pytest.mark.slow
def test_secrets_are_made_once_and_closed(tmp_path):
    make = [PLACE / "secrets.sh", tmp_path / "secrets"]
    subprocess.run(make, check=True)
    made = {path.name: path for path in (tmp_path / "secrets").iterdir()}
    assert {*made} | {"curator_key"} == {*COMPOSE["secrets"]}
    texts = {name: path.read_text() for name, path in made.items()}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in made.values())
    assert texts["pgpass"] == f"*:*:*:pipeline:{texts['pipeline_password']}"
    assert len({*texts.values()}) == 4
    again = subprocess.run(make, capture_output=True, check=False)
    assert again.returncode != 0
    assert {name: path.read_text() for name, path in made.items()} == texts


# Work pools


def prefect_s(kind):
    package = {"process": "prefect"}.get(kind, f"prefect-{kind}")
    file = "server/api/collections_data/views/aggregate-worker-metadata.json"
    collections = json.loads((importlib.resources.files("prefect") / file).read_text())
    return collections[package][kind]["default_base_job_configuration"]


@pytest.mark.parametrize("kind", POOLS)
def test_a_pool_s_template_is_a_narrower_one_of_prefect_s(kind):
    """A run may set its environment; no image, volume, privilege or folder (nor command)."""
    ours, theirs = POOLS[kind], prefect_s(kind)
    assert {*ours["job_configuration"]} <= {*theirs["job_configuration"]}
    wanted = {"env", "name"} | ({"command"} if kind == "kubernetes" else set())
    assert {*ours["variables"]["properties"]} == wanted
    named = {*re.findall(r"\{\{ (\w+) \}\}", json.dumps(ours["job_configuration"]))}
    assert named == wanted
    assert ours["job_configuration"]["stream_output"] is False
    if kind != "process":
        assert f'"{SERVICES["worker"]["image"]}"' in json.dumps(ours)


@pytest.mark.flow
@pytest.mark.crash
def test_what_the_containers_start_starts(mortal_postgresql_server, tmp_path):
    """PostgreSQL with its roles, server, deployments, worker and site, as processes."""
    postgres, secrets, home = mortal_postgresql_server, tmp_path / "secrets", tmp_path / "home"
    subprocess.run([PLACE / "secrets.sh", secrets], check=True)
    home.mkdir()
    (secrets / "curator_key").write_text("key")
    postgres.execute("DROP ROLE pipeline", "CREATE DATABASE ledger")
    port, site = free_port(), free_port()
    tools = f"{Path(sys.executable).parent}:{postgres.binaries}:{os.environ['PATH']}"
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "DPIW"))}
    bare |= {"PATH": tools, "HOME": str(home), "DPIW_SECRETS": str(secrets), "TMPDIR": "/tmp"}
    (superuser,) = postgres.execute("SELECT current_user")[0]
    subprocess.run(
        [PLACE / "initdb.sh"], check=True,
        env=bare | {"POSTGRES_USER": superuser, "POSTGRES_DB": "ledger",
                    "PGHOST": str(postgres.folder)},
    )  # fmt: skip
    settings = {name: SERVICES[name]["environment"] for name in ("server", "deploy", "worker")}
    url = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
    settings["server"][url] = settings["server"][url].replace(
        "/var/run/postgresql", str(postgres.folder)
    )
    api = f"http://127.0.0.1:{port}/api"
    ports = {
        "DPIW_HOST": "127.0.0.1", "DPIW_PREFECT_PORT": str(port), "DPIW_SITE_PORT": str(site),
        "DPIW_CHECKOUT": str(ROOT),
        "PREFECT_WORKER_WEBSERVER_PORT": str(free_port()),
    }  # fmt: skip
    started = []

    def environment(name):
        client = {} if name == "server" else {"PREFECT_API_URL": api}
        own = home / name  # as each container has its own
        own.mkdir(exist_ok=True)
        places = {"HOME": str(own), "PREFECT_HOME": str(own / ".prefect")}
        return bare | settings.get(name, {}) | ports | client | places

    def start(*words):
        process = subprocess.Popen(
            [PLACE / "entry.sh", *words], env=environment(words[0]), cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(process)
        return process

    def answers(address, process):
        assert process.poll() is None
        words = [PLACE / "entry.sh", "answers", address]
        return subprocess.run(words, env=bare, capture_output=True, check=False).returncode == 0

    try:
        server = start("server")
        until(lambda: _healthy(api) or server.poll() is not None, what="the server")
        assert answers(f"{api}/health", server)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{api}/admin/version", timeout=SECONDS)
        with refused.value as answer:  # closed, or a later test is blamed for it
            assert answer.code == 401
        for name in ("pgpass", "curator_key"):
            assert (home / "server" / name).stat().st_mode & 0o777 == 0o600
        deployed = subprocess.run(
            [PLACE / "entry.sh", "deploy"], env=environment("deploy"), cwd=ROOT, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert deployed.returncode == 0, deployed.stdout + deployed.stderr
        for kind in ("docker", "kubernetes"):
            words = f"prefect --no-prompt work-pool create in-{kind} --type {kind}"
            words += f" --base-job-template deployments/pool-{kind}.json"
            command = [PLACE / "entry.sh", *shlex.split(words)]
            subprocess.run(command, env=environment("deploy"), cwd=ROOT, check=True)
        listed = postgres.execute("SELECT name, type FROM work_pool", database="prefect")
        assert {*listed} >= {
            ("dpiw", "process"), ("in-docker", "docker"), ("in-kubernetes", "kubernetes")
        }  # fmt: skip
        worker, pages = start("worker"), start("site", str(PLACE))
        health = f"http://127.0.0.1:{ports['PREFECT_WORKER_WEBSERVER_PORT']}/health"
        until(lambda: answers(health, worker), every=1, what="the worker")
        until(lambda: answers(f"http://127.0.0.1:{site}/", pages), every=1, what="the site")
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=SECONDS)

    ledger = Ledger.create(postgres.url("ledger", superuser))
    ledger.register(adult())
    spend(Ledger.open(postgres.url("ledger", "pipeline")), 1)
    assert ledger.verify().ok
