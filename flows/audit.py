"""The audit flow: replay the ledger, check every release, report; never reads a workspace."""

import sys
from collections.abc import Callable
from pathlib import Path

from prefect import flow

from dpiw.audit import AuditFailedError, Severity, found, release_folders
from dpiw.cli.parser import Parser, counted, names_a_spec
from dpiw.cli.pipeline import add_audit_arguments
from dpiw.errors import DPIWError, SpecError, shown
from dpiw.ledger.location import check_location
from dpiw.plan.spec import load_spec
from dpiw.release.manifest import SIGNATURE, refuse_release
from dpiw.run.run import ledger_url
from flows.console import quiet_prefect
from flows.parameters import below_root, ledger_below_root, spec_below_root, typed_here
from flows.server import prefect_server
from tasks.failures import only_our_own, told_briefly
from tasks.stages import audit as audit_task
from tasks.stages import report_audit


@flow(name="dpiw-audit", retries=0, persist_result=False, log_prints=False)
@only_our_own("audit")
def audit(
    ledger: str, releases: str | None = None, key: list[str] | str | None = None, out: str = "audit"
) -> str:
    """Audit a ledger and the releases it paid for; return the findings for people.

    Args:
        ledger: the ledger's path or URL, without a password; or a release spec (`.yaml`) that names
            ledger and releases.
        releases: the folder in which releases are published; None: the spec's.
        key: the curators' public key files, from elsewhere, one of which must verify each folder;
            None: nothing shows who signed.
        out: a folder for `audit.json` and `audit.html`.

    Raises:
        AuditFailedError: errors were found; the report is written.
        DPIWError: shortened by `tasks.failures.brief`.
    """
    with told_briefly("audit"):
        report_folder = below_root("out", out)
        refuse_release(report_folder)
        url, folder = places(ledger, releases)
        folders, keys = release_folders(folder), key_files(key)
    report = audit_task(url, folders, keys)
    page = report_audit(report, report_folder)
    errors, warnings = (report.number(severity) for severity in (Severity.ERROR, Severity.WARNING))
    text = "\n".join(found(report))
    if errors:
        failure = AuditFailedError(f"{counted(errors, 'error')} found; read {page}", field="audit")
        failure.whole = AuditFailedError(f"{failure}\n{text}")  # names of folders: not for Prefect
        raise failure
    also = f", {counted(warnings, 'warning')}" * bool(warnings)
    return f"no errors{also}; read {page}\n{text}"


def key_files(key: list[str] | str | None) -> list[Path]:
    """Return the public key files of a flow's parameter."""
    return [below_root("key", path) for path in ([key] if isinstance(key, str) else key or [])]


def places(ledger: str, releases: str | None) -> tuple[str, Path]:
    """Return ledger and folder of releases; `ledger` may be a spec. SpecError if not admissible."""
    ledger = ledger_below_root(ledger)
    folder = None if releases is None else below_root("releases", releases)
    if names_a_spec(ledger):
        spec = load_spec(spec_below_root("ledger", ledger))
        return ledger_url(spec), folder or Path(spec.publish_to)
    if folder is None:
        raise SpecError(
            "is missing, as --ledger names no release spec; to audit a ledger alone, name an empty"
            " folder, and all that it published is reported as missing",
            field="releases",
            allowed="--releases FOLDER, or --ledger SPEC.yaml",
        )
    if (folder / SIGNATURE).exists():
        raise SpecError(
            f"{folder.name} is one release", field="releases", allowed="the folder of all releases"
        )
    return ledger, folder


def main(run: Callable[..., str], arguments: list[str]) -> int:
    """Run the audit for a person; return the exit status: 0, or 33 if errors were found."""
    parser = Parser(prog="dpiw audit")
    add_audit_arguments(parser)
    parsed = parser.parse_args(arguments)
    quiet_prefect()
    try:
        # Before the flow: Prefect stores the parameters of every flow, failed ones too.
        check_location(parsed.ledger, error=SpecError)
        refuse_release(Path(parsed.out))
        with prefect_server(), typed_here():
            text = run(parsed.ledger, parsed.releases, parsed.key, parsed.out)
    except DPIWError as error:
        text = shown(error.told(), most=None, lines=True)
        sys.stdout.write(f"\n{type(error).__name__}: {text}\n")
        return error.exit_code
    sys.stdout.write(f"\n{shown(text, most=None, lines=True)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(audit, sys.argv[1:]))
