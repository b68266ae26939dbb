"""The local flow: reports that are private already go in, a signed folder comes out.

Nothing here is confidential and no ledger is used: each person's client decided what it spends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from prefect import flow

from dpiw.cli.parser import Parser
from dpiw.errors import DPIWError, shown
from dpiw.local.certificate import verify_local
from dpiw.local.collector import load_local_spec
from flows.console import quiet_prefect
from flows.parameters import spec_below_root, typed_here
from flows.server import prefect_server
from tasks.failures import only_our_own, told_briefly
from tasks.stages import collect_reports, publish_reports


@flow(name="dpiw-local", retries=0, persist_result=False, log_prints=False)
@only_our_own("local")
def collect(spec: str) -> str:
    """Publish the reports of a local collection, once; return the folder.

    Args:
        spec: path of a local spec; its name is all that Prefect stores.

    Raises:
        DPIWError: shortened by `tasks.failures.brief`.
    """
    with told_briefly("spec"):
        read = load_local_spec(spec_below_root("spec", spec))
    return str(publish_reports(read, collect_reports(read)))


def main(run: Callable[[str], str], arguments: list[str]) -> int:
    """Run the flow for a person; return the exit status."""
    parser = Parser(prog="dpiw local collect")
    parser.add_argument("spec", type=Path, help="a local spec (YAML)")
    spec = parser.parse_args(arguments).spec
    quiet_prefect()
    try:
        load_local_spec(spec)  # report mistakes before a server starts
        with prefect_server(), typed_here():
            folder = Path(run(str(spec)))
        lines = verify_local(folder).described()
    except DPIWError as error:
        text = shown(error.told(), most=None, lines=True)
        sys.stdout.write(f"\nnot published: {type(error).__name__}: {text}\n")
        return error.exit_code
    sys.stdout.write("\n".join(["", str(folder), *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(collect, sys.argv[1:]))
