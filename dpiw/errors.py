"""The errors of dpiw, as one tree under `DPIWError`; no message holds a confidential cell.

`exit_code` depends on the class alone, and data-dependent failures share one code
(`StageFailedError`), so a code never tells data apart.
"""

from __future__ import annotations

import enum
import importlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

A = TypeVar("A")
B = TypeVar("B")


def shown(text: object, *, most: int | None = 2000, lines: bool = False) -> str:
    r"""Return foreign text on one line, steering characters escaped as in JSON, for every display.

    `most` characters, then `...`; `lines` keeps line ends, only for our own text whose foreign
    parts were shown before.
    """
    kept = "\n" if lines else ""
    text = str(text)
    short = text if most is None or len(text) <= most else text[:most] + "..."
    if short.isascii() and short.isprintable():
        return short
    return "".join(
        character if is_plain(character) or character in kept else _escaped(character)
        for character in short
    )


def is_plain(text: str) -> bool:
    """Whether a text has no control, format, private or unassigned character, and no line end."""
    return text.isprintable() or not any(
        unicodedata.category(character) in _STEERING for character in text
    )


_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def install(extra: str) -> str:
    """Return the command that installs an extra; dpiw is on no package index."""
    return f"pip install './dpiw[{extra}]' (./dpiw: your checkout, or its wheel's file)"


def optional(module: str, *, extra: str) -> Any:
    """Import `module`; raise ReleaseError, which names the extra, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as reason:
        name = (reason.name or module).split(".")[0]
        raise ReleaseError(f"not installed; type {install(extra)}", field=name) from None


def nearest(word: object, allowed: Iterable[str]) -> str:
    """Return `; did you mean 'csv'?`, or nothing if no admissible word is near.

    `word` is of a public file or was typed, never a cell, and is not repeated.
    """
    import difflib

    by_fold = {name.casefold(): name for name in allowed}
    close = difflib.get_close_matches(str(word)[:80].casefold(), by_fold, n=1, cutoff=0.6)
    return f"; did you mean {by_fold[close[0]]!r}?" if close else ""


MOST_TOLD = 10
"""Most names that a message lists."""


def one_of(word: object, allowed: Iterable[str]) -> str:
    """Return `one of csv, parquet; did you mean 'csv'?`, as an error's `allowed`; see `nearest`."""
    choices = list(allowed)
    return f"one of {', '.join(choices)}{nearest(word, choices)}"


class Command(enum.Enum):
    """A command that an error names; its value is what a person types where no spec is known.

    Capitals are what the person decides or knows. `dpiw.run.commands.typed_commands` fills in the
    names and places of a spec.
    """

    REGISTER = "dpiw ledger register --spec SPEC --epsilon E --delta D"
    REGISTER_OTHER = (
        "dpiw ledger register OTHER --ledger PATH --epsilon E --delta D --relation RELATION"
    )
    SHOW = "dpiw ledger show --ledger PATH"
    RECOVER = (
        "dpiw ledger recover --ledger PATH --releases FOLDER --key FILE.pub --loss-epsilon E"
        " --loss-delta D --loss-reads N"
    )
    NEW_KEY = "dpiw key new PATH"
    ADD_KEY = (
        "dpiw key add --ledger PATH --population NAME --public FILE.pub --role ROLE"
        " --sign-with FILE.key"
    )
    LIST_KEYS = "dpiw key list --ledger PATH --population NAME"
    APPROVE = "dpiw approve SPEC --period PERIOD --key FILE.key"
    REHEARSE = "dpiw rehearse SPEC"
    RELEASE = "dpiw release SPEC"
    PLAN = "dpiw plan SPEC"
    AUDIT = "dpiw audit --ledger PATH --releases FOLDER --key FILE.pub --out audit"


@dataclass(frozen=True)
class Next:
    """The last part of a message: what a command is for, the command, and its options."""

    why: str
    command: Command
    options: str = ""

    def typed(self, commands: Mapping[Command, str]) -> str:
        """Return the line, with the command as a person must type it."""
        return f"{self.why}: {commands.get(self.command, self.command.value)}{self.options}"


KEEP_AND_AUDIT = Next("leave the ledger as it is, and audit it", Command.AUDIT)
"""What to do about a ledger whose chain is broken."""


class Aside:
    """Something about an error that stays in this process: a default until it is set.

    It is stored beside the error: no pickler, `vars`, `copy`, `repr`, `args` or notes find it.
    """

    def __init__(self, default: Any) -> None:
        self._default = default
        self._kept: WeakKeyDictionary[BaseException, Any] = WeakKeyDictionary()

    def __get__(self, error: BaseException | None, owner: type[BaseException]) -> Any:
        """Return what is kept of an error; of the class, this object."""
        return self if error is None else self._kept.get(error, self._default)

    def __set__(self, error: BaseException, kept: Any) -> None:
        """Keep something of an error for as long as the error lives."""
        self._kept[error] = kept


