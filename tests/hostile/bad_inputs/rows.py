"""Bad inputs, row by row: what we do, and the tests that show it.

`result` says what happens in this version; a note says where that is not what the table asks.
Codes: C configuration (exit 10, 11), S structure (12), V value (no abort), B budget (22),
I integrity (30-33), R resume. The charge is 0 unless stated.
"""

from typing import NamedTuple

VALUES = "hostile/bad_inputs/test_values.py::test_values_are_clamped_or_mapped"
STRUCTURE = "hostile/bad_inputs/test_structure.py::test_structure_is_refused_without_charge"
SPEC = "hostile/bad_inputs/test_config.py::test_a_spec_is_refused_before_anything_happens"
SCHEMA = "hostile/bad_inputs/test_config.py::test_a_schema_is_refused_before_anything_happens"
ADMITTED = "hostile/bad_inputs/test_structure.py::test_admissible_beside_what_is_refused"
ROWS_PUBLIC = "dpiw/data/test_ingest.py::test_replace_one_needs_the_declared_number_of_rows"
ROWS_PRIVATE = (
    "dpiw/data/test_ingest.py::test_an_empty_or_tiny_table_is_admissible_under_add_or_remove"
)
DEGENERATE = (
    "hostile/bad_inputs/test_values.py::test_a_degenerate_table_ends_in_a_release_like_any_other"
)
STEPS = "dpiw/run/test_steps.py"
LEDGER = "dpiw/ledger/test_ledger.py"
STORE = "dpiw/ledger/test_store_sqlite.py"
TRANSITIONS = "dpiw/ledger/test_transitions.py"


class Row(NamedTuple):
    """One row of the table."""

    number: int
    input: str
    code: str
    result: str
    tests: tuple[str, ...] = ()
    note: str = ""  # a deviation from the table, or why there is no test


def row(number: int, input: str, code: str, result: str, *tests: str, note: str = "") -> Row:
    return Row(number, input, code, result, tests, note)


