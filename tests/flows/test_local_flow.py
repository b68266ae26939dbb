"""The local flow: started as a person does, and as Prefect shows it."""

import pytest

from dpiw.errors import SpecError
from dpiw.local.certificate import verify_local
from flows.local import main
from tests.support.local import SPEC, collectors_desk


@pytest.fixture
def desk(tmp_path):
    return collectors_desk(tmp_path)


def test_a_slip_is_told_before_a_server_is_started(desk, capsys):
    (desk / "collection.yaml").write_text(SPEC.replace("epsilon: 4", "epsilon: none"))
    assert main(pytest.fail, [str(desk / "collection.yaml")]) == SpecError.exit_code
    assert "SpecError: collection.yaml, line 7" in capsys.readouterr().out


@pytest.mark.crash
def test_reports_are_collected_by_two_tasks_and_published(desk, prefect_server):
    before = prefect_server.results()
    ran = prefect_server.python("-m", "flows.local", desk / "collection.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "local release commute: signed" in ran.stdout
    verified = verify_local(desk / "releases" / "commute", public_key=desk / "collector.pub")
    assert verified.certificate.rows == 12
    run = prefect_server.newest_run()
    assert run["parameters"] == {"spec": str(desk / "collection.yaml")}
    names = [task["name"].rsplit("-", 1)[0] for task in prefect_server.tasks(run, last="publish")]
    assert names == ["collect", "publish"]
    assert prefect_server.results() == before  # of a run that succeeds Prefect keeps none
