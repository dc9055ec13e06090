"""Known defects of exactly-once, each as a change of one place in the code, with the tests that must catch it.

A defect is put in by replacing ``before``, which must be there exactly once. Where the code around it changes, the
defect must follow: ``mutate`` refuses one that no longer applies. ``says`` must be in the words of a failure, so that
a test that is red for another reason does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOG, DECISION, RECOVERY, SWEEP, KAFKA, FILES = GROUPS = (
    "The decision log",
    "The decision and its commits",
    "Recovery and replay",
    "Sweeps, and older runs",
    "Kafka",
    "Files",
)

STORE: Final = "tests/unit/test_log_store.py::"
CODEC: Final = "tests/unit/test_log_codec.py::"
TABLE: Final = "tests/unit/test_protocol_table.py::"
SCENARIOS: Final = "tests/unit/test_protocol_scenarios.py::test_the_protocol_answers_as_the_scenario_says"
COORDINATOR: Final = "tests/unit/test_runtime_coordinator.py::"
LATE: Final = "tests/unit/test_runtime_late.py::"
SINKS: Final = "tests/unit/test_runtime_several_sinks.py::"
SLOT: Final = "tests/unit/test_runtime_slot.py::"
OUTCOMES: Final = "tests/unit/test_kafka_outcomes.py::"
RECORDS: Final = "tests/unit/test_kafka_record_batches.py::"
DELIVERY: Final = "tests/unit/test_kafka_delivery.py::"
BROKER: Final = "tests/integration/test_kafka_sink.py::"
FILE_SINK: Final = "tests/unit/test_files_sink.py::"
FILE_CRASHES: Final = "tests/unit/test_files_crashes.py::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One defect. ``file`` is below the package; each of ``tests`` is a pytest node that must turn red."""

    name: str
    group: str
    what: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    says: str = ""

    @property
    def needs_broker(self) -> bool:
        return any(test.startswith("tests/integration/") for test in self.tests)


