"""The registered terms that a certificate states: a lost ledger is made again with these only."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from dpiw.errors import LedgerConflictError, SpecError
from dpiw.ledger import CompositionRule, Ledger, Population
from dpiw.ledger.populations import MAX_UNPAID_READS
from dpiw.privacy.units import PrivacyBudget
from dpiw.release.certificate import Certificate


def certified_terms(certificate: Certificate) -> Population:
    """The registration of a release; LedgerConflictError if its terms are not valid."""
    unit, account = certificate.unit, certificate.account
    try:
        return Population(
            name=certificate.population,
            relation=unit.relation,
            max_rows=unit.max_rows,
            epsilon=Decimal(certificate.budget_epsilon),
            delta=Decimal(certificate.budget_delta),
            composition=CompositionRule(account["composition"]),
            id_column=unit.id_column,
            max_unpaid_reads=account["max_unpaid_reads"],
        )
    except (SpecError, ValueError) as error:
        raise LedgerConflictError(
            f"release {certificate.release_id}: the terms in its certificate are no registration's"
        ) from error


def terms_text(certificate: Certificate) -> str:
    """The terms that a certificate states, for people."""
    budget = PrivacyBudget.of(
        Decimal(certificate.budget_epsilon), Decimal(certificate.budget_delta), certificate.relation
    )
    unit, account = certificate.unit, certificate.account
    reads = account["max_unpaid_reads"]
    return (
        f"budget {budget}, {certificate.relation.value}, max_rows={unit.max_rows},"
        f" id_column={unit.id_column}, composition {account['composition']}"
        + ("" if reads == MAX_UNPAID_READS else f", max_unpaid_reads={reads}")
    )


def budget_options(certificate: Certificate) -> str:
    """Options of `dpiw ledger register` for these terms, beside what a spec states."""
    account: Mapping[str, Any] = certificate.account
    options = {"epsilon": certificate.budget_epsilon, "delta": certificate.budget_delta}
    if account["composition"] != CompositionRule.BASIC.value:
        options["composition"] = account["composition"]
    if account["max_unpaid_reads"] != MAX_UNPAID_READS:
        options["max-unpaid-reads"] = account["max_unpaid_reads"]
    return " ".join(f"--{name} {value}" for name, value in options.items())


def check_terms(certificate: Certificate, population: Population) -> None:
    """Raise LedgerConflictError if name, budget, composition or unit are not the registered."""
    budget = PrivacyBudget.of(
        Decimal(certificate.budget_epsilon), Decimal(certificate.budget_delta), certificate.relation
    )
    theirs = (certificate.population, budget, certificate.account["composition"])
    ours = (population.name, population.budget, population.composition.value)
    if theirs != ours or not population.protects(certificate.unit):
        raise LedgerConflictError(
            f"release {certificate.release_id}: its certificate states other terms for population"
            f" {population.name} ({terms_text(certificate)}) than this ledger's registration"
        )


def way_out(ledger: Ledger, certificate: Certificate) -> str:
    """How to recover a release if the ledger was made again with other terms, for people."""
    if len(ledger.populations()) != 1 or len(ledger.entries()) != 2:
        return (
            "; this ledger holds more than that registration, so it stays as it is: look for the"
            " ledger that paid for this release, and ask an auditor (docs/operations.md: a ledger"
            " that lost entries)"
        )
    unit, location = certificate.unit, shlex.quote(ledger.location.removeprefix("sqlite:///"))
    words = f"dpiw ledger register {certificate.population} --ledger {location}"
    words += f" {budget_options(certificate)} --relation {unit.relation.value}"
    if unit.id_column is not None:
        words += f" --id-column {shlex.quote(unit.id_column)} --max-rows {unit.max_rows}"
    aside = "Move it away, begin it again" if "://" not in location else "Drop it, begin it again"
    return (
        f"; this ledger holds nothing but that registration. {aside} with the"
        f" terms of the certificate: {words} --create, and then give this command again"
    )
