"""Take the pictures of Prefect's interface in docs/operations.md.

    python docs/images/operator_pages.py SPEC --browser /usr/bin/chromium

Starts a Prefect server with its interface, runs the release flow under it, and keeps what a browser
shows of the run. Everything else lies in a temporary folder. Needs `playwright`.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings

HERE = Path(__file__).resolve().parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str) -> None:
    for _ in range(120):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise SystemExit("the Prefect server did not answer")


def pictures(base: str, browser: str, folder: Path) -> list[str]:
    """Keep what a browser shows of the newest run and of its budget.

    Args:
        base: the server's address.
        browser: path of a Chromium.
        folder: takes `prefect-run.png` and `prefect-budget.png`.

    Returns:
        What the pages asked of anybody but the server: addresses.
    """
    elsewhere: list[str] = []
    with (
        temporary_settings({PREFECT_API_URL: f"{base}/api"}),
        get_client(sync_client=True) as client,
        sync_playwright() as play,
    ):
        (run,) = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
        mine = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
        (budget,) = [
            one for one in client.read_artifacts(flow_run_filter=mine) if one.type == "image"
        ]
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1200, "height": 800})
        page.on("request", lambda asked: elsewhere.append(asked.url))
        _take(page, f"{base}/runs/flow-run/{run.id}", "publish: ", folder / "prefect-run.png")
        page.set_viewport_size({"width": 900, "height": 420})
        shown = f"{base}/artifacts/artifact/{budget.id}"
        _take(page, shown, "Population", folder / "prefect-budget.png")
        chromium.close()
    return [url for url in elsewhere if not url.startswith((f"{base}/", "data:", "blob:"))]


def _take(page: Page, address: str, wanted: str, path: Path) -> None:
    page.goto(address)
    page.get_by_text(wanted).first.wait_for(timeout=120_000)
    page.wait_for_timeout(3000)  # drawings move into place
    page.screenshot(path=path)


def main(arguments: list[str]) -> int:
    """Run a release under a server of our own, and take the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spec", type=Path, help="a release spec whose population is registered")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    chosen = parser.parse_args(arguments)
    port = _free_port()
    base = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {
            "PREFECT_HOME": home, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            "PREFECT_SERVER_UI_V2_ENABLED": "false", "PREFECT_API_URL": f"{base}/api",
        }  # fmt: skip
        server = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1",
             "--port", str(port)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait_for(f"{base}/api/health")
            subprocess.run(
                [sys.executable, "-m", "dpiw.cli.main", "release", str(chosen.spec)],
                env=environment, check=True,
            )  # fmt: skip
            asked = pictures(base, chosen.browser, HERE)
        finally:
            server.terminate()
            server.wait(timeout=60)
    print("asked of others: " + (", ".join(asked) or "nothing"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
