"""`dpiw ledger register`: set a population's terms once, for ever, from a spec or as typed."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dpiw.cli.parser import add_signing, exact_decimal, names_a_spec, signing_key, write_lines
from dpiw.errors import Command, LedgerError, SpecError
from dpiw.privacy.units import NeighbouringRelation

if TYPE_CHECKING:
    from dpiw.ledger import Ledger, Population
    from dpiw.plan.spec import ReleaseSpec

_PROMISED = ("name", "ledger", "relation", "max_rows", "id_column")
"""Options that a spec states."""

_BY_HAND = {"ledger": "--ledger", "relation": "--relation", "name": "name"}
"""Required without a spec, in the order of the usage."""


def add_register(parser: argparse.ArgumentParser) -> None:
    """The options of `register`."""
    parser.add_argument("name", nargs="?", help="lower-case letters, digits, - and _")
    parser.add_argument(
        "--spec",
        type=Path,
        metavar="SPEC",
        help="a release spec of these people: name, relation, unit and ledger are taken from it",
    )
    parser.add_argument("--ledger", metavar="PATH", help="path or sqlite:///PATH")
    parser.add_argument("--epsilon", required=True, help="lifetime epsilon, an exact decimal")
    parser.add_argument("--delta", required=True, help="lifetime delta, an exact decimal")
    parser.add_argument(
        "--relation",
        choices=[relation.value for relation in NeighbouringRelation],
        help="the promise that all its releases make, as in their specs",
    )
    parser.add_argument(
        "--composition",
        default="basic",
        choices=["basic", "renyi"],
        help="how costs add up: basic, by sums; or renyi, which admits more small releases (basic)",
    )
    parser.add_argument("--max-rows", type=int, help="most rows that one person may have (1)")
    parser.add_argument(
        "--id-column", help="the column that names the person (none: each row is a person)"
    )
    parser.add_argument(
        "--max-unpaid-reads",
        type=int,
        metavar="N",
        help="how many reads of the tables may end without a draw, for life: operators see how they"
        " ended, and no epsilon pays for that (20)",
    )
    parser.add_argument(
        "--create",
        action="store_true",
        help="make the ledger if there is none, and its folder for you alone (a new ledger knows"
        " nothing that was spent before)",
    )
    add_signing(parser)
    parser.set_defaults(handler=run_register, misused=parser.error)


def run_register(arguments: argparse.Namespace) -> int:
    """Register a population; the same terms again are no error.

    Raises SpecError, with nothing written, if a term differs from the spec or its releases, or no
    release fits the budget; LedgerConflictError if the name is registered with other terms.
    """
    from dpiw.ledger.location import CHARGED_THERE

    spec = None if arguments.spec is None else _read(arguments.spec)
    if spec is None:
        absent = [text for option, text in _BY_HAND.items() if getattr(arguments, option) is None]
        if absent:
            arguments.misused(
                f"without --spec, these are required: {', '.join(absent)}; such as NAME --ledger"
                " PATH --relation add_or_remove_one, or as a spec states them: dpiw ledger register"
                " --spec SPEC --epsilon E --delta D"
            )
        if names_a_spec(arguments.ledger):
            raise SpecError(
                f"{arguments.ledger} is named like a release spec",
                field="ledger",
                allowed="the ledger's own path, or --spec instead of --ledger; nothing"
                " was registered",
            )
    else:
        _take_over(arguments, spec)
    population = _population(arguments)
    pays = [] if spec is None else [_pays_for(population, spec, arguments.spec)]
    there = _there(arguments)
    before = there is not None and arguments.name in {one.name for one in there.populations()}
    if spec is not None and not before:  # a ledger that was lost has published
        from dpiw.run.declared import check_registrable

        pays = check_registrable(spec, population, arguments.spec) or pays
    ledger = _opened(arguments)
    terms = ledger.register(population)
    lines = [_terms_text(terms, arguments.id_column), *pays]
    if before:  # the count above is of what is left, not of what was given for life
        lines[1:] = [] if spec is None else [f"terms as {arguments.spec} states them"]
        remaining = ledger.remaining(terms.name)
        message = f"registered before, with the same terms; nothing was changed; left: {remaining}"
        lines.append(message + (f"; what fits: dpiw plan {arguments.spec}" if spec else ""))
    elif spec is None:
        lines.append(_in_a_spec(arguments))
    if there is None:
        lines.append(f"made ledger {arguments.ledger}; {CHARGED_THERE}")
    write_lines(arguments, lines)
    return 0


def _read(path: Path) -> ReleaseSpec:
    from dpiw.data.yaml import marked
    from dpiw.plan.spec import load_schema, load_spec

    with marked(path, SpecError):
        spec = load_spec(path)
        spec.check_publish_to()
        load_schema(spec)  # the unit's column is one that it declares
    return spec


def _take_over(arguments: argparse.Namespace, spec: ReleaseSpec) -> None:
    from dpiw.run.commands import ledger_place

    typed = [option for option in _PROMISED if getattr(arguments, option) is not None]
    if typed:
        raise SpecError(
            f"{arguments.spec} states it: leave it out, or correct the spec; nothing was"
            " registered",
            field=", ".join("NAME" if option == "name" else _option(option) for option in typed),
        )
    unit = spec.privacy_unit
    arguments.name, arguments.ledger = spec.population, ledger_place(spec)
    arguments.relation = unit.relation.value
    arguments.max_rows, arguments.id_column = unit.max_rows, unit.id_column


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _pays_for(population: Population, spec: ReleaseSpec, path: Path) -> str:
    from dpiw.ledger.accounts import Account
    from dpiw.ledger.history import count_text
    from dpiw.ledger.values import Charge

    if population.renyi:
        return f"terms as {path} states them; how many such releases fit: dpiw plan {path}"
    count = Account.opened(population).admits(Charge(cost=spec.cost))
    if count == 0:
        raise SpecError(
            f"pays for no release of {path}, which costs {spec.cost}; a lifetime budget is set"
            " once, and pays for every release about these people. Nothing was registered",
            field=population.budget,
        )
    return f"terms as {path} states them; {count_text(count)}"


def _population(arguments: argparse.Namespace) -> Population:
    from dpiw.ledger import MAX_UNPAID_READS, CompositionRule, Population

    reads, rows = arguments.max_unpaid_reads, arguments.max_rows
    return Population(
        name=arguments.name,
        relation=NeighbouringRelation(arguments.relation),
        max_rows=1 if rows is None else rows,
        epsilon=exact_decimal("epsilon", arguments.epsilon),
        delta=exact_decimal("delta", arguments.delta),
        composition=CompositionRule(arguments.composition),
        id_column=arguments.id_column,
        max_unpaid_reads=MAX_UNPAID_READS if reads is None else reads,
    )


def _there(arguments: argparse.Namespace) -> Ledger | None:
    from dpiw.ledger import Ledger

    try:
        return Ledger.open(arguments.ledger)
    except LedgerError as error:
        if error.absent:
            return None  # `_opened` tells it, or makes one
        raise


def _opened(arguments: argparse.Namespace) -> Ledger:
    from dpiw.ledger import Ledger
    from dpiw.ledger.location import no_ledger

    make = Ledger.create if arguments.create else Ledger.open
    try:
        return make(arguments.ledger, key=signing_key(arguments))
    except LedgerError as error:
        if not error.absent:
            raise
        arguments.commands = {Command.REGISTER: _as_typed(arguments)}
        raise no_ledger(error.absent) from None


def _terms_text(terms: Population, typed: str | None) -> str:
    rule = ", composition renyi" if terms.renyi else ""
    unit = "each row is a person"
    if terms.id_column:
        column = str(typed)
        column += "" if column == terms.id_column else f" (in the ledger: {terms.id_column})"
        unit = f"a person is a value of {column}, with at most {terms.max_rows} row(s)"
    return (
        f"population {terms.name}: {terms.budget}, {terms.relation.value}{rule}; {unit}; for life"
    )


def _in_a_spec(arguments: argparse.Namespace) -> str:
    unit = "no unit"
    if arguments.id_column is not None:
        column = json.dumps(arguments.id_column, ensure_ascii=False)
        unit = f"unit: {{id_column: {column}, max_rows: {arguments.max_rows or 1}}}"
    return (
        f"a spec of these people has to say: population: {arguments.name}, relation:"
        f" {arguments.relation}, {unit}; any other is refused (--spec SPEC takes them from a spec)"
    )


def _as_typed(arguments: argparse.Namespace) -> str:
    words = ["dpiw", "ledger", "register"]
    promised = () if arguments.spec is None else _PROMISED
    words += [] if promised else [arguments.name]
    for option in ("spec", "ledger", "epsilon", "delta", "relation", "composition", "max_rows",
                   "id_column", "max_unpaid_reads", "sign_with"):  # fmt: skip
        value = getattr(arguments, option)
        if value not in (None, 1, "basic") and option not in promised:
            words += [_option(option), str(value)]
    return shlex.join(words)
