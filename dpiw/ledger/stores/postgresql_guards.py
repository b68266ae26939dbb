"""What PostgreSQL itself refuses: the ledger's append-only, chain and budget guards, in PL/pgSQL.

Equal in meaning to SQLite's, in `dpiw.ledger.stores.sqlite`. They are enabled ALWAYS, so that a
session that calls itself a replica does not slip past them. They cannot stop who owns the table
from dropping it or them: the pipeline's role should not be the owner (docs/operations.md). What
was changed is noticed when the ledger is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy.engine import Connection

from dpiw.ledger.entries import NO_ENTRY
from dpiw.ledger.stores.store import ASKING, CHARGING, DRAWING

SCHEMA = "dpiw"
TABLE = "dpiw.entries"

_SAFE_PATH = "pg_catalog, pg_temp"  # a function must not find somebody else's operators

# A trigger's kind as pg_trigger keeps it.
_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = 1, 2, 4, 8, 16, 32

_APPEND_ONLY = """
BEGIN
  RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'check_violation';
END"""

# VOLATILE, so under READ COMMITTED it sees all that was committed when the lock was granted.
_CHAIN = """
DECLARE
  last record;
BEGIN
  SELECT seq, hash INTO last FROM dpiw.entries ORDER BY seq DESC LIMIT 1;
  IF NEW.seq IS DISTINCT FROM coalesce(last.seq, 0) + 1
     OR NEW.previous IS DISTINCT FROM coalesce(last.hash, '<first>') THEN
    RAISE EXCEPTION 'an entry must continue the chain' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END""".replace("<first>", NO_ENTRY)

# A population without terms has no budget. Under `basic` both sums must fit; under any other rule
# a vector of 16 must fit at one place at least.
_BUDGET = (
    """
DECLARE
  unit text;
  held numeric;
  budget numeric;
  fits boolean := true;
BEGIN
  IF NEW.kind NOT IN <asking> THEN
    RETURN NEW;
  END IF;
  IF EXISTS (
      SELECT 1 FROM dpiw.entries WHERE population = NEW.population AND kind = 'register'
        AND payload::json ->> 'composition' IS DISTINCT FROM 'basic') THEN
    fits := (NEW.kind IN <drawing>
        OR json_array_length(NEW.payload::json #> '{renyi,units}') = 16) AND EXISTS (
      SELECT 1 FROM (
        SELECT part.place,
          sum(CASE paid.kind WHEN 'void' THEN -1 ELSE 1 END * part.value::numeric) AS total
        FROM (SELECT kind, payload FROM dpiw.entries
              WHERE population = NEW.population AND kind IN <charging>
              UNION ALL SELECT NEW.kind, NEW.payload) AS paid
        CROSS JOIN LATERAL json_array_elements_text(paid.payload::json #> '{renyi,units}')
          WITH ORDINALITY AS part (value, place)
        GROUP BY part.place) AS held
      JOIN (
        SELECT most.place, most.value::numeric AS total FROM dpiw.entries AS terms
        CROSS JOIN LATERAL json_array_elements_text(terms.payload::json #> '{renyi,budget_units}')
          WITH ORDINALITY AS most (value, place)
        WHERE terms.population = NEW.population AND terms.kind = 'register') AS budget
      ON held.place = budget.place AND held.total <= budget.total);
  ELSE
    FOREACH unit IN ARRAY ARRAY['epsilon_units', 'delta_units'] LOOP
      SELECT coalesce(
          sum(CASE kind WHEN 'void' THEN -1 ELSE 1 END * (payload::json ->> unit)::numeric), 0)
        INTO held FROM dpiw.entries
        WHERE population = NEW.population AND kind IN <charging>;
      SELECT max((payload::json ->> unit)::numeric) INTO budget FROM dpiw.entries
        WHERE population = NEW.population AND kind = 'register';
      fits := fits AND held + CASE WHEN NEW.kind IN <drawing> THEN 0
        ELSE (NEW.payload::json ->> unit)::numeric END <= budget;
    END LOOP;
  END IF;
  IF fits IS NOT TRUE THEN
    RAISE EXCEPTION 'over the lifetime budget' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END""".replace("<charging>", CHARGING)
    .replace("<asking>", ASKING)
    .replace("<drawing>", DRAWING)
)

# name -> when it fires, what it does; the function has the trigger's name
GUARDS: dict[str, tuple[str, int, str]] = {
    "entries_append_only": (
        "BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT",
        _BEFORE | _UPDATE | _DELETE | _TRUNCATE,
        _APPEND_ONLY,
    ),
    "entries_budget": (
        "BEFORE INSERT ON {table} FOR EACH ROW", _ROW | _BEFORE | _INSERT, _BUDGET,
    ),
    "entries_chain": (
        "BEFORE INSERT ON {table} FOR EACH ROW", _ROW | _BEFORE | _INSERT, _CHAIN,
    ),
}  # fmt: skip


def guard_statements() -> Iterator[str]:
    """The statements that put the guards on a new table."""
    for name, (when, _, body) in GUARDS.items():
        yield (
            f"CREATE FUNCTION {SCHEMA}.{name}() RETURNS trigger LANGUAGE plpgsql"
            f" SET search_path = {_SAFE_PATH} AS $body${body}$body$"
        )
        yield (
            f"CREATE TRIGGER {name} {when.format(table=TABLE)} EXECUTE FUNCTION {SCHEMA}.{name}()"
        )
        yield f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {name}"


def _expected_guards() -> set[tuple[Any, ...]]:
    return {
        (name, kind, "A", SCHEMA, name, body, "plpgsql", f'{{"search_path={_SAFE_PATH}"}}')
        for name, (_, kind, body) in GUARDS.items()
    }


# Function text and every property that could switch it off: conditions, columns, volatility,
# another owner's rights.
_FOUND_GUARDS = """
    SELECT t.tgname, t.tgtype, t.tgenabled::text, n.nspname, p.proname, p.prosrc, l.lanname,
      CASE WHEN t.tgqual IS NULL AND t.tgnargs = 0 AND t.tgattr = ''::int2vector
        AND p.provolatile = 'v' AND NOT p.prosecdef THEN p.proconfig::text END
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang
    WHERE t.tgrelid = 'dpiw.entries'::pg_catalog.regclass AND NOT t.tgisinternal"""

# An ordinary table, written to the log, whose rows nothing hides, adds or redirects, and where a
# number stands once.
_SOUND_TABLE = """
    SELECT c.relkind = 'r' AND c.relpersistence = 'p'
      AND NOT c.relrowsecurity AND NOT c.relispartition
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i
                      WHERE c.oid IN (i.inhparent, i.inhrelid))
      AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
          ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = 'seq'
        WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indisunique
          AND i.indnatts = 1)
    FROM pg_catalog.pg_class c WHERE c.oid = 'dpiw.entries'::pg_catalog.regclass"""


def guards_hold(connection: Connection) -> bool:
    """Whether the table and its guards are as they were made."""
    guards = {tuple(row) for row in connection.exec_driver_sql(_FOUND_GUARDS)}
    sound = connection.exec_driver_sql(_SOUND_TABLE).scalar_one()
    return guards == _expected_guards() and sound is True
