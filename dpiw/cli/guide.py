"""What each command does, in a sentence, and an example: `dpiw COMMAND --help` shows both."""

GUIDE = {
    "dpiw": (
        "Release confidential tables as differentially private synthetic rows with weights.",
        "dpiw init town --header 'age,income,region'",
    ),
    "dpiw init": (
        "Draft a data dictionary and a first release spec from public metadata. The table is never"
        " opened; what only public knowledge can settle is left as TODO, and refused until it is"
        " settled.",
        "dpiw init town --header 'age,income,region' --identifier id",
    ),
    "dpiw plan": (
        "Compute the noise, the cost and what is left of the budget for a spec; reads no data.",
        "dpiw plan release.yaml",
    ),
    "dpiw series": (
        "Show which periods of a spec's calendar are published, pending, missing (and why) or"
        " withdrawn, and how far the budget carries. --fill publishes what is due, oldest first.",
        "dpiw series release.yaml",
    ),
    "dpiw rehearse": (
        "Play a spec's whole release on public stand-ins for the confidential table, and compare"
        " its weights, no weights, and every feature map at the same total epsilon. Free: the"
        " confidential source, the ledger and the state folder are not touched.",
        "dpiw rehearse release.yaml --runs 5",
    ),
    "dpiw ledger": (
        "Read and write the ledger, the record of what was spent.",
        "dpiw ledger show --ledger release.yaml",
    ),
    "dpiw ledger register": (
        "Set a population's budget, once for all releases about these people.",
        "dpiw ledger register --spec release.yaml --epsilon 8 --delta 1e-6 --create",
    ),
    "dpiw ledger show": (
        "Print each population's budget, its runs, and what each run spent and when.",
        "dpiw ledger show --ledger release.yaml",
    ),
    "dpiw ledger verify": (
        "Check the hash chain and every rule of the ledger, entry by entry.",
        "dpiw ledger verify --ledger release.yaml --key keys/curator.pub",
    ),
    "dpiw ledger void": (
        "Give back the budget of an attempt that has drawn nothing.",
        "dpiw ledger void 3f2a91c0 --ledger release.yaml --state state",
    ),
    "dpiw ledger recover": (
        "Charge again what a ledger lost, from the certificates of published releases.",
        "dpiw ledger recover --ledger release.yaml --releases releases --key keys/curator.pub"
        " --loss-epsilon 0 --loss-delta 0 --loss-reads 0",
    ),
    "dpiw ledger backup": (
        "Write the entries to a file, as JSON lines, once the whole ledger is verified. An earlier"
        " backup is replaced only if this ledger still has all its entries.",
        "dpiw ledger backup backup.jsonl --ledger release.yaml",
    ),
    "dpiw ledger restore": (
        "Make a ledger of a backup where there is none, verify it, and name the published releases"
        " that it lacks.",
        "dpiw ledger restore backup.jsonl --ledger release.yaml --releases releases"
        " --key keys/curator.pub",
    ),
    "dpiw ledger witness": (
        "Print the ledger's head for a notary, ask an authority for a timestamp of it, or check"
        " one: the chain must still hold the entry.",
        "dpiw ledger witness --ledger release.yaml --request head.tsq",
    ),
    "dpiw workspace": (
        "Show and remove confidential files of runs.",
        "dpiw workspace show --state state",
    ),
    "dpiw workspace show": (
        "List every run with its state and its size.",
        "dpiw workspace show --state state",
    ),
    "dpiw workspace cells": (
        "Print how the cells of a run's source were read: per column, how many were missing,"
        " unreadable, out of bounds, rounded or of no declared level. Exact counts of"
        " confidential cells: for the custodian's own screen, never for a release, a ticket or"
        " a log.",
        "dpiw workspace cells --state state --run 3f2a91c0",
    ),
    "dpiw workspace purge": (
        "Remove the confidential files of finished runs: the scaled table, validation"
        " results, the statement of cells, temporary files and logs. Kept: run.json, the draws"
        " (paid for, and private), the rows and weights made from them, and the signed folder;"
        " so a rerun still ends in the same release. Without --yes it only says what it would"
        " remove. Files are unlinked, not overwritten: on today's file systems and disks"
        " overwriting achieves nothing. Keep the workspace on an encrypted disk, and mind"
        " backups.",
        "dpiw workspace purge --state state --all-published --yes",
    ),
    "dpiw verify": (
        "Check a release's signature and every file, offline.",
        "dpiw verify releases/town-once-3f2a91c0 --key keys/curator.pub",
    ),
    "dpiw describe": (
        "Print what a release promises: cost, mechanism, columns, verdict of its weights.",
        "dpiw describe releases/town-once-3f2a91c0 --key keys/curator.pub",
    ),
    "dpiw withdraw": (
        "Withdraw a published release: record it in the ledger, and replace the folder's files by a"
        " signed tombstone, which every reader meets. Its cost stays charged, and it is never"
        " published again. Started again with the same words, it finishes what a crash left.",
        "dpiw withdraw releases/town-once-3f2a91c0 --ledger release.yaml --reason error",
    ),
    "dpiw key": ("Make, add, revoke and list keys.", "dpiw key new keys/curator"),
    "dpiw key new": (
        "Make a pair of Ed25519 keys: PATH.key signs and stays secret, PATH.pub is for analysts.",
        "dpiw key new keys/curator",
    ),
    "dpiw key add": (
        "Add a public key to a population. The first is a curator's; with an approver's key, every"
        " run needs `dpiw approve` before it may reserve.",
        "dpiw key add --ledger release.yaml --public keys/second.pub --role approver"
        " --sign-with keys/curator.key",
    ),
    "dpiw key revoke": (
        "Revoke a key from a moment on, also back to one in the past; signed by a valid key.",
        "dpiw key revoke --ledger release.yaml --public keys/stolen.pub --sign-with keys/new.key",
    ),
    "dpiw key list": (
        "Print a population's keys; with --json, a signed statement for readers of releases.",
        "dpiw key list --ledger release.yaml --json --sign-with keys/curator.key",
    ),
    "dpiw approve": (
        "Agree to one run with a second key, and print what it costs; reads no data.",
        "dpiw approve release.yaml --key keys/second.key",
    ),
    "dpiw release": (
        "Publish what a spec promises, once a period; started again, it goes on where it stopped.",
        "dpiw release release.yaml",
    ),
    "dpiw audit": (
        "Count a ledger again with separate code, check its releases, and write a report.",
        "dpiw audit --ledger release.yaml --key keys/curator.pub --out audit",
    ),
    "dpiw site": (
        "Write a public site: what is released, promised and spent, what is missing and why.",
        "dpiw site public --ledger release.yaml --key keys/curator.pub",
    ),
    "dpiw schema": (
        "Print the JSON Schema of a release spec, a data dictionary or a local spec.",
        "dpiw schema spec",
    ),
    "dpiw completion": (
        "Print a script that completes dpiw's commands in your shell.",
        "dpiw completion bash",
    ),
    "dpiw local": (
        "Collect reports that are private before they leave a person's device.",
        "dpiw local plan collection.yaml",
    ),
    "dpiw local plan": (
        "Compute a collection's noise, and write the public parameters for its clients.",
        "dpiw local plan collection.yaml",
    ),
    "dpiw local report": (
        "Draw one person's private report, once, and keep it: what a client sends.",
        "dpiw local report parameters.json me.json --out report.json",
    ),
    "dpiw local collect": (
        "Check the reports that arrived, and publish them in a signed folder.",
        "dpiw local collect collection.yaml",
    ),
}
"""By a command's words: what it does, and an example."""
