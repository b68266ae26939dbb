"""Run a long suite, or what is left of it.

    python -m tests.assurance proof             # or test-crash, nightly
    python -m tests.assurance proof --only hockey_stick --jobs 1

Finished parts are kept under `--keep` and run again only when something they depend on has changed
(`closure.py`). Kill it at any time and start it again: parts in flight are lost, no others. Ends
with 0 if every part is green, 1 if one is not, 2 if there is nothing to run, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.assurance.guard import Guard
from tests.assurance.parts import SUITES
from tests.assurance.runner import Assurance, NothingCollectedError, Order

ROOT = Path(__file__).resolve().parents[2]


def _order(arguments: list[str]) -> Order:
    parser = argparse.ArgumentParser(prog="python -m tests.assurance")
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--jobs", type=int, help="parts at once (proof 2, the others 1)")
    parser.add_argument("--keep", type=Path, default=Path("build/assurance"), help="finished parts")
    parser.add_argument("--figures", type=Path, help="a file for all figures, as JSON lines")
    parser.add_argument("--only", default="", help="only tests whose id holds this")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to test (this one)")
    parsed = parser.parse_args(arguments)
    suite, root = SUITES[parsed.suite], parsed.root.resolve()
    return Order(
        suite=suite, root=root, keep=(root / parsed.keep).resolve(),
        jobs=parsed.jobs or suite.jobs, figures=parsed.figures, only=parsed.only,
    )  # fmt: skip


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Run a suite; returns the exit status."""
    order = _order(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a job in the background ignores the first
        signal.signal(number, _stop)
    guard = Guard()
    try:
        return 0 if Assurance(order, guard).run().ok else 1
    except NothingCollectedError as error:
        sys.stderr.write(f"nothing to run: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; what is finished is kept\n")
        return 130
    finally:
        guard.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
