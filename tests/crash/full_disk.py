"""Runs on a real little disk that is filled up to a few KiB, or turned read-only.

    python -m tests.crash.full_disk FOLDER

`try_all` starts this in a mount namespace of its own, where it may mount a tmpfs; when it ends, the
disk is gone.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOM = (0, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1100, 1200, 1500, 2000)
"""KiB left before a run starts."""

NAMESPACE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "-rm")


def available() -> bool:
    """Whether this user may mount a small disk of its own."""
    with tempfile.TemporaryDirectory() as folder:
        test = [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        try:
            return subprocess.run(test, check=False, capture_output=True).returncode == 0
        except FileNotFoundError:
            return False


def try_all() -> dict[str, Any]:
    """How many runs there were, how many failed, and what did not hold."""
    from tests.crash.harness import ROOT

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*NAMESPACE, sys.executable, "-m", "tests.crash.full_disk", folder],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _history(server: Any, disk: Path, name: str, room: int | None, log: Path) -> tuple[bool, int]:
    """Fill the disk, run; empty it, run again. Whether the first run failed, and lost draws."""
    from tests.crash.harness import check, check_charge, check_published, make_place

    root = disk / name
    root.mkdir()
    place = make_place(root, url=f"sqlite:///{root / 'ledger.sqlite'}")
    place.run  # noqa: B018 - compiled and stored while there is room
    if room is None:
        place.releases.mkdir(mode=0o755)
        _mount("--bind", str(place.releases), str(place.releases))
        _mount("-o", "remount,ro,bind", str(place.releases))
        end = server.run(place, said=str(log))
        subprocess.run(["umount", str(place.releases)], check=True)
    else:
        filler = disk / "filler"
        status = os.statvfs(disk)
        with filler.open("wb") as file:
            file.write(bytes(max(0, status.f_bavail * status.f_frsize - 1024 * room)))
        end = server.run(place, said=str(log))
        filler.unlink()
    check(place)
    if end not in (0, 1, 12, 30, 50, 70):
        raise AssertionError(f"the run ended with {end}")
    words = log.read_text()
    if end and not any(text in words for text in ("No space left", "Read-only", "ledger")):
        raise AssertionError(f"not a word of the disk: {words[-500:]}")
    if server.run(place, said=str(log)) != 0:
        raise AssertionError(f"not resumed: {log.read_text()[-500:]}")
    check_published(place)
    return end != 0, check_charge(place)


def main(folder: str) -> None:
    """Try every amount of room, and a read-only folder; print a line of JSON."""
    from tests.crash.harness import ForkServer

    disk = Path(folder)
    _mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", folder)
    server = ForkServer()
    server.wait_until_warm()
    result: dict[str, Any] = {"runs": 0, "failed": 0, "draws_lost": 0, "violations": []}
    for number, room in enumerate((*ROOM, None)):
        try:
            log = Path(f"{folder}-said-{number}")  # not on the disk that is full
            failed, lost = _history(server, disk, f"place{number}", room, log)
            log.unlink()
            result["failed"] += failed
            result["draws_lost"] += lost
        except AssertionError as error:
            result["violations"].append(f"{room} KiB: {error}")
        result["runs"] += 1
    server.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
