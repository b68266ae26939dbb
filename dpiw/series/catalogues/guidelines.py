"""A page that answers, from the certificate, what NIST SP 800-226 asks of a DP guarantee.

Source: Near, Darais, Lefkovitz and Howarth (2025), Guidelines for Evaluating Differential Privacy
Guarantees, NIST SP 800-226. Its pyramid has the guarantee on top; each layer rests on those below.
The questions are worded here. What dpiw neither does nor knows is said to be not covered.
"""

from dpiw.data.schema.columns import ColumnRole
from dpiw.errors import optional
from dpiw.series.catalogues.deployment import composition, unprotected, utility
from dpiw.series.catalogues.described import Described

NOT_COVERED = "Not covered by dpiw"
"""Begins an answer that somebody else must give."""

Answer = tuple[str, str, str]
"""Question, answer, and where the answer is from."""


def sp800_226_html(release: Described) -> bytes:
    """Write the page. Raises ReleaseError without Jinja2, which an analyst need not have."""
    optional("jinja2", extra="pipeline")
    from dpiw.release.report.pages import render

    layers = {
        "The guarantee": _guarantee(release),
        "Algorithms and their correctness": _algorithms(release),
        "Utility and bias": _utility(release),
        "Trust model": _trust(release),
        "Security, side channels and access": _security(release),
        "Data collection": _collection(release),
    }
    page = render(
        "series/catalogues/sp800_226.html.j2",
        release=release,
        layers=layers,
        assumptions=release.certificate.assumptions,
        caveats=release.certificate.caveats,
    )
    return page.encode()


def _guarantee(release: Described) -> list[Answer]:
    facts = release.certificate
    return [
        ("Which variant of differential privacy is promised?",
         "Pure" if float(facts.delta) == 0 else "Approximate", "delta"),
        ("How strong is it?", release.guarantee, "epsilon, delta"),
        ("Who or what is protected?", f"{release.unit}.".capitalize(), "unit"),
        ("Which datasets are neighbours?", f"{release.neighbours}.".capitalize(), "unit.relation"),
        ("How do several draws and releases add up?", composition(release), "account, accountants"),
        ("How much was spent so far, and what is the limit?",
         f"Epsilon {facts.spent_epsilon} of {facts.budget_epsilon}, delta {facts.spent_delta} of"
         f" {facts.budget_delta}, for the life of population {facts.population}.",
         "spent_epsilon, budget_epsilon"),
        ("Does the limit start again, say each year?",
         "No. The budget is for life. If the same people are in several populations, their costs"
         f" add up, and dpiw cannot know it: {NOT_COVERED.lower()}.", "budget_epsilon"),
        ("Is anything published without protection?", unprotected(release), "unit.relation"),
    ]  # fmt: skip


def _algorithms(release: Described) -> list[Answer]:
    facts = release.certificate
    drawn = [
        (f"What did stage {stage.stage} draw?",
         f"{release.mechanism(stage)}."
         + (" Another tool drew it; its cost is declared, and dpiw checked nothing."
            if release.is_declared(stage) else ""),
         "stages")
        for stage in facts.stages
    ]  # fmt: skip
    checks = ", ".join(f"{name} epsilon={value}" for name, value in facts.accountants.items())
    steps = "; ".join(facts.post_processing) or "none"
    return [
        *drawn,
        ("Was the accounting checked?", f"By two accountants, for one attempt: {checks}.",
         "accountants"),
        ("Is noise safe from the faults of floating-point numbers?",
         "dpiw draws noise from discrete laws or with exact arithmetic, and the assumptions below"
         " state what this costs. Rows that another tool made are outside this.", "assumptions"),
        ("Were failed attempts paid for?",
         f"Yes: {len(facts.attempts)} paid attempt(s); their sum is the total.", "attempts"),
        ("What happens after the draws?", f"Post-processing, which costs nothing: {steps}.",
         "post_processing"),
        ("Can others repeat the evaluation?",
         "The certificate states every event and noise scale; `dpiw audit` recomputes them with an"
         " accountant of its own. The software is open, and its tests try to break each promise.",
         "stages, versions"),
    ]  # fmt: skip


def _utility(release: Described) -> list[Answer]:
    return [
        ("How accurate are results?", utility(release), "diagnostics, verdict"),
        ("Can results be biased?",
         "Yes. The caveats below name known biases of these rows and weights.", "caveats"),
        ("Are small groups served worse than large ones?",
         "Yes, in general: noise is as large for a small group as for a large one, so its estimates"
         " are worse. dpiw marks each estimate with a verdict, and does not compare groups with the"
         f" confidential table. Bias in how the data arose: {NOT_COVERED.lower()}.", "caveats"),
        ("Must readers use the weights?",
         "Yes: every estimate must use the column weight, unless the verdict says otherwise."
         if release.certificate.is_weighted else "There are none.", "weights, verdict"),
    ]  # fmt: skip


def _trust(release: Described) -> list[Answer]:
    return [
        ("Who is trusted with the data?",
         "The central model: the custodian and the host that runs dpiw see the confidential table."
         " Readers and operators of the scheduler need no trust for privacy. The ledger must be"
         " complete, or more could be spent than the budget.", "assumptions"),
        ("Who vouches for this page's facts?",
         f"The holder of key {release.release.key_id}, who signed the release. The signature proves"
         " integrity, not that the custodian ran what the certificate states.", "manifest"),
        ("Can readers ask more questions of the table?",
         "No. The release is not interactive; each further release is charged.", "account"),
    ]  # fmt: skip


def _security(release: Described) -> list[Answer]:
    reads = release.certificate.account["max_unpaid_reads"]
    return [
        ("Which side channels remain?",
         "Run time, memory use and whether a process died. At most"
         f" {reads} reads of the table may end without a draw, and epsilon does not pay for them.",
         "assumptions, account"),
        ("Are seeds secret?",
         "Noise comes from the operating system's secure random generator, and has no seed in a"
         " spec or a release.",
         "assumptions"),
        ("Who may read the confidential table and workspace?",
         f"{NOT_COVERED}: access control, encryption and backups are the custodian's.", "-"),
    ]  # fmt: skip


def _collection(release: Described) -> list[Answer]:
    bounded = any(column.role is ColumnRole.IDENTIFIER for column in release.schema.columns)
    dropped = " Identifiers bound the rows of a person and are then dropped." if bounded else ""
    return [
        ("How were the data collected, and who could see them on the way?",
         f"{NOT_COVERED}: differential privacy protects what is published, not the collection.",
         "-"),
        ("Were only necessary data used?",
         f"{NOT_COVERED}. The data dictionary lists every column that was read.{dropped}",
         "schema.json"),
        ("Did people consent, and for which purpose?", f"{NOT_COVERED}.", "-"),
    ]  # fmt: skip