ROWS: tuple[Row, ...] = (
    row(1, "missing in a column that is not nullable", "V", "the declared fill", VALUES),
    row(2, "infinite", "V", "the bound", VALUES),
    row(3, "out of bounds", "V", "the bound", VALUES),
    row(4, "negative zero, subnormal", "V", "zero", VALUES),
    row(5, "unknown category", "V", "`other`, else missing", VALUES,
        "dpiw/data/test_schema_cells.py::test_unknown_and_missing_categories"),
    row(6, "near-duplicate categories", "V", "the declared normaliser, else `other`", VALUES),
    row(7, "empty table", "S", "refused under replace-one, void", ROWS_PUBLIC, ROWS_PRIVATE,
        DEGENERATE, note="add/remove: admissible, the number of rows is private there; and under"
        " replace-one it is found after the reservation, which is then voided"),
    row(8, "one row, or fewer than registered", "S", "as row 7", ROWS_PUBLIC, ROWS_PRIVATE,
        note="as row 7"),
    row(9, "another number of rows under replace-one", "S", "refused, void", ROWS_PUBLIC),
    row(10, "constant column", "V", "accepted, same plan", DEGENERATE),
    row(11, "all-null column", "V", "accepted if nullable, else filled", DEGENERATE),
    row(12, "one label only", "V", "accepted, same exit codes", DEGENERATE),
    row(13, "duplicate column names", "S", "refused; in a schema C", STRUCTURE, SCHEMA),
    row(14, "missing or extra column, other order", "S", "refused; any order is admissible",
        STRUCTURE, ADMITTED),
    row(15, "names differing by case or Unicode form", "S", "refused; in a schema C", STRUCTURE,
        SCHEMA),
    row(16, "wrong type in Parquet", "S", "refused", STRUCTURE),
    row(17, "unparsable cell", "V", "fill or missing", VALUES),
    row(18, "huge numbers", "V", "the bound, by exact decimals", VALUES),
    row(19, "whole numbers above 2^53 in a real column", "V", "the column's grid", VALUES),
    row(20, "booleans as 0/1/yes", "V", "the declared words, else missing", VALUES),
    row(21, "decimal comma, thousands separators", "V", "unparsable: fill or missing", VALUES,
        note="no locale can be declared; only the separator and the encoding"),
    row(22, "dates at the ends, leap days, zones, summer time", "V", "declared zone and bounds",
        VALUES, "dpiw/data/test_schema_cells.py::test_datetime_cells"),
    row(23, "encodings", "S", "declared; invalid bytes: `other`; another encoding: refused",
        STRUCTURE, ADMITTED, VALUES),
    row(24, "NUL bytes, newlines, quotes, ragged rows", "S", "NUL and quoted newlines V; open"
        " quotes and ragged rows refused", STRUCTURE, VALUES),
    row(25, "formulas", "V", "`other`, never echoed", VALUES),
    row(26, "huge cell, 100,000 columns", "S", "refused by the limits", STRUCTURE),
    row(27, "Parquet bomb", "S", "refused by our limit or the process's",
        "dpiw/data/test_ingest.py::test_a_table_larger_than_the_memory_is_read_in_batches_and_not_at_once"),
    row(28, "zip, gzip", "S", "refused", STRUCTURE,
        note="no packed format can be declared, so there is no ratio to cap"),
    row(29, "damaged Parquet", "S", "refused, or read within bounds", STRUCTURE,
        "hostile/fuzz/test_fuzz.py::test_mutated_files_end_in_success_or_our_error",
        note="a flipped bit that still reads as an admissible table is not noticed under"
        " add/remove, where no number of rows is known; under replace-one the number is compared"),
    row(30, "encrypted, nested, bytes, extension", "S", "refused", STRUCTURE),
    row(31, "links, pipes, devices, odd names", "C", "names C; a source that is no plain file S",
        SPEC,
        "hostile/bad_inputs/test_structure.py::test_a_source_that_is_no_plain_file_is_refused",
        note="links and devices are code 12, not C: by name at first, then when they are opened"),
    row(32, "file changes while read", "S", "refused",
        "dpiw/data/test_ingest.py::test_a_file_that_changes_while_it_is_read_is_refused"),
    row(33, "more than k rows of a person", "V", "k stay, by random keys",
        "dpiw/data/test_person_bound.py::test_at_most_k_rows_of_each_person",
        "dpiw/data/test_person_bound.py::test_which_rows_of_a_person_stay_is_random_and_uniform",
        note="keys come from the operating system, not from a keyed hash"),
    row(34, "missing person id", "S", "refused unless `null_is_own_person`",
        "dpiw/data/test_ingest.py::test_a_missing_id_is_refused_unless_declared"),
    row(35, "epsilon not > 0, or not an exact decimal", "C", "refused", SPEC,
        "dpiw/plan/test_spec.py::test_what_is_refused_names_its_field",
        note="0.1 in a YAML spec is read as the exact decimal 0.1; a float is refused in Python"),
    row(36, "epsilon above the policy's maximum", "C", "refused", SPEC,
        note="no signature lifts it: the maximum is fixed in this version"),
    row(37, "inadmissible delta", "C", "refused", SPEC),
    row(38, "classical Gaussian formula with epsilon >= 1", "C", "cannot be asked for",
        "dpiw/privacy/test_accounting.py::test_gaussian_noise_multiplier_is_the_golden_kappa",
        note="no formula can be chosen: noise is calibrated on the exact curve at any epsilon"),
    row(39, "penalty <= 0, infinite debias factor", "C", "refused at plan time", SPEC),
    row(40, "bounds", "C", "refused", SCHEMA),
    row(41, "budget exceeded by one unit", "B", "denied, what remains is shown",
        "dpiw/run/test_paid_twice.py::test_a_second_spec",
        f"{LEDGER}::test_one_unit_too_much_is_refused_and_the_exact_rest_is_granted"),
    row(42, "same key, other cost; reused after void", "B", "refused (code 32)",
        f"{LEDGER}::test_the_same_key_with_other_content_conflicts",
        f"{TRANSITIONS}::test_a_void_gives_back_once_and_burns_the_number_but_no_attempt",
        note="a voided run may be reserved again, under the next attempt's number only"),
    row(43, "ledger missing, locked, corrupt, old, on NFS, weak", "I", "fails closed",
        f"{STORE}::test_open_never_creates",
        f"{STORE}::test_a_held_lock_ends_in_an_error_not_in_a_wait",
        f"{STORE}::test_a_damaged_file_is_refused",
        "dpiw/ledger/test_files.py::"
        "test_disks_are_local_by_name_and_whatever_is_not_known_as_such_is_refused",
        f"{STORE}::test_a_connection_with_weaker_settings_is_refused",
        "dpiw/ledger/test_recover_releases.py::test_a_restored_ledger_is_recovered_and_goes_on"),
    row(44, "schema drift", "S", "another run, same population and budget",
        "dpiw/plan/test_plan.py::test_a_digest_is_that_of_the_decisions",
        note="schema versions are not signed by themselves; a release's manifest signs its own"),
    row(45, "another population under an old name", "I", "other terms are refused",
        f"{LEDGER}::test_register_is_once_and_for_ever",
        note="other people under the same name and terms cannot be told: no hash of data is kept"),
    row(46, "mixed relations", "C", "refused", SPEC,
        "dpiw/privacy/test_units.py::test_relations_never_mix",
        "dpiw/run/test_paid_twice.py::test_other_terms_than_the_populations"),
    row(47, "unknown mechanism, failing solver", "C", "unknown: refused; failing: code 70, charged"
        " if armed", SPEC,
        "dpiw/methods/weights/paper/test_regression.py::test_failure_has_one_text",
        f"{STEPS}::test_a_failure_once_rows_are_open_has_one_code",
        note="no gradient method exists in this version, so no NaN gradient either"),
    row(48, "disk full, read-only", "R", "resumed; charged if armed",
        "crash/test_failing_disk.py::test_every_operation_fails_once",
        f"{STORE}::test_a_full_disk_writes_nothing",
        "dpiw/release/test_publication.py::test_a_failing_file_system_is_an_error_and_leaves_nothing"),
    row(49, "clock back ten years", "-", "no effect",
        f"{LEDGER}::test_entries_are_filtered_and_the_clock_is_a_label_only"),
    row(50, "YAML bombs, duplicate keys, `no`, tags", "C", "refused, or plain text", SPEC,
        "dpiw/plan/test_spec.py::test_the_norway_problem_does_not_arise",
        "dpiw/data/test_yaml.py::test_what_is_refused_is_placed_and_not_repeated"),
    row(51, "secrets in a spec", "C", "refused, not repeated", SPEC,
        "dpiw/plan/test_spec.py::test_no_secret_is_echoed"),
    row(52, "the random generator fails", "-", "stops, nothing drawn",
        "dpiw/privacy/test_randomness.py::test_a_failing_system_generator_stops_the_draw",
        "dpiw/privacy/test_randomness.py::test_a_failing_sampler_stops_the_draw"),
)  # fmt: skip
