"""A bench for each acceptance test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import harness
from harness import Bench

if TYPE_CHECKING:
    from onceonly_proof.embedded.kafka import EmbeddedKafka


_HERE = Path(__file__).parent
# Files are dealt to processes in this order: one with few, long tests must not be left for the end.
_FIRST = ("test_verify.py", "test_main_job.py", "test_crash_points.py")


# What `make test` leaves to `make test-all`: a promise that a test beside it keeps on another way, sink, store or side.
_LONG = frozenset(
    {
        "test_bad_input.py::test_a_record_over_the_brokers_limit_stops_before_anything_of_its_epoch_shows",
        "test_batches.py::test_a_backfill_whose_driver_is_killed_and_killed_again_ends_with_every_row_once[files-kills1]",
        "test_batches.py::test_every_row_is_there_once_after_a_process_died_at_each_step[kafka]",
        "test_batches.py::test_of_two_runs_at_once_one_wins_and_the_other_says_so[kafka]",
        "test_batches.py::test_other_rows_columns_or_targets_under_an_id_are_refused_by_name[kafka]",
        "test_checkpoint_lost.py::test_a_barrier_that_is_lost_though_spark_noted_its_epoch_comes_back",
        "test_checkpoint_lost.py::test_a_barrier_that_is_written_over_before_it_is_planned_is_not_decided",
        (
            "test_checkpoint_lost.py::test_a_file_source_reads_the_decided_files_again_though_spark_has_planned_others"
            "[commit.before_return-format]"
        ),
        "test_checkpoint_lost.py::test_a_window_on_rocksdb_with_changelog_goes_on_from_the_decided_range",
        "test_clock.py::test_a_wall_clock_that_jumps_by_an_hour_loses_and_doubles_nothing",
        "test_crash_points.py::test_a_task_that_spark_tries_again_doubles_nothing",
        "test_dead_letters.py::test_a_letter_that_is_refused_stops_with_both_reasons",
        "test_dead_letters.py::test_more_refused_rows_than_the_limit_stop_the_query_and_raising_it_goes_on",
        "test_drivers.py::test_a_driver_that_stands_still_past_the_brokers_time_out_loses_and_doubles_nothing",
        "test_drivers.py::test_a_driver_that_wakes_up_after_it_was_replaced_changes_nothing",
        "test_duels.py::test_an_operators_command_in_the_middle_of_an_epoch_ends_a_run_that_lives_after_all",
        "test_faults.py::test_a_replay_with_another_number_of_slots_doubles_nothing",
        "test_faults.py::test_a_sink_that_is_gone_while_its_handles_are_pending_stops_the_query",
        "test_faults.py::test_rows_that_do_not_fit_into_what_was_lost_stop_the_query",
        "test_faults_kafka.py::test_a_worker_that_is_stopped_past_the_brokers_time_out_writes_nothing_late",
        "test_feeds.py::test_lines_over_http_are_read_exactly_once_with_a_kill_before_the_feed_is_told",
        "test_files_queries.py::test_a_raise_at_every_step_is_exactly_once_for_every_reader[format]",
        (
            "test_files_queries.py::test_a_target_that_was_put_in_the_place_of_another_between_two_starts_is_found_as_it_is"
            "[foreach]"
        ),
        "test_files_retention.py::test_readers_find_what_is_due_while_old_epochs_expire",
        "test_guards.py::test_files_that_a_replay_would_not_read_as_before_stop_the_query",
        "test_ids.py::test_a_scheduled_query_leaves_the_ids_of_its_slots_at_each_start",
        "test_landing_zone.py::test_what_a_stranger_takes_after_a_kill_is_not_written_again",
        "test_lives.py::test_a_task_that_outlives_its_stopped_query_writes_nothing_late",
        "test_lives.py::test_an_idle_restart_ends_what_a_loser_left_open_and_nothing_foreign",
        "test_lost_transactions.py::test_a_job_down_longer_than_the_transaction_time_out_loses_no_decided_row",
        "test_operators_view.py::test_a_killed_job_is_shown_with_its_state",
        "test_operators_view.py::test_where_spark_is_not_installed_it_is_all_seen",
        "test_programs_that_end.py::test_a_program_that_ends_below_its_query_has_its_end_noted_and_reported[end]",
        "test_programs_that_end.py::test_a_program_that_ends_below_its_query_has_its_end_noted_and_reported[stdin]",
        "test_replay_differs.py::test_a_plan_that_promises_the_same_rows_stops_before_spark_notes_others[foreach]",
        "test_savepoints_on_stores.py::test_from_one_place_on_the_store_to_another_with_the_original_gone",
        "test_skipped_epochs.py::test_a_query_goes_on_after_its_state_was_dealt_to_other_partitions",
        "test_skipped_epochs.py::test_epochs_that_another_sink_wrote_meanwhile_are_named_and_taken_over[foreach]",
        "test_skipped_epochs.py::test_epochs_whose_errors_a_function_kept_back_are_not_lost_in_silence",
        "test_sql_queries.py::test_a_driver_killed_in_its_commit_to_sqlite_loses_and_doubles_nothing",
        "test_stages.py::test_a_speculative_twin_doubles_nothing",
        "test_stop.py::test_a_query_ends_after_its_epoch_busy_or_idle_and_goes_on_when_started[function-idle]",
        "test_stop.py::test_an_epoch_that_takes_long_is_waited_for_and_one_that_is_killed_is_told",
        "test_tables.py::test_each_epoch_is_one_version_of_a_table_on_s3_whatever_is_killed",
        "test_ways_exactly_once.py::test_a_frame_is_evaluated_once_an_epoch_also_when_it_drains[foreach]",
        "test_ways_exactly_once.py::test_a_named_query_finds_its_decisions_where_the_session_puts_checkpoints[foreach]",
        "test_ways_exactly_once.py::test_a_windowed_aggregation_in_update_mode[RocksDBStateStoreProvider-foreach]",
        "test_ways_exactly_once.py::test_an_idle_source_leaves_nothing_open[foreach]",
        "test_ways_exactly_once.py::test_available_now_then_more_rows_after_a_restart[foreach]",
    }
)


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = {item: item.nodeid.rpartition("/")[2] for item in items if _HERE in item.path.parents}
    named: set[str] = set()
    for item, name in names.items():
        if found := _LONG & {name, name.partition("[")[0]}:
            item.add_marker(pytest.mark.long)
            named |= found
    files = {name.partition("::")[0] for name in names.values()}
    stale = [name for name in sorted(_LONG - named) if name.partition("::")[0] in files]
    if stale and not any("::" in given for given in config.args):
        raise pytest.UsageError(f"tests/acceptance/conftest.py names a test that is not there: {stale[0]}")
    items.sort(key=lambda item: _FIRST.index(item.path.name) if item.path.name in _FIRST else len(_FIRST))


@pytest.fixture(scope="session")
def classes(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of the classes that a job loads; make it where no campaign has done so yet."""
    archive = harness.archive()
    if not archive.path.exists():
        folder = tmp_path_factory.mktemp("classes")
        bench = Bench(kafka, folder)
        bench.feed([("k", "v")] * 10)
        # The broker may have started a moment ago, and know its coordinators a moment later.
        bench.args = ["--restart", "5", f"--java={archive.option(folder)}"]
        run = bench.start()
        try:
            assert run.wait() == 0, run.tail()
            archive.finish(run, folder)
        finally:
            run.kill_tree()
    return archive.path


@pytest.fixture
def bench(kafka: EmbeddedKafka, classes: Path, tmp_path: Path) -> Bench:
    return Bench(kafka, tmp_path)
