"""A disk that fails: at one chosen operation, once (EIO) or from there on (ENOSPC, EROFS)."""

import builtins
import errno
import io
import json
import os
from pathlib import Path
from typing import Any

from tests.crash.child import path_of
from tests.support.around import around

STICKY = (errno.ENOSPC, errno.EROFS)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disk:
    """Counts the operations that change the place's disk, and fails from one of them on."""

    def __init__(self, root: Path, *, fail_at: int, code: int) -> None:
        self.root, self.fail_at, self.code = str(root), fail_at, code
        self.log = (root / "operations.jsonl").open("w", buffering=1)
        self.count = 0

    def passes(self, operation: str, path: Any) -> None:
        """Raise if this operation is to fail."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        exempt = ("child.log", "noise.log", "operations.jsonl", "error.txt", ".lock")
        if not name.startswith(self.root) or name.endswith(exempt):
            return
        self.count += 1
        self.log.write(json.dumps([operation, Path(name).name]) + "\n")
        failing = self.count == self.fail_at
        if failing or (self.code in STICKY and 0 < self.fail_at < self.count):
            raise OSError(self.code, os.strerror(self.code))

    def install(self) -> None:
        def opening(path, flags, *_, **__):
            if flags & _WRITING:
                self.passes("open", path)

        def opening_a_stream(file, mode="r", *_, **__):
            if set(mode) & set("wxa+"):
                self.passes("open", file)

        around(os, "open", before=opening)
        around(os, "fsync", before=lambda number: self.passes("fsync", str(path_of(number))))
        for module in (io, builtins):
            around(module, "open", before=opening_a_stream)
        for name, place in (("rename", 1), ("link", 1), ("mkdir", 0), ("chmod", 0)):
            around(os, name, before=lambda *a, name=name, at=place, **_: self.passes(name, a[at]))
        fdopen = os.fdopen

        def stream(descriptor, mode="r", *args, **kwargs):
            file = fdopen(descriptor, mode, *args, **kwargs)
            return _Stream(file, self, path_of(descriptor)) if "w" in mode else file

        os.fdopen = stream


class _Stream:
    """A file whose write may fail half-way."""

    def __init__(self, stream: Any, disk: Disk, path: Path) -> None:
        self._stream, self._disk, self._path = stream, disk, path

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> int:
        try:
            self._disk.passes("write", str(self._path))
        except OSError:
            self._stream.write(data[: len(data) // 2])
            self._stream.flush()
            raise
        return int(self._stream.write(data))


def fail(watch, task):
    Disk(Path(task["root"]), fail_at=task["fail_at"], code=task["code"]).install()
