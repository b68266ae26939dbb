"""The leak register of docs/privacy.md section 9: 47 paths, the control of each, and what shows it.

`where` names code as `file::function` (or class); `tests` names test functions below tests/.
`open` says, in words for an auditor, what is not controlled or not tested. A row without tests
must have it. docs/privacy.md section 9 is the short form.
"""

from typing import NamedTuple


class Leak(NamedTuple):
    """One path by which a value could leave, or a promise could fail."""

    number: int
    path: str
    severity: str  # H breaks DP for someone, M weakens it, L nuisance
    control: str
    where: tuple[str, ...]
    tests: tuple[str, ...] = ()
    open: str = ""


def leak(
    number: int, path: str, severity: str, control: str, where: str, *tests: str, open: str = ""
) -> Leak:
    return Leak(number, path, severity, control, tuple(where.split()), tests, open)


SCAN = (
    "flows/test_canary_scan.py::test_no_canary_leaves_the_confidential_zone",
    "flows/test_canary_scan.py::test_no_canary_leaves_in_any_of_the_modes",
    "flows/test_canary_scan.py::test_the_scan_would_find_every_canary",
)
N1 = (
    "hostile/leaks/test_non_interference.py::test_public_fields_are_equal_for_neighbours",
    "hostile/leaks/test_non_interference.py::test_public_fields_are_equal_for_many_neighbours",
)
PLANS = (
    "proof/test_noninterference_words.py::"
    "test_plans_and_what_prefect_is_given_are_the_same_for_any_file"
)
CONTROLS = "hostile/leaks/test_controls.py"
NO_TASK_STORES = f"{CONTROLS}::test_no_task_caches_stores_retries_or_is_named_after_values"
SCHEMA = "dpiw/data/test_schema.py"
STEPS = "dpiw/run/test_steps.py"
PUBLISHING = "dpiw/run/test_publishing.py"
CELLS = "dpiw/data/test_schema_cells.py"
GAMES = "dpiw/methods/generators/test_games.py"