class Mark(NamedTuple):
    """A place in a configuration file; line and column count from 1, 0 means not known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.at}, column {self.column}" if self.column else self.at

    @property
    def at(self) -> str:
        """File and line."""
        return f"{self.file}, line {self.line}" if self.line else self.file


class DPIWError(Exception):
    """Base of every error dpiw raises on purpose.

    Attributes:
        exit_code: depends on the class alone; `advice`, the operator's next step, too.
        field: what is at fault, such as `source.format`, `column income: lower` or `ledger PATH`.
        found: what is wrong with it, or what was found there.
        allowed: what was expected instead.
        next: the commands that help, one line each after the message.
        mark: where the field stands in a configuration file.
        several: errors of one check, which this error tells together, instead of one of its own.
        whole: the error for a person at the machine, where a scheduler keeps a shorter one.
    """

    exit_code: int = 1
    advice: str = "start the same run again: it continues where it stopped"
    field: str = ""
    allowed: str = ""
    mark: Mark | None = None
    several: tuple[DPIWError, ...] = ()
    next: tuple[Next, ...] = ()
    whole = Aside(None)

    def __init__(
        self,
        found: object = "",
        *,
        field: object = "",
        allowed: str = "",
        mark: Mark | None = None,
        several: Iterable[DPIWError] = (),
        next: Iterable[Next] = (),
    ) -> None:
        super().__init__(str(found))
        self.field = str(field)
        self.allowed = allowed
        self.mark = mark
        self.several = tuple(one for error in several for one in error.several or (error,))
        self.next = tuple(next)

    @property
    def found(self) -> str:
        """What is wrong, or what was found."""
        return str(self.args[0])

    @property
    def at(self) -> str:
        """The configuration file and the line at fault, where known."""
        marks = [error.mark for error in (self, *self.several) if error.mark]
        return marks[0].at if marks else ""

    @property
    def message(self) -> str:
        """What is wrong, without the commands that help: every display takes its words here."""
        if self.several:
            return "\n".join(dict.fromkeys(error.message for error in self.several))
        return ": ".join(filter(None, (str(self.mark or ""), self.field, self.fault)))

    @property
    def fault(self) -> str:
        """The message without its field."""
        expected = f"expected {self.allowed}" if self.allowed else ""
        return "; ".join(filter(None, (self.found, expected)))

    def told(self, commands: Mapping[Command, str] | None = None) -> str:
        """Return the whole message and its commands, as a person must type them."""
        whole: DPIWError = self.whole or self
        return "\n".join([whole.message, *(line.typed(commands or {}) for line in whole.next)])

    def __str__(self) -> str:
        return "\n".join([self.message, *(line.typed({}) for line in self.next)])

    def __reduce__(self) -> tuple[Any, ...]:
        stated = {name: value for name, value in vars(self).items() if name[0] != "_"}
        return _unpickled, (type(self), self.args, stated)


def _unpickled(kind: type[DPIWError], texts: tuple[Any, ...], stated: dict[str, Any]) -> DPIWError:
    error = kind.__new__(kind, *texts)
    vars(error).update(stated)
    return error


def each(make: Callable[[A], B], values: Iterable[A], error: type[DPIWError]) -> tuple[B, ...]:
    """Apply `make` to every value, and raise one `error` with all refusals, a line each."""
    results, refused = [], []
    for value in values:
        try:
            results.append(make(value))
        except error as refusal:
            refused.append(refusal)
    if refused:
        raise error(several=refused)
    return tuple(results)


class SpecError(DPIWError):
    """A field of a release spec is not admissible. Nothing was read, nothing was spent."""

    exit_code = 10
    advice = "correct the field that the message names, and start the run again; nothing was spent"


def setting_error(owner: object, field: str, allowed: str) -> SpecError:
    """Return the error for a setting of `owner`: the attribute that `field` ends with. Public."""
    found = vars(owner)[field.rpartition(".")[2]]
    return SpecError(f"found {found!r:.60}", field=field, allowed=allowed)


class SchemaError(DPIWError):
    """A column, level or bound of the public schema is not admissible."""

    exit_code = 11
    advice = "correct the data dictionary at the place that the message names, and start again"


class SourceError(DPIWError):
    """The source's structure is not as declared; the stage's log alone may show `place`."""

    exit_code = 12
    advice = "make the table's file and the data dictionary agree, and start the run again"
    place = Aside("")

    def __init__(self, found: object = "", *, place: str = "", **parts: Any) -> None:
        super().__init__(found, **parts)
        self.place = place


class PrivacyError(DPIWError):
    """A step would break, or cannot show, the promised guarantee."""

    exit_code = 20
    advice = "change the spec's method or settings; `dpiw plan` shows the effect and reads no data"


class UnsupportedRelationError(PrivacyError):
    """A neighbouring relation is unknown here, or two relations met in one sum."""

    exit_code = 21


class BudgetExceededError(PrivacyError):
    """A request does not fit the population's remaining budget. Nothing was spent."""

    exit_code = 22
    advice = (
        "nothing was spent; `dpiw ledger show` shows what is left. Ask for less in the spec: only"
        " the owner of the data may grant more"
    )

    def __init__(self, found: str, *, requested: str, remaining: str, **parts: Any) -> None:
        super().__init__(found, **parts)
        self.requested = requested
        self.remaining = remaining


