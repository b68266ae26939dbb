"""A process that has imported everything and forks one child per task.

    python -m tests.crash.forkserver

Reads a task as a line of JSON, forks, waits, answers with the child's end: its exit code, or minus
the signal that killed it. A task with `after` gets SIGKILL by the clock: so many seconds after the
milestone it names.
"""

import gc
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def warm() -> None:
    """Import what the steps import late; nothing is computed, so that a fork copies no thread."""
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
    import great_expectations  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import opendp.measurements  # noqa: F401
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401
    import scipy.optimize  # noqa: F401
    import sklearn.linear_model  # noqa: F401

    import dpiw
    import dpiw.run.process
    import tests.crash.child  # noqa: F401
    from dpiw.release.report.pages import compiled

    package = Path(dpiw.__file__).parent
    for template in sorted((package / "release").rglob("*.j2")):
        compiled(str(template.relative_to(package)))
    gc.collect()
    gc.freeze()  # no collection in a child touches, and so copies, what was here before


def serve(task: dict[str, Any], verdicts: Path) -> dict[str, Any]:
    from tests.crash import child

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child.keep_verdicts(verdicts)
        os._exit(child.life(task, writing))
    os.close(writing)
    if "after" in task:
        if _comes(reading, task["milestone"]):
            time.sleep(task["after"])
        os.kill(pid, signal.SIGKILL)  # no harm if it has ended: it is not waited for yet
    _, status = os.waitpid(pid, 0)
    os.close(reading)
    return {"end": os.waitstatus_to_exitcode(status)}


def _comes(reading: int, milestone: str) -> bool:
    """Wait for the milestone; False if the child ends without it."""
    while letter := os.read(reading, 1):
        if letter.decode() == milestone:
            return True
    return False


def main() -> None:
    warm()
    with tempfile.TemporaryDirectory() as verdicts:
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(serve(json.loads(line), Path(verdicts))), flush=True)


if __name__ == "__main__":
    main()
