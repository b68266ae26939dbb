"""The Prefect flows; importing this package sets Prefect's defaults for a confidential workplace.

Nothing goes to a vendor, no result is stored, no log line goes to a server, files are readable by
their owner alone. Variables already set win. `deployments/` repeats some lines.
"""

import os
from pathlib import Path

PATIENCE = {
    # Seconds until the server's first answer (`flows.server`).
    "DPIW_SERVER_WAIT_SECONDS": "600",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600",
    # Seconds for one request; and its repeats, after 2, 4, 8 ... 256 seconds.
    "PREFECT_API_REQUEST_TIMEOUT": "120",
    "PREFECT_CLIENT_MAX_RETRIES": "8",
    # Seconds before a worker's failed run starts again, if its ledger allows it.
    "DPIW_RERUN_SECONDS": "600",
    # A server of the run's own: seconds for one statement, one connection.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
}
"""How long a run waits on a busy machine before it gives up."""

PREFECT_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "PREFECT_HOME": str(Path.cwd() / ".dpiw" / "prefect"),
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_TASKS_DEFAULT_NO_CACHE": "true",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    **PATIENCE,
}

for _name, _value in PREFECT_DEFAULTS.items():
    os.environ.setdefault(_name, _value)
os.umask(0o077)
# Prefect makes its home, but not the folders above it.
_home = Path(os.environ["PREFECT_HOME"]).expanduser()
HOME_MADE = None if _home.exists() else _home
"""Prefect's folder if this import made it, else None."""
_home.mkdir(mode=0o700, parents=True, exist_ok=True)