class GrantSpentError(PrivacyError):
    """This stage's draw was armed before: it is committed, lost, or another process holds it."""

    exit_code = 23
    advice = (
        "another process is drawing for this run, or was killed while it drew. Wait until it has"
        " ended, then start the run again: the ledger records whether the draw was lost"
    )


class UncalibratedError(PrivacyError):
    """A mechanism was asked for its events, or to draw, before its noise was calibrated."""

    exit_code = 24


class NotPublishableError(PrivacyError):
    """A result of a non-private method, or of seeded noise, was offered for release."""

    exit_code = 25


class AlreadyPaidError(PrivacyError):
    """Another run drew for this release and period; a second would pay again. Nothing was spent."""

    exit_code = 26
    advice = (
        "nothing was spent: undo the change in the spec, or draw more rows of what is paid"
        " (`dpiw release SPEC --rows N`); only a person can pay again (`--pay-again`)"
    )

    def __init__(self, found: str, *, run: str, period: str, **parts: Any) -> None:
        super().__init__(found, **parts)
        self.run = run
        self.period = period


class NotApprovedError(PrivacyError):
    """No second key approved the run, or its key is not valid. Nothing was spent."""

    exit_code = 27
    advice = (
        "nothing was spent: ask the holder of the second key to approve the run (`dpiw approve"
        " SPEC`), then start it again; `dpiw key list` shows whose keys are valid"
    )


class LedgerError(DPIWError):
    """Ledger missing (`absent`: what was found), locked or unusable; spending fails closed."""

    absent: str = ""
    exit_code = 30
    advice = "nothing is drawn without the ledger: make it reachable, and start the run again"


class UnknownPopulationError(LedgerError):
    """No population of that name is registered in this ledger."""

    exit_code = 31
    advice = "register the population once with `dpiw ledger register`, then start the run again"


class LedgerConflictError(LedgerError):
    """The same key came back with another content."""

    exit_code = 32
    advice = "do not start the run again: compare it with `dpiw ledger show`, and ask an auditor"


class LedgerTamperedError(LedgerError):
    """The hash chain is broken, or the ledger lacks a head that was published."""

    exit_code = 33
    advice = (
        "start nothing: if the message names `dpiw ledger recover`, type it; else change nothing in"
        " the ledger, and run `dpiw audit`"
    )


class WeightError(DPIWError):
    """Importance weights cannot be computed from these values."""

    exit_code = 40
    advice = "change the weights' settings in the spec; what was drawn is kept and stays paid for"


class ReleaseError(DPIWError):
    """A release folder cannot be written or read."""

    exit_code = 50
    advice = (
        "restore the file or folder that the message names, or make it writable, and start the run"
        " again; nothing is drawn twice"
    )


class ManifestError(ReleaseError):
    """The manifest is missing or malformed, or the folder holds other files than it lists."""

    exit_code = 51


class ChecksumError(ReleaseError):
    """A file's bytes differ from what the manifest says."""

    exit_code = 52


class SignatureError(ReleaseError):
    """The manifest's signature does not verify under the expected key."""

    exit_code = 53


REASONS = {
    "error": "its rows or its documents are wrong",
    "disclosure": "it may reveal more than it promised",
    "superseded": "a revision replaces it",
    "request": "somebody with a right to ask for it asked",
}
"""Every reason to withdraw a release, in words."""


class WithdrawnError(ReleaseError):
    """Its publisher withdrew this release: nobody may use it. Its cost stays charged."""

    exit_code = 54
    advice = (
        "its cost stays charged, and it is never published again: publish a correction as a new"
        " run, with another source.snapshot or setting and `revises` in the spec"
    )

    def __init__(
        self, found: str, *, reason: str, replaced_by: str | None = None, **parts: Any
    ) -> None:
        super().__init__(found, **parts)
        self.reason, self.replaced_by = reason, replaced_by


class StageFailedError(DPIWError):
    """A stage process ended without its output. The reason stays in the confidential workspace."""

    exit_code = 70
    advice = (
        "ask a custodian to read log/ in the run's folder, then start the run again: it reuses the"
        " draws that it has, and pays again, on the record, for a draw that was lost"
    )

    def __init__(self, stage: str, code: int) -> None:
        super().__init__(
            f"stage {stage} ended with code {code}; its log is in the confidential workspace"
        )
        self.stage = stage
        self.code = code
        if code >= SpecError.exit_code:  # below: of the interpreter, which says nothing
            self.exit_code = code