REGISTER: tuple[Leak, ...] = (
    leak(1, "values as Prefect parameters", "H", "a flow takes the path of a spec and a period",
         "flows/release.py::release tasks/step.py::step",
         f"{CONTROLS}::test_the_release_flow_takes_a_name_and_a_period_and_nothing_else", *SCAN),
    leak(2, "stored or cached results", "H", "persistence and caches off",
         "tasks/step.py::step flows/__init__.py::", NO_TASK_STORES,
         f"{CONTROLS}::test_prefect_sends_and_stores_nothing_by_default", *SCAN),
    leak(3, "cells in tracebacks and error texts", "H", "a process per stage, exit codes only;"
         " errors raised outside the handler of the library's",
         "dpiw/run/launch.py::launch_stage dpiw/data/source/copy.py::attempt"
         " tasks/step.py::step",
         *SCAN,
         "hostile/fuzz/test_fuzz.py::test_mutated_files_end_in_success_or_our_error"),
    leak(4, "prints and log lines", "H", "a stage's output goes to its confidential log",
         "dpiw/run/launch.py::launch_stage", *SCAN,
         "test_architecture.py::test_no_print_no_environment_in_dpiw"),
    leak(5, "run names, tags, artifacts, events", "H", "names of spec and period; one tag, by the"
         " public device setting; artifacts of plan, ledger and release; one per training, of plan"
         " facts and of steps that the plan foretells; a line a step, the same whatever was read,"
         " and one where a training that failed goes on without a GPU",
         "tasks/step.py::step tasks/progress.py::__call__ tasks/progress.py::_show"
         " tasks/pages.py::show_run flows/release.py::gpu_tags flows/release.py::run_name"
         " dpiw/run/checkpoints.py::goes_on_without_gpu",
         NO_TASK_STORES, "flows/test_window.py::test_what_a_run_shows_is_the_same_for_any_table",
         f"{CONTROLS}::test_no_module_writes_artifacts_tags_or_notifications",
         "flows/test_progress.py::test_only_what_the_plan_foretells_is_believed",
         "flows/test_progress.py::test_a_task_bears_the_tag_if_its_method_may_use_a_gpu", *SCAN),
    leak(6, "keys or file names that hash private input", "M", "the run's key hashes the declared"
         " snapshot label", "dpiw/plan/plan.py::Plan dpiw/plan/spec.py::ReleaseSpec",
         PLANS),
    leak(7, "a cache that tells that data is unchanged", "M", "nothing is looked up by content",
         "dpiw/run/run.py::ReleaseRun",
         f"{CONTROLS}::test_a_changed_table_is_not_noticed_by_a_finished_run", NO_TASK_STORES),
    leak(8, "the number of rows", "H", "`nominal_rows` is declared; counts only through noise",
         "dpiw/data/source/ingest.py::ingest dpiw/methods/generators/marginal_noise.py::",
         "dpiw/data/test_ingest.py::test_an_empty_or_tiny_table_is_admissible_under_add_or_remove",
         "dpiw/methods/generators/test_contract.py::test_facts_hold_no_row_count",
         "dpiw/methods/weights/test_contract.py::test_draws_are_the_events",
         f"{N1[0].split('::')[0]}::test_a_row_count_in_the_certificate_is_seen",
         open="Public under replace-one, by definition."),
    leak(9, "bounds from data", "H", "declared, never inferred",
         "dpiw/data/schema/columns.py::Column",
         f"{SCHEMA}::test_bad_column_is_refused", f"{CELLS}::test_scale_is_total_and_row_local",
         "hostile/bad_inputs/test_config.py::test_a_schema_is_refused_before_anything_happens"),
    leak(10, "category domain from data", "H", "declared levels and `other`, or found above a"
         " threshold whose delta is charged",
         "dpiw/data/schema/encoding.py::scale_cells dpiw/data/schema/discretisation.py::Domain"
         " dpiw/methods/generators/unseen_levels.py::measure",
         f"{CONTROLS}::test_a_level_of_one_person_stays_in_the_private_folder",
         f"{CELLS}::test_unknown_and_missing_categories",
         "dpiw/data/test_discretisation.py::test_sizes_follow_from_the_schema_alone"),
    leak(11, "a column dropped for being constant", "H", "the schema decides the columns",
         "dpiw/data/schema/schema.py::PublicSchema",
         "hostile/bad_inputs/test_values.py::test_a_degenerate_table_ends_in_a_release_like_any_other"),
    leak(12, "missing-value patterns and types", "H", "nullability is declared, types follow it",
         "dpiw/data/schema/encoding.py::unscale_cells dpiw/data/source/batches.py::_to_frame",
         f"{CELLS}::test_an_integer_with_a_gap_is_not_read_through_floats", *N1),
    leak(13, "formats, precision and zones of data", "M", "a declared grid and zone",
         "dpiw/data/schema/columns.py::Column dpiw/release/parquet.py::arrow_schema",
         f"{CELLS}::test_continuous_decimals_are_a_declared_grid",
         "dpiw/release/test_release.py::test_the_arrow_schema_is_declared_by_kind"),
    leak(14, "outliers, duplicates, imputation by means, selection", "H", "row-local steps only",
         "dpiw/data/source/ingest.py::ingest dpiw/data/schema/encoding.py::scale_cells",
         f"{CELLS}::test_scale_is_total_and_row_local",
         "proof/test_domain.py::test_a_row_touches_no_other"),
    leak(15, "results of Great Expectations; counts of unreadable cells", "H", "truth values, and"
         " exact counts for the custodian, in the run's private folder; a terminal names the place",
         "dpiw/data/source/validation.py::run_checks dpiw/data/cells/statement.py::leave_statement"
         " dpiw/run/run.py::cells_file",
         "dpiw/data/test_validation.py::test_results_are_truth_values_only",
         "dpiw/data/test_cell_statement.py::test_a_statement_that_fails_ends_nothing",
         f"{CONTROLS}::test_counts_of_cells_stay_in_the_private_folder",
         f"{CONTROLS}::test_verdicts_of_great_expectations_stay_in_the_private_folder"),
    leak(16, "a run that stops", "M", "values never stop a run; structure does",
         "dpiw/data/source/ingest.py::ingest", *N1,
         "hostile/bad_inputs/test_values.py::test_values_are_clamped_or_mapped",
         f"{N1[0].split('::')[0]}::test_an_abort_on_a_value_is_seen",
         open="That structure failed is one bit per attempt, seen by operators and not charged."),
    leak(17, "early stopping by private loss", "H", "no such step; the solver's stop is certified",
         "dpiw/methods/weights/paper/regression.py::",
         "dpiw/methods/weights/paper/test_regression.py::test_certificate_holds"),
    leak(18, "model selection on a private score", "H", "one declared method; of measured weights"
         " the settings are chosen from the noisy sum",
         "dpiw/plan/plan.py::compile_plan"
         " dpiw/methods/weights/measured/weighing.py::weigh_measured",
         "dpiw/plan/test_plan.py::test_infeasible_weights_are_dropped_in_advance_and_cost_nothing",
         PLANS),
    leak(19, "retry until it looks right", "H", "every armed draw is charged, no gate after it",
         "dpiw/run/draw.py::_draw_once dpiw/run/reserve.py::reserve",
         f"{STEPS}::test_a_second_attempt_pays_again_for_the_lost_stage_alone",
         f"{STEPS}::test_the_same_run_twice_publishes_once_and_costs_once",
         f"{STEPS}::test_a_stage_killed_while_it_draws_is_settled_as_lost", NO_TASK_STORES),
    leak(20, "losses, solver steps, diagnostics of real data", "H", "not computed for release",
         "dpiw/methods/weights/paper/regression.py::",
         "dpiw/methods/weights/paper/test_regression.py::test_failure_has_one_text",
         "dpiw/methods/weights/test_contract.py::test_draws_are_the_events", *N1),
    leak(21, "utility against real data in the report", "H", "the report sees released values",
         "dpiw/release/files.py::release_contents",
         "dpiw/release/test_parts.py::test_what_a_report_shows_is_counted_as_the_rows_pass", *N1),
    leak(22, "batch statistics, raw gradients, critics", "H", "private rows meet a clipped sum, and"
         " noised sums alone leave a step; a student of teachers sees their noised votes",
         "dpiw/methods/neural/clipping.py::clipped_sum"
         " dpiw/methods/neural/dp_sgd.py::PrivateTraining"
         " dpiw/methods/generators/gan/pategan.py::PATEGAN",
         f"{GAMES}::test_tables_do_not_interfere",
         f"{GAMES}::test_a_planted_leak_is_found",
         "dpiw/methods/neural/test_planted_bugs.py::test_a_planted_bug_is_found"),
    leak(23, "free weights of a critic that saw data", "H", "weights come from a charged stage; a"
         " discriminator's from the generator's, under DP-SGD",
         "dpiw/methods/weights/registry.py::"
         " dpiw/methods/weights/paper/discriminator.py::DiscriminatorWeights",
         "dpiw/plan/test_plan.py::test_non_private_methods_are_refused",
         "dpiw/methods/weights/test_contract.py::test_what_no_spec_may_ask_for_is_refused_by_name",
         "dpiw/methods/weights/paper/test_estimators.py::test_a_critic_that_is_no_ratio_is_refused"),
    leak(24, "a published or guessable noise seed", "H", "noise takes no seed; no field for one",
         "dpiw/privacy/randomness.py::SecureNoise",
         "dpiw/privacy/test_randomness.py::test_secure_noise_takes_no_seed",
         f"{PUBLISHING}::test_seeded_noise_cannot_be_published",
         "test_architecture.py::test_only_privacy_mechanisms_draw_privacy_noise",
         "dpiw/plan/test_spec.py::test_what_is_refused_names_its_field"),
    leak(25, "one seed, two inputs", "H", "no seeds", "dpiw/privacy/randomness.py::SecureNoise",
         f"{CONTROLS}::test_two_runs_of_the_same_spec_share_no_noise",
         "dpiw/privacy/test_randomness.py::test_two_secure_runs_differ"),
    leak(26, "forks that share a generator", "H", "the operating system is asked at each draw",
         "dpiw/privacy/randomness.py::SecureNoise",
         "dpiw/privacy/test_randomness.py::test_eight_forked_workers_draw_distinct_noise"),
    leak(27, "float noise", "H", "integers on a lattice",
         "dpiw/privacy/mechanisms.py::noisy_counts dpiw/privacy/mechanisms.py::noisy_vector",
         "proof/test_support.py::test_neighbours_share_support_and_low_bits"),
    leak(28, "rounding in sums", "H", "counts are integers; vectors pay for the lattice",
         "dpiw/methods/generators/counting.py:: dpiw/privacy/mechanisms.py::lattice_slack",
         "dpiw/methods/generators/test_bayesian_network.py::test_counts_equal_the_naive_twin",
         "dpiw/methods/generators/test_bayesian_network.py::test_scores_are_on_a_grid_that_sums_exactly",
         "dpiw/privacy/test_mechanisms.py::test_rounding_adds_at_most_the_slack",
         open="The regression is fitted in doubles; the rounding of its gradient has no proved"
              " bound (method.md, section 13)."),
    leak(29, "a solver that stops early", "M", "a certified gradient, added to the sensitivity",
         "dpiw/methods/weights/paper/regression.py::",
         "dpiw/methods/weights/paper/test_regression.py::test_certificate_holds",
         "dpiw/methods/weights/paper/test_regression.py::test_scale_covers_reach_solver_and_lattice"),
    leak(30, "an unpenalised intercept", "H", "the constant is penalised",
         "dpiw/methods/weights/paper/regression.py::",
         "dpiw/methods/weights/paper/test_regression.py::test_unpenalised_intercept_has_no_bounded_sensitivity"),
    leak(31, "the penalty's convention", "H", "the printed objective, against two others",
         "dpiw/methods/weights/paper/regression.py::",
         "dpiw/methods/weights/paper/test_regression.py::test_gradient_and_hessian_are_those_of_the_printed_objective",
         "proof/test_sensitivity_regression.py::"
         "test_the_coefficients_move_by_at_most_their_sensitivity"),
    leak(32, "an accountant's bug, mixed relations", "H", "two accountants, closed forms, one"
         " relation per population",
         "dpiw/privacy/accounting.py::epsilon dpiw/privacy/units.py::PrivacyCost",
         "dpiw/privacy/test_accounting.py::test_renyi_accounting_agrees_from_above",
         "dpiw/privacy/test_accounting.py::test_gaussian_closed_form_equals_its_pld",
         "dpiw/privacy/test_units.py::test_relations_never_mix"),
    leak(33, "lots drawn otherwise than accounted", "H", "Poisson lots from the noise source, at"
         " the accounted rate; as many as accounted",
         "dpiw/methods/neural/dp_sgd.py::PrivateTraining dpiw/privacy/keystream.py::",
         "dpiw/methods/neural/test_keystream.py::test_every_row_is_drawn_with_the_rate_and_independently",
         "dpiw/methods/neural/test_dp_sgd.py::test_the_event_is_what_was_drawn",
         "dpiw/methods/neural/test_planted_bugs.py::test_a_planted_bug_is_found",
         f"{GAMES}::test_as_many_draws_as_accounted"),
    leak(34, "a fixed-sequence bound for a sequence chosen at run time", "H", "a privacy filter"
         " across runs", "dpiw/ledger/accounts.py::Account",
         "dpiw/ledger/test_ledger.py::test_one_unit_too_much_is_refused_and_the_exact_rest_is_granted",
         "dpiw/ledger/test_histories.py::test_grants_are_those_of_exact_fractions"),
    leak(35, "many rows per person", "H", "at most `max_rows` per declared identifier",
         "dpiw/data/source/ingest.py::rows_within_unit",
         "dpiw/data/test_person_bound.py::test_at_most_k_rows_of_each_person",
         open="Without a declared identifier one row is taken for one person; nothing checks it."),
    leak(36, "the same people under another name", "H", "one budget per population in one ledger",
         "dpiw/ledger/ledger.py::Ledger",
         "dpiw/ledger/test_ledger.py::test_register_is_once_and_for_ever",
         "dpiw/run/test_paid_twice.py::test_another_name_for_the_file",
         "dpiw/run/test_paid_twice.py::test_a_second_spec",
         "dpiw/run/test_paid_twice.py::test_a_cloned_ledger",
         open="Organisational: nobody can see that two populations or two ledgers hold the same"
              " people."),
    leak(37, "run time, memory, publication time", "M", "releases carry the day; metrics are off",
         "flows/__init__.py:: dpiw/run/publish.py::today",
         f"{CONTROLS}::test_prefect_sends_and_stores_nothing_by_default",
         f"{CONTROLS}::test_a_manifest_has_declared_fields_and_no_trace_of_the_source",
         open="Run time and memory of the stages depend on the table, and Prefect and the ledger"
              " record when steps start and end; of a training also when each twentieth ends."),
    leak(38, "timing of the samplers", "L", "a draw's own time is hidden in the stage's",
         "dpiw/run/launch.py::launch_stage",
         open="Samplers are not constant-time; documented, not tested."),
    leak(39, "released rows: number, order, layout", "M", "public number, shuffled, fixed groups",
         "dpiw/release/parquet.py::",
         "dpiw/release/test_release.py::test_rows_are_shuffled_and_row_groups_fixed", *N1),
    leak(40, "metadata of the Parquet file", "M", "an allow-list",
         "dpiw/release/parquet.py::footer_facts",
         "dpiw/release/test_release.py::test_the_footer_holds_dp_facts_and_nothing_else"),
    leak(41, "manifest: paths, hosts, digests, times", "M", "a fixed set of fields",
         "dpiw/release/manifest.py::Manifest",
         f"{CONTROLS}::test_a_manifest_has_declared_fields_and_no_trace_of_the_source",
         "dpiw/release/test_manifest_places.py::test_two_places_publish_the_same_bytes"),
    leak(42, "free text in the ledger", "M", "names, digests, numbers, enumerations",
         "dpiw/ledger/entries.py::",
         "dpiw/ledger/test_ledger.py::test_malformed_requests_are_refused", *SCAN),
    leak(43, "core dumps, temporary files, environment, arguments", "H",
         "limits, umask, a scrubbed environment, a private temporary folder",
         "dpiw/run/process.py::_confine dpiw/run/launch.py::_environment",
         "dpiw/run/test_zone.py::test_a_stage_process_is_confined_and_what_it_leaves_is_closed",
         "dpiw/run/test_zone.py::test_everything_is_closed_whatever_the_umask",
         f"{CONTROLS}::test_arguments_of_a_stage_are_its_name_and_folder", *SCAN,
         open="Swap is the host's."),
    leak(44, "backups and old snapshots", "M", "purged by command once they are not needed",
         "dpiw/run/workspace.py::",
         "dpiw/run/test_workspace.py::"
         "test_a_published_run_loses_its_confidential_files_and_nothing_else",
         "dpiw/run/test_workspace.py::test_runs_are_chosen_by_key_and_age",
         open="Operations: nothing is purged by itself, and backups and disks are the host's."),
    leak(45, "error classes that differ by data", "M", "code 70 for all that depends on rows",
         "dpiw/run/draw.py::_draw_once dpiw/run/process.py::run_stage",
         f"{STEPS}::test_a_failure_once_rows_are_open_has_one_code", *N1,
         open="Code 12 tells a structural failure from others, and a killed process shows its"
              " signal."),
    leak(46, "clipping or normalising by real data", "H", "released values only",
         "dpiw/methods/weights/paper/ratio.py::weigh",
         "dpiw/methods/weights/paper/test_ratio.py::test_self_normalised",
         "dpiw/methods/weights/paper/test_ratio.py::test_normalised_weights_have_mean_one",
         f"{PUBLISHING}::test_post_processing_is_repeatable"),
    leak(47, "several versions published", "M", "one release per run, never a lost draw",
         "dpiw/run/publish.py::publish",
         f"{STEPS}::test_the_same_run_twice_publishes_once_and_costs_once",
         "dpiw/release/test_publication.py::test_a_release_is_never_replaced"),
)  # fmt: skip
