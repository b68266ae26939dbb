"""The same order seen by the kernel: all system calls of a run, SQLite's and Arrow's included."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.crash.harness import ROOT, Place

CALLS = (
    "write,pwrite64,writev,pwritev,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat"
)
_CALL = re.compile(r"^(?P<pid>\d+) (?P<name>\w+)\((?P<rest>.*)$")
_UNFINISHED = re.compile(r"^(?P<pid>\d+) (?P<name>\w+)\((?P<rest>.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?P<pid>\d+) <\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_PATH = re.compile(r"^\d+<(?P<path>/[^>]*)>")
_NAMES = re.compile(r'"((?:[^"\\]|\\.)*)"')

_RUN = """
import json, os, sys
from tests.crash import child
task = json.loads(sys.argv[1])
os._exit(child.life(task, None))
"""


def available() -> bool:
    """Whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode == 0


def traced(place: Place, *changes: str) -> list[str]:
    """Run once under strace and return its lines, whole calls in the order of their return."""
    log = place.root / "strace.log"
    task = json.dumps({"root": str(place.root), "changes": changes})
    subprocess.run(
        ["strace", "-f", "-y", "-s", "200", "-e", f"trace={CALLS}", "-e", "signal=none",
         "-o", str(log), sys.executable, "-c", _RUN, task],
        cwd=ROOT, check=False, capture_output=True,
    )  # fmt: skip
    return _whole_calls(log.read_text(errors="replace").splitlines())


def _whole_calls(lines: list[str]) -> list[str]:
    begun: dict[tuple[str, str], str] = {}
    calls = []
    for line in (" ".join(line.split(None, 1)) for line in lines):
        if halted := _UNFINISHED.match(line):
            begun[halted["pid"], halted["name"]] = halted["rest"]
        elif resumed := _RESUMED.match(line):
            rest = begun.pop((resumed["pid"], resumed["name"]), "") + resumed["rest"]
            calls.append(f"{resumed['pid']} {resumed['name']}({rest}")
        else:
            calls.append(line)
    return calls


class Disk:
    """Which files of the place hold bytes that no fsync has covered yet."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._noise_log = f"{root}/noise.log"
        self._dirty: set[str] = set()
        self._wal_synced = 0
        self.violations: list[str] = []
        self.noise = 0
        self.renames = 0

    def judge(self, lines: list[str]) -> None:
        for line in lines:
            call = _CALL.match(line)
            if call is not None:
                self._see(call["name"], call["rest"])

    def _see(self, name: str, rest: str) -> None:
        path_match = _PATH.match(rest)
        path = path_match["path"] if path_match else ""
        if path == self._noise_log:
            self._noise(rest)
        elif name in ("fsync", "fdatasync"):
            self._dirty.discard(path)
            self._wal_synced += path.endswith("-wal")
        elif name.startswith(("rename", "link")):
            source, target = (Path(text) for text in _NAMES.findall(rest)[:2])
            if str(target).startswith(self._root) and rest.rstrip().endswith("= 0"):
                is_built = name.startswith("link") and target.parent.name.startswith(".staging-")
                (self._link if is_built else self._rename)(source, target)
        elif path.startswith(self._root) and not path.endswith((".log", "-shm", "events.jsonl")):
            self._dirty.add(path)

    def _noise(self, rest: str) -> None:
        if '\\"noise\\"' not in rest:
            return
        self.noise += 1
        unsynced = sorted(path for path in self._dirty if "ledger.sqlite" in path)
        if unsynced or not self._wal_synced:
            self.violations.append(f"noise while the ledger is not on the disk: {unsynced}")

    def _link(self, source: Path, target: Path) -> None:
        """Into a folder that is being built, where an fsync has to follow: the rename asks it."""
        if str(source) in self._dirty:
            self._dirty.remove(str(source))
            self._dirty.add(str(target))

    def _rename(self, source: Path, target: Path) -> None:
        self.renames += 1
        for path in sorted(self._dirty):
            if Path(path) == source or source in Path(path).parents:
                self.violations.append(f"{target.name} is renamed before the fsync of {path}")