DEFECTS: Final = (
    # ------------------------------------------------------------------------------------------------- log
    Defect(
        name="link-file-not-synced",
        group=LOG,
        what="A link's file gets its name before its content is on the disk",
        file="durable.py",
        before="        file.flush()\n        fsync(file.fileno(), path, fresh=True)\n",
        after="        file.flush()\n",
        tests=(
            STORE + "test_the_data_is_synced_before_its_name_appears_and_the_folder_before_the_put_returns",
        ),
        says="'hook'",
    ),
    Defect(
        name="link-folder-not-synced",
        group=LOG,
        what="The put of a link returns before its name is on the disk",
        file="log/local.py",
        before="            durable.sync(final.parent)\n",
        after="            pass\n",
        tests=(
            STORE + "test_the_data_is_synced_before_its_name_appears_and_the_folder_before_the_put_returns",
        ),
        says="'folder'",
    ),
    Defect(
        name="failed-fsync-is-survived",
        group=LOG,
        what="An fsync that failed is an error like others, so that it is asked again and believed",
        file="durable.py",
        before="        _end(path, error)\n",
        after="        raise\n",
        tests=(STORE + "test_a_sync_that_fails_ends_the_process_and_is_not_asked_again",),
        says="assert",
    ),
    Defect(
        name="found-file-only-synced",
        group=LOG,
        what="What a process left whose fsync failed is synced by the next one, which is told that all is well",
        file="log/local.py",
        before="            durable.renew(path, self._temporary(name))\n",
        after="            durable.sync(path)\n            durable.sync(path.parent)\n",
        tests=(STORE + "test_what_another_process_put_is_written_anew_and_not_only_synced",),
        says="clean in memory",
    ),
    Defect(
        name="found-link-not-synced",
        group=LOG,
        what="A link that a dead run left is acted upon before it is made durable",
        file="runtime/coordinator.py",
        before="                self._log.sync(link)\n",
        after="",
        tests=(COORDINATOR + "test_a_link_that_was_seen_but_never_synced_is_synced_before_it_is_acted_upon",),
        says="sync",
    ),
    Defect(
        name="found-receipt-not-synced",
        group=LOG,
        what="A receipt that a dead run left is relied upon before it is made durable",
        file="runtime/coordinator.py",
        before="                    self._log.put_receipt(receipt)\n",
        after="                    pass\n",
        tests=(
            COORDINATOR + "test_a_receipt_that_was_found_is_made_durable_before_the_next_epoch_is_claimed",
        ),
        says="receipt.before",
    ),
    Defect(
        name="put-overwrites",
        group=LOG,
        what="A put replaces the link that stands, as rename(2) does: two runs both believe that they decided",
        file="log/local.py",
        before="            os.link(temporary, final)\n",
        after="            os.replace(temporary, final)\n",
        tests=(STORE + "test_a_name_is_given_once_and_never_overwritten",),
        says="put_if_absent",
    ),
    Defect(
        name="lost-answer-taken-for-not-put",
        group=LOG,
        what="A put whose answer did not arrive counts as not put",
        file="log/store.py",
        before="        unknown = error\n    try:\n",
        after='        raise UnavailableError(str(error), next_step="again") from error\n    try:\n',
        tests=(STORE + "test_a_lost_answer_is_read_back_and_found_ours",),
        says="UnavailableError",
    ),
    Defect(
        name="checksum-not-compared",
        group=LOG,
        what="A damaged file of the log is believed",
        file="sealed.py",
        before="        if header.checksum != _checksum(body):\n",
        after="        if not header.checksum:\n",
        tests=(CODEC + "test_no_flipped_bit_goes_unnoticed",),
    ),
    # -------------------------------------------------------------------------------------------- decision
    Defect(
        name="commit-before-link",
        group=DECISION,
        what="Commits are sent before their link is put",
        file="runtime/coordinator.py",
        before="        try:\n            standing = self._log.put_link(link)\n",
        after="        for vote in link.pending:\n"
        "            self._sinks[vote.sink].commit(vote.handle)  # type: ignore[arg-type]\n"
        "        try:\n            standing = self._log.put_link(link)\n",
        tests=(
            COORDINATOR
            + "test_nothing_is_committed_before_the_link_is_there_and_no_receipt_before_all_is_committed",
        ),
        says="'commit'",
    ),
    Defect(
        name="eager-commit",
        group=DECISION,
        what="A sink is asked to commit as soon as all slots have voted",
        file="runtime/coordinator.py",
        before="        state, commands = protocol.step(protocol.resume(plan), protocol.VotesCollected(",
        after="        for vote in votes:\n"
        "            if vote.handle is not None and plan.mode is Mode.RUN:\n"
        "                self._sinks[vote.sink].commit(vote.handle)\n"
        "        state, commands = protocol.step(protocol.resume(plan), protocol.VotesCollected(",
        tests=(
            COORDINATOR
            + "test_nothing_is_committed_before_the_link_is_there_and_no_receipt_before_all_is_committed",
        ),
        says="'commit'",
    ),
    Defect(
        name="foreign-plans-votes",
        group=DECISION,
        what="Votes of a task of another try are accepted",
        file="protocol/deciding.py",
        before="        if (vote.plan, vote.epoch) != (plan.id, plan.epoch):\n",
        after="        if vote.epoch != plan.epoch:\n",
        tests=(TABLE + "test_a_vote_of_another_plan_or_epoch_decides_nothing",),
        says="for command in commands] == [p.Stop]",
    ),
    Defect(
        name="foreign-epochs-votes",
        group=DECISION,
        what="Votes of a task of another epoch are accepted",
        file="protocol/deciding.py",
        before="        if (vote.plan, vote.epoch) != (plan.id, plan.epoch):\n",
        after="        if vote.plan != plan.id:\n",
        tests=(TABLE + "test_a_vote_of_another_plan_or_epoch_decides_nothing",),
        says="for command in commands] == [p.Stop]",
    ),
    Defect(
        name="two-votes-for-a-slot",
        group=DECISION,
        what="Both of two twin attempts at a slot are decided",
        file="protocol/deciding.py",
        before='    return f"two votes for (sink, slot) {twice[0]}" if twice else ""\n',
        after='    return ""\n',
        tests=(SCENARIOS + "[refused]",),
        says="two votes for",
    ),
    Defect(
        name="only-the-first-sink",
        group=DECISION,
        what="Of several sinks under one decision, only the first one's handles are committed",
        file="protocol/moves.py",
        before="    return tuple(CommitHandle(vote, link, once) for vote in link.pending)\n",
        after="    first = link.pending[0].sink\n"
        "    return tuple(CommitHandle(vote, link, once) for vote in link.pending if vote.sink == first)\n",
        tests=(COORDINATOR + "test_epochs_without_faults_are_visible_exactly_once",),
    ),
    Defect(
        name="receipt-after-the-first-commit",
        group=DECISION,
        what="The receipt is put when the first commit is answered",
        file="protocol/deciding.py",
        before="    if len(outcomes) < state.expected:\n",
        after="    if not outcomes:\n",
        tests=(
            COORDINATOR
            + "test_nothing_is_committed_before_the_link_is_there_and_no_receipt_before_all_is_committed",
        ),
        says="No move from Receipting on Resolved",
    ),
    Defect(
        name="receipt-though-later",
        group=DECISION,
        what="The receipt is put though a commit was put off",
        file="protocol/moves.py",
        before="((Unknown, StopReason.IN_DOUBT), (RetryLater, StopReason.DELAYED))",
        after="((Unknown, StopReason.IN_DOUBT),)",
        tests=(COORDINATOR + "test_later_for_ever_stops_within_the_bound_and_the_next_run_completes",),
        says="DID NOT RAISE",
    ),
    Defect(
        name="unknown-taken-for-committed",
        group=DECISION,
        what="A commit whose outcome is unknown counts as done",
        file="protocol/moves.py",
        before="((Unknown, StopReason.IN_DOUBT), (RetryLater, StopReason.DELAYED))",
        after="((RetryLater, StopReason.DELAYED),)",
        tests=(COORDINATOR + "test_what_a_sink_lets_slip_is_unknown_and_aborts_nothing",),
        says="DID NOT RAISE",
    ),
    Defect(
        name="unknown-taken-for-lost",
        group=DECISION,
        what="A commit whose outcome is unknown counts as failed, and its rows are written again",
        file="runtime/commits.py",
        before='            return Unknown(f"{type(error).__name__}: {error}")',
        after="            from onceonly.model import Lost\n\n"
        '            return Lost(f"{type(error).__name__}: {error}")',
        tests=(COORDINATOR + "test_what_a_sink_lets_slip_is_unknown_and_aborts_nothing",),
        says="TransactionLostError",
    ),
    Defect(
        name="at-most-once-tried-twice",
        group=DECISION,
        what="At most once, a commit is tried again",
        file="runtime/commits.py",
        before="                if isinstance(outcomes[place], RetryLater) and not command.once\n",
        after="                if isinstance(outcomes[place], RetryLater)\n",
        tests=(COORDINATOR + "test_at_most_once_asks_once",),
    ),
    Defect(
        name="late-epoch-decided",
        group=DECISION,
        what="An epoch that took longer than its limit is decided all the same",
        file="protocol/deciding.py",
        before="    if limit_s is not None and event.age_s > limit_s:\n",
        after="    if limit_s is not None and event.age_s < 0:\n",
        tests=(SCENARIOS + "[too_late]",),
        says="Stop late: ",
    ),
    Defect(
        name="expiring-epoch-decided",
        group=DECISION,
        what="An epoch is decided whose transactions the target is about to drop",
        file="protocol/deciding.py",
        before="    if event.expiring:\n",
        after="    if event.age_s < 0:\n",
        tests=(SCENARIOS + "[too_late]",),
        says="Stop late: ",
    ),
    Defect(
        name="exchanged-target-decided",
        group=DECISION,
        what="An epoch is decided though the target that it was prepared in is another one by now",
        file="protocol/deciding.py",
        before="        if changed:\n",
        after="        if changed and event.age_s < 0:\n",
        tests=(
            LATE
            + "test_a_target_that_is_exchanged_while_an_epoch_is_written_gives_the_epoch_up_and_gets_it_whole",
        ),
        says="DID NOT RAISE",
    ),
    Defect(
        name="abort-after-failed-commit",
        group=DECISION,
        what="Spark's abort after a failed commit is taken literally: decided handles are aborted",
        file="runtime/coordinator.py",
        before="        state, commands = protocol.abandon(plan, run=run, votes=tuple(votes), reason=reason)\n",
        after="        for vote in votes:\n"
        "            self._abort(vote)\n"
        "        state, commands = protocol.abandon(plan, run=run, votes=tuple(votes), reason=reason)\n",
        tests=(COORDINATOR + "test_what_a_sink_lets_slip_is_unknown_and_aborts_nothing",),
        says="'abort'",
    ),
    Defect(
        name="in-doubt-taken-for-taken",
        group=DECISION,
        what="A put in doubt is taken for a number that another run has",
        file="runtime/coordinator.py",
        before="            return protocol.LinkInDoubt(error.what)\n",
        after="            return protocol.LinkTaken(link)\n",
        tests=(COORDINATOR + "test_a_put_whose_answer_is_in_doubt_commits_and_aborts_nothing",),
        says="SupersededError",
    ),
    Defect(
        name="last-rows-forgotten",
        group=DECISION,
        what="Batches are put together, and the last ones, which are too few for a larger one, are forgotten",
        file="arrow.py",
        before="    if some:\n        yield _one(some)\n",
        after="",
        tests=("tests/unit/test_arrow.py::test_every_row_comes_once_and_in_order",),
    ),
    # -------------------------------------------------------------------------------------------- recovery
    Defect(
        name="drain-writes-again",
        group=RECOVERY,
        what="The replay of a decided epoch writes its rows again",
        file="runtime/slot.py",
        before="    if plan.mode is Mode.DRAIN or (plan.mode is Mode.TENTATIVE",
        after="    if (plan.mode is Mode.TENTATIVE",
        tests=(SLOT + "test_a_drain_consumes_and_counts_but_writes_nothing",),
    ),
    Defect(
        name="other-rows-not-noticed",
        group=RECOVERY,
        what="A replay that gives other rows than were decided is not reported",
        file="protocol/deciding.py",
        before="    return (Report(ReportKind.REPLAY_DIFFERS, message),) if differs else ()\n",
        after="    return ()\n",
        tests=(COORDINATOR + "test_a_replay_with_other_rows_is_reported_and_the_output_stands",),
        says="replayed with other rows",
    ),
    Defect(
        name="other-offsets-not-noticed",
        group=RECOVERY,
        what="A replay from other source offsets than were decided goes on",
        file="protocol/planning.py",
        before="    if last.barrier and context.barrier and last.barrier != context.barrier:\n",
        after="    if last.barrier and not context.barrier:\n",
        tests=(COORDINATOR + "test_other_source_offsets_than_were_decided_stop_the_run",),
        says="DID NOT RAISE",
    ),
    Defect(
        name="other-target-not-noticed",
        group=RECOVERY,
        what="Pending handles are sent to another target than they were prepared in",
        file="protocol/planning.py",
        before="    if last.pending and _is_elsewhere(last.settings, context.settings):\n",
        after="    if not last.settings:\n",
        tests=(COORDINATOR + "test_pending_handles_are_not_sent_to_another_target",),
    ),
    Defect(
        name="all-written-again",
        group=RECOVERY,
        what="Of a partly lost epoch every vote of the replay is committed, not only what was lost",
        file="protocol/deciding.py",
        before="        return _repair(plan, event.votes)\n",
        after="        return _decide(plan, event.votes)\n",
        tests=(COORDINATOR + "test_a_lost_handle_stops_the_run_and_the_next_one_writes_only_its_rows_again",),
        says="visible",
    ),
    Defect(
        name="unmatched-committed",
        group=RECOVERY,
        what="Of a partly lost epoch votes that match nothing lost are committed, too",
        file="protocol/deciding.py",
        before="    return _decide(plan, matched, rest)\n",
        after="    return _decide(plan, (*matched, *rest))\n",
        tests=(COORDINATOR + "test_a_lost_handle_stops_the_run_and_the_next_one_writes_only_its_rows_again",),
        says="visible",
    ),
    Defect(
        name="mismatch-committed",
        group=RECOVERY,
        what="Of a partly lost epoch the replay is committed though it does not hold what was lost",
        file="protocol/deciding.py",
        before="    if missing or differs:\n",
        after="    if missing and differs and not votes:\n",
        tests=(
            COORDINATOR
            + "test_rows_that_cannot_be_matched_with_what_was_lost_stop_the_run_and_leave_nothing_open",
        ),
        says="DID NOT RAISE",
    ),
    Defect(
        name="changed-rest-committed",
        group=RECOVERY,
        what="What was lost is written again though the rest of its epoch has changed: a mixture of two replays",
        file="protocol/deciding.py",
        before="    if missing or differs:\n",
        after="    if missing:\n",
        tests=(TABLE + "test_a_repair_that_finds_what_was_lost_among_other_rows_is_no_repair",),
    ),
    Defect(
        name="carried-forgotten",
        group=RECOVERY,
        what="The decision that repairs a partly lost epoch forgets what is committed already",
        file="protocol/deciding.py",
        before="votes=votes, carried=plan.carried",
        after="votes=votes, carried=()",
        tests=(COORDINATOR + "test_a_lost_handle_stops_the_run_and_the_next_one_writes_only_its_rows_again",),
        says="carried",
    ),
    Defect(
        name="part-lost-run-as-new",
        group=RECOVERY,
        what="An epoch of which a part is committed is run as new",
        file="protocol/planning.py",
        before="    if not carried:\n",
        after="    if lost:\n",
        tests=(COORDINATOR + "test_a_lost_handle_stops_the_run_and_the_next_one_writes_only_its_rows_again",),
    ),
    Defect(
        name="not-completed-in-recovery",
        group=RECOVERY,
        what="A sink is not told that its epoch is complete when a recovery has finished it",
        file="runtime/coordinator.py",
        before="                self._complete(link)\n",
        after="                if receipt.plan == link.plan:\n                    self._complete(link)\n",
        tests=(SINKS + "test_a_crash_before_the_receipt_tells_the_sink_again",),
        says="seen",
    ),
    Defect(
        name="completed-before-its-commits",
        group=RECOVERY,
        what="A manifest says that an epoch is complete before all of its files are in place",
        file="runtime/coordinator.py",
        before="        found = list(self._commits.run(commands, recovery=recovery))\n",
        after="        self._complete(commands[0].link)\n"
        "        found = list(self._commits.run(commands, recovery=recovery))\n",
        tests=(
            SINKS + "test_a_sink_is_told_of_each_epoch_when_all_of_it_is_committed_and_before_the_receipt",
        ),
        says="committed",
    ),
    Defect(
        name="gap-not-noticed",
        group=RECOVERY,
        what="Spark went on from an epoch that was decided and never finished, and nobody minds",
        file="protocol/planning.py",
        before="    if event.previous_receipt is None:\n",
        after="    if event.previous_receipt is None and event.links:\n",
        tests=(SCENARIOS,),
        says="but has no receipt",
    ),
    # --------------------------------------------------------------------------------------------- sweeps
    Defect(
        name="no-abort-link-before-the-sweep",
        group=SWEEP,
        what="A new run sweeps without the ABORT link that voids what it sweeps",
        file="protocol/planning.py",
        before="run=context.run, reason=reason)\n    return s.Claiming(context, link), (PutLink(link),)\n",
        after="run=context.run, reason=reason)\n    return s.SweepingStart(context, link), (sweep(link),)\n",
        tests=(SCENARIOS + "[new_epoch]",),
        says="self.put is not None",
    ),
    Defect(
        name="no-abort-link-on-giving-up",
        group=SWEEP,
        what="A failed try is swept without the ABORT link that keeps its run from deciding it",
        file="protocol/deciding.py",
        before="    return s.Voiding(link), (PutLink(link),)\n",
        after="    return s.SweepingEnd(link), (sweep(link),)\n",
        tests=(
            SCENARIOS + "[giving_up]",
            COORDINATOR + "test_a_put_whose_answer_is_in_doubt_commits_and_aborts_nothing[False]",
        ),
    ),
    Defect(
        name="voted-handle-swept",
        group=SWEEP,
        what="A sweep aborts handles that its own link names",
        file="runtime/sweeper.py",
        before=" for each in leftovers if each.transaction not in keep]",
        after=" for each in leftovers]",
        tests=(COORDINATOR + "test_at_most_once_asks_once",),
        says="the sweep keeps what its own link names",
    ),
    Defect(
        name="nothing-kept",
        group=SWEEP,
        what="The protocol asks for a sweep that spares nothing",
        file="protocol/moves.py",
        before="Sweep(link, frozenset(vote.handle.transaction for vote in link.votes if vote.handle is not None))",
        after="Sweep(link, frozenset())",
        tests=(COORDINATOR + "test_at_most_once_asks_once",),
        says="the sweep keeps what its own link names",
    ),
    Defect(
        name="sweep-without-a-look",
        group=SWEEP,
        what="A sweep does not look whether its link is still the last after it has listed",
        file="runtime/sweeper.py",
        before="            if not chain or chain[-1] != link or self._log.chain(link.epoch + 1):\n",
        after="            if not chain:\n",
        tests=(
            COORDINATOR + "test_a_sweep_lists_then_looks_and_then_fences_nothing_if_a_newer_run_has_claimed",
            COORDINATOR + "test_a_claim_that_was_superseded_while_it_listed_fences_nothing",
        ),
    ),
    Defect(
        name="sweep-overlooks-the-next-epoch",
        group=SWEEP,
        what="A sweep looks at its own epoch only, and not whether a newer run is in the next one",
        file="runtime/sweeper.py",
        before=" or self._log.chain(link.epoch + 1):\n",
        after=":\n",
        tests=(
            COORDINATOR + "test_a_sweep_lists_then_looks_and_then_fences_nothing_if_a_newer_run_has_claimed",
        ),
    ),
    Defect(
        name="sweep-looks-too-early",
        group=SWEEP,
        what="A sweep looks first and lists then: what a newer run begins in between is aborted",
        file="runtime/sweeper.py",
        before='        name = ""\n        try:\n',
        after='        name = ""\n'
        "        seen = {at: self._log.chain(at) for at in (link.epoch, link.epoch + 1)}\n"
        "        self._log = type('Old', (), {'chain': lambda _, at: seen[at], 'query': self._log.query})()\n"
        "        try:\n",
        tests=(COORDINATOR + "test_a_claim_that_was_superseded_while_it_listed_fences_nothing",),
        says="DID NOT RAISE",
    ),
    Defect(
        name="tasks-run-beside-a-failed-sweep",
        group=SWEEP,
        what="Tasks start though what earlier runs left open could not be listed",
        file="protocol/planning.py",
        before="    return stop(StopReason.DELAYED, event.reason)\n",
        after="    return _start(_state.context, index=_state.link.index + 1)  # type: ignore[union-attr]\n",
        tests=(COORDINATOR + "test_no_task_runs_while_leftovers_cannot_be_listed",),
        says="assert not job.store().transactions",
    ),
    Defect(
        name="taken-number-ignored",
        group=SWEEP,
        what="An older run that finds its link's number taken goes on and commits",
        file="runtime/coordinator.py",
        before="        if standing != link:\n",
        after="        if standing is None:\n",
        tests=(COORDINATOR + "test_an_older_run_that_wakes_up_with_its_votes_changes_nothing",),
        says="TransactionLostError",
    ),
    Defect(
        name="older-run-claims-back",
        group=SWEEP,
        what="An older run takes an epoch back that a newer one has claimed, and voids its votes",
        file="protocol/planning.py",
        before="    if goes_on and not _is_own(last, context):\n",
        after="    if goes_on and not last.plan:\n",
        tests=(
            COORDINATOR + "test_an_older_run_that_goes_on_with_the_next_epoch_does_not_claim_it_back",
            COORDINATOR + "test_a_claim_in_advance_is_not_claimed_back_from_a_newer_run",
        ),
        says="DID NOT RAISE",
    ),
    Defect(
        name="older-checkpoint-sweeps",
        group=SWEEP,
        what="A sweep under an older checkpoint aborts what belongs to a newer epoch",
        file="runtime/sweeper.py",
        before="(belongs is not None and belongs > link.epoch)",
        after="(belongs is not None and belongs < 0)",
        tests=(SINKS + "test_an_older_checkpoint_over_a_newer_world_stops_before_anything_is_swept",),
        says="a.newer",
    ),
    # ---------------------------------------------------------------------------------------------- Kafka
    Defect(
        name="second-transaction-on-a-producer",
        group=KAFKA,
        what="A producer carries a second transaction on one producer id and epoch",
        file="sinks/kafka/producers.py",
        before="            spare, self._spare = self._spare, None\n        if spare",
        after="            spare = self._spare\n        if spare",
        tests=(OUTCOMES + "test_every_transaction_starts_on_a_producer_that_has_carried_none",),
    ),
    Defect(
        name="initialised-before-resolved",
        group=KAFKA,
        what="A transactional id is initialised again while a vote of the same epoch names it",
        file="sinks/kafka/producers.py",
        before="                if used < epoch:\n",
        after="                if used <= epoch:\n",
        tests=(OUTCOMES + "test_an_id_is_initialised_again_only_in_a_later_epoch",),
    ),
    Defect(
        name="fenced-before-its-commit",
        group=KAFKA,
        what="A recovery fences an id before it commits what is prepared on it",
        file="sinks/kafka/committer.py",
        before="        answer = admin.to_coordinator(TRANSACTION, prepared.transactional_id, _end(prepared))\n",
        after="        fence(admin, prepared.transactional_id, _FENCE_TIMEOUT_MS)\n"
        "        answer = admin.to_coordinator(TRANSACTION, prepared.transactional_id, _end(prepared))\n",
        tests=(OUTCOMES + "test_what_the_coordinator_took_is_committed_and_nothing_else_is_asked",),
        says="fence",
    ),
    Defect(
        name="absent-marker-taken-for-lost",
        group=KAFKA,
        what="A marker that is not there (group deleted, expired) is taken for a proof of loss",
        file="sinks/kafka/committer.py",
        before='    shown = "no marker (group',
        after='    if found is None:\n        return Lost("no marker")\n    shown = "no marker (group',
        tests=(OUTCOMES + "test_an_absent_or_unexpected_marker_is_unknown_and_nothing_is_fenced",),
        says="Lost",
    ),
    Defect(
        name="strange-marker-taken-for-lost",
        group=KAFKA,
        what="A marker that is neither its own nor its predecessor is taken for a proof of loss",
        file="sinks/kafka/committer.py",
        before="    if found == prepared.predecessor:\n        # Not committed so far.",
        after="    if found not in {None, prepared.token, prepared.predecessor}:\n"
        '        return Lost(f"marker {found}")\n'
        "    if found == prepared.predecessor:\n        # Not committed so far.",
        tests=(OUTCOMES + "test_an_absent_or_unexpected_marker_is_unknown_and_nothing_is_fenced",),
        says="Lost",
    ),
    Defect(
        name="lost-without-a-fence",
        group=KAFKA,
        what="A transaction is said to be lost while a paused driver could still commit it",
        file="sinks/kafka/committer.py",
        before="            fence(admin, prepared.transactional_id, _FENCE_TIMEOUT_MS)\n        except",
        after="            pass\n        except",
        tests=(OUTCOMES + "test_lost_needs_the_predecessor_a_fence_and_the_predecessor_again",),
        says="fence",
    ),
    Defect(
        name="lost-without-a-second-look",
        group=KAFKA,
        what="What was committed between the look at the marker and the fence is said to be lost",
        file="sinks/kafka/committer.py",
        before='            return RetryLater(f"{name}: {error.what}")\n'
        "        found = _stable(admin, prepared)\n",
        after='            return RetryLater(f"{name}: {error.what}")\n',
        tests=(OUTCOMES + "test_what_was_committed_between_the_look_and_the_fence_is_not_lost",),
        says="Lost",
    ),
    Defect(
        name="unstable-read",
        group=KAFKA,
        what="The marker is read while a transaction on it has not ended",
        file="sinks/kafka/committer.py",
        before="        return marker.read(admin, group, topic, stable=True, seconds=_STABLE_S)\n",
        after="        return marker.read(admin, group, topic, stable=False, seconds=_STABLE_S)\n",
        tests=(OUTCOMES + "test_a_marker_on_which_something_is_pending_proves_nothing",),
        says="Lost",
    ),
    Defect(
        name="no-answer-taken-for-committed",
        group=KAFKA,
        what="A commit request without an answer counts as done",
        file="sinks/kafka/committer.py",
        before='        return RetryLater(f"{prepared.transactional_id}: {answer}")\n',
        after="        return Committed()\n",
        tests=(OUTCOMES + "test_no_answer_and_not_yet_are_asked_again_and_prove_nothing[None]",),
    ),
    Defect(
        name="still-ending-taken-for-committed",
        group=KAFKA,
        what="CONCURRENT_TRANSACTIONS, the answer while the former transaction ends, counts as done",
        file="sinks/kafka/committer.py",
        before="    if code == NONE:\n        return Committed()\n",
        after="    if code in {NONE, 51}:\n        return Committed()\n",
        tests=(OUTCOMES + "test_no_answer_and_not_yet_are_asked_again_and_prove_nothing[51]",),
    ),
    Defect(
        name="computed-seed",
        group=KAFKA,
        what="A group without a marker gets a computed seed: after a deletion it proves the loss of what was committed",
        file="sinks/kafka/marker.py",
        before='    seed = f"seed:{uuid.uuid4().hex}"\n',
        after='    seed = f"seed:{group}"\n',
        tests=(OUTCOMES + "test_a_group_without_a_marker_gets_a_seed_that_no_earlier_handle_can_name",),
    ),
    Defect(
        name="another-cluster",
        group=KAFKA,
        what="A handle is resolved in whatever cluster answers at the address",
        file="sinks/kafka/committer.py",
        before="    if connected != cluster_id:\n",
        after="    if not connected:\n",
        tests=(OUTCOMES + "test_another_cluster_is_sent_nothing",),
        says="DID NOT RAISE",
    ),
    Defect(
        name="marker-outside-its-transaction",
        group=KAFKA,
        what="The marker is not in the transaction that it is to prove",
        file="sinks/kafka/writer.py",
        before="        self._marking = self.producer.begin_offset(\n",
        after="        self._marking = (lambda *_offset: self._marking)(\n",
        tests=(
            BROKER + "test_committed_and_then_fenced_is_known_by_the_marker",
            BROKER + "test_the_marker_of_a_pending_transaction_is_not_shown",
        ),
    ),
    Defect(
        name="marker-of-another-attempt",
        group=KAFKA,
        what="An attempt takes for its predecessor what was looked up for an earlier one: its marker proves nothing",
        file="sinks/kafka/producers.py",
        before="        if expected is None or expected.context is not context:\n",
        after="        if expected is None:\n",
        tests=(OUTCOMES + "test_what_was_looked_up_is_given_to_its_attempt_once_and_to_no_other",),
    ),
    Defect(
        name="unknown-taken-for-delivered",
        group=KAFKA,
        what="Rows of which nothing is known, as their answer is missing, are taken for delivered",
        file="sinks/kafka/delivery.py",
        before="            for lane in flight.lanes:\n                self._put_off(lane)\n"
        "            return\n        found",
        after="            for lane in flight.lanes:\n                self.bytes -= lane.waiting.popleft().size\n"
        "            return\n        found",
        tests=(DELIVERY + "test_what_befalls_one_request_costs_no_row",),
    ),
    Defect(
        name="sent-again-as-new",
        group=KAFKA,
        what="Rows that are sent again get a new sequence number, so a broker that has them takes them twice",
        file="sinks/kafka/delivery.py",
        before="        lane.not_before = time.monotonic() + lane.pause_s\n",
        after="        lane.not_before = time.monotonic() + lane.pause_s\n"
        "        lane.sequence = record_batches.next_sequence(lane.sequence, lane.waiting[0].count)\n",
        tests=(DELIVERY + "test_what_befalls_one_request_costs_no_row",),
    ),
    Defect(
        name="compiled-null-is-empty",
        group=KAFKA,
        what="A compiled loop writes a value that is null as an empty one, so that it is no tombstone",
        file="sinks/kafka/record_loops.py",
        before="        key, value, header = key_lengths[row], value_lengths[row], ",
        after="        key, value, header = key_lengths[row], max(value_lengths[row], 0), ",
        tests=(RECORDS + "test_what_is_written_is_what_is_read",),
    ),
    Defect(
        name="compiled-on-trust",
        group=KAFKA,
        what="A compiled loop is used as the cache gives it, whatever it does",
        file="compiled.py",
        before="    if found != expected:\n",
        after="    if found is None:\n",
        tests=("tests/unit/test_compiled.py::test_a_loop_that_does_not_do_what_it_must_is_not_used",),
    ),
    Defect(
        name="compiled-tail-not-hashed",
        group=RECOVERY,
        what="A compiled loop leaves the last bytes of a value out of its row's checksum",
        file="runtime/checksum_loops.py",
        before="        if length & 7:\n",
        after="        if length & 8:\n",
        tests=("tests/unit/test_runtime_checksum.py::test_values_are_hashed_by_murmurhash64a",),
    ),
    Defect(
        name="compiled-long-not-chained",
        group=RECOVERY,
        what="A compiled loop drops a bit of the hash that a long value is chained to",
        file="runtime/xxh3_loops.py",
        before="memory + starts[row], lengths[row], seeds[row])",
        after="memory + starts[row], lengths[row], seeds[row] >> np.uint64(1) << np.uint64(1))",
        tests=("tests/unit/test_runtime_checksum.py::test_short_long_and_null_values_are_hashed_row_by_row",),
    ),
    Defect(
        name="rows-before-their-partition",
        group=KAFKA,
        what="Rows are sent before their partition is in the transaction",
        file="sinks/kafka/direct_producer.py",
        before="            self._settle(end)\n            delivery.move()\n",
        after="            delivery.move()\n",
        tests=(DELIVERY + "test_rows_wait_until_their_partition_is_in_the_transaction_also_a_later_one",),
        says="before their partition",
    ),
    Defect(
        name="rows-before-their-partition-in-a-full-buffer",
        group=KAFKA,
        what="Rows that fill a batch are sent before their partition is in the transaction",
        file="sinks/kafka/direct_producer.py",
        before="        self._settle(end)\n        delivery.move()\n        before",
        after="        delivery.move()\n        before",
        tests=(DELIVERY + "test_rows_wait_until_their_partition_is_in_the_transaction_also_a_later_one",),
        says="before their partition",
    ),
    Defect(
        name="former-topic-remembered",
        group=KAFKA,
        what="A topic that was made anew is remembered as it was, and every attempt fails by it",
        file="sinks/kafka/direct_producer.py",
        before="            for topic, _ in self._batches.lanes:\n                self._topics.forget(topic)\n",
        after="",
        tests=(
            DELIVERY + "test_what_was_known_of_a_topic_outlives_no_attempt_whose_partitions_are_not_there",
        ),
        says="AddPartitionsToTxn",
    ),
    Defect(
        name="commit-that-aborts",
        group=KAFKA,
        what="The request that commits asks for an abort, and its answer is taken for a commit",
        file="sinks/kafka/end_txn.py",
        before="_COMMIT = True\n",
        after="_COMMIT = False\n",
        tests=("tests/unit/test_kafka_end_txn.py::test_a_commit_is_what_kafka_python_makes_of_it",),
    ),
    Defect(
        name="marker-left-open",
        group=KAFKA,
        what="An attempt whose rows failed waits for ever for what became of its marker",
        file="sinks/kafka/direct_producer.py",
        before="            if self._offset is not None and not self._offset.done.done():\n",
        after="            if self._offset is None:\n",
        tests=(DELIVERY + "test_a_marker_beside_rows_that_fail_is_not_waited_for",),
    ),
    Defect(
        name="marker-before-its-group",
        group=KAFKA,
        what="A marker is sent before its group is in the transaction, so no commit and no abort resolves it",
        file="sinks/kafka/transaction.py",
        before="        self._finish(adding, deadline)\n",
        after="",
        tests=(DELIVERY + "test_an_offset_waits_until_its_group_is_in_the_transaction",),
        says="before its group",
    ),
    Defect(
        name="foreign-transactions-swept",
        group=KAFKA,
        what="A sweep takes transactions of other programs whose ids look like ours",
        file="sinks/kafka/committer.py",
        before='            and len(state.transactional_id.removeprefix(prefix).split(".")) == _ID_PARTS\n',
        after="",
        tests=(BROKER + "test_the_sweep_leaves_foreign_transactions_alone",),
    ),
    # ---------------------------------------------------------------------------------------------- files
    Defect(
        name="move-overwrites",
        group=FILES,
        what="A file is moved over whatever has its final name",
        file="sinks/files/store.py",
        before="        try:\n            os.link(temporary, final)\n        except FileExistsError:\n"
        "            return False\n"
        "        except OSError as error:\n            if error.errno != errno.EXDEV",
        after="        try:\n            os.replace(temporary, final)\n        except FileExistsError:\n"
        "            return False\n"
        "        except OSError as error:\n            if error.errno != errno.EXDEV",
        tests=(FILE_SINK + "test_a_name_that_somebody_takes_while_it_is_published_stays_theirs",),
        says="somebody",
    ),
    Defect(
        name="both-names-missing-taken-for-lost",
        group=FILES,
        what="A file that has neither of its names is said to be lost, and written again",
        file="sinks/files/committer.py",
        before='        return Unknown(f"transaction {handle.transaction}: {unsure}")\n',
        after="        from onceonly.model import Lost\n\n        return Lost(str(unsure))\n",
        tests=(FILE_SINK + "test_both_names_missing_is_unknown_not_lost",),
        says="Lost",
    ),
    Defect(
        name="file-not-synced-before-the-vote",
        group=FILES,
        what="A slot votes before the content of its files is on the disk",
        file="sinks/files/store.py",
        before="        file.flush()\n        durable.fsync(file.fileno(), Path(file.name), fresh=True)\n"
        "        file.close()\n",
        after="        file.flush()\n        file.close()\n",
        tests=(FILE_SINK + "test_a_vote_is_given_only_when_every_file_is_on_the_disk",),
    ),
    Defect(
        name="names-not-synced-before-the-vote",
        group=FILES,
        what="A slot votes before the temporary names of its files are on the disk",
        file="sinks/files/writer.py",
        before="            for folder in sorted(self._folders, reverse=True):\n"
        "                self.store.sync_folder(folder)\n",
        after="",
        tests=(FILE_CRASHES + "test_what_is_settled_outlives_a_power_loss_at_any_step",),
    ),
    Defect(
        name="manifest-before-the-names",
        group=FILES,
        what="A manifest lists files whose final names are not on the disk",
        file="sinks/files/committer.py",
        before="            store.sync_folder(folder)\n",
        after="            pass\n",
        tests=(FILE_CRASHES + "test_what_is_settled_outlives_a_power_loss_at_any_step",),
    ),
    Defect(
        name="content-not-compared",
        group=FILES,
        what="A final name that has other content than was prepared counts as published",
        file="sinks/files/committer.py",
        before="        if size == file.bytes and store.checksum(final) == file.checksum:\n"
        "            return True\n",
        after="        return True\n",
        tests=(FILE_SINK + "test_commit_never_overwrites_a_file_of_anyone",),
    ),
    Defect(
        name="swept-attempt-votes",
        group=FILES,
        what="An attempt whose files were swept votes for them all the same",
        file="sinks/files/writer.py",
        before="        if size is None:\n"
        '            raise FileNotFoundError(errno.ENOENT, "it was removed", str(place))\n',
        after="        if size is None:\n            return\n",
        tests=(FILE_SINK + "test_a_file_that_is_gone_when_its_slot_votes_is_no_vote",),
        says="DID NOT RAISE",
    ),
    Defect(
        name="sweep-drops-what-is-not-durable",
        group=FILES,
        what="A sweep drops the temporary name of a file whose final name is not on the disk",
        file="sinks/files/leftovers.py",
        before="                    store.sync_folder(final_folder)\n",
        after="                    pass\n",
        tests=(FILE_SINK + "test_a_sweep_syncs_what_another_process_has_published",),
    ),
)
