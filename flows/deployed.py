"""A Prefect file that keeps parameters and schedules set on the server for its deployments.

All else is the file's, so that a moved checkout and an upgrade's privacy settings take effect.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from prefect.flows import load_flow_arguments_from_entrypoint
from ruamel.yaml import YAML


def full_name(entry: dict[str, Any]) -> str:
    """Return `FLOW/DEPLOYMENT`: deployments of two flows may have one name."""
    flow = load_flow_arguments_from_entrypoint(entry["entrypoint"], ["name"])["name"]
    return f"{flow}/{entry['name']}"


def what_is_set(there: DeploymentResponse) -> dict[str, Any]:
    """Return parameters and schedules of a deployment, as a Prefect file's entry states them."""
    schedules = [_schedule(schedule) for schedule in there.schedules]
    return {"parameters": there.parameters, "schedules": schedules, "paused": there.paused}


def _schedule(there: DeploymentSchedule) -> dict[str, Any]:
    told = there.model_dump(mode="json", include={"active", "parameters", "slug"})
    told |= there.schedule.model_dump(mode="json")
    return {name: value for name, value in told.items() if value is not None}


def main(arguments: list[str]) -> int:
    """Write the file as it is to be deployed now; print which deployments keep settings."""
    file, out = arguments
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 1)  # as Prefect reads it
    wanted = reader.load(Path(file).read_text(encoding="utf-8"))
    entries, kept = [], []
    with get_client(sync_client=True) as client:
        for entry in wanted["deployments"]:
            name = full_name(entry)
            try:
                entries.append(entry | what_is_set(client.read_deployment_by_name(name)))
                kept.append(name)
            except ObjectNotFound:
                entries.append(entry)
    text = json.dumps(wanted | {"deployments": entries}, default=str)  # YAML, too
    Path(out).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{' '.join(kept)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
