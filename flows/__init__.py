"""The Prefect flows. Run from a checkout, by module path: `python -m flows.release SPEC`.

Importing this package sets Prefect's defaults for a confidential workplace, before Prefect itself
is imported: nothing is sent to a vendor, no result is stored, no log line goes to a server, and
every file Prefect writes is readable by its owner alone. A variable that is already set wins.
"""

import os
from pathlib import Path

PREFECT_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "PREFECT_HOME": str(Path.cwd() / ".dpiw" / "prefect"),
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_TASKS_DEFAULT_NO_CACHE": "true",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
}

for _name, _value in PREFECT_DEFAULTS.items():
    os.environ.setdefault(_name, _value)
os.umask(0o077)
# Prefect makes its home, but not the folders above it.
Path(os.environ["PREFECT_HOME"]).expanduser().mkdir(mode=0o700, parents=True, exist_ok=True)
