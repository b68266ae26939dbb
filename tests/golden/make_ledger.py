"""Make a ledger with every kind of entry; version 0.1.0 made the two kept `ledger-format-*` files.

    python -m tests.golden.make_ledger ledger.sqlite && xz ledger.sqlite

Format 3 is of commit c25c5c89. Format 2, whose entries have no author, is of commit e454a7e8, by
the same calls without key, actor and release. Never make either again: they are of their own time.
"""

import contextlib
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from dpiw.errors import LedgerConflictError
from dpiw.ledger import CompositionRule, Ledger
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.resumption import Resumption
from dpiw.release.signing import create_key_pair, load_private_key
from tests.support.ledger import cost, digest, terms

GAUSSIAN = {"type": "gaussian", "noise_multiplier": 1.5, "count": 3}
STAGES = {
    "generator": [GAUSSIAN],
    "weights": [{"type": "laplace", "noise_multiplier": 4.0, "count": 1}],
}
ONE = {"generator": [GAUSSIAN]}


def main(path: Path) -> None:
    private, _ = create_key_pair(path.parent, path.stem)
    ledger = Ledger.create(path, key=load_private_key(private), actor=lambda: "curator@office")
    ledger.register(terms(epsilon=Decimal(8)))

    def reserve(number: int, attempt: int = 1, stages: Any = STAGES, **more: Any) -> str:
        request = {
            "population": "town", "run_key": digest(number), "attempt": attempt, "release": "town",
            "cost": cost("0.5", "1e-7"), "stages": stages, "plan_digest": digest(100 + number),
            "period": f"2026-0{number}", "max_attempts": 2,
        }  # fmt: skip
        ledger.reserve(**(request | more))
        return digest(number)

    def publish(run: str, number: int) -> None:
        ledger.certify(run)
        ledger.publish(run, digest(200 + number))

    for number in (1, 2):
        run = reserve(number)
        ledger.read(run, 1)
        for place, stage in enumerate(STAGES):
            ledger.commit(ledger.arm(run, 1, stage), digest(10 * number + place))
        publish(run, number)
    run = reserve(3)
    ledger.read(run, 1)
    ledger.arm(run, 1, "generator")
    ledger.lose(run, 1, "generator")
    reserve(3, 2, ONE)
    grant = ledger.arm(run, 2, "generator")
    ledger.commit(grant, digest(31))
    with contextlib.suppress(LedgerConflictError):
        ledger.commit(grant, digest(32))
    ledger.void(reserve(4), 1)
    resumptions = {"generator": Resumption(steps=100, resumes=1, every=10)}
    run = reserve(5, stages={"generator": [GAUSSIAN | {"count": 110}]}, resumptions=resumptions)
    grant = ledger.arm(run, 1, "generator")
    for step in (0, 10):
        ledger.checkpoint(grant, step=step, digest=digest(51))
    ledger.commit(ledger.resume(run, 1, "generator", step=10), digest(52))
    reserve(6)
    ledger.register(
        terms(name="harbour", max_rows=3, epsilon=Decimal(4), composition=CompositionRule.RENYI,
              id_column="person", max_unpaid_reads=7)
    )  # fmt: skip
    vector = RenyiVector(units=tuple(10**8 * (order + 1) for order in range(16)))
    run = reserve(7, stages=ONE, population="harbour", release="harbour", renyi=vector)
    ledger.read(run, 1)
    ledger.commit(ledger.arm(run, 1, "generator"), digest(71))
    publish(run, 7)
    ledger.recover("town", (), loss=cost("0.25", "1e-7"), reads=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
