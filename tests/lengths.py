"""Which tests run weekly because of their length, and what stands for each in `make test`.

`make test` shall take six minutes on two quiet cores, and takes nine. What is moved loses nothing
but its place: it runs in `make test-crash` (marker `crash`) or `make nightly` (both), which the
deployment `assurance` runs every week. The promise keeps a fast slice, which is named here and must
not be moved itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A test, or some of its cases, that runs weekly.

    Attributes:
        test: `folder/test_file.py::test_name`.
        marker: `crash` or `nightly`.
        stays: the test that stands for it in `make test`.
        cases: which of its cases: parts of their ids; empty: all.
    """

    test: str
    marker: str
    stays: str
    cases: tuple[str, ...] = ()


def _moved(marker: str, test: str, stays: str, *cases: str) -> Moved:
    return Moved(test=test, marker=marker, stays=stays, cases=cases)


MOVED = (
    _moved("nightly", "dpiw/methods/test_kinds.py::test_a_kind_is_published_as_declared_or_refused",
           "dpiw/methods/test_kinds.py::test_a_kind_is_published_as_declared_or_refused",
           "-mst]", "-aim]", "many-bayes]"),
    _moved("nightly", "dpiw/methods/test_admission.py::"
           "test_every_generator_s_rows_satisfy_every_constraint",
           "dpiw/methods/test_admission.py::test_every_generator_s_rows_satisfy_every_constraint",
           "[aim]", "[mst]"),
    _moved("nightly", "proof/test_noninterference.py::test_a_measurement_that_sees_is_not_the_same",
           "proof/test_noninterference.py::test_a_measurement_that_sees_is_not_the_same",
           "[aim]"),
    _moved("nightly", "proof/test_canaries_weights.py::"
           "test_weights_with_too_little_noise_are_refuted",
           "proof/test_canaries_weights.py::test_weights_with_too_little_noise_are_refuted",
           "measured, stack, three rows", "measured, linear, replace-one"),
    _moved("crash", "flows/test_failures.py::"
           "test_a_killed_stage_shows_a_sentence_and_no_traceback",
           "flows/test_failures.py::test_a_killed_stage_shows_a_sentence_and_no_traceback",
           "words1"),
    _moved("crash", "flows/test_scheduled_release.py::"
           "test_a_scheduled_run_appears_and_ends_with_a_verified_release",
           "flows/test_scheduled_release.py::test_the_deployments_are_module_path_entries"),
    _moved("crash", "flows/test_training_flow.py::"
           "test_a_training_queues_for_the_gpu_and_shows_public_numbers",
           "flows/test_scheduled_release.py::"
           "test_the_training_waits_for_a_worker_with_a_gpu_and_the_example_does_not"),
    _moved("crash", "flows/test_training_flow.py::"
           "test_a_run_whose_gpu_vanishes_ends_on_the_cpu_at_its_planned_cost",
           "dpiw/run/test_vanished_gpu.py::"
           "test_what_may_use_a_gpu_goes_on_without_it_at_the_planned_cost"),
    _moved("crash", "crash/test_training_kills.py::"
           "test_killed_in_mid_training_it_resumes_and_is_charged_as_planned",
           "dpiw/run/test_resuming.py::test_a_killed_training_goes_on_and_costs_what_was_planned"),
    _moved("crash", "crash/test_ordering.py::test_the_real_pipeline_keeps_the_order",
           "crash/test_ordering.py::test_the_real_pipeline_keeps_the_order", "postgresql"),
    _moved("nightly", "dpiw/ledger/test_restored.py::"
           "test_a_ledger_made_anew_holds_what_the_old_one_held",
           "dpiw/ledger/test_restored.py::test_a_ledger_made_anew_holds_what_the_old_one_held",
           "RENYI"),
    _moved("nightly", "proof/test_canaries_generators.py::"
           "test_a_generator_with_too_little_noise_is_refuted",
           "proof/test_canaries_generators.py::test_a_generator_with_too_little_noise_is_refuted",
           "pategan", "privbayes"),
    _moved("nightly", "proof/test_canaries_networks.py::"
           "test_a_training_with_too_little_noise_is_refuted",
           "proof/test_canaries_networks.py::test_a_training_with_too_little_noise_is_refuted",
           "dpgan"),
    _moved("nightly", "proof/test_canaries_networks.py::"
           "test_no_attack_proves_more_than_a_training_claims",
           "proof/test_canaries_networks.py::test_no_attack_proves_more_than_a_training_claims",
           "half of the rows"),
    _moved("nightly", "proof/test_membership.py::test_a_twentieth_of_the_noise_is_found",
           "proof/test_membership.py::test_copied_rows_are_found"),
    _moved("nightly", "proof/test_hockey_stick.py::"
           "test_no_claim_is_broken_and_one_with_less_noise_is",
           "proof/test_hockey_stick.py::test_no_claim_is_broken_and_one_with_less_noise_is",
           "fast-DP-SGD lots"),
    _moved("nightly", "proof/test_debiasing.py::"
           "test_self_normalised_use_needs_the_centred_factor",
           "proof/test_debiasing.py::test_self_normalised_use_needs_the_centred_factor",
           "LAPLACE", "SPHERICAL"),
    _moved("nightly", "dpiw/methods/weights/test_signal.py::test_size_under_pure_noise",
           "dpiw/methods/weights/test_signal.py::test_size_under_pure_noise",
           "LAPLACE-0.0", "SPHERICAL", "GAUSSIAN-0.5"),
    _moved("nightly", "dpiw/methods/test_pairing.py::test_a_release_from_beginning_to_end",
           "dpiw/methods/test_pairing.py::test_a_release_from_beginning_to_end",
           "dpcgan"),
    _moved("nightly", "benchmarks/test_neural.py::test_one_generator_with_and_without_weights",
           "benchmarks/test_neural.py::test_without_privacy_the_same_networks_and_no_plan"),
    _moved("nightly", "test_analysts.py::test_the_notebook_runs_and_says_when_to_stop",
           "test_analysts.py::test_the_python_of_the_guide_runs"),
    _moved("crash", "dpiw/ledger/test_histories.py::test_random_histories_agree_with_a_model",
           "dpiw/ledger/test_histories.py::test_random_histories_agree_with_a_model", "postgresql"),
    _moved("crash", "flows/test_release_flow.py::"
           "test_overspending_is_refused_before_a_private_byte_is_read",
           "flows/test_release_flow.py::test_a_budget_too_small_is_refused_before_a_byte_is_read"),
    _moved("crash", "flows/test_release_flow.py::test_a_run_that_is_published_costs_nothing_again",
           "dpiw/run/test_steps.py::test_another_period_is_another_run_and_another_cost"),
    _moved("crash", "flows/test_audit_flow.py::"
           "test_a_clean_audit_ends_well_and_a_tampered_one_alarms",
           "flows/test_audit_parameters.py::test_the_audit_flow_is_started_with_a_sound_one"),
    _moved("crash", "dpiw/ledger/test_store_postgresql.py::"
           "test_a_release_is_made_with_a_ledger_on_postgresql",
           "dpiw/ledger/test_store_postgresql_failures.py::"
           "test_what_was_acknowledged_survives_the_server"),
    _moved("crash", "dpiw/ledger/test_races_of_processes.py::"
           "test_killed_at_any_time_the_chain_holds_and_nothing_told_is_lost",
           "dpiw/ledger/test_races_of_processes.py::test_killed_in_a_write_transaction"),
    _moved("crash", "dpiw/ledger/test_races_of_processes.py::"
           "test_racers_get_exactly_the_budget",
           "dpiw/ledger/test_races_of_processes.py::test_racers_get_exactly_the_budget",
           "-1]", "-2]"),
    _moved("crash", "dpiw/run/test_steps.py::test_two_processes_draw_a_stage_once",
           "dpiw/run/test_steps.py::test_a_stage_killed_while_it_draws_is_settled_as_lost"),
    _moved("nightly", "dpiw/run/test_resuming.py::test_what_cannot_be_resumed_as_it_was_is_lost",
           "dpiw/run/test_resuming.py::test_what_cannot_be_resumed_as_it_was_is_lost",
           "removed", "purged", "rolled_back"),
    _moved("nightly", "dpiw/run/test_resuming.py::"
           "test_a_killed_training_goes_on_and_costs_what_was_planned",
           "dpiw/run/test_resuming.py::test_a_killed_training_goes_on_and_costs_what_was_planned",
           "[0]", "[39]"),
    _moved("nightly", "dpiw/plan/test_rehearsal.py::"
           "test_a_seed_decides_everything_and_the_number_of_processes_nothing",
           "dpiw/plan/test_rehearsal.py::test_a_play_does_what_the_spec_says"),
    _moved("nightly", "dpiw/privacy/test_accounting.py::test_noise_that_meets_a_total",
           "dpiw/privacy/test_accounting.py::test_noise_that_meets_a_total",
           "row0", "row1", "row3"),
    _moved("nightly", "dpiw/privacy/test_accounting.py::"
           "test_spherical_noise_costs_less_than_its_laplace_event",
           "dpiw/privacy/test_accounting.py::test_spherical_noise_costs_less_than_its_laplace_event",
           "[14]", "[3]"),
    _moved("nightly", "dpiw/privacy/test_accounting.py::test_calibration_far_from_the_usual_totals",
           "dpiw/privacy/test_accounting.py::test_calibration_far_from_the_usual_totals", "30.0"),
    _moved("nightly", "dpiw/audit/test_accountant.py::test_faults_are_found_whatever_the_events",
           "dpiw/audit/test_accountant.py::test_faults_are_found_whatever_the_events",
           "rdp-dp-sgd", "renyi-dp-sgd", "both plds-dp-sgd"),
    _moved("nightly", "dpiw/audit/test_accountant.py::test_extreme_events_end_in_a_number",
           "dpiw/audit/test_accountant.py::test_extreme_events_end_in_a_number", "events6"),
    _moved("nightly", "dpiw/methods/generators/test_dpgan.py::"
           "test_generous_epsilon_beats_the_uniform_table",
           "dpiw/methods/generators/test_dpgan.py::test_generous_epsilon_beats_the_uniform_table",
           "DPCGAN"),
    _moved("nightly", "dpiw/data/test_bad_inputs_source.py::"
           "test_damaged_parquet_is_refused_or_read_within_bounds",
           "hostile/fuzz/test_fuzz.py::test_mutated_files_end_in_success_or_our_error"),
    _moved("nightly", "proof/test_sampler_laws.py::"
           "test_spherical_noise_has_a_gamma_norm_and_no_direction",
           "proof/test_sampler_laws.py::test_spherical_noise_has_a_gamma_norm_and_no_direction",
           "14-secure"),
    _moved("crash", "flows/test_release_flow.py::"
           "test_a_structural_failure_tells_the_custodian_and_not_prefect",
           "flows/test_release_flow.py::test_an_unexpected_failure_leaves_prefect_with_a_code"),
    _moved("nightly", "dpiw/privacy/test_accounting.py::test_monotone_in_noise_and_count",
           "dpiw/privacy/test_accounting.py::test_monotone_in_noise_and_count", "<lambda>1"),
    _moved("nightly", "dpiw/audit/test_accountant.py::test_both_accountants_agree_with_the_audit",
           "dpiw/audit/test_accountant.py::test_both_accountants_agree_with_the_audit",
           "little noise", "dp-sgd and more"),
    _moved("nightly", "proof/test_accountants.py::"
           "test_every_road_to_a_gaussian_ends_at_the_closed_form",
           "proof/test_accountants.py::test_every_road_to_a_gaussian_ends_at_the_closed_form",
           "1e-06", "1e-09"),
    _moved("nightly",
           "hostile/leaks/test_non_interference.py::test_what_failed_before_is_not_published",
           "hostile/leaks/test_non_interference.py::test_what_failed_before_is_not_published",
           "a void", "torn file"),
    _moved("crash", "flows/test_interrupts.py::"
           "test_a_second_one_stops_at_once_and_says_what_stands",
           "flows/test_interrupts.py::test_a_second_one_does_not_wait_for_the_step"),
    _moved("crash", "flows/test_interrupts.py::test_a_draw_is_let_end_and_nothing_is_lost",
           "flows/test_interrupts.py::test_a_draw_is_let_end_and_nothing_is_lost",
           "[SIGTERM]", "[SIGHUP]"),
    _moved("crash", "flows/test_interrupts.py::"
           "test_after_sigterm_to_the_run_alone_the_same_command_goes_on",
           "flows/test_interrupts.py::test_a_second_one_does_not_wait_for_the_step"),
    _moved("crash", "flows/test_wheel.py::"
           "test_an_installed_wheel_goes_from_an_empty_folder_to_a_release",
           "flows/test_wheel.py::test_the_wheel_has_the_flows_under_no_name_of_their_own"),
    _moved("crash", "flows/test_server.py::"
           "test_an_audit_s_own_server_that_ends_is_not_waited_for",
           "flows/test_server.py::test_an_own_server_that_ends_is_not_waited_for"),
    _moved("nightly", "dpiw/release/test_report_in_browser.py::"
           "test_nothing_is_cut_off_or_hard_to_read_at_any_width",
           "dpiw/release/test_report_in_browser.py::"
           "test_nothing_is_cut_off_or_hard_to_read_at_any_width",
           "[_with_truth]", "[_unweighted]"),
    _moved("nightly", "dpiw/audit/test_page_in_browser.py::"
           "test_nothing_is_cut_off_or_hard_to_read_at_any_width",
           "dpiw/audit/test_page_in_browser.py::"
           "test_nothing_is_cut_off_or_hard_to_read_at_any_width",
           "[in_order]"),
    _moved("crash", "dpiw/audit/test_tally.py::"
           "test_random_histories_count_the_same_on_both_roads",
           "dpiw/audit/test_tally.py::test_random_histories_count_the_same_on_both_roads",
           "[postgresql]"),
    _moved("crash", "dpiw/ledger/test_histories.py::test_grants_are_those_of_exact_fractions",
           "dpiw/ledger/test_histories.py::test_grants_are_those_of_exact_fractions",
           "[postgresql]"),
    _moved("crash", "dpiw/ledger/test_tamper.py::test_every_column_of_an_entry_is_bound",
           "dpiw/ledger/test_tamper.py::test_every_column_of_an_entry_is_bound",
           "[postgresql-1]", "[postgresql-2]", "[postgresql-6]", "[postgresql-10]"),
    _moved("crash", "flows/test_server.py::test_a_run_that_a_signal_ends_leaves_no_server",
           "flows/test_interrupts.py::test_a_draw_is_let_end_and_nothing_is_lost"),
    _moved("nightly", "hostile/fuzz/test_fuzz.py::"
           "test_a_dead_hanging_or_greedy_reader_is_noticed",
           "hostile/fuzz/test_fuzz.py::test_a_dead_hanging_or_greedy_reader_is_noticed",
           "time.sleep(60)", "held.append"),
    _moved("nightly", "dpiw/analysis/test_coverage.py::"
           "test_noise_aware_intervals_hold_the_truth",
           "dpiw/analysis/test_coverage.py::test_noise_aware_intervals_hold_the_truth",
           "[median]"),
    _moved("nightly", "test_site.py::test_what_leads_nowhere_ends_the_build",
           "test_site.py::test_the_site_is_whole_and_loads_nothing_from_elsewhere"),
    _moved("crash", "flows/test_published_before.py::test_a_run_that_is_new_asks_the_server",
           "flows/test_published_before.py::test_nothing_is_started_spent_or_written"),
    _moved("crash", "crash/test_random_kills.py::test_a_few_random_kills",
           "crash/test_kill_matrix.py::test_a_few_histories"),
    _moved("crash", "crash/test_failing_disk.py::test_a_few_failing_operations",
           "crash/test_failing_disk.py::test_a_disk_that_is_full_before_a_draw_costs_nothing"),
    _moved("nightly", "dpiw/release/test_report_in_browser.py::"
           "test_the_readme_s_picture_is_small_and_can_be_taken_again",
           "dpiw/release/test_report_in_browser.py::"
           "test_nothing_is_cut_off_or_hard_to_read_at_any_width"),
    _moved("crash", "dpiw/ledger/test_store_postgresql_failures.py::"
           "test_a_standby_is_refused_and_a_late_one_lacks_the_published_head",
           "dpiw/ledger/test_store_postgresql_failures.py::"
           "test_what_was_acknowledged_survives_the_server"),
)  # fmt: skip


def marker_of(node: str) -> str | None:
    """The marker of a collected test by its id below tests/, or None: it stays where it is."""
    name, _, case = node.partition("[")
    for moved in MOVED:
        if moved.test == name and (
            not moved.cases or any(part in f"[{case}" for part in moved.cases)
        ):
            return moved.marker
    return None
