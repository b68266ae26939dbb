"""Processes that are really killed between two changes of files."""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from dpiw.ledger import Ledger

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")


def died(act: Callable[[], object], last: int, place: Path) -> bool:
    """Do it in a process that dies before its `last` change of a file in `place`, if it gets there.

    0: in the first transaction of a ledger, behind the write. Python's audit hook reports changes.
    """
    if (child := os.fork()) == 0:
        code = 1
        try:
            _die_at(last, place)
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def _die_at(last: int, place: Path) -> None:
    count, append = itertools.count(1), Ledger._append

    def changes(event: str, words: tuple[Any, ...]) -> None:
        writes = event == "open" and words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes or event in CHANGES) and str(place) in str(words[0]) and next(count) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def appended(*words: Any, **fields: Any) -> Any:
        entry = append(*words, **fields)
        if last == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return entry

    mock.patch.object(Ledger, "_append", appended).start()  # until this process dies
    sys.addaudithook(changes)
