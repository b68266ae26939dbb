"""What an audit looked at, and what nobody can see from a ledger and its releases."""

from __future__ import annotations

from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import AGREEMENT


def checked(report: AuditReport) -> tuple[str, ...]:
    """Sentences about what was checked."""
    if report.counted is None:
        ledger: tuple[str, ...] = ("The ledger could not be read; folders alone were checked.",)
    else:
        ledger = (
            f"All {report.entries} entries of the ledger: the hash chain, and the legality of "
            "every step, by the ledger's own replay and by a second implementation.",
            "Every population's sum in whole units of 1e-12 and 1e-18, by both, against its "
            "lifetime budget after every reservation; all of the entries of one moment, whoever "
            "wrote in the meantime.",
            f"The epsilon of {len(report.costs)} reservations at their charged delta, recomputed "
            "from the stored events: by privacy loss distributions alone, by Renyi accounting "
            "alone, and by the audit's own account, which inverts Laplace transforms and shares "
            "no code with the two. The charge covers the least sound one and all that none can be "
            f"below; each of the two agrees with the audit's within {AGREEMENT:.0%}. Selections by "
            "the exponential mechanism agree within what is known of their composition, and Renyi "
            "vectors order by order.",
        )
    key = (
        "the given public key"
        if report.pinned
        else "the key inside the folder, as none was given: that shows wholeness, not who signed"
    )
    return (
        *ledger,
        f"{len(report.folders)} published folders: signature under {key}, every file's size and "
        "SHA-256, and that manifest, certificate and Parquet footer agree.",
        "Each whole folder against the ledger: its publishing entry, the head it was built on, "
        "costs, attempts, sums, budget and events at that head, and the release before it.",
    )


def not_checked() -> tuple[str, ...]:
    """Sentences about what was not, and cannot be from here."""
    return (
        "No confidential file was read. Whether bounds, identifiers, units and snapshot labels "
        "were declared truly cannot be seen from here.",
        "The theorems themselves: where the accountants and the audit's own account use the same "
        "one (which pair of tables is the worst, what a selection may lose), both would be wrong.",
        "That released rows and weights follow from the drawn measurements, which stay in the "
        "confidential workspace, and that their noise was what the events say.",
        "Releases and ledgers that were not named; the same people under another population.",
        "Entries cut off after the latest head that one of these folders carries. Compare the "
        "head below with one noted elsewhere.",
        "Who acted: the ledger names no persons. Its order is by number; its times are labels of "
        "the writing host's clock.",
    )
